"""A run as a picture: the trainer's machine, each edge the wider the more often it was taken, refusals marked."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final, TypeVar

from states.draw_machine import Ends, route_of
from states.draw_shapes import CHARACTER_WIDTH, LINE_HEIGHT, Arrow, Drawing, Line, Look, Part, Text
from states.draw_svg import svg
from states.draw_trainer import BOXES, REFUSED, ROUTES, SIZE
from states.render import DrawnEdge, arrows
from states.run_counts import Move, RunCounts, Trouble, row_of

WIDEST: Final = 6.0
"""Of the edge that was taken most often. Each doubling is as much wider; bits are counted alike on any machine."""
_NARROWEST: Final = 1.2
_LEFT: Final = 24
_WIDTH, _HEIGHT = SIZE
_LINE_MAX: Final = int((_WIDTH - 2 * _LEFT) / CHARACTER_WIDTH)
_SHOWN: Final = 12
_GUARDS_SHOWN: Final = 3
_LINES_MAX: Final = 6
_NAME_MAX: Final = 48
_Key = TypeVar("_Key", str, tuple[str, str], tuple[str, str, str])
_LEGEND: Final = "Wider arrows were taken more often, faint ones never. (x) refused, (!) failed or cut off."


def run_svg(counts: RunCounts, *, standalone: bool = False, listed: bool = True, title: str = "") -> str:
    """The picture of a run as one ``<svg>`` element.

    Args:
        counts: what the records of all ranks say.
        standalone: a file of its own, with its own colours for light and dark. Else it is to be put into an HTML page,
            takes ``currentColor`` and the variables ``--diagram-ROLE`` of :mod:`states.draw_colours`, and needs
            neither a style sheet nor an id.
        listed: below the picture stands what was refused, by which guards, and what failed.
        title: what it is called; a name of its own when empty.
    """
    return svg(run_drawing(counts, listed=listed, title=title), standalone=standalone)


def run_drawing(counts: RunCounts, *, listed: bool = True, title: str = "") -> Drawing:
    """The same before it is written; see :func:`run_svg`."""
    every = arrows()
    often = {ends: how_often(edges, counts.moves()) for ends, edges in every.items()}
    most = max(sum(one.values()) for one in often.values())
    drawn = [_arrow(ends, edges, often[ends], trouble_on(edges, counts), most) for ends, edges in every.items()]
    lines = [*listing(counts)]
    spoken = [one.told for one in drawn if not one.faint] + ["".join(part.text for part in line) for line in lines]
    return Drawing(
        title or "The trainer's states in a run",
        " ".join(spoken) or "Nothing was taken and nothing refused.",
        _WIDTH,
        _HEIGHT + (LINE_HEIGHT * (len(lines) + 2) if listed else 0),
        tuple(BOXES.values()),
        (*drawn, *_refusals(counts)),
        (Text(_LEFT, _HEIGHT + LINE_HEIGHT).saying(lines),) if listed else (),
    )


def how_often(edges: Iterable[DrawnEdge], taken: Mapping[Move, int]) -> dict[DrawnEdge, int]:
    """How often each edge of one arrow was taken."""
    return {
        one: sum(taken.get((source, one.event, one.name, target), 0) for source, target in one.moves) for one in edges
    }


def trouble_on(edges: Iterable[DrawnEdge], counts: RunCounts) -> Trouble:
    """What did not get to its target on one arrow."""
    ways = {(source, one.event, one.name) for one in edges for source, _ in one.moves}
    found = Trouble()
    for tried, trouble in counts.trouble().items():
        found = found.plus(trouble) if row_of(tried) in ways else found
    return found


def _arrow(ends: Ends, edges: list[DrawnEdge], often: Mapping[DrawnEdge, int], trouble: Trouble, most: int) -> Arrow:
    route, total, wrong = route_of(ends, ROUTES), sum(often.values()), trouble.words()
    lines: list[Line] = []
    for event, same in groupby(edges, lambda one: one.event):
        named = [(one.name, often[one]) for one in same]
        lines.append((Part(event, Look.EVENT, faint=not any(count for _, count in named)),))
        lines += [_line_of(name, count) for name, count in named]
    lines += [(Part(f"(!) {short(sum(trouble))} failed", Look.FAILED),)] if wrong else []
    took = ", ".join(f"{one.event} ({one.name}) {times(count)}" for one, count in often.items() if count)
    told = f"From {ends[0]} to {ends[1]}: {took or 'never'}{f'; {wrong}' if wrong else ''}."
    faint = not total and not wrong
    return Arrow(route.points, route.label.saying(lines), told, _width(total, most), faint=faint)


def _line_of(name: str, count: int) -> Line:
    if not count:
        return (Part(name, Look.EDGE, faint=True),)
    return Part(name, Look.EDGE), Part(f" {times(count)}", Look.COUNT)


def _width(count: int, most: int) -> float:
    if not count:
        return _NARROWEST
    return _NARROWEST + (WIDEST - _NARROWEST) * count.bit_length() / most.bit_length()


def times(count: int) -> str:
    """How often, as a label says it."""
    return f"\N{MULTIPLICATION SIGN}{short(count)}"


def short(count: int) -> str:
    """A number of at most six characters: from a hundred thousand on rounded down."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= 100 * size:
            return f"{count // size:,}{unit}"
    return f"{count:,}"


