"""What is held is compared with what was held before, as long as that is known."""

from __future__ import annotations

from typing import Any

import pytest

from lifecycle.audit import notes
from lifecycle.auditing.kinds import Found, Seen
from lifecycle.auditing.memory import Bytes

WHOLE = {"m/weights": 10, "m/scratch": 5}
LESS = {"m/weights": 10}


class Log:
    """Records as the check sees them, and what it says of each."""

    def __init__(self) -> None:
        self.check = Bytes()

    def ended(self, trigger: str, device: dict[str, int], target: str = "awake", **details: list[str]) -> list[str]:
        """The end of an event, and what is held on the device after it."""
        found = Found()
        record: dict[str, Any] = {"event": "lifecycle.moved", "trigger": trigger, "source": "awake", "target": target}
        told = {"model": "m", "held": {"device": device}, "bytes": {"device": sum(device.values())}, "moved": {}}
        self.check.looks()["moved"](Seen({**record, **told, "details": details}, "moved"), found)
        return [message for _, message in found]

    def lose(self, how: str) -> None:
        """What was held is not known any more."""
        if how == "forget":
            self.check.forget()
        elif how == "begin":
            self.check.begin(Seen({}, "opened"), Found())
        elif how == "joined":
            self.check.looks()["noted"](Seen({"note": notes.JOINED}, "noted"), Found())
        else:
            self.ended("trained", LESS, target="faulted")


def test_a_tag_goes_with_what_pauses_it_only() -> None:
    """And an event that must pause it has to, also where nothing else has changed."""
    log = Log()
    assert log.ended("trained", WHOLE) == log.ended("trained", WHOLE) == []
    assert log.ended("trained", LESS) == ["m/scratch is not on the device, which trained does not explain"]
    assert log.ended("sleep", LESS, paused=["m/weights"]) == [
        "m/weights is on the device, which sleep does not explain"
    ]


@pytest.mark.parametrize("how", ["forget", "begin", "joined", "faulted"])
def test_what_is_held_after_a_gap_is_believed_once(how: str) -> None:
    """Nothing is compared with what was held before it, nor with what a fault has left."""
    log = Log()
    log.ended("trained", WHOLE)
    log.lose(how)

    assert log.ended("trained", {"m/other": 1}) == []
    assert log.ended("trained", {}) == ["m/other is not on the device, which trained does not explain"]


def test_another_session_may_name_its_tags_otherwise() -> None:
    """Those of a name before are another tenant's then, who does as it likes."""
    log = Log()
    log.ended("sleep", {}, paused=["n/weights"])
    log.lose("begin")
    log.ended("trained", {"n/weights": 3, **WHOLE})

    assert log.ended("trained", WHOLE) == []
    assert log.ended("trained", LESS) == ["m/scratch is not on the device, which trained does not explain"]
