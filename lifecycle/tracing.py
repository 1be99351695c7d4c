"""An OpenTelemetry span for every event of a trainer. Nothing else of the library imports OpenTelemetry."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from lifecycle.controller import TrainerLifecycle
from lifecycle.errors import AuditError, ConfigError, EventRefused, TrainerFaulted, TransitionFailed
from lifecycle.outcome import Moved, Outcome, Unchanged
from lifecycle.redaction import redact
from lifecycle.transition.watching import Ended
from lifecycle.watched import check_watched
from states import TrainerEvent, TrainerState

try:
    from opentelemetry import context
    from opentelemetry.trace import Span, Status, StatusCode, Tracer, TracerProvider, get_tracer, set_span_in_context
except ImportError as missing:
    raise ConfigError("tracing needs OpenTelemetry; install the extra: adapter-lifecycle[tracing]") from missing

SCOPE: Final = "adapter-lifecycle"
"""Name of the instrumentation scope, whose version is the library's."""

Attributes = Mapping[str, str | int | float | tuple[str, ...]]


def trace(trainer: TrainerLifecycle, *, rank: int = 0, provider: TracerProvider | None = None) -> None:
    """Make a span of every event of this trainer from now on.

    A span is named ``lifecycle.EVENT``, lies in the caller's current span and is current itself while the event runs,
    so that spans of the event's own requests lie in it. A refused and a failed event have the status ERROR. Secrets
    are left out of messages as they are in the audit log; no stack trace is exported. Attributes: docs/metrics.md.

    Args:
        trainer: whose events; trace it once.
        rank: of this process.
        provider: who records; None: the one that the application has set, now or later. Without one nothing is
            recorded.

    Raises:
        ConfigError: the trainer is none, or the rank is no whole number from 0.
    """
    check_watched(trainer, rank)
    tracer = get_tracer(SCOPE, _version(), provider)
    trainer.watch(_Tracing(tracer, trainer.config.model, rank))


def _version() -> str | None:
    """The library's own, None where it was not installed but copied beside the program."""
    try:
        return version(SCOPE)
    except PackageNotFoundError:
        return None


class _Tracing:
    """Opens a span where an event begins and closes it where it ends, both in the thread of the event."""

    def __init__(self, tracer: Tracer, model: str, rank: int) -> None:
        self._tracer = tracer
        self._of_trainer: Attributes = {"lifecycle.model": model, "lifecycle.rank": rank}

    def __call__(self, event: TrainerEvent, state: TrainerState) -> Ended:
        span = self._tracer.start_span(f"lifecycle.{event.value}")
        if not span.get_span_context().is_valid:
            return _nobody_records  # one that is not sampled is valid: what lies in it must not be sampled either
        asked = {"lifecycle.event": event.value, "lifecycle.source": state.value}
        span.set_attributes({**asked, **self._of_trainer})
        token = context.attach(set_span_in_context(span))

        def ended(how: Outcome | BaseException) -> None:
            context.detach(token)
            try:
                _describe(span, how, state)
            finally:
                span.end()

        return ended


def _nobody_records(_: Outcome | BaseException) -> None:
    """Nothing to close: the span was never current."""


def _describe(span: Span, how: Outcome | BaseException, state: TrainerState) -> None:
    span.set_attributes(_attributes(how, state))
    if isinstance(how, BaseException):
        span.set_attribute("error.type", type(how).__name__)
        span.set_status(Status(StatusCode.ERROR, redact(f"{type(how).__name__}: {how}")))


def _attributes(how: Outcome | BaseException, state: TrainerState) -> Attributes:
    """How it ended. What was committed and is missing on the log only has moved."""
    done = how.outcome if isinstance(how, AuditError) else how
    match done:
        case Moved():
            edge = {"lifecycle.edge": done.edge}
            return _result("moved", done.target, **edge, **{"lifecycle.moved_bytes": done.moved_bytes})
        case Unchanged():
            return _result("unchanged", done.state)
        case EventRefused():
            return _result("refused", done.state, **{"lifecycle.guards": tuple(guard.name for guard in done.failed)})
        case TrainerFaulted():
            return _result("faulted", TrainerState.FAULTED, **{"lifecycle.effect": str(done.effect)})
        case TransitionFailed():
            return _result("failed", done.state, **{"lifecycle.effect": str(done.effect)})
    return _result("failed", state)


def _result(result: str, target: TrainerState, **more: str | int | tuple[str, ...]) -> Attributes:
    return {"lifecycle.result": result, "lifecycle.target": target.value, **more}
