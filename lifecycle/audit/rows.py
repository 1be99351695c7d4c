"""What changed in a fact that is a tuple of entries, each under a key: content groups and engines.

A pause changes where the bytes of every group are, and each group in the same way. That is told once for all of
them, by their positions in the list as it was; what changed in a few entries is told for each, under its key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final

from lifecycle.audit.spans import spans_of
from lifecycle.audit.told import Sure
from states import ContentFacts, EngineFacts

FEW: Final = 8
"""Up to so many entries that change alike are told one by one."""
COPIES: Final = "copies"
_VERSIONS: Final = ("live", "saver", "version", "file")
"""Fields that another field of the same entry may take its value from: a pause writes live bytes into the backup."""

Tell = Callable[[object], object]
Column = Sequence[Any]
Columns = dict[str, tuple[Column, Column]]
Single = dict[int, dict[str, object]]
Rules = tuple[dict[tuple[int, ...], dict[str, object]], Single]
"""What is told of several rows at once, by their numbers, and of single ones."""
Entry = tuple[Any, ...]
Row = tuple[int, Entry, Entry]
"""The position of an entry in the list as it was, and its values before and now."""


class Rows:
    """Tells entries of one kind apart.

    Args:
        kind: their frozen dataclass. Its first field is the key: no two entries of a fact have the same.

    Attributes:
        key: the name of that field.
    """

    def __init__(self, kind: type[ContentFacts | EngineFacts]) -> None:
        self.names = tuple(one.name for one in fields(kind))
        self.key = self.names[0]
        self._values = attrgetter(*self.names)

    def changes(
        self, before: Sequence[object], after: Sequence[object], gone: dict[str, Entry], tell: Tell
    ) -> Sure | None:
        """What turns *before* into *after*; None where the order of what stays is another, or a key stands twice.

        Args:
            before: the entries that were told last.
            after: the entries now.
            gone: entries that left since the last full record, by key; what comes back is told as against them.
            tell: how a value of an entry is written.
        """
        old, new = list(map(self._values, before)), list(map(self._values, after))
        keys, others = [one[0] for one in old], [one[0] for one in new]
        if keys == others:
            rows = [(at, one, other) for at, (one, other) in enumerate(zip(old, new, strict=True)) if one != other]
            return Sure(changed=self._changed(rows, tell))
        found = _moves(keys, others)
        if found is None:
            return None
        kept, entered = found
        told = Sure()
        rows = [(at, old[at], new[there]) for at, there in kept if old[at] != new[there]]
        if rows:
            told["changed"] = self._changed(rows, tell)
        stays = {keys[at] for at, _ in kept}
        if len(stays) < len(keys):
            told["gone"] = [key for key in keys if key not in stays]
            gone |= {one[0]: one for one in old if one[0] not in stays}
        if entered:
            last = kept[-1][1] if kept else -1
            told["new"] = [self._entering(new[at], at if at < last else None, gone, tell) for at in entered]
        return told

    def _entering(self, entry: Entry, at: int | None, gone: Mapping[str, Entry], tell: Tell) -> Sure:
        key = entry[0]
        before = gone.get(key, (_NOTHING,) * len(entry))
        told = Sure({self.key: key} if at is None else {"at": at, self.key: key})
        for name, old, new in zip(self.names[1:], before[1:], entry[1:], strict=True):
            if old != new:
                told[name] = tell(new)
        return told

    def _changed(self, rows: Sequence[Row], tell: Tell) -> list[Sure]:
        """The changes of entries that stay."""
        many, single = _rules(self._columns(rows), tell) if len(rows) > FEW else ({}, self._few(rows, tell))
        told = [Sure({"at": spans_of(rows[row][0] for row in alike), **rule}) for alike, rule in many.items()]
        for row in sorted(single):
            at, old, _ = rows[row]
            told.append(Sure({"at": str(at), self.key: old[0], **single[row]}))
        return told

    def _few(self, rows: Sequence[Row], tell: Tell) -> Single:
        """Every changed field under its entry."""
        return {
            row: {
                name: tell(new) if type(new) is tuple else new
                for name, old, new in zip(self.names, before, after, strict=True)
                if old != new
            }
            for row, (_, before, after) in enumerate(rows)
        }

    def _columns(self, rows: Sequence[Row]) -> Columns:
        """Field to its values before and after, of the fields in which any entry differs."""
        columns: Columns = {}
        for index, name in enumerate(self.names):
            was, now = [one[index] for _, one, _ in rows], [one[index] for _, _, one in rows]
            if was != now or name in _VERSIONS:
                columns[name] = (was, now)
        if COPIES in columns and _are_in_order(*columns[COPIES]):
            columns |= _by_tag(*columns.pop(COPIES))
        return columns


_NOTHING: Final = object()

KEYED: Final = {"contents": Rows(ContentFacts), "engines": Rows(EngineFacts)}
"""The facts that are told entry by entry."""


def _moves(old: list[str], new: list[str]) -> tuple[list[tuple[int, int]], list[int]] | None:
    """(position before, position after) of what stays, and the positions of what is new."""
    place = {key: at for at, key in enumerate(old)}
    if len(place) != len(old) or len(set(new)) != len(new):
        return None
    kept = [(place[key], at) for at, key in enumerate(new) if key in place]
    if any(one > other for (one, _), (other, _) in pairwise(kept)):
        return None
    return kept, [at for at, key in enumerate(new) if key not in place]


def _rules(columns: Columns, tell: Tell) -> Rules:
    """What is told of many rows at once, and what is told of single ones."""
    many: dict[tuple[int, ...], dict[str, object]] = {}
    single: dict[int, dict[str, object]] = {}
    for name, (was, now) in columns.items():
        rest = [row for row, (old, new) in enumerate(zip(was, now, strict=True)) if old != new]
        for told, values in _candidates(now, rest, columns):
            alike = [row for row in rest if now[row] == values[row]]
            if len(alike) > FEW:
                many.setdefault(tuple(alike), {})[name] = told
                rest = [row for row in rest if now[row] != values[row]]
        for row in rest:
            single.setdefault(row, {})[name] = tell(now[row])
    return many, single


def _candidates(now: Column, rest: list[int], columns: Columns) -> list[tuple[object, Column]]:
    """What may be said of many rows at once: one value, or the value that another field had."""
    if len(rest) <= FEW:
        return []
    value = now[rest[-1]]
    others = [(Sure(was=name), columns[name][0]) for name in _VERSIONS if name in columns]
    return [(value, [value] * len(now)), *others]


def in_order(first: Iterable[Sequence[Any]], now: Mapping[str, int | None]) -> tuple[tuple[str, int], ...]:
    """Copies as (tag, version): those that were there *first* keep their order, others follow by name.

    Args:
        first: the copies before a change.
        now: tag to version, None where there is no such copy any more.
    """
    there = dict.fromkeys(tag for tag, _ in first)
    tags = (*there, *sorted(now.keys() - there.keys()))
    return tuple((tag, version) for tag in tags if (version := now.get(tag)) is not None)


def _are_in_order(was: Column, now: Column) -> bool:
    return all(new == old or in_order(old, dict(new)) == new for old, new in zip(was, now, strict=True))


def _by_tag(was: Column, now: Column) -> Columns:
    """The copies as a column for each tag, None where a row has none of it."""
    old, new = [dict(one) for one in was], [dict(one) for one in now]
    tags = dict.fromkeys(tag for one in (*old, *new) for tag in one)
    return {f"{COPIES}.{tag}": ([one.get(tag) for one in old], [one.get(tag) for one in new]) for tag in tags}
