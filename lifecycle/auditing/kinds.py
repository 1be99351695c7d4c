"""What an audit can find, and what looks for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from states import Facts


class Kind(StrEnum):
    """The kinds of violations. Their names are stable: other programs may look for them."""

    MALFORMED = "malformed"
    TORN = "torn"
    CHAIN = "chain"
    SEQUENCE = "sequence"
    SESSION = "session"
    NUMBERING = "numbering"
    UNFINISHED = "unfinished"
    UNPAIRED = "unpaired"
    TRANSITION = "transition"
    VERDICT = "verdict"
    FACTS = "facts"
    EFFECTS = "effects"
    VERSION = "version"
    READ = "read"
    ENGINE = "engine"
    BYTES = "bytes"
    COPY = "copy"
    LEASE = "lease"
    RANKS = "ranks"


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is not as it should be.

    Attributes:
        kind: which rule is broken.
        file: where the line stands.
        line: its number there, from 1.
        message: what is wrong, in words.
    """

    kind: Kind
    file: str
    line: int
    message: str

    def told(self) -> dict[str, object]:
        """The same for JSON."""
        return {"kind": self.kind.value, "file": self.file, "line": self.line, "message": self.message}


@dataclass
class Audited:
    """What an audit has read so far: some records more than those whose violations were given, until it is over.

    Attributes:
        records: how many.
        cut_off: logs whose last line was cut off, with the number of that line. What is before it was read.
    """

    records: int = 0
    cut_off: dict[str, int] = field(default_factory=dict)


DECIDED: Final = frozenset({"began", "refused", "unchanged"})
"""Events of records that tell facts."""
ENDED: Final = frozenset({"moved", "failed"})
EVERY: Final = DECIDED | ENDED | {"opened", "noted"}


class Found(list[tuple[Kind, str]]):
    """What checks find at one record. Nearly always nothing, so it is handed to them and not made by each."""

    __slots__ = ()

    def say(self, kind: Kind, message: str) -> None:
        """One thing more."""
        self.append((kind, message))


@dataclass(slots=True)
class Seen:
    """A whole record, as checks look at it. Its values are not changed.

    Attributes:
        record: all its keys, as :class:`~lifecycle.auditing.lines.Line` has them.
        event: its name without ``lifecycle.``.
        changed: names of the facts that are others than in the record before that told some. A check that has
            forgotten what stood there looks at all of them.
    """

    record: dict[str, Any]
    event: str
    changed: Collection[str] = ()


Look = Callable[[Seen, Found], None]
"""Looks at the next record."""


class Check:
    """Looks for violations of a kind, record by record."""

    def begin(self, seen: Seen, found: Found) -> None:
        """A session begins: nothing is known of what went before it."""
        self.forget()

    def looks(self) -> Mapping[str, Look]:
        """What looks at a record, by its event; others are not shown to it. A session that begins was told before."""
        return {}

    def facts(self, seen: Seen, facts: Facts, found: Found) -> None:
        """Look at the facts of ``began``, ``refused`` or ``unchanged``, after all looks at that record."""

    def end(self, found: Found) -> None:
        """Say what is wrong when nothing follows in this session. Most need no end."""

    def forget(self) -> None:
        """Something is missing before the next record: nothing is known of what went before."""
