"""One line for each thing that happens: for pipes, files and logs of other programs. No commands for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from lifecycle.report.human import bytes_text, lasted_text, when_text
from lifecycle.report.model import Happening, Noted, Opened, Outcome, Transition, Unreadable
from lifecycle.watch.attention import Notice, refusal_text
from lifecycle.watch.text import shown

LINE_MAX = 500


def line_of(happening: Happening, rank: str) -> str | None:
    """What happened, in a line without its end; None where it need not be told.

    Args:
        happening: what a record says.
        rank: whose it is, empty of one log.
    """
    if isinstance(happening, Unreadable):
        return _line("-", rank, "a line that is torn or no record")
    if isinstance(happening, Transition):
        return _line(when_text(happening.ended_s), rank, _asked(happening))
    said = ""
    if isinstance(happening, Opened):
        said = "a new session begins" if happening.restarted else "a file of the log begins"
    elif isinstance(happening, Noted) and happening.note:
        said = f"note: {happening.note}"
    return _line(when_text(happening.time_s), rank, said) if said else None


def notice_line(notice: Notice, now_s: float) -> str:
    """Something to look at, as a line."""
    return _line(when_text(now_s), notice.who, f"{notice.concern.upper()}: {notice.says}")


def _asked(one: Transition) -> str:
    if one.outcome is Outcome.UNCHANGED:
        return f"{one.trigger}: {one.source} already, nothing was done"
    if one.outcome is Outcome.REFUSED:
        return f"{one.trigger} REFUSED in {one.source}: {refusal_text(one)}"
    if one.outcome is Outcome.UNFINISHED:
        return f"{one.trigger} ({one.edge}) from {one.source} HAS NO END: the process died in it"
    if one.outcome is Outcome.FAILED:
        return f"{one.trigger} FAILED in {one.source}, now {one.target}: {one.problem}"
    where = f"{one.source} -> {one.target}" if one.source is not one.target else f"{one.source}"
    more = "".join(f", {kind} {bytes_text(size)}" for kind, size in one.moved.items() if size)
    return f"{one.trigger} ({one.edge}): {where} in {lasted_text(one.duration_s)}{more}{_sent(one.sent)}"


def _sent(sent: Mapping[str, tuple[str, ...]]) -> str:
    return "".join(f", to {engine}: {len(groups)} groups" for engine, groups in sent.items())


def _line(when: str, rank: str, said: str) -> str:
    return shown(" ".join(one for one in (when, rank, said) if one), LINE_MAX)
