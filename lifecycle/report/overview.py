"""The head of the page: is all well, and where did time, memory and copies go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Final

from lifecycle.report.charts import STATES, shares
from lifecycle.report.human import bytes_text, lasted_text
from lifecycle.report.judgement import Level, findings
from lifecycle.report.lanes import IN_TRANSITION, MEMORIES
from lifecycle.report.model import Lane
from lifecycle.report.named import names
from lifecycle.report.summary import Report
from lifecycle.report.tables import moment

PARTS_MOST: Final = 4
"""Named in an answer; the sections have all."""
_WIDTH: Final = 1000
_HEADS: Final = {
    Level.BAD: "Something went wrong",
    Level.WARN: "Nothing failed, but look at this",
    Level.GOOD: "All is well, as far as the logs say",
}
_WHERE: Final = {"device": "on the device", "host": "of host memory", "files and buffers": "in files and buffers"}
_SIGNS: Final = {Level.BAD: "✕", Level.WARN: "!", Level.NOTE: "·", Level.GOOD: "✓"}
_WORDS: Final = {Level.BAD: "Wrong: ", Level.WARN: "Look: ", Level.NOTE: "Note: ", Level.GOOD: "Good: "}


def verdict(report: Report) -> str:
    """Is all well?"""
    found = findings(report)
    worst = next(level for level in (Level.BAD, Level.WARN, Level.GOOD) if any(one.level is level for one in found))
    items = "".join(
        f'<li class="{one.level}"><span aria-hidden="true">{_SIGNS[one.level]}</span>'
        f'<p><span class="said">{_WORDS[one.level]}</span>{escape(one.text)} '
        f'<a href="#{one.section}" aria-label="More on: {escape(one.text[:60])}">More</a></p></li>'
        for one in found
    )
    checked = (
        "A report shows what logs say; <code>adapter-lifecycle audit</code> checks whether they are whole and true."
    )
    return (
        f'<section class="verdict {worst}" aria-labelledby="verdict"><h2 id="verdict">'
        f'<span aria-hidden="true">{_SIGNS[worst]}</span> {_HEADS[worst]}</h2>'
        f'<ul>{items}</ul><p class="quiet">{checked}</p></section>'
    )


def answers(report: Report) -> str:
    """Where time, memory and copies went: a card each."""
    cards = {
        "Where the time went": _time(report),
        "The most memory": _memory(report),
        "What was copied": _copied(report),
    }
    told = "".join(f'<section class="card"><h2>{head}</h2>{body}</section>' for head, body in cards.items())
    return f'<div class="cards">{told}</div>'


def _time(report: Report) -> str:
    """Shares of states as a bar and in words, and the events that took the most."""
    found = shares(report.lanes)
    transit = found.pop(IN_TRANSITION, 0.0)
    if not found:
        return "<p>The logs tell of no state.</p>"
    parts = {state: (STATES.index(state), share, f"{share:.1%}") for state, share in found.items()}
    all_s = sum(one.ended_s - one.began_s for one in report.lanes) or 1.0
    slow = [
        f"{escape(event)} {lasted_text(kind.total_s)} ({kind.total_s / all_s:.1%})"
        for (event, _), kind in list(report.kinds.items())[: PARTS_MOST - 1]
    ]
    told = (
        f"<p>In transition {transit:.1%} of the time of all ranks. {'Most in: ' if slow else ''}{', '.join(slow)}</p>"
    )
    return _bar(parts) + told + _turns(report)


def _turns(report: Report) -> str:
    """How long a turn takes, and when the longest was; nothing where there was none."""
    lane, slowest = max(report.tallies.items(), key=lambda one: one[1].turns.longest_s)
    times = sum(one.turns.times for one in report.tallies.values())
    if not times:
        return ""
    mean_s = sum(one.turns.total_s for one in report.tallies.values()) / times
    turns = slowest.turns
    when = _after(report, lane, turns.longest_at_s)
    return (
        f"<p>A turn, from sleep to sleep, took {lasted_text(mean_s)} on average; the longest "
        f"{lasted_text(turns.longest_s)} ({when}).</p>"
    )


def _after(report: Report, lane: Lane, time_s: float) -> str:
    """A moment of a rank, by how long after the beginning it was."""
    after = lasted_text(max(0.0, time_s - report.clocks.get(lane, 0.0) - report.began_s))
    return moment(report, lane, time_s, f"{names(report.tallies)[lane]}, after {after}")


def _bar(parts: Mapping[str, tuple[int, float, str]]) -> str:
    """Name to its colour, its share and what is said of it."""
    left, shapes = 0.0, []
    for colour, share, _ in parts.values():
        place = f'x="{left:.1f}" width="{share * _WIDTH:.1f}" height="10"'
        shapes.append(f'<rect class="s{colour % 10}" {place}/>')
        left += share * _WIDTH
    drawn = f'<svg class="share" viewBox="0 0 {_WIDTH} 10" preserveAspectRatio="none" aria-hidden="true">'
    items = (
        f'<li><svg viewBox="0 0 16 16" aria-hidden="true"><rect class="s{colour % 10}" width="16" height="16"/></svg>'
        f"{escape(name)} <b>{said}</b></li>"
        for name, (colour, _, said) in parts.items()
    )
    return f'{drawn}{"".join(shapes)}</svg><ul class="legend">{"".join(items)}</ul>'


def _memory(report: Report) -> str:
    """The moment of the most of each memory, and what that was."""
    return "".join(_most(report, memory) for memory in MEMORIES) or "<p>The logs tell of no bytes.</p>"


def _most(report: Report, memory: str) -> str:
    drawn = max(report.lanes, key=lambda one: one.most[memory].size_bytes)
    most = drawn.most[memory]
    if not most.size_bytes:
        return ""
    where = _after(report, drawn.lane, most.time_s)
    by_tag: Counter[str] = Counter()
    for (place, tag), size in most.held.items():
        by_tag[tag if len(MEMORIES[memory]) == 1 else f"{place}: {tag}"] += size
    return f"<p>{_big(_WHERE[memory], most.size_bytes)} ({where}): {_listed(by_tag.most_common())}</p>"


def _copied(report: Report) -> str:
    """Bytes by kind, of all ranks."""
    moved: Counter[str] = Counter()
    for kind in report.kinds.values():
        moved.update(kind.moved)
    if not moved.total():
        return "<p>No transition copied anything.</p>"
    return f"<p>{_big('by transitions', moved.total())}: {_listed(moved.most_common())}</p>"


def _big(where: str, size_bytes: int) -> str:
    return f'<span class="big">{bytes_text(size_bytes)}</span> {where}'


def _listed(parts: Iterable[tuple[str, int]]) -> str:
    """The largest, and how many more there are."""
    return escape("; ".join(_named([(name, size) for name, size in parts if size])))


def _named(parts: list[tuple[str, int]]) -> Iterator[str]:
    yield from (f"{name} {bytes_text(size)}" for name, size in parts[:PARTS_MOST])
    if len(parts) > PARTS_MOST:
        rest = sum(size for _, size in parts[PARTS_MOST:])
        yield f"{len(parts) - PARTS_MOST} more {bytes_text(rest)}"
