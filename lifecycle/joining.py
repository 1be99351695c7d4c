"""The part of the controller that begins a trainer, and lets the ranks go on with a new process for a lost one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from torch import nn

from lifecycle.audit import notes
from lifecycle.errors import ConfigError, EventRefused
from lifecycle.probes import GreedyProbe
from lifecycle.serving import Serving
from lifecycle.transition.building import Block, together
from lifecycle.transition.gather import gather
from lifecycle.transition.parts import OwnMemory, Request
from lifecycle.transition.ranks import Ranks
from lifecycle.weights.snapshot_gate import SnapshotGate
from lifecycle.weights.stored import Sharing
from states import Strategy, TrainerState
from states.admission import ADMIT, decide_admission
from states.joining import Assembled

if TYPE_CHECKING:
    from lifecycle.distributed.taking import Taking

_SHARING: Final = {
    Strategy.LEAN: Sharing.BORROWED,
    Strategy.REFERENCE: Sharing.STORED,
    Strategy.DUPLICATE: Sharing.NOTHING,
}


class Joining(Serving):
    """Begins the life of a trainer whose memory is laid out; with many ranks, also in the place of a lost one."""

    _ranks: Ranks

    def admit(self) -> tuple[int, ...]:
        """Let new processes take the places of lost ranks, after ``RanksMissing``. Every rank that is left calls it.

        The new processes build their trainers with ``joins=True`` meanwhile. The lowest rank that is left hands over
        what all of them hold, in any resting state; see docs/ranks.md. Nothing changes on the ranks that are left.

        Returns:
            The ranks that have joined; none where no rank was lost.

        Raises:
            EventRefused: this rank can hand nothing over now, see :mod:`states.admission`.
            RanksFailed: another rank cannot, or a new process cannot take the place. Start another, and admit again.
            JoinRefused: this rank holds something else than the one that hands over.
            RanksDisagree: a rank builds a trainer anew instead of joining.
            RanksMissing: a rank did not come, or was lost meanwhile.
        """
        with self._runner.turn.of(ADMIT):
            with together(self._ranks) as block:
                self._refuse_to_admit()
                met = self._meet_newcomers(block, joins=False)
                if met.newcomers:
                    self._hand_over(met)
            if met.newcomers:
                self._note_joined(met)
            return met.newcomers

    def _meet_newcomers(self, block: Block, *, joins: bool) -> Assembled:
        versions = self._parts.versions
        met = block.meet(lambda: self._ranks.assembled(versions.newest, joins=joins))
        versions.rise_above(met.newest)
        return met

    def _refuse_to_admit(self) -> None:
        """Whatever stands against it, before anybody is met."""
        from lifecycle.distributed.handing import is_split, loaded_own, unreadable_of  # noqa: PLC0415 - needs msgspec

        parts, facts = self._parts, gather(self._parts, Request())
        unreadable = unreadable_of(parts, loaded_own(parts))
        refusal = decide_admission(self.state, facts, split=is_split(parts.adapters), unreadable=unreadable)
        if refusal is not None:
            # A note, which has no number: other ranks may not refuse, and numbers go on alike.
            self._runner.recorder.noted("nobody was admitted", because=[str(one.because) for one in refusal.failed])
            raise EventRefused(refusal)

    def _hand_over(self, met: Assembled) -> None:
        from lifecycle.distributed.giving import give  # noqa: PLC0415 - needs msgspec and safetensors

        give(self._parts, self.state, self._runner.recorder.stands_at(), self._ranks, met)

    def _meet(self, block: Block, *, joins: bool) -> Assembled | None:
        """The first meeting of a trainer that is built: what came of it where it joins."""
        versions = self._parts.versions
        if joins:
            return self._meet_newcomers(block, joins=True)
        versions.rise_above(block.meet(lambda: self._ranks.newest(versions.newest)))
        return None

    def _start(self, model: nn.Module, probe: GreedyProbe | None, met: Assembled | None) -> None:
        """Begin the life of a trainer whose memory is laid out, where it joins with what the others hold."""
        parts, runner = self._parts, self._runner
        runner.count("attach", {"base-file-write": parts.file.written_bytes()})
        if resident := parts.inventory.resident:
            runner.recorder.noted("tensors outside of parameters and buffers stay resident", bytes=resident)
        self._gate = SnapshotGate(parts, runner)
        parts.snapshots.connect(OwnMemory(parts), self._gate, _SHARING[Strategy(self.config.strategy)])
        taking = None if met is None else self._take_over(met)
        self._start_planning()
        self._start_probing(model, probe)
        if taking is not None:
            taking.settle(runner)

    def _take_over(self, met: Assembled) -> Taking:
        from lifecycle.distributed.taking import Taking  # noqa: PLC0415 - needs msgspec and safetensors

        if self.state is not TrainerState.AWAKE:
            raise ConfigError(f"initial_state is {self.state}; a trainer that joins is built awake, and goes where the "
                              "others are by itself")  # fmt: skip
        taking = Taking(self._parts, self._ranks, met)
        taking.receive()
        return taking

    def _note_joined(self, met: Assembled) -> None:
        """On the record of all ranks: numbers and versions of the newcomers' logs go on from here."""
        versions = dict(self._parts.versions.wanted)
        self._runner.recorder.noted(notes.JOINED, ranks=met.newcomers, by=met.giver, versions=versions)
