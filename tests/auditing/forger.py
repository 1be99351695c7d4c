"""Forges good logs: every leaf of every record, one at a time, with numbers and a chain that are right again."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lifecycle.audit.chain import chain_hash
from lifecycle.audit.plain import compact_json
from lifecycle.auditing import audit_logs
from tests.auditing.logs import Record

_BY_NAME: Final = frozenset({"versions", "checkpoint", "decision", "verified", "engines", "device", "saver_host",
    "saver_disk", "base_file", "snapshots", "kept_gradients", "transport"})  # fmt: skip
"""Mappings whose keys are names, of groups, engines, tags or sources."""
_CHAINED: Final = frozenset({"event", "schema", "sequence", "hash", "last_hash"})
"""What the forger writes anew; a change of it is what :mod:`tests.auditing.test_chain` is about."""
_OTHER: Final = "forged"

Path_ = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Forgery:
    """A log with one change.

    Attributes:
        leaf: what was changed, as ``moved.held.device.*``: names stand as ``*``, places in lists as ``[]``.
        how: to what.
        at: index of the first record that is not as it was.
        records: those of the log from there on.
    """

    leaf: str
    how: str
    at: int
    records: list[Record]


class Forger:
    """Writes forgeries of one log, and asks an audit about them.

    Args:
        records: of the good log, whole, in one file.
        path: where forgeries are written.
        each: of how many records of an event each leaf is forged at most; those are spread over the log.
    """

    def __init__(self, records: list[Record], path: Path, *, each: int = 4) -> None:
        self._records, self._path, self._each = records, path, each
        self._lines: list[str] = []
        self._hashes = [""]
        for one in records:
            line, hashed = _chained(one, self._hashes[-1])
            self._lines.append(line)
            self._hashes.append(hashed)
        assert not self.is_found(Forgery("", "", len(records), []))

    def is_found(self, forgery: Forgery) -> bool:
        """Whether an audit has anything to say about it."""
        lines, previous = self._lines[: forgery.at], self._hashes[forgery.at]
        for number, one in enumerate(forgery.records, start=forgery.at + 1):
            told = {**one, "sequence": number}
            if one["event"] == "lifecycle.opened":
                told["last_hash"] = previous
            line, previous = _chained(told, previous)
            lines.append(line)
        self._path.write_text("".join(lines))
        return next(audit_logs([self._path]), None) is not None

    def forgeries(self) -> Iterator[Forgery]:
        """Every leaf, as often and in as many ways as there are."""
        leaves: dict[str, list[tuple[int, Path_, Any]]] = defaultdict(list)
        for at, one in enumerate(self._records):
            for path, value in _leaves(one, ()):
                if path[0] not in _CHAINED:
                    leaves[_name(one, path)].append((at, path, value))
        for leaf, places in leaves.items():
            seen = [value for _, _, value in places]
            for at, path, value in places[:: max(1, len(places) // self._each)]:
                for how, to in _others(value, seen):
                    yield Forgery(leaf, f"{path} {how}", at, self._with(at, path, to))
        yield from self._moved_records()

    def _with(self, at: int, path: Path_, to: Any) -> list[Record]:
        forged = copy.deepcopy(self._records[at])
        held: Any = forged
        for key in path[:-1]:
            held = held[key]
        if to is _GONE:
            del held[path[-1]]
        else:
            held[path[-1]] = to
        return [forged, *self._records[at + 1 :]]

    def _moved_records(self) -> Iterator[Forgery]:
        for at, one in enumerate(self._records):
            event, rest = one["event"].removeprefix("lifecycle."), self._records[at + 1 :]
            yield Forgery(f"{event} is removed", f"record {at + 1}", at, rest)
            yield Forgery(f"{event} is repeated", f"record {at + 1}", at, [one, one, *rest])
            if rest:
                yield Forgery(f"{event} is put later", f"record {at + 1}", at, [rest[0], one, *rest[1:]])


_GONE: Final = object()


def _chained(record: Record, previous: str) -> tuple[str, str]:
    told = {key: value for key, value in record.items() if key != "hash"}
    hashed: str = chain_hash(previous, told)
    return f"{compact_json({**told, 'hash': hashed})}\n", hashed


def _leaves(value: Any, path: Path_) -> Iterator[tuple[Path_, Any]]:
    """Everything in a record that a forger may lay hands on, lists and mappings too."""
    if path:
        yield path, value
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _leaves(one, (*path, key))
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from _leaves(one, (*path, at))


def _name(record: Record, path: Path_) -> str:
    named = record["event"].removeprefix("lifecycle.")
    above: str | int = ""
    for key in path:
        if isinstance(key, int):
            named += "[]"
        else:
            named += ".*" if above in _BY_NAME else f".{key}"
        above = key
    return named


def _others(value: Any, seen: list[Any]) -> Iterator[tuple[str, Any]]:
    """Values that a forger may write instead."""
    yield "is gone", _GONE
    other = next((one for one in seen if one != value and type(one) is type(value)), None)
    if other is not None:
        yield f"is {_short(other)}, as elsewhere", other
    yield from _OF_TYPE.get(type(value), _none)(value, seen)


def _bool(value: Any, _: list[Any]) -> Iterator[tuple[str, Any]]:
    yield f"is {not value}", not value


def _number(value: Any, _: list[Any]) -> Iterator[tuple[str, Any]]:
    yield "is one more", value + 1
    yield "is less", -value - 1 if isinstance(value, float) else value - 1


def _text(_: Any, __: list[Any]) -> Iterator[tuple[str, Any]]:
    yield "is another text", _OTHER


def _none(_: Any, seen: list[Any]) -> Iterator[tuple[str, Any]]:
    other = next((one for one in seen if one is not None), None)
    for one in [1, _OTHER] if other is None else [other]:
        yield f"is {_short(one)}", one


def _list(value: Any, seen: list[Any]) -> Iterator[tuple[str, Any]]:
    longest = max((one for one in seen if isinstance(one, list)), key=len)
    if value:
        yield "without the last", value[:-1]
        yield "with the first twice", [value[0], *value]
        yield "without any", []
    if len(value) > 1:
        yield "in another order", [value[1], value[0], *value[2:]]
    if not longest:
        yield "with a text", [_OTHER]


def _mapping(value: Any, _: list[Any]) -> Iterator[tuple[str, Any]]:
    yield "with another name", {**value, _OTHER: next(iter(value.values()), 1)}


_OF_TYPE: Final[dict[type, Callable[[Any, list[Any]], Iterator[tuple[str, Any]]]]] = {
    bool: _bool, int: _number, float: _number, str: _text, list: _list, dict: _mapping,
}  # fmt: skip


def _short(value: object) -> str:
    return repr(value)[:60]
