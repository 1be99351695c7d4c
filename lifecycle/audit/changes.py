"""The facts of a record, told as what changed since the record before that carried facts.

A guard looks at every content group, so the facts of ten thousand adapters are megabytes, and of one event hardly any
of them change. A log is still enough to decide each event again: :mod:`lifecycle.audit.expand` gives the facts back
in full. All of them stand in the first record of a session and of a file, and again once the changes told since then
add up to their size: the records that carry all facts are then at most about half of a log, however many adapters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, Final

from lifecycle.audit.rows import KEYED, Entry
from lifecycle.audit.told import Sure, told
from lifecycle.redaction import REDACTED
from states import Facts, LeaseFacts

_NAMES: Final = {"shared": tuple(Facts().shared()), "local": tuple(Facts().local())}
_VALUES: Final = {scope: attrgetter(*names) for scope, names in _NAMES.items()}

LONG: Final = 8
"""A list of more texts than these is told once; where it comes again, the record points at it."""


class RecordedFacts(Mapping[str, Sure]):
    """The facts that an event was decided on, whole: ``{"shared": {...}, "local": {...}}``.

    A log writes them as changes, see :class:`Changes`; any other sink may write the mapping that they are.

    Attributes:
        facts: the same as the guards saw it.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def __getitem__(self, scope: str) -> Sure:
        return Sure(zip(_NAMES[scope], _VALUES[scope](self.facts), strict=True))

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


class Changes:
    """Tells the facts of one log, each as against those before. Not for several threads at once."""

    def __init__(self) -> None:
        self._facts: Facts | None = None
        self._since: int | None = None
        self._full_size = self._size_since = 0
        self._lists: dict[object, int] = {}
        self._gone: dict[str, dict[str, Entry]] = {}

    def told(self, facts: RecordedFacts) -> str:
        """The JSON of the facts: all of them, or what changed. Until :meth:`kept`, what follows is told in full."""
        before, since, self._since = self._facts, self._since, None
        self._facts = facts.facts
        if before is not None and since is not None and self._size_since < self._full_size:
            text = told(Sure(since=since, **self._changed(before, facts.facts)))
            # What was redacted cannot be told apart from other secrets: no change may refer to it.
            if REDACTED not in text:
                self._size_since += len(text)
                return text
        text = told(Sure(facts))
        self._full_size, self._size_since = len(text), 0
        self._lists.clear()
        self._gone.clear()
        return text

    def kept(self, sequence: int) -> None:
        """The record that carried the facts told last is written, under this number."""
        self._since = sequence

    def forget(self) -> None:
        """The next facts are told in full: what stands before them in the log may be somebody else's."""
        self._since = None

    def _changed(self, before: Facts, after: Facts) -> dict[str, Sure]:
        return {
            scope: Sure(
                {
                    name: self._change(name, old, new)
                    for name, old, new in zip(_NAMES[scope], values(before), values(after), strict=True)
                    if old is not new and old != new
                }
            )
            for scope, values in _VALUES.items()
        }

    def _change(self, name: str, before: Any, after: Any) -> object:
        rows = KEYED.get(name)
        if rows is None:
            return self._tell(after)
        found = rows.changes(before, after, self._gone.setdefault(name, {}), self._tell)
        return after if found is None else found

    def _tell(self, value: object) -> object:
        """The value; a long list of texts under a number, and only that number where it comes again."""
        if type(value) is not tuple:
            return value
        if value and type(value[0]) is LeaseFacts:
            return [self._lease(one) for one in value]
        if len(value) <= LONG:
            return value
        known = self._lists.get(value)
        if known is not None:
            return Sure({"as": known})
        self._lists[value] = len(self._lists)
        return Sure({"id": self._lists[value], "is": value})

    def _lease(self, one: LeaseFacts) -> Sure:
        return Sure(holder=one.holder, source=one.source, groups=self._tell(one.groups), leaked=self._tell(one.leaked))
