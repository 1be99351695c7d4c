"""Copies follow from what wrote them: what a call has copied stands in the next facts, and nothing else does."""

from __future__ import annotations

from dataclasses import replace

from lifecycle.auditing.kept import Kept
from lifecycle.auditing.kinds import Found, Seen
from states import ContentFacts, Facts

PLAIN = Facts(contents=(ContentFacts("adapter/a", version=3, live=3, frozen=False),))
COPIED = replace(PLAIN, contents=(replace(PLAIN.contents[0], copies=(("ref", 3),)),))
BORROWED = replace(COPIED, contents=(replace(COPIED.contents[0], borrowed=("ref",)),))


class Log:
    """Records as the check sees them, and what it says of each."""

    def __init__(self) -> None:
        self.check = Kept()

    def told(self, facts: Facts) -> list[str]:
        """Facts of an event."""
        found = Found()
        self.check.facts(Seen({}, "began"), facts, found)
        return [message for _, message in found]

    def keeps(self, **versions: int | None) -> list[str]:
        """A call that copies, or drops, groups under a tag."""
        found = Found()
        record = {
            "note": "keep_model",
            "tag": "ref",
            "bytes": 8,
            "versions": {f"adapter/{k}": v for k, v in versions.items()},
        }
        self.check.looks()["noted"](Seen(record, "noted"), found)
        return [message for _, message in found]


def test_what_a_call_has_copied_stands_in_the_next_facts() -> None:
    """Also where these are the same objects as before: a log that tells no change of them tells too little."""
    log = Log()

    assert log.told(PLAIN) == log.keeps(a=3) == log.told(COPIED) == []

    log = Log()
    log.told(PLAIN)
    log.keeps(a=3)
    assert log.told(PLAIN) == ['the "ref" copy holds other versions of adapter/a; nothing wrote it']


def test_what_a_call_names_is_known_where_an_event_may_have_written_the_rest() -> None:
    """Otherwise a copy that is said to be dropped stays, and nobody asks."""
    log = Log()
    log.told(replace(COPIED, models=("ref",)))
    switched = {"trigger": "switch_model", "moved": {"snapshot": 8}}
    log.check.looks()["moved"](Seen(switched, "moved"), Found())

    assert log.keeps(a=None) == []
    assert log.told(replace(COPIED, models=("ref",), step_open=True)) == [
        'the "ref" copy holds other versions of adapter/a; nothing wrote it'
    ]

    log.check.looks()["moved"](Seen(switched, "moved"), Found())
    assert log.told(PLAIN) == [], "what nobody has named may be anything"


def test_a_call_that_changes_nothing_is_found_behind_an_event_too() -> None:
    """What a call has named is known: the second one cannot have changed it to what it was."""
    log = Log()
    log.told(COPIED)
    log.check.looks()["moved"](Seen({"trigger": "switch_model", "moved": {"snapshot": 8}}, "moved"), Found())
    log.check._unknown["ref"] = set()

    assert log.keeps(a=4) == []
    assert log.keeps(a=4) == ['keep_model changed adapter/a in "ref" to 4, in which it was before']


def test_who_borrows_changes_with_a_call_only() -> None:
    """What changes in the facts after one is believed, and later not any more."""
    log = Log()
    log.told(PLAIN)
    log.keeps(a=3)

    assert log.told(BORROWED) == []
    assert log.told(COPIED) == ["adapter/a is borrowed by (), and was by ('ref',)"]


def test_facts_that_stay_are_known_after_events_that_change_none_of_them() -> None:
    """Otherwise a change behind an event that told nothing would be believed."""
    log = Log()
    log.told(COPIED)
    log.check.looks()["moved"](Seen({"trigger": "begin_step", "moved": {}}, "moved"), Found())

    assert log.told(COPIED) == []
    assert log.told(BORROWED) == ["adapter/a is borrowed by ('ref',), and was by ()"]


def test_copies_of_an_adapter_that_was_replaced_are_gone_from_the_next_facts() -> None:
    """Also where these are the same objects as before: what was retired is kept nowhere."""
    log = Log()
    log.told(replace(COPIED, to_load=("a",), to_retire=("a",)))
    log.check.looks()["moved"](Seen({"trigger": "reconcile_adapters", "moved": {}}, "moved"), Found())

    assert log.told(COPIED) == ['the "ref" copy holds other versions of adapter/a; nothing wrote it']


def test_the_base_file_changes_with_what_writes_it_only() -> None:
    """What stands there after that is believed once, and later not any more."""
    base = ContentFacts("frozen-base", version=2, live=2, file=1)
    one, two, three = (replace(PLAIN, contents=(replace(base, file=version),)) for version in (1, 2, 3))
    log = Log()
    assert log.told(one) == []
    assert log.told(two) == ["the base file holds version 2, and nobody has written it"]
    log.check.looks()["moved"](Seen({"trigger": "offload", "moved": {"base-file-write": 8}}, "moved"), Found())

    assert log.told(three) == []
    assert log.told(two) == ["the base file holds version 2, and nobody has written it"]
