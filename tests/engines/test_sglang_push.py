"""Pushes to an SGLang server: only a commit moves a version, nothing stale is served, and a failure is repaired."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lifecycle.engines import BASE_ONLY, AnswersGreedily, RolloutEngine
from lifecycle.engines.sglang import SglangEngine
from lifecycle.errors import EngineError, EngineRefused, EngineUnanswered
from states import FROZEN_BASE
from tests.engines.sglang_host import Fault, SglangHost, sglang
from tests.engines.sglang_world import PROMPT, adapter, answer, base, engine_at, push, right, started


@pytest.fixture
def host() -> Iterator[SglangHost]:
    """A server with a host mirror of its weights."""
    with sglang(started()) as made:
        yield made


@pytest.fixture
def engine(host: SglangHost) -> SglangEngine:
    """A client of it."""
    return engine_at(host)


def test_it_is_an_engine_that_can_be_probed(engine: SglangEngine) -> None:
    """By the protocols of the library."""
    assert isinstance(engine, RolloutEngine)
    assert isinstance(engine, AnswersGreedily)


def test_an_adapter_is_served_once_it_is_committed(host: SglangHost, engine: SglangEngine) -> None:
    """Under its plain name, from a path that names its version; the path is gone after the load."""
    push(engine, adapter("A", 3))
    [body] = host.bodies("/load_lora_adapter")

    assert engine.report().versions == {FROZEN_BASE: 1, "adapter/A": 3}
    assert answer(engine, "A") == right(0, adapter("A", 3)) != right(0)
    assert body["lora_name"] == "A"
    assert body["lora_path"].endswith("/A/v3")
    assert not Path(body["lora_path"]).exists()


def test_a_new_version_is_unloaded_and_loaded_while_the_server_is_paused(
    host: SglangHost, engine: SglangEngine
) -> None:
    """There a load of a name that is loaded is refused; between the two nobody serves it."""
    push(engine, adapter("A", 3))
    before = len(host.asked())
    push(engine, adapter("A", 4))

    assert host.asked()[before:] == [
        "/pause_generation", "/unload_lora_adapter", "/load_lora_adapter", "/continue_generation",
    ]  # fmt: skip
    assert answer(engine, "A") == right(0, adapter("A", 4))


def test_nothing_computed_with_the_old_weights_is_left(host: SglangHost, engine: SglangEngine) -> None:
    """FB-32.1: the same prompt before and after a swap and a new base; cached prefixes are of before."""
    push(engine, adapter("A", 3))
    first = answer(engine, "A"), answer(engine, BASE_ONLY)
    push(engine, adapter("A", 4), base_version=2, seed=5)

    assert first == (right(0, adapter("A", 3)), right(0))
    assert (answer(engine, "A"), answer(engine, BASE_ONLY)) == (right(5, adapter("A", 4)), right(5))


def test_caches_that_were_not_dropped_fail_the_update(host: SglangHost, engine: SglangEngine) -> None:
    """FB-32.2: no reset, no commit; the next try succeeds."""
    push(engine, adapter("A", 3))
    engine.begin_update()
    engine.load_adapter(adapter("A", 4))
    host.faults["/flush_cache"] = [Fault(400)]
    with pytest.raises(EngineRefused):
        engine.commit_update()
    with pytest.raises(EngineError):
        engine.commit_update()
    engine.abort_update()
    aborted = engine.report().versions
    with pytest.raises(EngineError):
        answer(engine, "A")
    push(engine, adapter("A", 4))

    assert aborted == {FROZEN_BASE: 1}
    assert answer(engine, "A") == right(0, adapter("A", 4))


def test_only_a_commit_moves_a_version(engine: SglangEngine) -> None:
    """What was touched holds none meanwhile, and nobody is answered."""
    push(engine, adapter("A", 3), adapter("B", 4))
    engine.begin_update()
    engine.load_adapter(adapter("A", 5))
    during = engine.report().versions
    with pytest.raises(EngineError):
        answer(engine, "B")
    engine.commit_update()

    assert during == {FROZEN_BASE: 1, "adapter/B": 4}
    assert engine.report().versions == {FROZEN_BASE: 1, "adapter/A": 5, "adapter/B": 4}


def test_an_aborted_adapter_is_served_to_nobody(host: SglangHost, engine: SglangEngine) -> None:
    """FB-54: not to those either who ask the server past this client; the rest is as before at the next commit."""
    push(engine, adapter("A", 3), adapter("B", 4))
    engine.begin_update()
    engine.load_adapter(adapter("A", 5))
    engine.abort_update()
    there = set(host.process.registry)
    paused = host.process.is_pause
    push(engine)

    assert (there, paused) == ({"B"}, True)
    assert engine.report().versions == {FROZEN_BASE: 1, "adapter/B": 4}
    assert answer(engine, "B") == right(0, adapter("B", 4))


def test_a_base_that_was_half_written_serves_nothing(host: SglangHost) -> None:
    """FB-54: one chunk arrived, one did not. There the half old and half new weights would answer."""
    engine = engine_at(host, base_chunk_bytes=1)
    push(engine, adapter("A", 3))
    engine.begin_update()
    host.faults["/update_weights_from_tensor"] = [Fault(400)]
    with pytest.raises(EngineUnanswered, match="half"):
        engine.send_base(FROZEN_BASE, 2, base(5).items())
    engine.abort_update()
    left = engine.report().versions
    with pytest.raises(EngineError):
        answer(engine, BASE_ONLY)
    push(engine, base_version=2, seed=5)

    assert left.keys().isdisjoint({FROZEN_BASE})
    assert answer(engine, BASE_ONLY) == right(5)


def test_a_base_goes_in_chunks_between_begin_and_end() -> None:
    """SGLang takes weights in an open update only; each rank gets a copy of its own to read."""
    with sglang(started(tp_size=2)) as host:
        engine = engine_at(host, tp_size=2, base_chunk_bytes=1)
        push(engine, base_version=2, seed=5)
        chunks = host.bodies("/update_weights_from_tensor")

        assert host.asked()[1:-1] == [
            "/begin_weight_update", "/update_weights_from_tensor", "/update_weights_from_tensor", "/end_weight_update",
        ]  # fmt: skip
        assert [len(body["serialized_named_tensors"]) for body in chunks] == [2, 2]
        assert answer(engine, BASE_ONLY) == right(5)


def test_an_update_that_was_left_open_at_the_server_is_closed_first(host: SglangHost, engine: SglangEngine) -> None:
    """The client that opened it is gone."""
    engine.begin_update()
    engine.send_base(FROZEN_BASE, 2, base(5).items())
    other = engine_at(host)
    push(other, base_version=2, seed=5)

    assert answer(other, BASE_ONLY) == right(5)


def test_an_update_that_was_left_open_here_is_given_up_first(engine: SglangEngine) -> None:
    """As by an engine in the trainer's process."""
    engine.begin_update()
    engine.load_adapter(adapter("A", 3))
    push(engine, adapter("B", 4))

    assert engine.report().versions == {FROZEN_BASE: 1, "adapter/B": 4}


