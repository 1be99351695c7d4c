"""Where ranks differ: the tables of digests say who and in which fact, the values fetched say what."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from states.agreement import NAMES, Difference
from states.agreement_digest import ENTRY_BYTES

NAMED_MAX: Final = 5
"""So many differences stand in an error."""
TOLD_MAX: Final = 4
"""So many ranks tell their values: one for each of the tables that differ."""
_LONG: Final = 160
_KEYS: Final = ("group", "name", "holder")
_ABSENT: Final = "(nothing)"


@lru_cache(maxsize=2)
def unlike(held: bytes, size: int, compared: tuple[int, ...]) -> dict[str, list[tuple[int, ...]]]:
    """The facts that differ: name to the ranks of each value, the most numerous first.

    Args:
        held: the tables of all ranks: of each the digests of :data:`NAMES`, one after another.
        size: of one table, in bytes.
        compared: the ranks whose decision counts; others refuse.
    """
    tables = [held[at : at + size] for at in range(0, len(held), size)]
    found: dict[str, list[tuple[int, ...]]] = {}
    for index, name in enumerate(NAMES):
        entry = slice(index * ENTRY_BYTES, (index + 1) * ENTRY_BYTES)
        groups = groups_of([table[entry] for table in tables], compared if name == "decision" else None)
        if len(groups) > 1:
            found[name] = groups
    return found


def groups_of(values: Sequence[object], ranks: Sequence[int] | None = None) -> list[tuple[int, ...]]:
    """The ranks of each value, the most numerous first.

    Args:
        values: of every rank.
        ranks: those that count; all when None.
    """
    by_value: dict[object, list[int]] = {}
    for rank in range(len(values)) if ranks is None else ranks:
        by_value.setdefault(values[rank], []).append(rank)
    return sorted((tuple(held) for held in by_value.values()), key=lambda one: (-len(one), one))


def tellers(facts: Mapping[str, Sequence[tuple[int, ...]]]) -> tuple[int, ...]:
    """One rank for each value, as far as few can tell all of them."""
    found = dict.fromkeys(ranks[0] for groups in facts.values() for ranks in groups)
    return tuple(sorted(tuple(found)[:TOLD_MAX]))


@lru_cache(maxsize=2)
def explained(
    held: bytes, size: int, compared: tuple[int, ...], answers: tuple[bytes, ...]
) -> tuple[tuple[Difference, ...], int]:
    """The :func:`differences` of what was exchanged.

    Args:
        held: as of :func:`unlike`, as are *size* and *compared*.
        size: of one table.
        compared: the ranks whose decision counts.
        answers: of the :func:`tellers`, in their order, as JSON.
    """
    facts = unlike(held, size, compared)
    return differences(facts, dict(zip(tellers(facts), map(json.loads, answers), strict=True)))


def differences(
    facts: Mapping[str, Sequence[tuple[int, ...]]], told: Mapping[int, Mapping[str, Any]]
) -> tuple[tuple[Difference, ...], int]:
    """The first few differences in words, and how many more there are.

    Args:
        facts: what :func:`unlike` found.
        told: rank to the plain values of these facts, of the :func:`tellers`.
    """
    found: list[Difference] = []
    for name, groups in facts.items():
        known = [(ranks, told[teller][name]) for ranks in groups if (teller := _first_of(ranks, told)) is not None]
        rest = [(ranks, "(not fetched)") for ranks in groups if _first_of(ranks, told) is None]
        for path in _paths([value for _, value in known]) if len(known) > 1 else [()]:
            values = [(ranks, _words(_at(value, path))) for ranks, value in known]
            found.append(Difference(_path_name(name, path), _merged([*values, *rest])))
    return tuple(found[:NAMED_MAX]), max(0, len(found) - NAMED_MAX)


def _first_of(ranks: tuple[int, ...], told: Mapping[int, object]) -> int | None:
    return next((rank for rank in ranks if rank in told), None)


def _merged(values: list[tuple[tuple[int, ...], str]]) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Ranks of equal words together: two values of a record may differ elsewhere only."""
    by_words: dict[str, list[int]] = {}
    for ranks, words in values:
        by_words.setdefault(words, []).extend(ranks)
    merged = [(tuple(sorted(ranks)), words) for words, ranks in by_words.items()]
    return tuple(sorted(merged, key=lambda one: (-len(one[0]), one[0])))


def _paths(values: Sequence[Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The places at which plain values differ, as deep as they are records of the same keys."""
    if all(one == values[0] for one in values):
        return
    keyed = [_keyed(one) for one in values]
    if any(one is None for one in keyed):
        yield path
        return
    tables = [one for one in keyed if one is not None]
    keys = dict.fromkeys(key for one in tables for key in one)
    for key in keys:
        held = [one.get(key, _ABSENT) for one in tables]
        if any(one != held[0] for one in held):
            yield from _paths(held, (*path, key))


def _keyed(value: Any) -> Mapping[str, Any] | None:
    """A record, or a list of records that have a name each, by name."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list) and not value:
        return {}
    if isinstance(value, list) and all(isinstance(one, Mapping) for one in value):
        key = next((key for key in _KEYS if all(key in one for one in value)), None)
        if key is not None:
            return {f"[{one[key]}]": one for one in value}
    return None


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        held = _keyed(value)
        value = _ABSENT if held is None else held.get(key, _ABSENT)
    return value


def _path_name(name: str, path: tuple[str, ...]) -> str:
    return name + "".join(key if key.startswith("[") else f".{key}" for key in path)


def _words(value: Any) -> str:
    words = value if value == _ABSENT else repr(value)
    return words if len(words) <= _LONG else f"{words[: _LONG - 1]}…"
