"""Versions are compared as often as they can have become wrong: when facts change, and when what is known does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lifecycle.audit import notes
from lifecycle.auditing.kinds import Found, Seen
from lifecycle.auditing.versions import Versions
from states import ContentFacts, Facts

A = ContentFacts("adapter/a", version=3, live=3, frozen=False)
BASE = ContentFacts("frozen-base", version=2, live=2)
PLAIN = Facts(contents=(BASE, A), touched=("adapter/a",))
TOO_NEW = "is held in version 9, which nobody has given out"


def with_a(facts: Facts = PLAIN, **values: object) -> Facts:
    """The facts with another adapter; the base stays the same object."""
    return replace(facts, contents=(facts.contents[0], replace(facts.contents[1], **values)))


class Log:
    """Records as the check sees them, and what it says of each."""

    def __init__(self) -> None:
        self.check = Versions()

    def told(self, facts: Facts, source: str = "awake") -> list[str]:
        """Facts of an event."""
        found = Found()
        self.check.facts(Seen({"source": source}, "refused"), facts, found)
        return [message for _, message in found]

    def trained(self, **versions: int) -> list[str]:
        """A step that gives versions to adapters."""
        found = Found()
        told = {f"adapter/{name}": version for name, version in versions.items()}
        record = {"trigger": "trained", "versions": told, "details": {"versions": told}}
        self.check.looks()["moved"](Seen(record, "moved"), found)
        return [message for _, message in found]

    def failed(self, target: str) -> None:
        """An event has failed."""
        self.check.looks()["failed"](Seen({"target": target}, "failed"), Found())

    def noted(self, note: str, **versions: int) -> None:
        """A call is on the record."""
        told = {f"adapter/{name}": version for name, version in versions.items()}
        self.check.looks()["noted"](Seen({"note": note, "versions": told}, "noted"), Found())


def test_a_version_that_was_given_stands_in_the_next_facts() -> None:
    """Also where these are the same objects as before: a log that tells no change of them tells too little."""
    log = Log()
    assert log.told(PLAIN) == log.trained(a=4) == log.told(with_a(version=4, live=4)) == []

    log = Log()
    log.told(PLAIN)
    log.trained(a=4)
    assert log.told(PLAIN) == ["the facts name adapter/a 3, and the trainer has 4"]
    assert log.told(PLAIN) == []  # it was told once


@pytest.mark.parametrize("note", [notes.ABORTED, notes.OUTSIDE])
def test_a_version_that_a_note_tells_stands_in_the_next_facts(note: str) -> None:
    """As one that a step gives."""
    log = Log()
    log.told(PLAIN)
    log.noted(note, a=4)

    assert log.told(PLAIN) == ["the facts name adapter/a 3, and the trainer has 4"]


def test_versions_that_stay_are_known_after_a_fault() -> None:
    """A fault makes them unknown, and the same facts known again: a step after it is compared with them."""
    log = Log()
    log.told(PLAIN)
    log.failed("faulted")

    assert log.told(PLAIN) == []
    assert log.trained(a=3) == []
    assert log.trained(b=4) == ["trained tells version 4 of adapter/b, which it does not change"]


def test_versions_that_are_told_while_faulted_are_not_those_that_come_back() -> None:
    """An undo that is owed may give back what was there before, and the facts after it are believed."""
    log = Log()
    log.told(PLAIN)
    log.failed("faulted")

    assert log.told(with_a(version=4), source="faulted") == []
    assert log.told(PLAIN) == []


@pytest.mark.parametrize(
    "where",
    [
        {"live": 9},
        {"live": None, "saver": 9},
        {"file": 9},
        {"copies": (("ref", 9),)},
        {"copies": (("ref", 3), ("x", 9))},
    ],
)
def test_what_nobody_has_given_out_is_held_nowhere(where: dict[str, object]) -> None:
    """In the trainer's memory, a backup, a file or a copy; in the first entry as in the second."""
    log = Log()
    log.told(PLAIN)
    assert log.told(with_a(**where)) == [f"adapter/a {TOO_NEW}"]

    log = Log()
    log.told(PLAIN)
    assert log.told(replace(PLAIN, contents=(replace(BASE, **where), A))) == [f"frozen-base {TOO_NEW}"]


