"""The memory of a vLLM server: what it releases, what it takes again, and whom it admits meanwhile."""

from __future__ import annotations

import httpx
import pytest

from lifecycle.errors import EngineError, EngineUnanswered
from states.engine_memory import BASE_ONLY, EngineState
from tests.engines.vllm_server import FakeVllm, engine_on, payload, proven, push

BOTH = ("weights", "kv_cache")


def test_a_new_client_knows_nothing_and_asks() -> None:
    """FB-16: where memory is and whom it serves is never assumed."""
    server = FakeVllm()
    engine = engine_on(server)

    assert engine.memory.state is EngineState.LOST
    assert engine.report().resident == set(BOTH)
    assert (engine.report().adapter_slots, engine.report().releases_apart) == (6, True)
    assert server.took() == ["/v1/completions"]


def test_weights_are_released_with_the_cache_and_come_back_with_their_content() -> None:
    """Level 1: pause and drain first; afterwards the base is held, and adapters are to be sent again (FB-29)."""
    server = FakeVllm()
    engine = engine_on(server)
    engine.report()
    push(engine, payload())
    server.took()
    engine.release(BOTH)
    released = engine.report()
    engine.resume(BOTH)

    assert server.took() == [
        "/pause?mode=wait",
        "/sleep?level=1&mode=abort",
        "/wake_up?tags=weights&tags=kv_cache",
        "/pause?mode=abort",
    ]
    assert (released.released, released.discarded) == (set(BOTH), {"kv_cache"})
    assert engine.report().versions == {"frozen-base": 11, "buffers": 12}


def test_a_tag_that_was_not_released_is_not_resumed() -> None:
    """FB-08: vLLM would only warn, and let a paused server run again."""
    server = FakeVllm()
    engine = engine_on(server)
    engine.report()
    engine.pause()
    server.took()
    engine.resume(BOTH)

    assert server.took() == []
    assert server.is_paused


def test_releasing_twice_is_releasing_once() -> None:
    """FB-13: the second time nothing is sent."""
    server = FakeVllm()
    engine = engine_on(server)
    engine.report()
    engine.release(BOTH)
    server.took()
    engine.release(BOTH)

    assert server.took() == []


def test_an_engine_without_adapters_admits_requests_as_soon_as_it_is_awake() -> None:
    """Nothing is missing then."""
    server = FakeVllm()
    engine = engine_on(server)
    engine.report()
    engine.release(BOTH)
    engine.resume(["weights"])
    half = engine.memory.state
    engine.resume(["kv_cache"])

    assert half is EngineState.PAUSED
    assert engine.memory.state is EngineState.OPEN
    assert not server.is_paused


def test_after_a_discard_nothing_is_served() -> None:
    """FB-12: no group has a version, and the server, which admits requests after a wake, is paused again."""
    server = FakeVllm()
    engine = engine_on(server)
    engine.report()
    engine.release(BOTH, discard=True)
    discarded = engine.report().discarded
    engine.resume(BOTH)

    assert discarded == set(BOTH)
    assert server.is_paused
    assert engine.report().versions == {}
    with pytest.raises(EngineError, match="while it is paused"):
        engine.generate([[1]], BASE_ONLY, max_new_tokens=1)


def test_a_base_that_was_discarded_is_held_again_once_it_proves_to_be_the_trainers() -> None:
    """Whoever brought it back: not before."""
    server = FakeVllm()
    engine = engine_on(server)
    engine.report()
    engine.release(BOTH, discard=True)
    engine.resume(BOTH)
    with pytest.raises(EngineError, match="its base is not the trainer's"):
        engine.hold_base(proven())
    without = engine.report().versions
    server.base = "weights-1"
    engine.hold_base(proven())

    assert without == {}
    assert engine.report().versions == {"frozen-base": 11, "buffers": 12}