def test_an_adapter_that_cannot_fit_leaves_the_old_one_serving(host: SglangHost, engine: SglangEngine) -> None:
    """It is refused before the old one is unloaded."""
    push(engine, adapter("A", 3))
    engine.begin_update()
    with pytest.raises(EngineError, match="--max-lora-rank 16"):
        engine.load_adapter(adapter("A", 4, rank=17))
    engine.abort_update()
    push(engine)

    assert "/unload_lora_adapter" not in host.asked()
    assert answer(engine, "A") == right(0, adapter("A", 3))


def test_an_adapter_that_the_server_refuses_holds_no_version(host: SglangHost, engine: SglangEngine) -> None:
    """The old one is gone by then; the error is the server's own word, and the next pass repairs it."""
    push(engine, adapter("A", 3))
    engine.begin_update()
    host.faults["/load_lora_adapter"] = [Fault(400)]
    with pytest.raises(EngineRefused, match="fault"):
        engine.load_adapter(adapter("A", 4))
    engine.abort_update()
    left = engine.report().versions
    push(engine, adapter("A", 4))

    assert left == {FROZEN_BASE: 1}
    assert answer(engine, "A") == right(0, adapter("A", 4))


def test_one_adapter_more_than_it_keeps_is_refused() -> None:
    """There it would drop the one that was used least recently, and say so nowhere."""
    with sglang(started(max_loaded_loras=2)) as host:
        engine = engine_at(host)
        push(engine, adapter("A", 1), adapter("B", 2))
        engine.begin_update()
        with pytest.raises(EngineError, match="--max-loaded-loras 2"):
            engine.load_adapter(adapter("C", 3))
        engine.abort_update()

        assert engine.report().adapter_slots == 2
        assert list(host.process.registry) == ["A", "B"]


