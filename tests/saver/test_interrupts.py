"""Ctrl-C in the middle of a native call: the call comes to its end first, then the interrupt is raised."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from lifecycle.saver.arena import HostArena
from lifecycle.saver.blocks import Block
from lifecycle.saver.protocol import Backup
from lifecycle.testing import TAG, bits, random_tensor


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """The handler that Python begins with, whatever the test runner has set."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(step: Callable[[Block], None]) -> Callable[[Block], None]:
    """A part of a pause or resume at whose beginning the key is pressed."""

    def pressed(block: Block) -> None:
        signal.raise_signal(signal.SIGINT)
        step(block)

    return pressed


@pytest.mark.parametrize(("call", "part"), [("pause", "let_go"), ("resume", "settle")])
def test_an_interrupt_waits_for_the_end_of_a_pause_or_resume(monkeypatch: Any, call: str, part: str) -> None:
    """What was called is done and in the books; no byte is lost, and the next interrupt comes at once."""
    arena, tensor = HostArena(1 << 24), random_tensor(torch.bfloat16, 3000)
    arena.place({"t": tensor}, TAG, Backup.CPU)
    before = bits(tensor)
    if call == "resume":
        arena.pause(TAG)
    with monkeypatch.context() as patched:
        patched.setattr(Block, part, interrupted(getattr(Block, part)))
        with pytest.raises(KeyboardInterrupt):
            getattr(arena, call)(TAG)

    assert arena.tags()[TAG].paused == (call == "pause")
    if call == "pause":
        arena.resume(TAG)
    assert bits(tensor) == before
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_other_threads_and_programs_that_ignore_interrupts_are_served_too() -> None:
    """There is no handler to hold back: only the main thread runs one."""
    arena, tensor = HostArena(1 << 24), random_tensor(torch.bfloat16, 3000)
    arena.place({"t": tensor}, TAG, Backup.CPU)
    before = bits(tensor)
    thread = threading.Thread(target=arena.pause, args=(TAG,))
    thread.start()
    thread.join()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    arena.resume(TAG)

    assert bits(tensor) == before
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
