"""A second copy is looked for where contents changed, and where nothing was known before: what is found there stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lifecycle.auditing.kinds import Found, Seen
from lifecycle.auditing.memory import Copies
from states import ContentFacts, Facts

PLAIN = Facts(contents=(ContentFacts("adapter/a", version=3, live=3, frozen=False),))
COPIED = replace(PLAIN, contents=(replace(PLAIN.contents[0], copies=(("actor", 3),)),))
NEW = ['the "actor" copy holds adapter/a, and nothing has made it']


class Log:
    """Records as the check sees them, and what it says of each."""

    def __init__(self) -> None:
        self.check = Copies()

    def told(self, facts: Facts) -> list[str]:
        """Facts of an event."""
        found = Found()
        self.check.facts(Seen({}, "began"), facts, found)
        return [message for _, message in found]

    def saw(self, event: str) -> None:
        """A record of which what was copied does not follow."""
        if event == "forget":
            self.check.forget()
        elif event == "moved":  # of an event that may copy
            record = {"source": "awake", "trigger": "begin_step", "edge": "opens", "moved": {}}
            self.check.looks()[event](Seen(record, event), Found())
        else:
            self.check.looks()[event](Seen({}, event), Found())


def test_a_copy_that_nothing_has_made_is_found_once() -> None:
    """And again where it was gone between."""
    log = Log()

    assert log.told(PLAIN) == []
    assert log.told(COPIED) == NEW
    assert log.told(COPIED) == log.told(PLAIN) == []
    assert log.told(COPIED) == NEW


@pytest.mark.parametrize("event", ["forget", "moved", "noted", "failed", "opened"])
def test_what_may_have_made_a_copy_is_believed_once(event: str) -> None:
    """In the next facts: if these are the same as before, no later ones may have another copy."""
    log = Log()
    log.told(PLAIN)
    log.saw(event)
    assert log.told(COPIED) == []

    log = Log()
    log.told(PLAIN)
    log.saw(event)
    assert log.told(PLAIN) == []
    assert log.told(COPIED) == NEW
