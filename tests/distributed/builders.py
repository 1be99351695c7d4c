"""Ranks whose trainers are built in ways that fail."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final
from unittest import mock

import torch

from lifecycle import HostArena, LifecycleConfig, SnapshotStore, TrainerLifecycle, TrainerState
from lifecycle.adapters.protocol import AdapterHost
from tests.distributed.ranks import Member
from tests.lifecycle.world import SlotHost, TinyModel, content_of

STAGES: Final = ("the parts", "the layout", "the moments", "the probe")
"""Where building can fail, in the order in which a trainer is built."""


class Builder(Member):
    """One model that a trainer is built on, and built on again."""

    def model(self) -> None:
        """A new model with its optimizers, on a saver of its own. Nothing is built on it."""
        self.faults = {}
        self.made, self.arena, self.store = TinyModel(), HostArena(faults=self._fault), SnapshotStore()
        self.optimizers = [torch.optim.Adam([self.made.lora_a[slot], self.made.lora_b[slot]]) for slot in range(3)]
        self.before = self.bytes_now()

    def build(self, *, fails: str = "") -> str:
        """Build a trainer on it, or fail at one of :data:`STAGES`. Returns its state."""
        adapters: AdapterHost | None = None if fails == "the parts" else SlotHost(self.made)
        self.faults = {"allocate": "no room"} if fails == "the layout" else {}
        probe: Any = "no probe" if fails == "the probe" else None
        with _no_moments() if fails == "the moments" else nullcontext():
            trainer = TrainerLifecycle(
                LifecycleConfig(),
                saver=self.arena,
                model=self.made,
                optimizer=self.optimizers,
                adapters=adapters,
                snapshots=self.store,
                probe=probe,
                ranks=self.agreement,
                initial_state=TrainerState.AWAKE,
            )
        return str(trainer.state)

    def bytes_now(self) -> str:
        """Digest of the model's bytes."""
        return content_of(dict(self.made.state_dict()))

    def is_as_before(self) -> bool:
        """Whether the model has the bytes that it had when it was made."""
        return self.bytes_now() == self.before


def _no_moments() -> AbstractContextManager[object]:
    """The step in which moments are materialised fails."""
    return mock.patch.object(torch.optim.Adam, "step", side_effect=RuntimeError("no room for moments"), autospec=True)
