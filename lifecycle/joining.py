"""The part of the controller that begins a trainer, and lets the ranks go on with a new process for a lost one."""

from __future__ import annotations

from typing import Final

from torch import nn

from lifecycle.probes import GreedyProbe
from lifecycle.serving import Serving
from lifecycle.transition.parts import OwnMemory
from lifecycle.weights.snapshot_gate import SnapshotGate
from lifecycle.weights.stored import Sharing
from states import Strategy

_SHARING: Final = {
    Strategy.LEAN: Sharing.BORROWED,
    Strategy.REFERENCE: Sharing.STORED,
    Strategy.DUPLICATE: Sharing.NOTHING,
}


class Joining(Serving):
    """Begins the life of a trainer whose memory is laid out."""

    def _start(self, model: nn.Module, probe: GreedyProbe | None) -> None:
        parts, runner = self._parts, self._runner
        runner.count("attach", {"base-file-write": parts.file.written_bytes()})
        if resident := parts.inventory.resident:
            runner.recorder.noted("tensors outside of parameters and buffers stay resident", bytes=resident)
        self._gate = SnapshotGate(parts, runner)
        parts.snapshots.connect(OwnMemory(parts), self._gate, _SHARING[Strategy(self.config.strategy)])
        self._start_planning()
        self._start_probing(model, probe)
