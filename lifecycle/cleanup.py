"""Collecting garbage and clearing caches: a memory operation, and as such a guarded one.

A saver before the fix ends the process when an allocation is freed that is paused, and nobody can tell beforehand
what a collection frees. So it is done at once only where nothing of the saver is paused, whoever's it is, or
where the saver survives it. Elsewhere it is deferred, and done once after a later commit.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from lifecycle.saver import MemorySaver
from states.verdict import NotABool


@dataclass(frozen=True, slots=True)
class Cleaned(NotABool):
    """Garbage was collected and caches were cleared.

    Attributes:
        reasons: why, of every request that it answers.
    """

    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Deferred(NotABool):
    """Nothing was done; it will be, once, after the commit that leaves nothing paused.

    Attributes:
        reason: why it was asked for.
        because: why not now.
    """

    reason: str
    because: str


def sweep() -> None:
    """Collect garbage, give cached blocks back, and what other processes have closed."""
    gc.collect()
    clear_device_cache()


def clear_device_cache() -> None:
    """Give the cached blocks of the device back; nothing where there is none."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
        torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]


@dataclass
class CleanUp:
    """The clean-ups of one trainer.

    Attributes:
        saver: the memory saver, shared with other tenants.
        waiting: the reasons of those that are deferred.
    """

    saver: MemorySaver
    waiting: list[str] = field(default_factory=list)

    def why_not_now(self) -> str:
        """Why a clean-up has to wait, empty when it need not."""
        if self.saver.frees_while_paused:
            return ""
        paused = [tag for tag, info in self.saver.tags().items() if info.paused]
        if not paused:
            return ""
        return f"this version of the saver ends the process when paused memory is freed; paused: {', '.join(paused)}"

    def ask(self, reason: str, how: Callable[[], None] | None = None) -> Cleaned | Deferred:
        """Clean up now, or remember it.

        Args:
            reason: why, for the record.
            how: what to do if it is done now; None is a whole :func:`sweep`, which answers what is waiting too.
                A deferred clean-up is always a whole one.
        """
        because = self.why_not_now()
        if because:
            if reason not in self.waiting:
                self.waiting.append(reason)
            return Deferred(reason, because)
        if how is not None:
            how()
            return Cleaned((reason,))
        reasons = (*self.waiting, reason)
        sweep()
        self.waiting.clear()
        return Cleaned(reasons)

    def catch_up(self) -> Cleaned | None:
        """Do what was deferred if it may be done now; None when nothing is waiting or something is paused."""
        if not self.waiting or self.why_not_now():
            return None
        reasons = tuple(self.waiting)
        sweep()  # if it raises, they go on waiting
        self.waiting.clear()
        return Cleaned(reasons)
