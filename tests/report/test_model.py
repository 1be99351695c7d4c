"""What happened, of the records of a log."""

from __future__ import annotations

from typing import Any

import pytest

from lifecycle.audit.read import Torn
from lifecycle.report.model import Opened, Outcome, Transition, Unreadable, happenings
from states import TrainerState
from tests.report.logs import AWAKE_HELD, START, TURN, Log


def transitions(log: Log) -> list[Transition]:
    """What the log says, and that all of it could be read."""
    found = list(happenings(log.records))
    assert [one for one in found if isinstance(one, Unreadable)] == []
    return [one for one in found if isinstance(one, Transition)]


def test_a_transition_has_the_times_of_both_of_its_records() -> None:
    """And the duration that the trainer measured."""
    log = Log()
    what = log.began("sleep", "quiesces", "awake", "sleeping")
    log.add("moved", 2.0, transition=1, **what, held=AWAKE_HELD, moved={"backup": 7}, duration_s=1.75)

    (one,) = transitions(log)

    began_s = START.timestamp() + 0.3
    assert (one.began_s, one.ended_s, one.duration_s) == (began_s, began_s + 2.0, 1.75)
    assert (one.outcome, one.source, one.target) == (Outcome.MOVED, TrainerState.AWAKE, TrainerState.SLEEPING)
    assert (one.held, one.moved) == (AWAKE_HELD, {"backup": 7})


def test_a_turn_tells_what_was_loaded_sent_and_changed() -> None:
    """In the words of its details."""
    log = Log()
    log.turn(2)

    found = {one.trigger: one for one in transitions(log)}

    assert list(found) == [row[0] for row in TURN]
    assert found["reconcile_adapters"].loaded == ("a2",)
    assert found["reconcile_adapters"].versions == {"adapter/a2": 21, "adapter/a0": None}
    assert found["update_weights"].sent == {"engine-0": ("adapter/a2", "adapter/a1")}


def test_a_refusal_tells_the_guards_that_did_not_hold() -> None:
    """Each whole; not those that held."""
    log = Log()
    log.refused("somebody reads")

    (one,) = transitions(log)

    assert [(verdict.guard, verdict.because) for verdict in one.failed] == [
        ("no-lease-over-live-weights", "somebody reads")
    ]
    assert one.outcome is Outcome.REFUSED


def test_a_failure_names_effect_and_error() -> None:
    """And takes as long as its records are apart."""
    log = Log()
    what = log.began("sleep", "quiesces", "awake", "sleeping")
    log.add("failed", 2.0, transition=1, **what, effect="clear-caches", error="OSError: no")

    (one,) = transitions(log)

    assert (one.outcome, one.problem, one.duration_s) == (Outcome.FAILED, "clear-caches: OSError: no", 2.0)


def ended_by_the_next(log: Log) -> None:
    """Another transition begins."""
    log.began("offload", "offloads-to-cpu", "sleeping", "offloaded-cpu")


def ended_by_a_session(log: Log) -> None:
    """A session begins."""
    log.opened(restart=True)


def ended_by_the_end(log: Log) -> None:
    """The log is over."""


@pytest.mark.parametrize("end", [ended_by_the_next, ended_by_a_session, ended_by_the_end])
def test_what_began_and_has_no_end_is_unfinished(end: Any) -> None:
    """Whatever comes next, and at that place."""
    log = Log()
    log.began("sleep", "quiesces", "awake", "sleeping")
    end(log)

    first = transitions(log)[0]

    assert (first.outcome, first.trigger) == (Outcome.UNFINISHED, "sleep")


def test_an_end_without_a_beginning_began_as_long_ago_as_it_took() -> None:
    """As where a log is read from its middle."""
    log = Log()
    what = {"trigger": "sleep", "edge": "quiesces", "source": "awake", "target": "sleeping"}
    log.add("moved", 10.0, transition=7, **what, duration_s=4.0)

    (one,) = transitions(log)

    assert (one.began_s, one.ended_s) == (START.timestamp() + 6.0, START.timestamp() + 10.0)


def test_a_clock_that_was_put_back_stands_still() -> None:
    """Nothing ends before something that was written earlier."""
    log = Log()
    log.opened()
    log.opened()
    log.records[1]["time"] = "2020-01-01T00:00:00+00:00"

    times = [one.time_s for one in happenings(log.records) if isinstance(one, Opened)]

    assert times == [START.timestamp(), START.timestamp()]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("time", "yesterday"),
        ("time", 7),
        ("time", "0001-01-01T00:00:00+00:00"),
        ("time", "9999-12-31T23:59:59.999999+00:00"),
        ("time", "9999-12-31T23:59:59-23:59"),
        ("source", "dreaming"),
        ("source", ["awake"]),
        ("trigger", None),
        ("sequence", -1),
        ("transition", True),
        ("held", {"device": {"a": "7"}}),
        ("held", [1]),
        ("moved", {"backup": 2**70}),
        ("duration_s", float("nan")),
        ("duration_s", float("inf")),
        ("duration_s", True),
        ("versions", {"adapter/a": "1"}),
        ("details", {"engines": {"one": 1}}),
        ("details", {"loaded": [1]}),
    ],
)
def test_a_field_of_another_kind_makes_the_record_unreadable(field: str, value: object) -> None:
    """It is counted, and what follows is read."""
    log = Log()
    what = log.began("sleep", "quiesces", "awake", "sleeping")
    log.add("moved", transition=1, **what, duration_s=1.0)[field] = value
    log.refused()

    found = list(happenings(log.records))

    assert [type(one) for one in found].count(Unreadable) == 1
    assert isinstance(found[-1], Transition)


def test_an_engine_that_did_not_commit_was_sent_nothing() -> None:
    """What was taken back there is no push of an adapter; an answer of another kind is no yes."""
    log = Log()
    what = log.began("update_weights", "sends", "sleeping", "sleeping")
    told = {name: {"committed": how, "sent": ["adapter/a"]} for name, how in (("a", True), ("b", False), ("c", "yes"))}
    log.add("moved", transition=1, **what, details={"engines": told})

    (one,) = transitions(log)

    assert one.sent == {"a": ("adapter/a",)}


def test_a_torn_line_is_counted() -> None:
    """As one that could not be read."""
    assert list(happenings([Torn(1, 5, "{...")])) == [Unreadable()]
