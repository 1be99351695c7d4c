"""The tables of the page. Values are exact; what is cut off is said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from lifecycle.report.human import bytes_text, lasted_text, when_text
from lifecycle.report.lanes import Drawn
from lifecycle.report.lives import Life
from lifecycle.report.model import Lane, Outcome
from lifecycle.report.named import names
from lifecycle.report.refused import Refused
from lifecycle.report.summary import SHOWN_MOST, Kind, Placed, Report

KINDS_SHOWN: Final = 10
"""Kinds of copies of an event that are named."""
NAMES_SHOWN: Final = 8
"""Engines of an adapter that are named."""
_SCALE: Final = 1000
"""Units from left to right in the picture of a life."""
LIFE_LEAST: Final = 12
"""Of them, so that a short life in a long run is seen."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Cell = str | int | Markup


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A table that scrolls for itself, or a sentence where there is no row. Texts are escaped, numbers stand right.

    Args:
        caption: what it is, for those who do not see it.
        columns: their names; one that ends in a space is one of numbers.
        rows: a cell a column.
    """
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    if not body:
        return f'<p class="quiet">{escape(caption)}: none.</p>'
    heads = "".join(
        f'<th scope="col"{" class=n" if one.endswith(" ") else ""}>{escape(one.strip())}</th>' for one in columns
    )
    label = f'aria-label="{escape(caption)}"'
    return (
        f'<div class="scroll" role="region" {label} tabindex="0"><table {label}>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(value: Cell) -> str:
    if isinstance(value, Markup):
        return value
    if isinstance(value, int):
        return f'<td class="n">{value:,}</td>'
    return f"<td>{escape(value)}</td>"


def _number(text: str) -> Markup:
    return Markup(f'<td class="n">{escape(text)}</td>')


def _long(text: str) -> Markup:
    return Markup(f'<td class="long">{escape(text)}</td>')


def moment(report: Report, lane: Lane, time_s: float, text: str) -> str:
    """A link that shows a moment of a rank in the charts. Without a script it leads to them."""
    width_s = report.lanes[0].width_s
    first = report.began_s // width_s
    at = int((time_s - report.clocks.get(lane, 0.0)) // width_s - first)
    return f'<a href="#states" data-lane="{lane.index}" data-at="{max(0, at)}">{escape(text)}</a>'


def _when(report: Report, lane: Lane, time_s: float) -> Markup:
    return Markup(f"<td>{moment(report, lane, time_s, when_text(time_s))}</td>")


def peaks(report: Report) -> str:
    """The most bytes of each place and tag, and how unlike ranks are."""
    called = names(report.tallies)
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for at, one in enumerate(report.lanes):
        for what, size in one.peaks.items():
            found.setdefault(what, []).append((size, -at))
    largest = sorted(found, key=lambda what: (-max(found[what])[0], what))
    rows = []
    for what in sorted(largest[:SHOWN_MOST]):
        most, at = max(found[what])
        ends = (called[report.lanes[-at].lane], min(found[what])[0])
        rows.append((*what, _number(bytes_text(most)), most, *(ends if len(report.lanes) > 1 else ())))
    columns = ("place", "tag", "most ", "bytes ", *(("of", "least of a rank, bytes ") if len(report.lanes) > 1 else ()))
    return table("The most bytes of each place and tag", columns, rows) + _left_out(len(found) - len(rows))


def _left_out(count: int) -> str:
    return f'<p class="quiet">{count:,} more, which hold less.</p>' if count > 0 else ""


def copies(report: Report) -> str:
    """How long transitions of each event and edge took, and what they copied."""
    columns = (
        *("event", "edge", "times ", "all time ", "share of the run ", "mean time ", "longest ", "most bytes of one "),
        "bytes of all, by kind",
    )
    all_s = sum(one.ended_s - one.began_s for one in report.lanes) or 1.0
    return table("Time and copies by event", columns, (_kind(*key, kind, all_s) for key, kind in report.kinds.items()))


def _kind(event: str, edge: str, kind: Kind, all_s: float) -> Sequence[Cell]:
    largest = sorted(kind.moved.items(), key=lambda one: -one[1])[:KINDS_SHOWN]
    moved = ", ".join(f"{name} {size:,}" for name, size in largest) or "none"
    spent = (_number(lasted_text(kind.total_s)), _number(f"{kind.total_s / all_s:.1%}"))
    lasted = (_number(lasted_text(kind.total_s / kind.times)), _number(lasted_text(kind.longest_s)))
    return (event, edge, kind.times, *spent, *lasted, kind.most_bytes, _long(moved))


def ranks(report: Report) -> str:
    """What became of each rank."""
    columns = (
        *("rank", "last state", "log begins", "log ends", "restarts ", "moved ", "failed ", "without an end "),
        *("refused ", "most on the device ", "most on the host ", "file"),
    )
    called = names(report.tallies)
    return table("What became of each rank", columns, (_rank(report, called[one.lane], one) for one in report.lanes))


def _rank(report: Report, rank: str, one: Drawn) -> Sequence[Cell]:
    tally = report.tallies[one.lane]
    times = [_when(report, one.lane, time_s) for time_s in (tally.began_s or 0.0, tally.ended_s)]
    ended = [tally.outcomes[what] for what in (Outcome.MOVED, Outcome.FAILED, Outcome.UNFINISHED, Outcome.REFUSED)]
    most = [_number(bytes_text(one.most[memory].size_bytes)) for memory in ("device", "host")]
    return (rank, str(tally.state or "not told"), *times, tally.restarts, *ended, *most, one.lane.file)


def adapters(report: Report) -> str:
    """The lives of adapters."""
    columns = ("adapter", "model", "life", "loaded", "ended", "end", "changes ", "pushes ", "engines")
    shown = table("Adapters' lives", columns, (_life(report, one) for one in report.lives))
    left_out = report.lived - len(report.lives)
    return shown + (f'<p class="quiet">{left_out:,} earlier ones are in adapters.csv of --csv.</p>' if left_out else "")


def _life(report: Report, one: Life) -> Sequence[Cell]:
    lasted_s = max(report.ended_s - report.began_s, 1e-9)
    left, right = ((moment_s - report.began_s) / lasted_s * _SCALE for moment_s in (one.loaded_s, one.ended_s))
    left = min(left, _SCALE - LIFE_LEAST)
    picture = Markup(
        f'<td class="life"><svg viewBox="0 0 {_SCALE} 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="s0" x="{left:.1f}" y="2" width="{max(right - left, LIFE_LEAST):.1f}" height="6"/></svg></td>'
    )
    times = (when_text(one.loaded_s), when_text(one.ended_s) if one.end else "")
    return (
        one.adapter,
        one.model,
        picture,
        *times,
        one.end or "in a slot",
        one.changes,
        one.pushes,
        _long(_some(one.engines)),
    )


def _some(names: Sequence[str]) -> str:
    """The first ones, and how many more there are."""
    shown = ", ".join(names[:NAMES_SHOWN])
    return f"{shown} and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else shown


def failures(report: Report) -> str:
    """What failed or has no end."""
    columns = ("when", "rank", "event", "from", "to", "what became of it", "why", "transition ", "record ")
    called = names(report.tallies)
    rows = (_failure(report, called[one.lane], one) for one in report.failures)
    shown = table("Transitions that failed or have no end", columns, rows)
    cut = report.failed - len(report.failures)
    return shown + (f'<p class="quiet">{cut:,} more are in transitions.csv of --csv.</p>' if cut else "")


def _failure(report: Report, rank: str, placed: Placed) -> Sequence[Cell]:
    one = placed.transition
    when = _when(report, placed.lane, one.began_s)
    what = (when, rank, one.trigger, str(one.source), str(one.target), str(one.outcome))
    return (*what, _long(one.problem or "the log does not say"), one.number, one.sequence)


def guards(report: Report) -> str:
    """How often each guard did not hold."""
    return table("Guards that did not hold", ("guard", "times "), list(report.guards.items()))


def refusals(report: Report) -> str:
    """Refused events with their verdicts, those that are alike in one row."""
    columns = ("times ", "ranks ", "event", "state", "why", "what to do", "first", "last")
    rows = (_refusal(report, one) for one in report.refusals)
    shown = table("Refused events with their verdicts", columns, rows)
    cut = report.refused_apart
    return shown + (f'<p class="quiet">{cut:,} more for other reasons are in refusals.csv of --csv.</p>' if cut else "")


def _refusal(report: Report, one: Refused) -> Sequence[Cell]:
    why = "; ".join(f"{verdict.guard}: {verdict.because}" for verdict in one.failed) or one.problem
    remedies = dict.fromkeys(verdict.remedy for verdict in one.failed if verdict.remedy)
    when = (_when(report, one.lane, one.first_s), when_text(one.last_s) if one.times > 1 else "")
    return (one.times, len(one.lanes), one.trigger, one.state, _long(why), _long("; ".join(remedies)), *when)


def slowest(report: Report) -> str:
    """The slowest transitions."""
    columns = ("took ", "began", "rank", "event", "edge", "from", "to", "bytes moved ", "transition ", "record ")
    called = names(report.tallies)
    rows = (_slow(report, called[one.lane], one) for one in report.slowest)
    return table("The slowest transitions", columns, rows)


def _slow(report: Report, rank: str, placed: Placed) -> Sequence[Cell]:
    one = placed.transition
    took, began = _number(lasted_text(one.duration_s)), _when(report, placed.lane, one.began_s)
    what = (took, began, rank, one.trigger, one.edge, str(one.source), str(one.target), sum(one.moved.values()))
    return (*what, one.number, one.sequence)
