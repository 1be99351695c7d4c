"""Who still holds transport bytes: a buffer is the trainer's memory until its receiver closes it.

A sync is complete when no such byte is outstanding. Until then ``offload`` and ``wake_up`` are refused and name
the receivers: the memory that they hold is missing where the transition counts on it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from lifecycle.engines.protocol import RolloutEngine
from lifecycle.errors import EngineError

Note = tuple[str, dict[str, object]]
"""What is worth a record: the note and its keys."""


@runtime_checkable
class HoldsTransport(Protocol):
    """A rollout engine that receives through buffers of the trainer. Optional; others copy before they return."""

    def outstanding_bytes(self) -> int:
        """Bytes of the trainer's buffers that it has not closed yet. Cheap; asked before each offload and wake."""


@runtime_checkable
class ChoosesTransport(Protocol):
    """An engine that is sent to by a way of several. Optional. A push takes what it tells into the audit log."""

    def transport_notes(self) -> Sequence[Note]:
        """What was decided since it was last asked."""


class TransportBroken(EngineError):
    """A way to an engine broke in the middle of an update, which has to be aborted and begun again.

    Attributes:
        transport: the way.
        another: whether there is one that has not broken yet; the next send takes it.
    """

    def __init__(self, engine: str, transport: str, why: str, *, another: bool) -> None:
        remedy = "the next one is taken" if another else "no other is left; all are probed again at the next update"
        super().__init__(engine, f"{transport} broke: {why}; {remedy}")
        self.transport = transport
        self.another = another


class Receivers:
    """The engines that were sent something through buffers, by name and weakly: one that is gone holds nothing."""

    def __init__(self) -> None:
        self._known: dict[str, Callable[[], HoldsTransport | None]] = {}

    def remember(self, engine: RolloutEngine) -> None:
        """It gets something now; what it holds counts from here on."""
        if isinstance(engine, HoldsTransport):
            try:
                self._known[engine.name] = weakref.ref(engine)
            except TypeError:  # a class with slots and without weak references
                self._known[engine.name] = lambda: engine

    def outstanding(self) -> dict[str, int | None]:
        """Bytes by holder, of those that hold any; None where a receiver does not answer: that is unknown."""
        found: dict[str, int | None] = {}
        for name, look in tuple(self._known.items()):
            engine = look()
            if engine is None:
                del self._known[name]
                continue
            try:
                held: int | None = int(engine.outstanding_bytes())
            except Exception:  # noqa: BLE001 - whatever a receiver raises, what it holds is unknown
                held = None
            if held != 0:
                found[name] = held
        return found

    def facts(self) -> dict[str, object]:
        """``transport_bytes`` and ``transport_holders`` of :class:`states.Facts`."""
        held = self.outstanding()
        return {
            "transport_bytes": sum(size or 0 for size in held.values()),
            "transport_holders": tuple(
                f"{name} ({'does not answer' if size is None else f'{size} bytes'})" for name, size in held.items()
            ),
        }