def test_an_adapter_that_the_server_has_dropped_by_itself_holds_no_version() -> None:
    """FB-29.1: after a wake, or whenever it is asked, what it lists counts; the request is refused here."""
    with sglang(started(max_loaded_loras=2)) as host:
        engine = engine_at(host)
        push(engine, adapter("A", 1), adapter("B", 2))
        engine.release(["kv_cache"])
        host.process.registry.pop("A")
        engine.resume(["kv_cache"])
        with pytest.raises(EngineError, match="'A'"):
            answer(engine, "A")

        assert engine.report().versions == {FROZEN_BASE: 1, "adapter/B": 2}
        assert answer(engine, "B") == right(0, adapter("B", 2))


def test_an_unloaded_adapter_does_not_come_back_from_its_old_path(host: SglangHost, engine: SglangEngine) -> None:
    """There a request for an adapter that was loaded once loads it again; the files are gone, so it cannot."""
    push(engine, adapter("A", 3))
    engine.begin_update()
    engine.unload_adapter("A")
    engine.commit_update()
    body = {"input_ids": [PROMPT], "sampling_params": {"max_new_tokens": 1}, "lora_path": "A"}
    said = engine_at(host)._http[0]
    with pytest.raises(EngineRefused, match="implicitly load"):
        said.post("/generate", json=body)


def test_unloading_what_is_not_there_is_settled(host: SglangHost, engine: SglangEngine) -> None:
    """Nothing is sent: SGLang answers no."""
    engine.begin_update()
    engine.unload_adapter("A")
    engine.commit_update()

    assert "/unload_lora_adapter" not in host.asked()


def test_adapters_survive_a_release_of_the_weights(engine: SglangEngine) -> None:
    """They lie beside the tags: nothing is pushed again, and the answers are the same (FB-56.2)."""
    push(engine, adapter("A", 3))
    engine.release(["weights", "kv_cache"])
    engine.resume(["weights", "kv_cache"])

    assert engine.report().versions == {FROZEN_BASE: 1, "adapter/A": 3}
    assert answer(engine, "A") == right(0, adapter("A", 3))


def test_an_engine_that_applies_no_adapter_answers_a_probe_as_the_base_does(
    host: SglangHost, engine: SglangEngine
) -> None:
    """FB-29.3: it lists the adapter and lies; the greedy probe tells."""
    push(engine, adapter("A", 3))
    host.process.lies = True

    assert answer(engine, "A") == answer(engine, BASE_ONLY) != right(0, adapter("A", 3))


def test_a_request_without_an_adapter_is_refused(engine: SglangEngine) -> None:
    """The base answers only who asks for it; there, it answers everybody who names nobody."""
    with pytest.raises(EngineError, match="nobody"):
        engine.generate([PROMPT], "", max_new_tokens=1)


def test_a_version_that_is_not_the_expected_is_refused(engine: SglangEngine) -> None:
    """Before anything is sent."""
    push(engine, adapter("A", 3))
    with pytest.raises(EngineError, match="wanted is 4"):
        engine.generate([PROMPT], "A", max_new_tokens=1, expected={"adapter/A": 4})


def test_every_answer_carries_the_versions_that_gave_it(engine: SglangEngine) -> None:
    """In SGLang's weight version, which it stamps on each sample."""
    push(engine, adapter("A", 3))
    [found] = engine.generate([PROMPT], "A", max_new_tokens=2)

    assert found.weight_version.endswith("adapter/A@3 frozen-base@1")
    assert (len(found.tokens), found.finish) == (2, "length")


