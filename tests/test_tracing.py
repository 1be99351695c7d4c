"""A span for every event: what it says, where it lies, and that nothing happens where nobody records."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

from lifecycle import AuditError, ConfigError, EventRefused, Moved, SaverError, TransitionFailed, tracing
from lifecycle.aio import AsyncLifecycle
from lifecycle.tracing import trace
from states import Effect
from tests.lifecycle.test_refusals import fault
from tests.lifecycle.world import FakeEngine, World, make_world


class Traced:
    """A world whose trainer is traced, and the spans that have ended."""

    def __init__(self, **changes: Any) -> None:
        self.world = make_world(**changes)
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        trace(self.world.trainer, rank=3, provider=self.provider)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def only(self) -> ReadableSpan:
        (span,) = self.spans
        return span


def _failing(world: World, effect: Effect, error: BaseException) -> None:
    def fail(*_: object) -> None:
        raise error

    world.trainer._runner.effects[effect] = fail  # type: ignore[assignment]


def test_a_span_says_what_the_outcome_says() -> None:
    """Event, edge, both states, the bytes, whose trainer, and that it moved."""
    traced = Traced()
    traced.world.trainer.sleep()

    moved = traced.world.trainer.offload()

    assert isinstance(moved, Moved)
    assert moved.moved_bytes > 0
    span = traced.spans[-1]
    assert span.name == "lifecycle.offload"
    assert span.status.status_code is StatusCode.UNSET
    assert dict(span.attributes or {}) == {
        "lifecycle.event": "offload",
        "lifecycle.edge": moved.edge,
        "lifecycle.source": "sleeping",
        "lifecycle.target": "offloaded-cpu",
        "lifecycle.model": "actor",
        "lifecycle.rank": 3,
        "lifecycle.moved_bytes": moved.moved_bytes,
        "lifecycle.result": "moved",
    }


def test_what_held_already_is_a_span_without_an_error() -> None:
    """It has no edge and no bytes."""
    traced = Traced()

    traced.world.trainer.wake_up()

    span = traced.only()
    assert (span.attributes or {})["lifecycle.result"] == "unchanged"
    assert span.status.status_code is StatusCode.UNSET


def test_a_refusal_is_an_error_that_names_its_guards() -> None:
    """And leaves the state where it was."""
    traced = Traced()

    with pytest.raises(EventRefused) as refused:
        traced.world.trainer.offload()

    span = traced.only()
    told = span.attributes or {}
    assert told["lifecycle.result"] == "refused"
    assert told["lifecycle.guards"] == tuple(one.name for one in refused.value.failed)
    assert told["lifecycle.target"] == "awake"
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == f"EventRefused: {refused.value}"


def test_a_failure_is_an_error_that_names_its_effect_and_no_secret() -> None:
    """Without a stack trace, which would hold the message as it was."""
    traced = Traced()
    _failing(traced.world, Effect.PAUSE_SCRATCH, SaverError("tag", "http://user:hunter2@host/ is full"))

    with pytest.raises(TransitionFailed):
        traced.world.trainer.sleep()

    span = traced.only()
    assert (span.attributes or {})["lifecycle.result"] == "failed"
    assert (span.attributes or {})["lifecycle.effect"] == "pause-scratch"
    assert span.status.status_code is StatusCode.ERROR
    assert "hunter2" not in span.to_json()
    assert "[redacted]" in str(span.status.description)
    assert span.events == ()


def test_a_fault_says_where_the_trainer_is_now() -> None:
    """The undo failed."""
    traced = Traced()

    fault(traced.world)

    told = traced.only().attributes or {}
    assert told["lifecycle.result"] == "faulted"
    assert told["lifecycle.target"] == "faulted"


def test_what_is_missing_on_the_log_only_has_moved() -> None:
    """The status is an error all the same: the caller gets one."""
    traced = Traced()
    write = traced.world.audit.write

    def full(name: str, keys: Any) -> None:
        if name == "lifecycle.moved":
            raise AuditError("log", "the disk is full")
        write(name, keys)

    traced.world.audit.write = full  # type: ignore[method-assign]
    with pytest.raises(AuditError):
        traced.world.trainer.sleep()

    assert (traced.only().attributes or {})["lifecycle.result"] == "moved"
    assert traced.only().status.status_code is StatusCode.ERROR


def test_an_interrupt_ends_the_span() -> None:
    """And goes on."""
    traced = Traced()
    _failing(traced.world, Effect.PAUSE_SCRATCH, KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        traced.world.trainer.sleep()

    assert (traced.only().attributes or {})["lifecycle.result"] == "failed"
    assert (traced.only().attributes or {})["lifecycle.target"] == "awake"


@contextmanager
def _within(traced: Traced, name: str) -> Iterator[api.Span]:
    with traced.provider.get_tracer("test").start_as_current_span(name) as span:
        yield span


def test_a_span_lies_in_the_users_and_the_events_own_spans_lie_in_it() -> None:
    """Such as those of its requests; afterwards the user's is current again."""
    traced = Traced()
    engine = FakeEngine()
    inner = engine.begin_update

    def begin_update() -> None:
        with _within(traced, "request"):
            inner()

    engine.begin_update = begin_update  # type: ignore[method-assign]
    with _within(traced, "turn") as users:
        traced.world.trainer.update_weights([engine])
        assert api.get_current_span() is users

    spans = {span.name: span for span in traced.spans}
    event = spans["lifecycle.update_weights"]
    assert event.parent == spans["turn"].context
    assert spans["request"].parent == event.context