def test_a_version_that_is_too_new_is_named_with_each_change_of_contents() -> None:
    """In an entry that stays the same object, too: what is wrong there has not become right."""
    log = Log()
    log.told(PLAIN)
    wrong = with_a(file=9)

    assert log.told(wrong) == [f"adapter/a {TOO_NEW}"]
    assert log.told(replace(wrong, contents=(replace(BASE, retained=True), wrong.contents[1]))) == [
        f"adapter/a {TOO_NEW}"
    ]


@pytest.mark.parametrize("how", ["forget", "faulted"])
def test_what_was_held_before_a_gap_is_looked_at_again_after_it(how: str) -> None:
    """The newest version is then not known: an entry that was not too new may be."""
    log = Log()
    log.told(PLAIN)
    log.trained(a=9)
    kept = replace(BASE, copies=(("ref", 9),))
    assert log.told(replace(PLAIN, contents=(kept, replace(A, version=9, live=9)))) == []
    log.check.forget() if how == "forget" else log.failed("faulted")
    assert log.told(PLAIN) == []

    assert log.told(replace(PLAIN, contents=(kept, A))) == [f"frozen-base {TOO_NEW}"]


@pytest.mark.parametrize("how", ["forget", "faulted"])
def test_the_newest_version_is_that_of_the_facts_after_a_gap(how: str) -> None:
    """Whatever was given out before it; also where these facts are the same objects as before."""
    log = Log()
    log.told(PLAIN)
    log.trained(a=9)
    log.told(with_a(version=9, live=9))
    log.check.forget() if how == "forget" else log.failed("faulted")

    assert log.told(PLAIN) == []
    assert log.trained(a=5) == []
    assert log.trained(a=4) == ["trained gives adapter/a version 4, 5 was given out before"]


def test_facts_after_a_gap_may_hold_what_is_newer_than_all_that_is_wanted() -> None:
    """A backup may hold a version of a model that is no longer kept: it was given out, and is not named later."""
    log = Log()
    log.told(PLAIN)
    log.check.forget()
    held = with_a(live=None, saver=7)

    assert log.told(held) == []
    assert log.told(with_a(held, retained=True)) == []
    assert log.trained(a=7) == ["trained gives adapter/a version 7, 7 was given out before"]


def test_the_same_facts_after_a_gap_are_known_again() -> None:
    """They are compared with nothing, and what follows is compared with them."""
    log = Log()
    log.told(PLAIN)
    log.check.forget()

    assert log.told(PLAIN) == []
    assert log.told(with_a(version=4, live=3)) == ["the facts name adapter/a 4, and the trainer has 3"]


def test_a_version_that_an_accumulation_gives_is_told_later() -> None:
    """It may be newer than all others, and is no less known from then on."""
    buffers = ContentFacts("buffers", version=1, live=1, frozen=False)
    facts = replace(PLAIN, contents=(buffers, A))
    log = Log()
    log.told(facts)
    log.noted(notes.ACCUMULATED)

    later = replace(facts, contents=(replace(buffers, version=5, live=5), A))
    assert log.told(later) == []
    assert log.told(facts) == ["the facts name buffers 1, and the trainer has 5"]


def test_an_end_after_a_gap_is_not_compared_with_facts_before_it() -> None:
    """Whoever joins is told all versions, and of the step that ends next no facts are known."""
    log = Log()
    log.told(PLAIN)
    assert log.trained(b=4) == ["trained tells version 4 of adapter/b, which it does not change"]
    log.check.forget()
    log.noted(notes.JOINED, a=3)

    assert log.trained(b=5) == []


def test_what_a_copy_holds_was_given_out_before() -> None:
    """The facts after a gap name it in a copy alone, and a step gives no version twice."""
    log = Log()
    log.told(with_a(copies=(("ref", 7),)))

    assert log.trained(a=7) == ["trained gives adapter/a version 7, 7 was given out before"]


def test_a_first_end_behind_a_gap_need_not_tell_all_versions() -> None:
    """The first one may be what is missing."""
    log = Log()
    log.check.begin(Seen({"schema": 2}, "opened"), Found())
    log.told(PLAIN)
    assert log.trained(a=4)[0] == "the first end of a session tells other versions as all than as changed"

    log.check.begin(Seen({"schema": 2}, "opened"), Found())
    log.check.forget()
    log.told(PLAIN)
    assert log.trained(a=4) == []
