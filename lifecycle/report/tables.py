"""The tables of the page. Values are exact; what is cut off is said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from lifecycle.report.charts import names
from lifecycle.report.human import bytes_text, lasted_text, when_text
from lifecycle.report.lives import Life
from lifecycle.report.model import Transition
from lifecycle.report.summary import Kind, Placed, Report

_SCALE: Final = 1000
"""Units from left to right in the picture of a life."""


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


def peaks(report: Report) -> str:
    """The most bytes of each place and tag, on every rank."""
    called = names(one.lane for one in report.lanes)
    rows = [
        (called[one.lane], place, tag, _number(bytes_text(size)), size)
        for one in report.lanes
        for (place, tag), size in one.peaks.items()
    ]
    return table("The most bytes of each place and tag", ("rank", "place", "tag", "most ", "bytes "), rows)


def copies(report: Report) -> str:
    """What transitions of each event and edge have copied."""
    columns = ("event", "edge", "times ", "mean time ", "longest ", "most bytes of one ", "bytes of all, by kind")
    return table("Copies a transition", columns, (_kind(*key, kind) for key, kind in report.kinds.items()))


def _kind(event: str, edge: str, kind: Kind) -> Sequence[Cell]:
    moved = ", ".join(f"{name} {size:,}" for name, size in sorted(kind.moved.items())) or "none"
    lasted = (_number(lasted_text(kind.total_s / kind.times)), _number(lasted_text(kind.longest_s)))
    return (event, edge, kind.times, *lasted, kind.most_bytes, _long(moved))


def adapters(report: Report) -> str:
    """The lives of adapters."""
    columns = ("adapter", "model", "life", "loaded", "ended", "end", "changes ", "pushes ", "engines")
    shown = table("Adapters' lives", columns, (_life(report, one) for one in report.lives))
    left_out = report.lived - len(report.lives)
    return shown + (f'<p class="quiet">{left_out:,} more are in adapters.csv of --csv.</p>' if left_out else "")


def _life(report: Report, one: Life) -> Sequence[Cell]:
    lasted_s = max(report.ended_s - report.began_s, 1e-9)
    left, right = ((moment_s - report.began_s) / lasted_s * _SCALE for moment_s in (one.loaded_s, one.ended_s))
    picture = Markup(
        f'<td class="life"><svg viewBox="0 0 {_SCALE} 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="s0" x="{left:.1f}" y="2" width="{max(right - left, 3):.1f}" height="6"/></svg></td>'
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
        _long(", ".join(one.engines)),
    )


def guards(report: Report) -> str:
    """How often each guard did not hold."""
    return table("Guards that did not hold", ("guard", "times "), list(report.guards.items()))


def refusals(report: Report) -> str:
    """Refused events with their verdicts, and what failed."""
    columns = ("rank", "time", "event", "state", "outcome", "why", "what to do")
    called = names(one.lane for one in report.lanes)
    rows = (_refusal(called[one.lane], one) for one in report.refusals)
    return table("Refused events with their verdicts, and failed transitions", columns, rows)


def _refusal(rank: str, placed: Placed) -> Sequence[Cell]:
    one = placed.transition
    why = "; ".join(f"{verdict.guard}: {verdict.because}" for verdict in one.failed) or one.problem
    remedies = dict.fromkeys(verdict.remedy for verdict in one.failed if verdict.remedy)
    what = (rank, when_text(one.ended_s), one.trigger, str(one.source), str(one.outcome))
    return (*what, _long(why), _long("; ".join(remedies)))


def slowest(report: Report) -> str:
    """The slowest transitions."""
    columns = ("took ", "rank", "event", "edge", "from", "to", "bytes moved ", "began", "transition ", "record ")
    called = names(one.lane for one in report.lanes)
    rows = (_slow(called[one.lane], one.transition) for one in report.slowest)
    return table("The slowest transitions", columns, rows)


def _slow(rank: str, one: Transition) -> Sequence[Cell]:
    took = _number(lasted_text(one.duration_s))
    what = (took, rank, one.trigger, one.edge, str(one.source), str(one.target), sum(one.moved.values()))
    return (*what, when_text(one.began_s), one.number, one.sequence)