@pytest.mark.parametrize("send", [lambda one: one.offload(), lambda one: one.wake_up()], ids=["refused", "unchanged"])
def test_after_an_event_that_did_not_move_the_users_span_is_current(send: Callable[[Any], object]) -> None:
    """Also after a refusal."""
    traced = Traced()
    with _within(traced, "turn") as users:
        with suppress(EventRefused):
            send(traced.world.trainer)
        assert api.get_current_span() is users


async def _sleep_in_a_span(traced: Traced) -> None:
    async with AsyncLifecycle(traced.world.trainer) as trainer:
        with _within(traced, "turn"):
            await trainer.sleep()


def test_a_coroutines_span_is_the_parent_too() -> None:
    """The event runs in a thread of its own."""
    traced = Traced()

    asyncio.run(_sleep_in_a_span(traced))

    event, turn = traced.spans
    assert event.parent == turn.context


async def _cancelled_inside(traced: Traced) -> None:
    inside, go_on = threading.Event(), threading.Event()
    traced.world.trainer.subscribe(lambda _: (inside.set(), go_on.wait(30)))
    async with AsyncLifecycle(traced.world.trainer) as trainer:
        with _within(traced, "turn"):
            task = asyncio.create_task(trainer.sleep())
            await asyncio.to_thread(inside.wait, 30)
            task.cancel()
            go_on.set()
            with suppress(asyncio.CancelledError):
                await task


def test_a_coroutine_that_is_cancelled_leaves_no_span_open() -> None:
    """Its event goes on to its end, and so does the span, inside the coroutine's own."""
    traced = Traced()

    asyncio.run(_cancelled_inside(traced))

    spans = {span.name: span for span in traced.spans}
    event = spans["lifecycle.sleep"]
    assert event.parent == spans["turn"].context
    assert (event.attributes or {})["lifecycle.result"] == "moved"
    assert event.status.status_code is StatusCode.UNSET


def test_an_error_is_told_by_its_class() -> None:
    """As the convention has it: few values, by which refusals and failures are told apart."""
    traced = Traced()
    _failing(traced.world, Effect.PAUSE_SCRATCH, SaverError("tag", "no room"))
    for call in (traced.world.trainer.offload, traced.world.trainer.sleep, traced.world.trainer.wake_up):
        with suppress(EventRefused, TransitionFailed):
            call()

    kinds = [(span.attributes or {}).get("error.type") for span in traced.spans]
    assert kinds == ["EventRefused", "TransitionFailed", None]


@pytest.mark.parametrize(("trainer", "rank"), [(None, 0), ("trainer", 0), (..., -1), (..., "0")])
def test_what_is_no_trainer_or_rank_is_refused(trainer: Any, rank: Any) -> None:
    """As of metrics."""
    with pytest.raises(ConfigError, match=r"give the (TrainerLifecycle itself|number of this process)"):
        trace(make_world().trainer if trainer is ... else trainer, rank=rank)


def test_a_library_that_was_not_installed_is_traced_without_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was copied beside the program, say."""

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(tracing, "version", missing)
    traced = Traced()
    traced.world.trainer.sleep()

    scope = traced.only().instrumentation_scope
    assert scope is not None
    assert (scope.name, scope.version or "") == ("adapter-lifecycle", "")


def test_without_a_provider_an_event_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API alone records nothing, no span becomes current, and nobody looks at how it ended."""
    world = make_world()
    monkeypatch.setattr(tracing, "_describe", lambda *_: pytest.fail("it was described"))
    seen: list[api.Span] = []
    trace(world.trainer)
    world.trainer.subscribe(lambda _: seen.append(api.get_current_span()))

    assert isinstance(world.trainer.sleep(), Moved)
    assert seen == [api.INVALID_SPAN]
    assert world.trainer.callback_errors == ()


def test_what_lies_in_an_event_that_is_not_sampled_is_not_sampled_either() -> None:
    """The event's span is current, and says so."""
    world = make_world()
    seen: list[api.SpanContext] = []
    trace(world.trainer, provider=TracerProvider(sampler=ALWAYS_OFF))
    world.trainer.subscribe(lambda _: seen.append(api.get_current_span().get_span_context()))

    world.trainer.sleep()

    (found,) = seen
    assert found.is_valid
    assert not found.trace_flags.sampled


def test_the_page_lists_every_attribute() -> None:
    """Of spans that moved, were refused and failed."""
    page = (Path(__file__).parents[1] / "docs" / "metrics.md").read_text(encoding="utf-8")
    traced = Traced()
    traced.world.trainer.update_weights([FakeEngine()])
    with pytest.raises(EventRefused):
        traced.world.trainer.offload()
    fault(traced.world)

    names = {name for span in traced.spans for name in span.attributes or {}}
    assert len(names) == 11
    assert [name for name in names if f"`{name}`" not in page] == []


def test_without_the_package_the_error_names_the_extra() -> None:
    """The library itself works."""
    program = """
import sys
sys.modules["opentelemetry"] = None
import lifecycle
try:
    import lifecycle.tracing
except lifecycle.ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "tracing needs OpenTelemetry; install the extra: adapter-lifecycle[tracing]\n"
