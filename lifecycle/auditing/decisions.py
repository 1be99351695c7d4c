"""Decisions made again: whether a record's verdicts, edge and reads are those that its facts give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from lifecycle.audit.schema import ToldVerdict
from lifecycle.auditing.kinds import Check, Found, Kind, Seen
from lifecycle.auditing.members import FAULTED
from states import Facts, TrainerEvent, TrainerState, decide_reads
from states.guards_snapshots import SnapshotCall
from states.replay import Told, decide_again, difference

_STATES: Final = {str(one): one for one in TrainerState}
_EVENTS: Final = {str(one): one for one in TrainerEvent}
_BY_HAND: Final = frozenset({"a-step-is-open", "no-checkpoint-is-loaded"})
"""Refusals of calls around a step: they are asked before the event is decided, and tell this one verdict alone."""

CALLS: Final = frozenset(
    {*SnapshotCall, "accumulated", "adopt_versions", "handoff", "live", "prepare_optimizer", "reference",
     "save_checkpoint", "weights"}
)  # fmt: skip
"""Calls that are no events and may be refused."""


class Verdicts(Check):
    """What the pure machine says again. A decision follows from its own record alone."""

    def facts(self, seen: Seen, facts: Facts, found: Found) -> None:
        """A decision."""
        record, trigger = seen.record, seen.record["trigger"]
        if seen.event == "refused" and (trigger not in _EVENTS or _is_by_hand(record)):
            wrong = _call_difference(record, facts)
        else:
            source = _STATES.get(record["source"]) or TrainerState(record["source"])
            event = _EVENTS.get(trigger) or TrainerEvent(trigger)
            wrong = difference(decide_again(source, event, facts), _told(seen))
        if wrong:
            found.say(Kind.VERDICT, f"{trigger}: {wrong}")
        elif seen.event == "refused" and record["remedy"] != _remedy(record["verdicts"]):
            found.say(Kind.VERDICT, f"{trigger}: the remedy is not that of the verdicts that fail")


def _told(seen: Seen) -> Told:
    record = seen.record
    reads = record.get("decision") if seen.event == "began" else None
    if isinstance(reads, list):  # version 1 tells each of them
        reads = Counter(one["source"] or "none" for one in reads)
    return Told(seen.event, record["edge"], record["target"], record["verdicts"], reads, record["rank"])


def _remedy(verdicts: list[ToldVerdict]) -> str:
    return "; ".join(dict.fromkeys(str(one.remedy) for one in verdicts if not one.holds and one.remedy))


def _is_by_hand(record: Mapping[str, Any]) -> bool:
    verdicts = record["verdicts"]
    return record["edge"] == "" and len(verdicts) == 1 and verdicts[0].name in _BY_HAND


def _call_difference(record: Mapping[str, Any], facts: Facts) -> str:
    """A call that is no event: what it was asked with is not on the record, so only what facts say can be compared."""
    if record["trigger"] not in CALLS | _EVENTS.keys():
        return "there is no such call"
    failed = {one.name for one in record["verdicts"] if not one.holds}
    if not failed:
        return "it is refused, and no verdict fails"
    is_faulted = record["source"] == FAULTED
    known = {
        "not-faulted": is_faulted,
        "a-step-is-open": not facts.step_open,
        "sources-are-fresh": any(read.source is None for read in decide_reads(facts)),
    }
    wrong = sorted(name for name in failed if not known.get(name, True))
    return f"{', '.join(wrong)} holds by the facts, the record says that it does not" if wrong else ""
