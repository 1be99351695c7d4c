"""What an event must change is looked for in the next facts, also where these tell no change at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lifecycle.audit import notes
from lifecycle.auditing.kinds import Found, Seen
from lifecycle.auditing.standing import Standing
from states import Facts

PLAIN = Facts(models=("actor", "ref"), touched=("adapter/a",))
OPEN = replace(PLAIN, step_open=True)


class Log:
    """Records as the check sees them, and what it says of each. Facts that changed are named to it, and no others."""

    def __init__(self) -> None:
        self.check = Standing()
        self.facts: Facts | None = None

    def told(self, facts: Facts) -> list[str]:
        """Facts of an event."""
        found = Found()
        before, self.facts = self.facts, facts
        changed = [name for name, one in vars(facts).items() if before is None or getattr(before, name) != one]
        self.check.facts(Seen({}, "began", changed), facts, found)
        return [message for _, message in found]

    def moved(self, trigger: str, **details: Any) -> None:
        """An event has ended."""
        self.check.looks()["moved"](Seen({"trigger": trigger, "details": details}, "moved"), Found())

    def failed(self, target: str) -> None:
        """An event has failed."""
        self.check.looks()["failed"](Seen({"target": target}, "failed"), Found())

    def noted(self, note: str) -> list[str]:
        """A call is on the record."""
        found = Found()
        self.check.looks()["noted"](Seen({"note": note}, "noted"), found)
        return [message for _, message in found]


@pytest.mark.parametrize(
    ("trigger", "details", "before", "after"),
    [
        ("begin_step", {}, PLAIN, {"step_open": True}),
        ("trained", {}, OPEN, {"step_open": False}),
        ("trained", {}, replace(OPEN, accumulated=("adapter/a",)), {"step_open": False, "accumulated": ()}),
        ("switch_model", {}, replace(PLAIN, switch_target="ref"), {"active_model": "ref"}),
        (
            "reconcile_adapters",
            {"dropped_gradients_of": ["adapter/a"]},
            replace(PLAIN, accumulated=("adapter/a", "adapter/b")),
            {"accumulated": ("adapter/b",)},
        ),
        ("sleep", {"paused": ["m/scratch"]}, PLAIN, {"scratch_paused": True}),
        ("offload", {}, replace(PLAIN, active_tags=2), {"active_tags": 0, "paused_tags": 2}),
        (
            "wake_up",
            {},
            replace(PLAIN, active_tags=0, paused_tags=2, scratch_paused=True),
            {"active_tags": 2, "paused_tags": 0, "scratch_paused": False},
        ),
    ],
)
def test_what_an_event_changes_stands_in_the_next_facts(
    trigger: str, details: dict[str, Any], before: Facts, after: dict[str, object]
) -> None:
    """A log that tells no change after it tells too little, and each fact that should have changed is named."""
    log = Log()
    assert log.told(before) == []
    log.moved(trigger, **details)
    assert log.told(replace(before, **after)) == []

    log = Log()
    log.told(before)
    log.moved(trigger, **details)

    assert log.told(before) == [
        f"{name} is {getattr(before, name)}, by the records before it {one}" for name, one in after.items()
    ]
    assert log.told(before) == []  # it was told once


def test_a_note_that_closes_a_step_does_so_in_the_next_facts() -> None:
    """An aborted step is no open one, whatever the facts do not tell of it."""
    log = Log()
    log.told(OPEN)
    assert log.noted(notes.ABORTED) == []

    assert log.told(OPEN) == ["step_open is True, by the records before it False"]


def test_a_step_is_closed_once() -> None:
    """Also where no facts were told between the two notes that close it."""
    log = Log()
    log.told(OPEN)

    assert log.noted(notes.ABORTED) == []
    assert log.noted(notes.ABORTED) == ["a step was aborted, and none was open"]


@pytest.mark.parametrize("kind", ["moved", "noted", "failed"])
def test_what_may_have_changed_and_did_not_is_known_again(kind: str) -> None:
    """Once, and only in the next facts, it is believed: if these are as before, no later ones may be others."""
    lets_go = {
        "moved": lambda log: log.moved("switch_model"),
        "noted": lambda log: log.noted("keep_model"),
        "failed": lambda log: log.failed("awake"),
    }
    fewer = replace(PLAIN, models=("actor",))

    log = Log()
    log.told(PLAIN)
    lets_go[kind](log)
    assert log.told(fewer) == []
    assert log.told(PLAIN) == ["models is ('ref',), by the records before it ()"]

    log = Log()
    log.told(PLAIN)
    lets_go[kind](log)
    assert log.told(PLAIN) == []
    assert log.told(fewer) == ["models is (), by the records before it ('ref',)"]


def test_tags_that_were_placed_are_known_again() -> None:
    """Each of them: a note says only that some came or went."""
    log = Log()
    log.told(PLAIN)
    log.noted(notes.PLACED)
    assert log.told(PLAIN) == []

    assert log.told(replace(PLAIN, active_tags=2, paused_tags=1, scratch_paused=True)) == [
        "active_tags is 2, by the records before it 1",
        "paused_tags is 1, by the records before it 0",
        "scratch_paused is True, by the records before it False",
    ]


@pytest.mark.parametrize("is_faulted", [True, False])
def test_after_a_fault_everything_is_believed_once(is_faulted: bool) -> None:  # noqa: FBT001 - a case
    """What a fault has left is told by the facts after it, and from then on nothing else."""
    other = replace(OPEN, accumulated=("adapter/a",), active_tags=3, active_model="ref", with_ref=True)
    log = Log()
    log.told(OPEN)
    log.failed("faulted") if is_faulted else log.moved("recover")

    assert log.told(other) == ([] if is_faulted else ["with_ref is True, by the records before it False"])

    log = Log()
    log.told(OPEN)
    log.failed("faulted") if is_faulted else log.moved("recover")
    assert log.told(OPEN) == []
    assert len(log.told(other)) == 4


def test_what_a_step_touches_is_not_followed_without_one() -> None:
    """It is what the next one would touch. Once a step is open it stays, from the first facts on that tell so."""
    other = replace(OPEN, touched=("adapter/b",))
    log = Log()

    assert log.told(PLAIN) == log.told(replace(PLAIN, touched=("adapter/c",))) == log.told(PLAIN) == []
    log.moved("begin_step")
    assert log.told(OPEN) == []
    assert log.told(other) == ["touched is ('adapter/b',), by the records before it ('adapter/a',)"]
    log.moved("trained")
    assert log.told(replace(other, step_open=False)) == log.told(PLAIN) == []


def test_a_step_touches_what_the_facts_said_that_began_it() -> None:
    """Also where the next facts tell something else as if it had always been so."""
    log = Log()
    log.told(PLAIN)
    log.moved("begin_step")

    other = replace(OPEN, touched=("adapter/b",))
    assert log.told(other) == ["touched is ('adapter/b',), by the records before it ('adapter/a',)"]


def test_what_a_step_touches_is_known_where_its_beginning_is_not() -> None:
    """Facts of a log that begins in the middle: with the first of an open step, unchanged since one was closed."""
    log = Log()
    log.told(PLAIN)
    log.failed("faulted")
    assert log.told(PLAIN) == []
    log.failed("faulted")
    assert log.told(OPEN) == []

    other = replace(OPEN, touched=("adapter/b",))
    assert log.told(other) == ["touched is ('adapter/b',), by the records before it ('adapter/a',)"]


@pytest.mark.parametrize("how", ["forget", "joined"])
def test_after_a_gap_all_facts_are_believed_once(how: str) -> None:
    """Those that changed in it, and those that did not: these are known again as well."""
    other = replace(OPEN, accumulated=("adapter/a",), active_tags=3, with_ref=True)
    log = Log()
    log.told(OPEN)
    log.check.forget() if how == "forget" else log.noted(notes.JOINED)

    assert log.told(other) == []

    log = Log()
    log.told(OPEN)
    log.check.forget() if how == "forget" else log.noted(notes.JOINED)
    assert log.told(OPEN) == []
    assert len(log.told(other)) == 3


def test_an_event_of_which_no_facts_are_known_may_have_changed_anything() -> None:
    """The facts before a gap say nothing of what an event after it is to do."""
    log = Log()
    log.told(replace(PLAIN, switch_target="ref"))
    log.check.forget()
    log.moved("switch_model")

    assert log.told(PLAIN) == []


def test_facts_are_looked_at_where_none_of_them_is_said_to_have_changed() -> None:
    """The first ones that a check sees: before them nothing was known that could have changed."""
    log = Log()
    log.facts = PLAIN
    assert log.told(PLAIN) == []

    assert log.told(replace(PLAIN, with_ref=True)) == ["with_ref is True, by the records before it False"]