def test_a_request_that_is_no_request_is_refused(engine: SglangEngine) -> None:
    """An empty prompt, no token, a temperature below zero."""
    for prompts, count, temperature in (([], 1, 1.0), ([[]], 1, 1.0), ([PROMPT], 0, 1.0), ([PROMPT], 1, -1.0)):
        with pytest.raises(EngineError, match=r"give at least one|must be at least 1"):
            engine.generate(prompts, BASE_ONLY, max_new_tokens=count, temperature=temperature)


def test_a_server_that_was_started_anew_is_asked_for_everything_again(host: SglangHost, engine: SglangEngine) -> None:
    """FB-51: alive is not current; it holds the checkpoint that it was started with."""
    push(engine, adapter("A", 3), base_version=2, seed=5)
    host.restart()
    with pytest.raises(EngineError, match="never been loaded"):
        answer(engine, "A")
    found = engine.report().versions
    push(engine, adapter("A", 3), base_version=2, seed=5)

    assert found == {FROZEN_BASE: 1}
    assert answer(engine, "A") == right(5, adapter("A", 3))


def test_an_answer_of_a_server_that_was_started_anew_does_not_count(host: SglangHost, engine: SglangEngine) -> None:
    """FB-51: nobody has told the client; the answer's own weight version does, and the engine is fenced."""
    push(engine, base_version=2, seed=5)
    host.restart(weight_version="theirs")
    with pytest.raises(EngineUnanswered, match="'theirs'"):
        answer(engine, BASE_ONLY)

    assert engine.report().versions == {FROZEN_BASE: 1}


def test_a_start_anew_during_a_push_does_not_count(host: SglangHost, engine: SglangEngine) -> None:
    """FB-51.3: the confirmation is of another process; the next pass sends everything."""
    engine.begin_update()
    engine.load_adapter(adapter("A", 3))
    host.restart()
    with pytest.raises(EngineUnanswered, match="anew"):
        engine.commit_update()
    engine.abort_update()
    left = engine.report().versions
    push(engine, adapter("A", 3))

    assert left == {FROZEN_BASE: 1}
    assert answer(engine, "A") == right(0, adapter("A", 3))


def test_a_start_anew_under_the_commit_itself_does_not_count(host: SglangHost, engine: SglangEngine) -> None:
    """FB-51.3: the versions were written down at the wrong process, and nobody believes them there."""
    engine.begin_update()
    engine.load_adapter(adapter("A", 3))
    host.starts_anew_at = "/update_weight_version"
    with pytest.raises(EngineUnanswered, match="anew"):
        engine.commit_update()

    assert engine.report().versions == {}


def test_an_unload_that_failed_on_one_rank_is_finished_by_the_next_pass(host: SglangHost, engine: SglangEngine) -> None:
    """Until then SGLang neither serves the adapter nor loads it."""
    push(engine, adapter("A", 3))
    host.process.stuck = {"A"}
    with pytest.raises(EngineRefused, match="a rank failed"):
        push(engine, adapter("A", 4))
    engine.abort_update()
    left = engine.report().versions
    push(engine, adapter("A", 4))

    assert left == {FROZEN_BASE: 1}
    assert answer(engine, "A") == right(0, adapter("A", 4))


def test_weights_that_somebody_else_has_written_are_noticed(host: SglangHost, engine: SglangEngine) -> None:
    """FB-56.1: one writer; what the server calls its weights is not what was written down, so nothing counts."""
    push(engine, adapter("A", 3))
    host.process.base = base(9)
    host.process.weight_version = "step-0"
    found = engine.report().versions
    push(engine, adapter("A", 3), base_version=1)

    assert found == {}
    assert answer(engine, "A") == right(0, adapter("A", 3))