def test_the_cache_alone_is_released_on_a_device_and_adapters_stay() -> None:
    """What LoRA needs released where the base fits beside the trainer."""
    server = FakeVllm()
    engine = engine_on(server)
    engine.report()
    push(engine, payload())
    server.took()
    engine.release(["kv_cache"])
    engine.resume(["kv_cache"])

    assert server.took() == ["/pause?mode=wait", "/release_kv_cache_memory", "/wake_up?tags=kv_cache", "/resume"]
    assert engine.report().versions["adapter/a"] == 20
    assert engine.memory.state is EngineState.OPEN


@pytest.mark.parametrize(
    ("device", "config", "tags", "why"),
    [
        ("cuda", {}, ["weights"], "only together with kv_cache"),
        ("cpu", {}, ["kv_cache"], "on the CPU"),
        ("cuda", {"model_config": {"enable_sleep_mode": False}}, BOTH, "--enable-sleep-mode"),
        ("cuda", {}, ["weights", "kv_cache", "cuda_graph"], "unknown: cuda_graph"),
    ],
)
def test_what_it_cannot_release_is_refused_before_anything_is_paused(
    device: str, config: dict[str, object], tags: list[str], why: str
) -> None:
    """In words, and the server serves on."""
    server = FakeVllm(device, **config)
    engine = engine_on(server)
    engine.report()
    server.took()
    with pytest.raises(EngineError, match=why):
        engine.release(tags)

    assert server.took() in ([], ["/pause?mode=wait"])
    assert not server.asleep


def test_weights_that_are_released_cannot_be_discarded() -> None:
    """VLLM would say yes and keep them."""
    server = FakeVllm()
    engine = engine_on(server)
    engine.report()
    engine.release(BOTH)

    with pytest.raises(EngineError, match="resume them first"):
        engine.release(BOTH, discard=True)


def test_requests_that_run_are_waited_for_and_then_refuse_the_release() -> None:
    """FB-15: with their count; the server serves on as before."""
    server = FakeVllm()
    engine = engine_on(server, drain_s=1e-6)
    engine.report()
    server.busy = 2
    with pytest.raises(EngineError, match=r"2 request\(s\) still run"):
        engine.release(BOTH)

    assert not server.is_paused
    assert engine.memory.state is EngineState.OPEN


def test_requests_that_run_are_aborted_where_that_was_asked_for() -> None:
    """After the same wait."""
    server = FakeVllm()
    engine = engine_on(server, drain_s=1e-6, when_busy="abort")
    engine.report()
    server.busy = 2
    engine.release(BOTH)

    assert server.asleep == set(BOTH)
    assert server.busy == 0


def test_a_request_to_an_engine_that_is_released_is_rejected_at_once() -> None:
    """FB-15: it does not reach the server, where it would wait for ever."""
    server = FakeVllm()
    engine = engine_on(server)
    engine.report()
    engine.release(BOTH)
    server.took()
    with pytest.raises(EngineError, match="paused"):
        engine.generate([[1]], BASE_ONLY, max_new_tokens=1)
    with pytest.raises(EngineError, match="not resident: weights, kv_cache"):
        engine.greedy(BASE_ONLY, [[1]], 1)

    assert server.took() == []


@pytest.mark.parametrize("fails", ["before", "after"])
def test_a_wake_whose_answer_was_lost_is_asked_for_again(fails: str) -> None:
    """FB-15: it is repeatable, and the second time it is a no-op there."""
    server = FakeVllm()
    engine = engine_on(server)
    engine.report()
    engine.release(BOTH)
    failures = ["/wake_up"]

    def fail(path: str) -> None:
        if path in failures:
            failures.remove(path)
            raise httpx.ReadError("dropped")

    setattr(server, "hook" if fails == "before" else "after", fail)
    engine.resume(["weights"])

    assert server.asleep == {"kv_cache"}
    assert engine.report().resident == {"weights"}


def test_after_a_release_that_nobody_confirmed_all_is_taken_again() -> None:
    """What sleeps cannot be asked; the wake of everything is the one call that is certain."""
    server = FakeVllm()
    engine = engine_on(server)
    engine.report()

    def fail(path: str) -> None:
        if path == "/sleep":
            raise httpx.ReadError("dropped")

    server.after = fail
    with pytest.raises(EngineUnanswered):
        engine.release(BOTH)
    server.after = lambda _: None
    unknown = engine.report()
    engine.resume(["weights"])

    assert (unknown.resident, unknown.released) == (set(), set())
    assert server.asleep == set()
    assert engine.report().resident == set(BOTH)
    assert engine.report().versions == {"frozen-base": 11, "buffers": 12}


