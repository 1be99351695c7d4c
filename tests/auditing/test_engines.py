"""What engines hold is followed from push to push: exactly what was sent last, in the room of one list of versions."""

from __future__ import annotations

from lifecycle.auditing.engines import Engines
from lifecycle.auditing.kinds import Found, Seen
from states import ContentFacts, EngineFacts, Facts

ENGINES = ("E0", "E1", "E2")
GROUPS = ("adapter/a", "adapter/b")


class Pushes:
    """Pushes to all engines, as their records tell them."""

    def __init__(self) -> None:
        self.check = Engines()
        self.transitions = 0

    def asked(self, version: int, *stale: str) -> list[str]:
        """Engines say what they lack of a trainer whose groups all have this version. What is found."""
        self.transitions += 1
        contents = tuple(ContentFacts(one, version=version) for one in GROUPS)
        engines = tuple(EngineFacts(one, stale=stale) for one in ENGINES)
        facts = Facts(contents=contents, engines=engines)
        found = Found()
        self.check.facts(Seen({"transition": self.transitions}, "began"), facts, found)
        return [told for _, told in found]

    def pushed(self, version: int) -> list[str]:
        """They lack everything, and get it."""
        found = self.asked(version, *GROUPS)
        verified = dict.fromkeys(GROUPS, "checksum")
        told = {"committed": True, "sent": [*GROUPS], "unloaded": [], "moved_bytes": 1, "instance_id": "i", "error": ""}
        engines = {one: {"engine": one, "verified": verified, **told} for one in ENGINES}
        record = {"trigger": "update_weights", "details": {"engines": engines}, "moved": {"sync": len(ENGINES)}}
        sent = Found()
        self.check.looks()["moved"](Seen(record, "moved"), sent)
        return found + [told for _, told in sent]


def test_an_engine_is_current_in_what_it_was_sent_last_and_in_nothing_else() -> None:
    """Neither in what it was never sent, nor in what another push has written over."""
    pushes = Pushes()

    assert pushes.asked(1) == [
        f"{engine} serves {group} in version 1, which it was never sent" for engine in ENGINES for group in GROUPS
    ]
    assert pushes.pushed(2) == pushes.asked(2) == pushes.pushed(3) == pushes.asked(3) == []
    assert pushes.asked(2)[0] == "E0 serves adapter/a in version 2, it was sent 3"
    assert pushes.asked(2) == []  # it was told once


def test_any_number_of_pushes_takes_the_room_of_one() -> None:
    """A log is longer than memory is large."""
    pushes = Pushes()
    for version in range(1, 50):
        assert pushes.pushed(version) == []
    held = pushes.check._held

    assert held.keys() == {*ENGINES}
    assert {id(one) for one in held.values()} == {id(held["E0"])}
    assert held["E0"] == dict.fromkeys(GROUPS, 49)