def _refusals(counts: RunCounts) -> Iterator[Arrow]:
    """A mark at each state in which something was refused."""
    for state, route in REFUSED.items():
        asked = {event: count for (where, event), count in counts.refused.items() if where == state}
        if asked:
            label = f"{short(sum(asked.values()))} refused"
            events = ", ".join(f"{event} {times(count)}" for event, count in most_first(asked))
            told = f"Refused in {state}: {events}."
            yield Arrow(route.points, route.label.saying([(Part(label, Look.REFUSED),)]), told, look=Look.REFUSED)


def listing(counts: RunCounts) -> Iterator[Line]:
    """What stands below the picture: a legend, what was refused, what failed, what held already, what no table has."""
    yield (Part(_LEGEND, Look.NOTE),)
    yield from _refused(counts)
    yield from _failed(counts)
    settled = ", ".join(f"{event} in {state} {times(n)}" for (state, event), n in most_first(counts.unchanged))
    yield from _wrapped("Already so, and nothing done: ", settled)
    strange = (f"{event} ({edge}) in {source} {times(n)}" for (source, event, edge), n in most_first(counts.strange()))
    yield from _wrapped("On no edge of the table: ", ", ".join(strange))


def _refused(counts: RunCounts) -> Iterator[Line]:
    asked = most_first(counts.refused)
    for (state, event), count in asked[:_SHOWN]:
        where = f" in {_shortened(state)} {times(count)}"
        yield _cut(("(x) ", Look.REFUSED), (_shortened(event), Look.EVENT), (where, Look.EDGE))
        for guard, often in most_first(counts.guards.get((state, event), {}))[:_GUARDS_SHOWN]:
            yield _cut((f"      {_shortened(guard)} {times(often)}", Look.EDGE))
    if len(asked) > _SHOWN:
        yield _cut((f"(x) and {len(asked) - _SHOWN:,} more that were refused", Look.REFUSED))


def _failed(counts: RunCounts) -> Iterator[Line]:
    tried = counts.trouble()
    for one, _ in most_first({one: sum(trouble) for one, trouble in tried.items()})[:_SHOWN]:
        source, event, edge = one
        why = f" ({_shortened(edge)}) in {_shortened(source)}: {tried[one].words()}"
        yield _cut(("(!) ", Look.FAILED), (_shortened(event), Look.EVENT), (why, Look.EDGE))
    if len(tried) > _SHOWN:
        yield _cut((f"(!) and {len(tried) - _SHOWN:,} more that failed", Look.FAILED))


def most_first(counts: Mapping[_Key, int]) -> list[tuple[_Key, int]]:
    """The most frequent first, equal ones by name."""
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))


def _wrapped(before: str, text: str) -> Iterator[Line]:
    """Lines that are as long as the picture is wide, and not too many of them. Names are not broken."""
    if text:
        wrap = textwrap.TextWrapper(
            _LINE_MAX, subsequent_indent="  ", break_on_hyphens=False, max_lines=_LINES_MAX, placeholder=" ..."
        )
        for line in wrap.wrap(before + text):
            yield (Part(line, Look.NOTE),)


def _cut(*parts: tuple[str, Look]) -> Line:
    """A line that is no longer than the picture is wide."""
    room, line = _LINE_MAX, []
    for text, look in parts:
        shown = _shortened(text, room)
        line.append(Part(shown, look))
        room -= len(shown)
    return tuple(line)


def _shortened(text: str, most: int = _NAME_MAX) -> str:
    """At most so many characters of it. Names of the tables are shorter than the bound."""
    return text if len(text) <= most else text[: max(0, most - 1)] + "\N{HORIZONTAL ELLIPSIS}" * (most > 0)
