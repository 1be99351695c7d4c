"""What has to be resumed is counted anew with each end that changes what is held, or what is when awake."""

from __future__ import annotations

from typing import Any

from lifecycle.audit import notes
from lifecycle.auditing.ends import Ends
from lifecycle.auditing.kinds import Found, Seen
from states import Facts

WHOLE = {"device": {"m/weights": 10, "m/scratch": 5, "another/weights": 7}}
RESTED = {"device": {"m/weights": 10, "another/weights": 7}}


class Log:
    """Records as the check sees them, and what it says of each."""

    def __init__(self) -> None:
        self.check = Ends()
        self.ended("wake_up", "awake", WHOLE, resumed=["m/weights"])

    def told(self, need: int, source: str = "sleeping") -> list[str]:
        """Facts of an event, with so many bytes to be resumed."""
        found = Found()
        self.check.facts(Seen({"source": source}, "refused"), Facts(resume_need_bytes=need), found)
        return [message for _, message in found]

    def ended(self, trigger: str, target: str, held: dict[str, dict[str, int]], **details: Any) -> list[str]:
        """The end of an event, and what is held after it."""
        found = Found()
        record = {"trigger": trigger, "source": "awake", "edge": "", "target": target, "held": held}
        told = {"resumed": [], "resumed_scratch": [], "paused": [], **details}
        self.check.looks()["moved"](Seen({**record, "moved": {}, "details": told}, "moved"), found)
        return [message for _, message in found]

    def placed(self) -> None:
        """Gradients and moments have come or gone."""
        self.check.looks()["noted"](Seen({"note": notes.PLACED}, "noted"), Found())


def wrong(need: int, gone: int) -> list[str]:
    """What is said of facts that name another number of bytes."""
    return [f"{need} bytes have to be resumed, {gone} are not on the device"]


def test_what_is_not_on_the_device_has_to_be_resumed() -> None:
    """Of the trainer's own tags, and as long as nothing else ends."""
    log = Log()
    log.ended("sleep", "sleeping", RESTED, paused=["m/scratch"])

    assert log.told(5) == log.told(5) == []
    assert log.told(0) == wrong(0, 5)
    assert log.told(12, source="faulted") == []


def test_it_is_counted_again_when_something_else_is_held() -> None:
    """Each end tells what is held; one that tells the same changes nothing."""
    log = Log()
    assert log.told(0) == []
    log.ended("sleep", "sleeping", RESTED)
    assert log.told(5) == []
    log.ended("offload", "offloaded", {"device": {"another/weights": 7}})
    assert log.told(15) == []
    log.ended("offload", "offloaded", {"device": {"another/weights": 7}})

    assert log.told(5) == wrong(5, 15)


def test_it_is_counted_again_when_something_else_is_held_awake() -> None:
    """The trainer is awake with what it was asleep with: nothing is missing any more, though nothing has moved."""
    log = Log()
    log.ended("sleep", "sleeping", RESTED)
    assert log.told(5) == []
    log.ended("wake_up", "awake", RESTED)

    assert log.told(0) == []
    assert log.told(5) == wrong(5, 0)


def test_it_is_counted_again_once_the_trainer_was_awake_with_what_was_placed() -> None:
    """What is held awake is not known after a note that something was placed, until the next end tells it."""
    log = Log()
    log.ended("sleep", "sleeping", RESTED)
    assert log.told(5) == []
    log.placed()
    assert log.told(3) == log.told(5) == []
    log.ended("wake_up", "awake", RESTED)

    assert log.told(0) == []
    assert log.told(5) == wrong(5, 0)


def test_an_end_after_a_gap_is_not_compared_with_facts_before_it() -> None:
    """It may be that of another event."""
    log = Log()
    log.told(0)
    assert log.ended("trained", "awake", WHOLE, versions={"adapter/a": 2}) != []
    log.check.forget()

    assert log.ended("trained", "awake", WHOLE, versions={"adapter/a": 2}) == []


def test_nor_with_what_was_held_before_it() -> None:
    """Bytes that a pause has moved are those that its tags had: after a gap these are not known."""
    backed_up = {"device": {}, "saver_host": {"m/weights": 10}}
    log = Log()
    log.told(0)
    assert log.ended("offload", "offloaded", backed_up, paused=["m/weights"]) != []

    log = Log()
    log.check.forget()
    log.told(0)
    assert log.ended("offload", "offloaded", backed_up, paused=["m/weights"]) == []


def test_nor_are_facts_compared_with_it() -> None:
    """What is held awake is known again with the next end that leaves the trainer awake."""
    log = Log()
    log.check.forget()
    assert log.told(1) == []
    log.ended("sleep", "sleeping", RESTED, paused=["m/scratch"])

    assert log.told(1) == []


def test_after_a_gap_tags_may_be_named_otherwise() -> None:
    """Another session of the same log may have another name for its tags."""
    log = Log()
    log.check.forget()
    log.ended("wake_up", "awake", {"device": {"n/weights": 4, "m/weights": 10}}, resumed=["n/weights"])
    log.ended("offload", "offloaded", {"device": {}})

    assert log.told(4) == []
    assert log.told(10) == wrong(10, 4)
