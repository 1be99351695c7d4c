"""The states of one adapter registration, and what may move it. Pure data and one pure question.

A registration runs one way: pending, active, retiring, cleanup, completed. A name comes back only as a
new registration, and only when the old one has been cleaned up.
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


@dataclass(frozen=True, slots=True)
class AdapterRow:
    """One legal move.

    Attributes:
        source: the state it leaves; None for a name that is not registered.
        event: the event that takes it.
        target: the state it reaches.
    """

    source: AdapterState | None
    event: AdapterEvent
    target: AdapterState

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

ADAPTER_TABLE: Final[tuple[AdapterRow, ...]] = (
    AdapterRow(None, _E.REGISTER, _S.PENDING),
    AdapterRow(_S.COMPLETED, _E.REGISTER, _S.PENDING),
    AdapterRow(_S.PENDING, _E.WEIGHTS_PUSHED, _S.ACTIVE),
    AdapterRow(_S.ACTIVE, _E.WEIGHTS_PUSHED, _S.ACTIVE),
    AdapterRow(_S.RETIRING, _E.WEIGHTS_PUSHED, _S.RETIRING),
    AdapterRow(_S.PENDING, _E.DEREGISTER, _S.RETIRING),
    AdapterRow(_S.ACTIVE, _E.DEREGISTER, _S.RETIRING),
    AdapterRow(_S.RETIRING, _E.RETIRE, _S.CLEANUP),
    AdapterRow(_S.CLEANUP, _E.FREE_SLOT, _S.COMPLETED),
)

_STANDING: Final[Mapping[AdapterState | None, tuple[str, str]]] = {
    None: ("it is not registered", "register it first"),
    _S.PENDING: ("it is already registered and waits for its first push", "deregister it first, or use another name"),
    _S.ACTIVE: ("it is already registered and active", "deregister it first, or use another name"),
    _S.RETIRING: ("it is retiring", "it is cleaned up by the next reconcile; try again after that"),
    _S.CLEANUP: ("it is still cleaning up", "its slot is freed by the next reconcile; try again after that"),
    _S.COMPLETED: ("it has been cleaned up", "register it anew"),
}


def decide_adapter(
    state: AdapterState | None, event: AdapterEvent, *, table: tuple[AdapterRow, ...] = ADAPTER_TABLE
) -> AdapterState | AdapterRefusal:
    """Decide what *event* does to a registration in *state*. Pure: equal arguments, equal answer.

    Args:
        state: the state it is in; None for a name that is not registered.
        event: what is asked.
        table: the rows; another one than the library's only in tests.

    Returns:
        The state it reaches, or why it may not.
    """
    for row in table:
        if row.source is state and row.event is event:
            return row.target
    because, remedy = _STANDING[state]
    return AdapterRefusal(state, event, because, remedy)


def check_adapter_table(table: tuple[AdapterRow, ...]) -> None:
    """Check that no pair stands twice, that a run is one-way, and that each state can be reached and left.

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
    moves = [row for row in table if row.source is not row.target]
    for state in AdapterState:
        if state not in {row.target for row in moves}:
            raise TableError(state, "no row leads to the state")
        if state not in {row.source for row in moves}:
            raise TableError(state, "no row leaves the state")


check_adapter_table(ADAPTER_TABLE)
