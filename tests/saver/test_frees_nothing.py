"""What a port cannot do, its saver says: a hook that is not loaded, a pause that frees nothing, an old version."""

from __future__ import annotations

import torch

from lifecycle.saver.arena_port import ArenaPort
from lifecycle.saver.managed import ManagedSaver
from lifecycle.saver.protocol import Backup


class UselessPort(ArenaPort):
    """An arena whose pause is a silent success and whose version is an old one."""

    def enabled(self) -> bool:
        return False

    def frees_while_paused(self) -> bool:
        return False

    def pause(self, tag: str) -> None:
        """Nothing happens."""


def test_a_disabled_saver_says_so() -> None:
    """A hook that is not loaded behaves like one that is, but for this answer (FB-27)."""
    assert not ManagedSaver(UselessPort()).enabled
    assert ManagedSaver(ArenaPort()).enabled


def test_a_pause_that_frees_nothing_is_seen_in_the_drivers_figure() -> None:
    """The books write down what was asked; the port counts its own mapped pages (FB-27)."""
    freed = {}
    for kind in (ArenaPort, UselessPort):
        saver = ManagedSaver(kind())
        saver.place({"tensor": torch.zeros(1 << 16)}, "tag", Backup.CPU)
        before = saver.device_used_bytes()
        saver.pause("tag")
        after = saver.device_used_bytes()
        assert before is not None
        assert after is not None
        assert saver.usage().device_bytes == 0
        freed[kind] = before - after

    assert freed == {ArenaPort: 4 << 16, UselessPort: 0}


def test_a_saver_hands_on_whether_its_port_survives_freeing_what_is_paused() -> None:
    """Clean-up asks the saver, and the saver the port (FB-25)."""
    assert not ManagedSaver(UselessPort()).frees_while_paused
    assert ManagedSaver(ArenaPort()).frees_while_paused
