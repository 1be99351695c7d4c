"""Writing adapters to disk from wherever their bytes are. Nothing here moves the state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lifecycle.adapters.checkpoint import Origin
from lifecycle.adapters.given import as_name, as_path
from lifecycle.adapters.protocol import DesiredAdapter
from lifecycle.adapters.records import AdapterRecord
from lifecycle.asking import Asking
from lifecycle.errors import AdapterError, UnreadableTensor
from lifecycle.transition.checkpoint import checked_step, registered, saves_to, take_checkpoint
from lifecycle.transition.payloads import payload_of
from lifecycle.weights.leases import WeightLease
from states import adapter_group

if TYPE_CHECKING:
    from lifecycle.adapters.checkpoint_manifest import Manifest


class Saving(Asking):
    """The part of the controller that writes adapters and their checkpoints."""

    def save_adapter(self, name: str, directory: str | Path) -> Path:
        """Write an adapter as a PEFT directory, from wherever its newest bytes are: awake, asleep or offloaded.

        Args:
            name: a loaded adapter.
            directory: written under a temporary name and renamed; 0700.

        Returns:
            The directory.

        Raises:
            AdapterError: the adapter is not loaded, or the directory is no path or cannot be written. Nothing is left
                behind.
            EventRefused: its newest bytes cannot be read now.
        """
        from lifecycle.adapters.files import save_adapter  # noqa: PLC0415 - needs safetensors

        host, place = self._parts.adapters, as_path("directory", directory, as_name(name))
        if host is None or name not in host.loaded():
            raise AdapterError(name, "it is not loaded; register it and reconcile first")
        with self.weights(f"save_adapter({name})", groups=[group := adapter_group(name)]) as lease:
            return save_adapter(place, payload_of(host, name, self._parts.versions.wanted[group], lease))

    def save_checkpoint(self, name: str, directory: str | Path | None = None, *, step: int | None = None) -> Path:
        """Write ``directory/step_N``: the adapter as a PEFT directory, and all that its next step depends on.

        Optimizer state, step counts, fp32 main copies and the scheduler's progress are read from wherever they are:
        awake, asleep or offloaded. ``registry.register(name, resume=directory)`` continues from it, bit for bit.
        See :mod:`lifecycle.adapters.checkpoint` for the files.

        Args:
            name: a loaded adapter.
            directory: of this adapter alone; that of its settings (``save``) when None.
            step: N; what the registry has counted when None. The bytes are those of now: count first
                (``mark_batch_trained``), then save.

        Returns:
            ``directory/step_N``. The same checkpoint once more is not written again.

        Raises:
            AdapterError: it is not loaded, cannot be saved, the batch of its last step is noted and not counted, or the
                directory cannot be written or holds another checkpoint of this step. Whatever was there is whole and as
                it was.
            EventRefused: its newest bytes cannot be read now, or gradients are accumulated, which it would not hold.
        """
        from lifecycle.adapters.checkpoint_write import write_checkpoint  # noqa: PLC0415 - needs msgspec

        host = self._parts.adapters
        registered(host, name)  # else the lease would be refused in other words
        with self.weights(f"save_checkpoint({name})", groups=[adapter_group(name)]) as lease:
            # Only now nobody can take its slot: before, the name may have become another registration in another slot.
            adapter, record = registered(host, name)
            into = saves_to(host, name, directory, record)
            found_step = checked_step(host, name, step, record)
            manifest, contents = self._take_checkpoint(adapter, record, found_step, lease)
        path = write_checkpoint(into, manifest, contents)
        told = {"adapter": name, "step": found_step, "bytes": sum(map(len, contents.values()))}
        self._runner.recorder.noted("a checkpoint was saved", **told)
        return path

    def _take_checkpoint(
        self, adapter: DesiredAdapter, record: AdapterRecord | None, step: int, lease: WeightLease
    ) -> tuple[Manifest, dict[str, bytes]]:
        """Copy it to the host while no event runs; a step of the adapter is not committed while the lease is open."""
        group, begun = adapter_group(adapter.name), None if record is None else record.resumed_from
        origin = Origin(adapter.name, adapter.registration_id, step)
        with self._runner.turn.of("save_checkpoint"):
            runtime = self._parts.runtime
            if group in runtime.accumulated or (runtime.step is not None and adapter.name in runtime.step):
                because = f"{group} has gradients that were not stepped yet, or a step of it is open"
                remedy = "save after its optimizer step"
                raise self._refusal("no-gradient-would-be-lost", because, remedy, self.facts(), "save_checkpoint")
            try:
                return take_checkpoint(self._parts, adapter, origin, begun, lease)
            except UnreadableTensor as error:
                raise self._refusal("slot-state-is-readable", str(error), "wake_up() first", self.facts(),
                                    "save_checkpoint") from error  # fmt: skip
