"""Adapters as the controller sees them: what is desired, what is in which slot, and which tensors a slot has.

The host never touches a tensor's bytes: it names tensors, and the controller reads and writes them
through its one door, which may be the device or the saver's host backup.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from torch import Tensor

from lifecycle.adapters.checkpoint import SlotRecord


@dataclass(frozen=True, slots=True)
class DesiredAdapter:
    """One registered adapter.

    Attributes:
        name: validated name.
        registration_id: unique for each registration, so a name that returns is another adapter.
        slot: the slot the registry gave it.
    """

    name: str
    registration_id: int
    slot: int


@dataclass(frozen=True, slots=True)
class PreparedAdapter:
    """An adapter read, checked and padded, ready to be written into its slot.

    Attributes:
        desired: whom it belongs to.
        rank: its own LoRA rank.
        alpha: its own LoRA alpha.
        target_modules: the modules it really has, as suffixes, sorted.
        tensors: slot tensor name to value, CPU, shape and dtype of the slot's tensor, zero-padded;
            every tensor of the slot is there. Owned by this object.
        exact: the same in float32 as it was before it was rounded to the slot's dtype, for main copies;
            only of tensors whose source has more bits than the slot.
        record: what a resumed adapter finds in its slot besides the weights; None: it starts from zero.
    """

    desired: DesiredAdapter
    rank: int
    alpha: float
    target_modules: tuple[str, ...]
    tensors: Mapping[str, Tensor] = field(repr=False)
    exact: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    record: SlotRecord | None = None


@runtime_checkable
class AdapterHost(Protocol):
    """Adapter slots on a model, allocated once."""

    @property
    def slots(self) -> int:
        """How many slots there are."""

    def desired(self) -> Mapping[str, DesiredAdapter]:
        """What should be loaded (registered and not cleaned up), by name."""

    def loaded(self) -> Mapping[str, DesiredAdapter]:
        """What is loaded, by name."""

    def slot_tensors(self, slot: int) -> Mapping[str, Tensor]:
        """The parameters of one slot by their name in the model. The objects never change."""

    def prepare(self, desired: DesiredAdapter) -> PreparedAdapter:
        """Read and check an adapter's tensors. Touches no slot.

        Raises:
            AdapterError: the file is missing, malformed, does not fit, or holds NaN or infinity.
        """

    def install(self, prepared: PreparedAdapter) -> None:
        """Record that the slot now holds this adapter: its rank, scale and targets. No bytes."""

    def uninstall(self, name: str) -> None:
        """Record that the slot of *name* is empty. No bytes; the registry keeps the slot until :meth:`freed`."""

    def freed(self, adapters: tuple[DesiredAdapter, ...]) -> None:
        """The reconcile that uninstalled these is committed: their slots may be given out again. Does not fail."""

    def reinstate(self, loaded: Mapping[str, DesiredAdapter]) -> None:
        """Undo: put the record of what is loaded back to an earlier answer of :meth:`loaded`. No bytes."""

    def pushed(self, names: tuple[str, ...]) -> None:
        """These adapters were committed in an engine (PENDING becomes ACTIVE)."""

    def export(
        self, name: str, read: Callable[[str], Tensor]
    ) -> tuple[int, float, tuple[str, ...], Mapping[str, Tensor]]:
        """The adapter under PEFT names, cut to its own rank.

        Args:
            name: a loaded adapter.
            read: gives the bytes of a slot tensor by name; the result aliases what it returns.

        Returns:
            rank, alpha, target_modules, tensors.
        """

    def base_tensors(self) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Parameters and buffers that belong to no slot, by the name they have in the unwrapped model."""


@runtime_checkable
class ChoosesAdapters(Protocol):
    """A host that says which adapter forward passes apply: what ``reference()`` and some guards ask for."""

    def without_adapters(self, holder: str, allowed: Collection[str] = ()) -> AbstractContextManager[None]:
        """Forward passes inside apply no adapter; using one that is not allowed is refused in the holder's name."""

    def unsucceeded(self, retired: Collection[str]) -> tuple[str, ...]:
        """Those of the retired that are in use and have no successor among those that stay, sorted."""

    def stranded(self) -> tuple[str, ...]:
        """Those that were in use, are loaded no more, and whose named successor is not loaded either, sorted."""

    def frozen(self) -> frozenset[str]:
        """The loaded adapters that are never trained."""

    def misflagged(self) -> tuple[str, ...]:
        """Slot tensors that somebody has frozen or thawed behind the registry, by name."""
