"""An SGLang server's memory: what would end its process is never sent, and what it holds is asked, not assumed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from lifecycle.engines import BASE_ONLY
from lifecycle.errors import ConfigError, EngineError, EngineRefused, EngineUnanswered
from states import FROZEN_BASE
from tests.engines.sglang_host import Fault, Heard, SglangHost, sglang
from tests.engines.sglang_world import PROMPT, adapter, answer, engine_at, push, right, started

RELEASE, RESUME = "/release_memory_occupation", "/resume_memory_occupation"


@pytest.fixture
def host() -> Iterator[SglangHost]:
    """A server with a host mirror of its weights."""
    with sglang(started()) as made:
        yield made


@pytest.fixture
def discarding() -> Iterator[SglangHost]:
    """A server that throws its weights away when it releases them."""
    with sglang(started(enable_weights_cpu_backup=False)) as made:
        yield made


def test_a_resume_of_a_tag_that_was_not_released_never_reaches_the_server(host: SglangHost) -> None:
    """FB-08: resume = requested and released; there it is a KeyError that ends the process."""
    engine = engine_at(host)
    engine.resume(["weights"])
    engine.release(["kv_cache"])
    engine.resume(["weights", "kv_cache", "cuda_graph"])
    engine.resume(["kv_cache"])

    assert host.bodies(RESUME) == [{"tags": ["kv_cache"]}]
    assert host.process.dead == ""


def test_both_tags_come_back_with_the_weights_first(host: SglangHost) -> None:
    """FB-08.4: whatever order they are named in."""
    engine = engine_at(host)
    engine.release(["kv_cache", "weights"])
    engine.resume(["kv_cache", "weights"])

    assert host.bodies(RESUME) == [{"tags": ["weights", "kv_cache"]}]


def test_a_tag_is_released_once_however_often_it_is_asked_for(host: SglangHost) -> None:
    """FB-13: a second pause ends the process in the memory saver."""
    engine = engine_at(host)
    engine.release(["weights"])
    engine.release(["weights", "kv_cache"])
    engine.release(["weights", "kv_cache"])

    assert [body["tags"] for body in host.bodies(RELEASE)] == [["weights"], ["kv_cache"]]
    assert engine.report().released == {"weights", "kv_cache"}
    assert host.process.dead == ""


def test_the_server_does_end_at_what_is_never_sent(host: SglangHost) -> None:
    """Otherwise the tests above would show nothing."""
    host.answer(_heard(RELEASE, ["weights"]), None)
    host.answer(_heard(RELEASE, ["weights"]), None)

    assert "paused already" in host.process.dead


def test_a_release_waits_for_requests_that_run(host: SglangHost) -> None:
    """FB-15: admission ends, what runs is finished, then memory goes; there, a release under load ends the process."""
    engine = engine_at(host, drain_s=5.0)
    engine.report()
    host.process.busy.set()
    answers: list[tuple[int, ...]] = []
    asking = threading.Thread(target=lambda: answers.append(answer(engine, BASE_ONLY)))
    asking.start()
    _wait_until(lambda: host.process.running)
    threading.Timer(0.1, lambda: _end_of_work(host)).start()
    engine.release(["kv_cache"])
    asking.join()

    assert answers == [right(0)]
    assert host.asked() == ["/generate", "/pause_generation", RELEASE]


def test_a_release_under_load_that_does_not_end_is_refused_with_the_count(host: SglangHost) -> None:
    """FB-15.1: bounded; the server goes on as before and the requests are answered."""
    engine = engine_at(host, drain_s=0.05)
    engine.report()
    host.process.busy.set()
    answers: list[tuple[int, ...]] = []
    asking = threading.Thread(target=lambda: answers.append(answer(engine, BASE_ONLY)))
    asking.start()
    _wait_until(lambda: host.process.running)
    with pytest.raises(EngineRefused, match="1 request"):
        engine.release(["kv_cache"])
    _end_of_work(host)
    asking.join()

    assert answers == [right(0)]
    assert host.asked(RELEASE, "/pause_generation") == []
    assert engine.report().resident == {"weights", "kv_cache", "cuda_graph"}


def test_a_request_to_a_server_that_is_paused_or_released_is_refused_at_once(host: SglangHost) -> None:
    """FB-15.2: there it would wait until somebody resumes it."""
    engine = engine_at(host)
    engine.release(["kv_cache"])
    began = time.monotonic()
    with pytest.raises(EngineError, match="paused"):
        engine.generate([PROMPT], BASE_ONLY, max_new_tokens=1)

    assert time.monotonic() - began < 0.5
    assert "/generate" not in host.asked()


def test_everything_resident_again_means_open_again(host: SglangHost) -> None:
    """And not before."""
    engine = engine_at(host)
    engine.release(["weights", "kv_cache"])
    engine.resume(["weights"])
    opened_early = "/continue_generation" in host.asked()
    engine.resume(["kv_cache"])

    assert not opened_early
    assert answer(engine, BASE_ONLY) == right(0)


def test_a_user_who_paused_it_opens_it_again_himself(host: SglangHost) -> None:
    """Neither a resume nor a commit does."""
    engine = engine_at(host)
    engine.pause()
    engine.release(["kv_cache"])
    engine.resume(["kv_cache"])
    push(engine, adapter("A", 1))
    still = "/continue_generation" not in host.asked()
    engine.unpause()

    assert still
    assert answer(engine, "A") == right(0, adapter("A", 1))


@pytest.mark.parametrize("path", [RELEASE, RESUME])
@pytest.mark.parametrize("fault", [Fault(502, done=True), Fault(502), Fault("drop", done=True), Fault("drop")])
def test_a_move_that_was_not_acknowledged_is_not_tried_again(host: SglangHost, path: str, fault: Fault) -> None:
    """FB-15.3, as far as SGLang allows: it cannot say whether it moved, and a second try may end it. It is fenced."""
    engine = engine_at(host)
    if path == RESUME:
        engine.release(["kv_cache"])
    host.faults[path] = [fault]
    move = engine.resume if path == RESUME else engine.release
    with pytest.raises(EngineUnanswered):
        move(["kv_cache"])
    report = engine.report()
    with pytest.raises(EngineError, match="kv_cache"):
        move(["kv_cache"])

    assert "kv_cache" in report.unknown
    assert report.versions == {}
    assert host.asked(path) == [path]
    assert host.process.dead == ""


def test_after_a_start_anew_everything_is_known_again(host: SglangHost) -> None:
    """A fresh process has released nothing: the same resume that would end it is settled."""
    engine = engine_at(host)
    engine.release(["kv_cache"])
    host.faults[RESUME] = [Fault("drop")]
    with pytest.raises(EngineUnanswered):
        engine.resume(["kv_cache"])
    host.restart()
    engine.resume(["kv_cache"])

    assert engine.report().unknown == ""
    assert host.asked(RESUME) == [RESUME]
    assert answer(engine, BASE_ONLY) == right(0)


def test_a_resume_does_not_reach_a_server_that_was_started_anew_meanwhile(host: SglangHost) -> None:
    """FB-08 with FB-51: nothing is released there, and it would end."""
    engine = engine_at(host)
    engine.release(["weights", "kv_cache"])
    host.restart()
    engine.resume(["weights", "kv_cache"])

    assert RESUME not in host.asked()
    assert host.process.dead == ""


def test_a_new_client_learns_from_the_server_what_is_released(host: SglangHost) -> None:
    """The trainer was started anew, the server not: the books of its tags stand in its weight version."""
    engine_at(host).release(["weights", "kv_cache"])
    engine = engine_at(host)
    report = engine.report()
    engine.resume(["weights", "kv_cache"])

    assert report.released == {"weights", "kv_cache"}
    assert report.versions == {}
    assert host.process.dead == ""


def test_a_new_client_learns_that_everything_has_come_back(host: SglangHost) -> None:
    """What was written down before a move is replaced after it."""
    other = engine_at(host)
    other.release(["weights", "kv_cache"])
    other.resume(["weights", "kv_cache"])
    report = engine_at(host).report()

    assert (report.unknown, report.resident) == ("", {"weights", "kv_cache", "cuda_graph"})


def test_a_move_that_reached_a_server_started_anew_is_not_believed(host: SglangHost) -> None:
    """What we wrote there was meant for another process."""
    engine = engine_at(host)
    engine.report()
    host.starts_anew_at = "/update_weight_version"
    engine.release(["kv_cache"])

    assert "kv_cache" in engine.report().unknown


def test_a_call_that_was_lost_elsewhere_does_not_make_the_tags_unknown(host: SglangHost) -> None:
    """What stands at the server says where they are."""
    engine = engine_at(host)
    engine.release(["kv_cache"])
    engine.begin_update()
    host.faults["/load_lora_adapter"] = [Fault("drop")]
    with pytest.raises(EngineUnanswered):
        engine.load_adapter(adapter("A", 1))
    report = engine.report()

    assert (report.unknown, report.released) == ("", {"kv_cache"})
    assert report.versions == {FROZEN_BASE: 1}


def test_weights_that_were_thrown_away_are_asked_for_before_anything_is_served(discarding: SglangHost) -> None:
    """FB-12: the memory is back, the bytes are not; there, requests would be answered with nonsense."""
    engine = engine_at(discarding)
    push(engine, adapter("A", 3))
    engine.release(["weights", "kv_cache"])
    released = engine.report()
    engine.resume(["weights", "kv_cache"])
    with pytest.raises(EngineError):
        engine.generate([PROMPT], "A", max_new_tokens=1)
    resumed = engine.report()
    push(engine, adapter("A", 3), base_version=1)
    asked = discarding.asked()

    assert (released.discarded, released.discards) == ({"weights", "kv_cache"}, True)
    assert (resumed.resident, resumed.versions) == ({"weights", "kv_cache", "cuda_graph"}, {})
    assert asked[asked.index(RESUME) + 1] == "/begin_weight_update"
    assert answer(engine, "A") == right(0, adapter("A", 3))


def test_parameters_without_the_buffers_are_not_a_base(discarding: SglangHost) -> None:
    """FB-12.3: it stays closed, and the error names what is missing."""
    engine = engine_at(discarding, base_groups=(FROZEN_BASE, "buffers"), at_start={FROZEN_BASE: 1, "buffers": 1})
    engine.report()
    engine.release(["weights"])
    engine.resume(["weights"])
    push(engine, base_version=1)
    with pytest.raises(EngineError, match="buffers"):
        engine.unpause()
    engine.begin_update()
    engine.send_base("buffers", 1, {}.items())
    engine.commit_update()

    assert answer(engine, BASE_ONLY) == right(0)


def test_an_adapter_is_refused_while_the_base_under_it_is_gone(discarding: SglangHost) -> None:
    """FB-28.4: nothing reaches the server."""
    engine = engine_at(discarding)
    engine.release(["weights"])
    engine.resume(["weights"])
    engine.begin_update()
    with pytest.raises(EngineError, match="base"):
        engine.load_adapter(adapter("A", 1))

    assert discarding.bodies("/load_lora_adapter") == []


def test_a_push_into_released_weights_is_refused(host: SglangHost) -> None:
    """FB-04: zero writes."""
    engine = engine_at(host)
    engine.release(["weights"])
    with pytest.raises(EngineError, match="weights is released"):
        engine.begin_update()

    assert host.bodies("/begin_weight_update") == []
    assert host.process.dead == ""


def test_a_discard_on_purpose_gives_up_a_mirror_too(host: SglangHost) -> None:
    """Of weights that are released already nothing is sent: they are released."""
    engine = engine_at(host)
    engine.release(["weights"])
    engine.release(["weights"], discard=True)

    assert host.asked(RELEASE) == [RELEASE]
    assert (engine.report().discarded, engine.report().versions) == ({"weights"}, {})


def test_a_server_that_gives_nothing_back_is_refused_with_what_to_do() -> None:
    """Without the memory saver a release only looks like one."""
    with sglang(started(enable_memory_saver=False)) as host, pytest.raises(EngineError, match="--enable-memory-saver"):
        engine_at(host).release(["kv_cache"])


@pytest.mark.parametrize(("how", "word"), [({"holds_host_mirror": False}, "keeps"), ({"tp_size": 2}, "1 tensor")])
def test_a_server_that_is_not_as_described_is_refused(host: SglangHost, how: dict[str, int], word: str) -> None:
    """Before anything is asked of it."""
    with pytest.raises(EngineError, match=word):
        engine_at(host, **how).report()


@pytest.mark.parametrize("how", [{"tp_size": 0}, {"base_chunk_bytes": 0}, {"drain_s": -1.0}])
def test_arguments_that_cannot_work_are_refused(host: SglangHost, how: dict[str, float]) -> None:
    """When the engine is made."""
    with pytest.raises(ConfigError):
        engine_at(host, **how)


def test_a_tag_that_it_does_not_have_is_refused(host: SglangHost) -> None:
    """And named."""
    with pytest.raises(EngineError, match="optimizer"):
        engine_at(host).release(["optimizer"])


def test_sizes_are_what_it_measured_at_its_start(host: SglangHost) -> None:
    """A hand-over is planned with them; a server with a mirror takes its weights' bytes on the host."""
    report = engine_at(host).report()

    assert report.device_bytes == {"weights": 2**29, "kv_cache": 2**28, "cuda_graph": 2**27}
    assert report.mirror_bytes == 2**29


def test_two_starts_with_one_seed_are_told_apart() -> None:
    """By how long each part of the start took; with one clock reading for all of them they would not be."""
    with sglang(started(random_seed=7)) as host:
        engine = engine_at(host)
        before = engine.report().instance_id
        host.restart()

        assert engine.report().instance_id != before


def test_two_tokens_go_where_they_belong() -> None:
    """``--api-key`` for questions and requests, ``--admin-api-key`` for the rest; no error shows them."""
    open_, admin = "open", "sesame"
    with sglang(started(api_key=open_, admin_api_key=admin)) as host:
        engine = engine_at(host, token=open_, admin_token=admin)
        push(engine, adapter("A", 1))
        with pytest.raises(EngineRefused) as refused:
            engine_at(host, token="wrong").report()  # noqa: S106 - it is none

        assert answer(engine, "A") == right(0, adapter("A", 1))
        assert "wrong" not in str(refused.value)
        assert admin not in repr(engine)


def _heard(path: str, tags: list[str]) -> Heard:
    return Heard("POST", path, {}, {"tags": tags})


def _end_of_work(host: SglangHost) -> None:
    host.process.busy.clear()
    with host.process.changed:
        host.process.changed.notify_all()


def _wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.005)