def test_an_adapter_that_somebody_else_has_loaded_under_its_name_is_noticed(
    host: SglangHost, engine: SglangEngine
) -> None:
    """FB-56.1: its path is not the one that it was loaded from."""
    push(engine, adapter("A", 3))
    host.process.registry["A"] = replace(host.process.registry["A"], path="/elsewhere/A")

    assert "adapter/A" not in engine.report().versions


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        *(
            (path, fault)
            for path in ("/load_lora_adapter", "/unload_lora_adapter")
            for fault in (Fault(500, done=True), Fault("drop", done=True), Fault("drop"), Fault("hang"))
        ),
        ("/update_weight_version", Fault("drop", done=True)),
        ("/update_weight_version", Fault(502)),
    ],
)
def test_a_call_that_is_not_answered_leaves_nothing_that_the_next_pass_does_not_repair(
    host: SglangHost, path: str, fault: Fault
) -> None:
    """Whether it was done or not; versions are those that are certain, and an open server serves no mixture."""
    patience_s = 1.5 if fault.how == "hang" else 20.0
    engine = engine_at(host, slow_s=patience_s)
    push(engine, adapter("A", 3), adapter("B", 4))
    host.faults[path] = [fault] * 4
    with pytest.raises(EngineUnanswered):
        push(engine, adapter("A", 5))
    host.faults.clear()
    engine.abort_update()
    report = engine.report()
    push(engine, adapter("A", 5))

    assert (report.unknown, report.versions.get("adapter/A")) == ("", None)
    assert report.versions[FROZEN_BASE] == 1
    assert engine.report().versions == {FROZEN_BASE: 1, "adapter/A": 5, "adapter/B": 4}
    assert (answer(engine, "A"), answer(engine, "B")) == (right(0, adapter("A", 5)), right(0, adapter("B", 4)))


def test_an_unload_that_waits_for_a_request_does_not_lose_the_adapter(host: SglangHost, engine: SglangEngine) -> None:
    """Requests are ended before anything is unloaded, so that it never waits."""
    push(engine, adapter("A", 3))
    host.process.busy.set()
    found: list[object] = []
    asking = threading.Thread(target=lambda: found.append(engine.generate([PROMPT], "A", max_new_tokens=4)))
    asking.start()
    while not host.process.running:
        pass
    with pytest.raises(EngineRefused, match="1 request"):
        push(engine, adapter("A", 4))
    host.process.busy.clear()
    with host.process.changed:
        host.process.changed.notify_all()
    asking.join()

    assert engine.report().versions["adapter/A"] == 3
    assert "/unload_lora_adapter" not in host.asked()


def test_a_pinned_adapter_asks_for_a_place_and_the_last_one_cannot_be_pinned() -> None:
    """SGLang keeps one place for the others; its refusal is passed on."""
    with sglang(started(max_loras_per_batch=2)) as host:
        engine = engine_at(host, pinned=True)
        push(engine, adapter("A", 1))
        with pytest.raises(EngineRefused, match="pin all"):
            push(engine, adapter("B", 2))

        assert host.bodies("/load_lora_adapter")[0]["pinned"] is True


def test_an_adapter_by_value_is_checked_there_against_its_checksums(host: SglangHost) -> None:
    """For a server on another host; what arrived is hashed before it is used."""
    engine = engine_at(host, by_value=True)
    push(engine, adapter("A", 3))
    [body] = host.bodies("/load_lora_adapter_from_tensors")

    assert body["expected_checksums"].keys() == adapter("A", 3).tensors.keys()
    assert engine.report().versions == {FROZEN_BASE: 1, "adapter/A": 3}
    assert answer(engine, "A") == right(0, adapter("A", 3))


def test_a_server_without_adapters_is_refused_with_what_to_do() -> None:
    """Before anything is sent."""
    with sglang(started(enable_lora=False)) as host, pytest.raises(EngineError, match="--enable-lora"):
        push(engine_at(host), adapter("A", 1))


def test_a_base_that_is_declared_needs_no_push(host: SglangHost) -> None:
    """It has loaded the checkpoint that the trainer has; without that word its base is pushed first (FB-28.1)."""
    engine = engine_at(host, at_start={})
    before = engine.report().versions
    engine.declare({FROZEN_BASE: 7})
    push(engine, adapter("A", 3))

    assert before == {}
    assert engine.report().versions == {FROZEN_BASE: 7, "adapter/A": 3}


def test_a_checkpoint_that_somebody_has_changed_since_the_start_is_not_taken_for_it(host: SglangHost) -> None:
    """Its weight version is not the one that it was started with."""
    host.process.weight_version = "step-12"

    assert engine_at(host).report().versions == {}
