"""Choosing the adapter of forward passes on a host's model, and who of its slots trains."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from torch import Tensor

from lifecycle.adapters.given import as_name
from lifecycle.adapters.protocol import AdapterHost, DesiredAdapter
from lifecycle.adapters.records import LoadedAdapter
from lifecycle.adapters.registry import AdapterRegistry
from lifecycle.adapters.use_blocks import NO_SUCCESSOR_NAMED, Successor, UseBlocks, refuse_unsucceeded
from lifecycle.errors import AdapterError


class InUse(AdapterHost):
    """The half of an adapter host that has to do with forward passes: use, no use, and who trains.

    Whether a slot's parameters require gradients is the registry's word (``trainable=``) and nothing else: it does
    not depend on what is in use. An empty slot's do, for whoever comes next.

    Attributes:
        registry: what should be loaded.
    """

    registry: AdapterRegistry
    _blocks: UseBlocks
    _flags: Mapping[str, tuple[Tensor, bool]]
    """Every slot tensor by name, and whether it trains. Worked out anew when what is loaded has changed."""

    @abstractmethod
    def _apply(self, slot: int | None) -> None:
        """Let forward passes apply this slot, or none."""

    def _start_use(self) -> None:
        """Called when the slots are built: none is applied, all train."""
        self._blocks = UseBlocks(self.loaded, self._choose)
        self._settle()

    def _settle(self) -> None:
        """Called when what is loaded has changed: apply who is meant now, and set the flags of every slot."""
        still = {one.slot for one in self.loaded().values() if not self._trains(one)}
        self._flags = {
            name: (tensor, slot not in still)
            for slot in range(self.slots)
            for name, tensor in self.slot_tensors(slot).items()
        }
        self._blocks.settle()

    def _choose(self, slot: int | None) -> None:
        """Called when a block begins or ends too: flags that somebody else has changed are put right then."""
        self._apply(slot)
        for tensor, trains in self._flags.values():
            if tensor.requires_grad is not trains:
                tensor.requires_grad_(trains)

    @contextmanager
    def use(self, name: str, *, successor: Successor = NO_SUCCESSOR_NAMED) -> Iterator[None]:
        """Forward passes inside apply this adapter and no other; outside they apply none.

        With gradient checkpointing the backward pass runs forward passes too and belongs inside.

        Args:
            name: a loaded adapter.
            successor: who takes over if *name* is retired inside the block: a registered adapter, or None for the
                base alone. Unless it is given, retiring *name* inside is refused.

        Raises:
            AdapterError: it is not loaded, adapters are off, or *name* is no name, or *successor* none and not None.
        """
        with self._blocks.adapter(self._held(as_name(name)), successor):
            yield

    @contextmanager
    def base_only(self) -> Iterator[None]:
        """Forward passes inside apply no adapter, also within :meth:`use`."""
        with self._blocks.none():
            yield

    def without_adapters(self, holder: str, allowed: Collection[str] = ()) -> AbstractContextManager[None]:
        """The same, and :meth:`use` inside is refused in the name of *holder*, but for what is allowed."""
        return self._blocks.none(holder, allowed)

    def unsucceeded(self, retired: Collection[str]) -> tuple[str, ...]:
        """Those of the retired that are in use and have no successor among those that stay, sorted."""
        return self._blocks.unsucceeded(retired, self.desired())

    def stranded(self) -> tuple[str, ...]:
        """Those that were in use, are loaded no more, and whose named successor is not loaded either, sorted."""
        return self._blocks.stranded()

    def frozen(self) -> frozenset[str]:
        """The loaded adapters that were registered to be served and never trained."""
        return frozenset(name for name, one in self.loaded().items() if not self._trains(one))

    def misflagged(self) -> tuple[str, ...]:
        """Slot tensors that somebody has frozen or thawed behind the registry, by name."""
        return tuple(name for name, (tensor, trains) in self._flags.items() if tensor.requires_grad is not trains)

    def _refuse_in_use(self, name: str) -> None:
        gone = self._held(name)
        wanted = {other for other, one in self.desired().items() if one.registration_id != gone.registration_id}
        refuse_unsucceeded(self._blocks.unsucceeded((name,), wanted | (self.loaded().keys() - {name})))

    @staticmethod
    def _trains(one: DesiredAdapter) -> bool:
        return not isinstance(one, LoadedAdapter) or one.trainable

    def _is_trainable(self, one: DesiredAdapter) -> bool:
        """What the registry says of a registration that is being loaded."""
        record = self.registry.find(one.name)
        return record is None or record.adapter != one or record.settings.trainable

    def _held(self, name: str) -> DesiredAdapter:
        """A loaded adapter.

        Raises:
            AdapterError: it is not loaded.
        """
        loaded = self.loaded()
        if name not in loaded:
            there = ", ".join(sorted(loaded)) or "none"
            raise AdapterError(name, f"it is not loaded (loaded: {there}); register it and reconcile")
        return loaded[name]
