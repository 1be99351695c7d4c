"""The states of one adapter registration, and what may happen to it. Pure data and one pure question.

A registration runs one way: pending, active, retiring, cleanup, completed. A name comes back only as a
new registration, and only when the old one has been cleaned up. Events that do not move it count its
steps, or give it bytes again after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from states.errors import TableError
from states.verdict import NotABool


class AdapterState(StrEnum):
    """Where one registration stands.

    ``PENDING``: registered, no engine has it yet. ``ACTIVE``: an engine has committed it. ``RETIRING``:
    on its way out, served until it is demoted. ``CLEANUP``: no longer served, its slot still holds it.
    ``COMPLETED``: its slot is free.
    """

    PENDING = "pending"
    ACTIVE = "active"
    RETIRING = "retiring"
    CLEANUP = "cleanup"
    COMPLETED = "completed"


class AdapterEvent(StrEnum):
    """What can happen to a registration."""

    REGISTER = "register"
    WEIGHTS_PUSHED = "weights-pushed"
    DEREGISTER = "deregister"
    RETIRE = "retire"
    FREE_SLOT = "free-slot"
    BATCH_TRAINED = "batch-trained"
    SET_STEP = "set-step"
    RESOLVE_NUM_STEP = "resolve-num-step"
    RESUPPLY = "resupply"


@dataclass(frozen=True, slots=True)
class AdapterRow:
    """One legal move.

    Attributes:
        source: the state it leaves; None for a name that is not registered.
        event: the event that takes it.
        target: the state it reaches.
        needs_trainable: only a registration that may be trained takes it, a frozen one is refused.
    """

    source: AdapterState | None
    event: AdapterEvent
    target: AdapterState
    needs_trainable: bool = False

    @property
    def name(self) -> str:
        """``source --event--> target``, as errors about the table name it."""
        return f"{self.source or 'unregistered'} --{self.event}--> {self.target}"


@dataclass(frozen=True, slots=True)
class AdapterRefusal(NotABool):
    """The event may not happen to this registration. Nothing changes.

    Attributes:
        state: the state it is and stays in; None for a name that is not registered.
        event: what was asked.
        because: why not.
        remedy: what to do instead.
    """

    state: AdapterState | None
    event: AdapterEvent
    because: str
    remedy: str


_S = AdapterState
_E = AdapterEvent

_HOLDS_A_SLOT: Final = (_S.PENDING, _S.ACTIVE, _S.RETIRING, _S.CLEANUP)


def _stays(event: AdapterEvent, *states: AdapterState, needs_trainable: bool = False) -> tuple[AdapterRow, ...]:
    return tuple(AdapterRow(state, event, state, needs_trainable) for state in states)


ADAPTER_TABLE: Final[tuple[AdapterRow, ...]] = (
    AdapterRow(None, _E.REGISTER, _S.PENDING),
    AdapterRow(_S.COMPLETED, _E.REGISTER, _S.PENDING),
    AdapterRow(_S.PENDING, _E.WEIGHTS_PUSHED, _S.ACTIVE),
    *_stays(_E.WEIGHTS_PUSHED, _S.ACTIVE, _S.RETIRING),
    AdapterRow(_S.PENDING, _E.DEREGISTER, _S.RETIRING),
    AdapterRow(_S.ACTIVE, _E.DEREGISTER, _S.RETIRING),
    AdapterRow(_S.RETIRING, _E.RETIRE, _S.CLEANUP),
    AdapterRow(_S.CLEANUP, _E.FREE_SLOT, _S.COMPLETED),
    *_stays(_E.BATCH_TRAINED, _S.ACTIVE, _S.RETIRING, _S.CLEANUP, needs_trainable=True),
    *_stays(_E.SET_STEP, *_HOLDS_A_SLOT),
    *_stays(_E.RESOLVE_NUM_STEP, *_HOLDS_A_SLOT),
    *_stays(_E.RESUPPLY, _S.PENDING, _S.ACTIVE),
)

_BECAUSE: Final[Mapping[AdapterState | None, str]] = {
    None: "it is not registered",
    _S.PENDING: "it is registered and waits for its first push",
    _S.ACTIVE: "it is registered and active",
    _S.RETIRING: "it is retiring",
    _S.CLEANUP: "it is still cleaning up",
    _S.COMPLETED: "it has been cleaned up",
}
_REMEDY: Final[Mapping[AdapterState | None, str]] = {
    None: "register it first",
    _S.PENDING: "deregister it first",
    _S.ACTIVE: "deregister it first",
    _S.RETIRING: "it is cleaned up by the next reconcile; register it again after that",
    _S.CLEANUP: "its slot is freed by the next reconcile; register it again after that",
    _S.COMPLETED: "register it anew",
}
_OTHER_BECAUSE: Final[Mapping[tuple[AdapterState | None, AdapterEvent], str]] = {
    (_S.PENDING, _E.REGISTER): "it is already registered and waits for its first push",
    (_S.ACTIVE, _E.REGISTER): "it is already registered and active",
}
_OTHER_REMEDY: Final[Mapping[tuple[AdapterState | None, AdapterEvent], str]] = {
    (_S.PENDING, _E.REGISTER): "deregister it first, or use another name",
    (_S.ACTIVE, _E.REGISTER): "deregister it first, or use another name",
    (_S.PENDING, _E.BATCH_TRAINED): "update_weights() first; until then nothing that it generated can be in a batch",
    (_S.RETIRING, _E.FREE_SLOT): "retire_adapters() or reconcile first",
}
_FROZEN: Final = "it is frozen: it is served and never trained"
_FROZEN_REMEDY: Final = "leave it out of the batch, or register it as trainable"


def decide_adapter(
    state: AdapterState | None,
    event: AdapterEvent,
    *,
    trainable: bool = True,
    table: tuple[AdapterRow, ...] = ADAPTER_TABLE,
) -> AdapterState | AdapterRefusal:
    """Decide what *event* does to a registration in *state*. Pure: equal arguments, equal answer.

    Args:
        state: the state it is in; None for a name that is not registered.
        event: what is asked.
        trainable: whether it was registered to be trained.
        table: the rows; another one than the library's only in tests.

    Returns:
        The state it reaches, or why it may not.
    """
    for row in table:
        if row.source is state and row.event is event:
            if row.needs_trainable and not trainable:
                return AdapterRefusal(state, event, _FROZEN, _FROZEN_REMEDY)
            return row.target
    asked = (state, event)
    return AdapterRefusal(
        state, event, _OTHER_BECAUSE.get(asked, _BECAUSE[state]), _OTHER_REMEDY.get(asked, _REMEDY[state])
    )


def check_adapter_table(table: tuple[AdapterRow, ...]) -> None:
    """Check that no pair stands twice, that a run is one-way, and that each state can be reached and left.

    A row that asks whether the registration may be trained does not move it: a frozen one lives the same life.

    Raises:
        TableError: naming the row or the state that breaks a rule.
    """
    order = list(AdapterState)
    seen: set[tuple[AdapterState | None, AdapterEvent]] = set()
    for row in table:
        if (row.source, row.event) in seen:
            raise TableError(row.name, "the same state and event stand twice in the table")
        seen.add((row.source, row.event))
        if row.event is AdapterEvent.REGISTER:
            if row.target is not AdapterState.PENDING or row.source not in {None, AdapterState.COMPLETED}:
                raise TableError(row.name, "a registration starts in pending, and only when the name is free")
        elif row.source is None or order.index(row.target) < order.index(row.source):
            raise TableError(row.name, "a registration never goes back")
        if row.needs_trainable and row.source is not row.target:
            raise TableError(row.name, "a frozen registration moves as any other")
    moves = [row for row in table if row.source is not row.target]
    for state in AdapterState:
        if state not in {row.target for row in moves}:
            raise TableError(state, "no row leads to the state")
        if state not in {row.source for row in moves}:
            raise TableError(state, "no row leaves the state")


check_adapter_table(ADAPTER_TABLE)