def test_an_engine_that_somebody_else_put_to_sleep_is_in_doubt() -> None:
    """FB-56: how deep it sleeps nobody knows; it holds nothing until its base proves itself."""
    server = FakeVllm()
    engine = engine_on(server)
    engine.report()
    push(engine, payload())
    server.asleep, server.is_paused, server.base = set(BOTH), True, "nothing"
    doubted = engine.report()
    engine.resume(BOTH)

    assert doubted.versions == {}
    assert server.is_paused
    server.base = "weights-1"
    engine.hold_base(proven())
    assert engine.report().versions == {"frozen-base": 11, "buffers": 12}


def test_a_pause_of_the_user_lasts_until_the_user_ends_it() -> None:
    """FB-54: no commit and no wake ends it."""
    server = FakeVllm()
    engine = engine_on(server)
    engine.report()
    engine.pause()
    push(engine, payload())
    held = server.is_paused
    engine.release(BOTH)
    engine.resume(BOTH)
    push(engine, payload(version=21))
    still_held = server.is_paused
    engine.unpause()

    assert (held, still_held, server.is_paused) == (True, True, False)
    assert engine.greedy("a", [[1]], 2)


def test_a_wake_that_left_something_asleep_is_an_error() -> None:
    """Its answer is compared with what was asked for."""
    server = FakeVllm()
    engine = engine_on(server)
    engine.report()
    engine.release(BOTH)
    server.wake_up = lambda body, params: httpx.Response(200, json={"status": "sleeping"})  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="sleeps on"):
        engine.resume(BOTH)

    assert engine.memory.state is EngineState.LOST


@pytest.mark.parametrize(("path", "is_done"), [("/pause", True), ("/resume", False)])
def test_a_server_that_a_lost_answer_has_left_shut_is_opened_when_it_is_asked(path: str, *, is_done: bool) -> None:
    """All that it holds is current, so no push would come that opens it: requests would wait for ever (FB-15)."""
    server = FakeVllm()
    engine = engine_on(server)
    engine.report()
    push(engine, payload())

    def lose(called: str) -> None:
        if called == path:
            raise httpx.RemoteProtocolError("the answer is lost")

    server.after, server.hook = (lose, lambda _: None) if is_done else (lambda _: None, lose)
    with pytest.raises(EngineUnanswered):
        push(engine, payload(version=21))
    engine.abort_update()
    server.after = server.hook = lambda _: None
    left_shut = server.is_paused
    server.took()
    versions = engine.report().versions

    assert left_shut
    assert server.took() == ["/reset_prefix_cache", "/resume"]
    assert versions["adapter/a"] == (20 if is_done else 21)
    assert engine.greedy("a", [[1]], 4)


def test_a_server_that_an_update_left_half_way_is_not_opened_by_being_asked() -> None:
    """Nor by being told to: what was written and not committed is made up for by the next update alone (FB-54)."""
    server = FakeVllm()
    engine = engine_on(server)
    engine.report()
    push(engine, payload())

    def lose(called: str) -> None:
        if called == "/v1/load_lora_adapter":
            server.after = lambda _: None
            raise httpx.RemoteProtocolError("the answer is lost")

    server.after = lose
    with pytest.raises(EngineUnanswered):
        push(engine, payload(version=21))
    engine.abort_update()
    engine.report()
    with pytest.raises(EngineError, match="the-caches-are-flushed"):
        engine.unpause()
    assert server.is_paused

    push(engine, payload(version=21))
    assert not server.is_paused


def test_a_server_whose_pause_is_wanted_is_not_opened_by_being_asked() -> None:
    """Until the one who paused it says so; then also where an answer was lost in between."""
    server = FakeVllm()
    engine = engine_on(server)
    engine.report()
    engine.pause()
    engine.report()
    assert server.is_paused

    engine.unpause()
    assert not server.is_paused
