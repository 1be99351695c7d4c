"""The facts of a record as guards look at them: with them a log alone decides each event again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lifecycle.audit.expand import is_whole
from lifecycle.errors import AuditError
from states import ContentFacts, EngineFacts, Facts, LeaseFacts, TrainerState

ENTRIES: Final[dict[str, type[Any]]] = {
    "contents": ContentFacts,
    "engines": EngineFacts,
    "leases": LeaseFacts,
}


def facts_of(record: Mapping[str, Any]) -> Facts:
    """The facts that the event of a ``began``, ``refused`` or ``unchanged`` record was decided on.

    ``decide(state, event, facts_of(record))`` then gives the verdicts, reads and edge of that record again.

    Args:
        record: as :func:`~lifecycle.audit.read.read_lines` gives it.

    Raises:
        AuditError: the record has no facts, not all of them, or other ones than this version knows.
    """
    told: Any = record.get("facts")
    where = f"record {record.get('sequence')}"
    if not is_whole(told):
        raise AuditError(where, "its facts are missing, or changes of a record that is not there; read the whole log")
    try:
        both = {**told["shared"], **told["local"]}
        return Facts(**{name: _value_of(name, one) for name, one in both.items()})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AuditError(where, f"its facts are not those of this version: {error}") from error


def _value_of(name: str, told: Any) -> Any:
    """The value of one fact, by its name; what it raises where it is none is what :func:`facts_of` looks for."""
    if name in ENTRIES:
        return tuple([_entry_of(name, one) for one in told])
    if name == "origin" and told is not None:
        return TrainerState(told)
    return _frozen(told) if type(told) is list else told


def _entry_of(name: str, told: Mapping[str, Any]) -> Any:
    """One entry of a fact that is a list of them."""
    return ENTRIES[name](**{field: _frozen(one) if type(one) is list else one for field, one in told.items()})


def _frozen(told: list[Any]) -> tuple[Any, ...]:
    return tuple([_frozen(one) if type(one) is list else one for one in told])
