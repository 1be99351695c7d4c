"""Is all well? What somebody who is called at night is to know first, by what the logs say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lifecycle.report.human import lasted_text, when_text
from lifecycle.report.model import Lane, Outcome, Transition
from lifecycle.report.named import names
from lifecycle.report.summary import Report
from states import TrainerState

EARLY_S: Final = 10.0
EARLY_SHARE: Final = 0.05
"""A rank's log ends early where it ends by both of these before the last one."""
NAMED_MOST: Final = 8
"""Ranks that a finding names; more are counted."""


class Level(StrEnum):
    """How bad it is."""

    BAD = "bad"
    WARN = "warn"
    NOTE = "note"
    GOOD = "good"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know.

    Attributes:
        level: how bad it is.
        text: what it is.
        section: of the page that has more.
    """

    level: Level
    text: str
    section: str


def findings(report: Report) -> tuple[Finding, ...]:
    """The worst first; what is good only where nothing is bad."""
    found = [*_bad(report), *_warn(report)]
    if not any(one.level is Level.BAD for one in found):
        found.insert(0, Finding(Level.GOOD, "No transition failed, and each has its end.", "states"))
    return (*found, *_notes(report))


def _bad(report: Report) -> Iterator[Finding]:
    faulted = [lane for lane, one in report.tallies.items() if one.state is TrainerState.FAULTED]
    if faulted:
        told = (
            f"Faulted at the end of the log: {_ranks(report, faulted)}. What its memory holds is known after recover()."
        )
        yield Finding(Level.BAD, told, "ranks")
    for outcome, what in (
        (Outcome.UNFINISHED, "without an end: the process died there, or was still there when the log was read"),
        (Outcome.FAILED, "failed"),
    ):
        count = report.outcomes[outcome]
        if count:
            told = f"{_counted(count, 'transition')} {what}. {_first(report, outcome)}"
            yield Finding(Level.BAD, told.strip(), "failed")


def _first(report: Report, outcome: Outcome) -> str:
    """The first one that failed, from which others follow; of those that have no end where ranks are now."""
    still = {
        lane: f" in {one.last.trigger} from {one.last.source} to {one.last.target}, begun {when_text(one.last.began_s)}"
        for lane, one in report.tallies.items()
        if one.last is not None
    }
    if outcome is Outcome.UNFINISHED and still:
        return f"At the end of the log: {_ranks(report, still)}."
    shown = [one for one in report.failures if one.transition.outcome is outcome]
    return f"The first: {_told(report, shown[0].lane, shown[0].transition)}." if shown else ""


def _told(report: Report, lane: Lane, one: Transition) -> str:
    of = names(report.tallies)[lane]
    problem = f": {one.problem}" if one.problem else ""
    return f"{of}, {one.trigger} from {one.source} to {one.target}, begun {when_text(one.began_s)}{problem}"


def _warn(report: Report) -> Iterator[Finding]:
    if report.unreadable:
        told = f"Lines that are torn or no records, and left out: {sum(report.unreadable.values()):,}, of "
        yield Finding(Level.WARN, f"{told}{_ranks(report, [*report.unreadable])}.", "ranks")
    early = _early(report)
    if early:
        told = f"The log ends before the last rank's does, {_ranks(report, early)}: it stopped, or its file is older."
        yield Finding(Level.WARN, told, "ranks")
    if report.clocks:
        told = f"Clocks differ from the first rank's: {_ranks(report, _apart(report.clocks))}."
        yield Finding(Level.WARN, f"{told} Charts go by the first rank's clock, tables say what was written.", "ranks")


def _apart(clocks: Mapping[Lane, float]) -> dict[Lane, str]:
    return {
        lane: f" {'ahead' if ahead_s > 0 else 'behind'} by {lasted_text(abs(ahead_s))}"
        for lane, ahead_s in clocks.items()
    }


def _early(report: Report) -> dict[Lane, str]:
    """By how much earlier than the last rank of their run."""
    early = {}
    for one in report.lanes:
        mine = [other for other in report.lanes if other.lane.run == one.lane.run]
        last_s = max(other.ended_s for other in mine)
        least_s = max(EARLY_S, EARLY_SHARE * (last_s - min(other.began_s for other in mine)))
        if last_s - one.ended_s > least_s:
            early[one.lane] = f" by {lasted_text(last_s - one.ended_s)}"
    return early


def _notes(report: Report) -> Iterator[Finding]:
    if report.refused:
        by = f", most often by {next(iter(report.guards))}" if report.guards else ""
        told = f"{_counted(report.refused, 'event')} refused{by}. A refusal changes nothing."
        yield Finding(Level.NOTE, told, "refused")
    restarted = [lane for lane, one in report.tallies.items() if one.restarts]
    if restarted:
        times = sum(one.restarts for one in report.tallies.values())
        yield Finding(Level.NOTE, f"{_counted(times, 'restart')}: {_ranks(report, restarted)}.", "ranks")


def _ranks(report: Report, lanes: Mapping[Lane, str] | Sequence[Lane]) -> str:
    """What they are called, with what is said of each."""
    called = names(report.tallies)
    said = lanes if isinstance(lanes, Mapping) else dict.fromkeys(lanes, "")
    named = ", ".join(f"{called[lane]}{said[lane]}" for lane in list(said)[:NAMED_MOST])
    return f"{named} and {len(said) - NAMED_MOST:,} more" if len(said) > NAMED_MOST else named


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
