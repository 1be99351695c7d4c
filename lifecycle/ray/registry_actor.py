"""The actor that holds a registry, and how it knows what the trainers hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lifecycle.adapters.protocol import DesiredAdapter
from lifecycle.adapters.reading import WANTED
from lifecycle.adapters.records import AdapterRecord, RegistrySnapshot
from lifecycle.adapters.registry import AdapterRegistry
from lifecycle.errors import ConfigError
from lifecycle.ray.answers import Answer, answered
from lifecycle.ray.pulled import Pulled, Sources


class HeldRegistry(AdapterRegistry):
    """A registry whose host is in other processes. Between two looks it does not know what is in the slots.

    A registration that leaves therefore keeps its slot until a look finds that nothing holds it: while ranks load
    adapters, what they hold changes, and a slot that was given out again meanwhile would be filled twice.
    """

    _in_slots: Mapping[str, DesiredAdapter] = {}
    _is_looking = False

    def begin(self, held: Mapping[str, DesiredAdapter]) -> None:
        """A trainer begins with these in its slots."""
        with self._lock:
            self._in_slots, self._loaded = held, None
            self.connect(lambda _name, _source: None, lambda: self._in_slots)

    def look(self, held: Mapping[str, DesiredAdapter]) -> None:
        """These are in the slots, and no transition is under way: what has left and is not among them is completed."""
        with self._lock:
            self._in_slots, self._is_looking = held, True
            try:
                is_idle = self._idle()
                for record in [one for one in self._roster.live().values() if is_idle(one)]:
                    if record.state not in WANTED:
                        self._leave(record.adapter.name)
            finally:
                self._is_looking = False

    def _idle(self) -> Callable[[AdapterRecord], bool]:
        return super()._idle() if self._is_looking else lambda _: False


class RegistryActor:
    """What runs in the registry's process. Its methods answer and never raise."""

    def __init__(self) -> None:
        self._registry: HeldRegistry | None = None
        self._sources = Sources()

    def open(self, slots: int | None, path: Path | str | None, saved: RegistrySnapshot | None) -> Answer[None]:
        """Begin with nothing, or with what was saved."""
        return answered(lambda: self._open(slots, path, saved))

    def ask(self, method: str, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Answer[Any]:
        """Call a method of the registry."""
        return answered(lambda: getattr(self._held, method)(*args, **kwargs))

    def slots(self) -> Answer[int]:
        """How many slots there are."""
        return answered(lambda: self._held.slots)

    def connect(self, held: Mapping[str, DesiredAdapter]) -> Answer[None]:
        """A trainer begins with these adapters in its slots."""
        return answered(lambda: self._held.begin(held))

    def pull(
        self, known: int | None, sources: Mapping[int, int], held: Mapping[str, DesiredAdapter] | None
    ) -> Answer[Pulled]:
        """See :meth:`lifecycle.ray.registry.RegistryProxy.pull`."""
        return answered(lambda: self._pull(known, sources, held))

    def _open(self, slots: int | None, path: Path | str | None, saved: RegistrySnapshot | None) -> None:
        if path is not None and saved is not None:
            raise ConfigError("a registry goes on from a file or from a snapshot, not from both")
        begun = AdapterRegistry.load(path).snapshot() if path is not None else saved
        count = len(begun.slot_versions) if slots is None and begun is not None else slots
        if count is None:
            raise ConfigError("say how many slots the registry has, or give what was saved")
        self._registry = HeldRegistry(count, saved=begun)

    def _pull(self, known: int | None, sources: Mapping[int, int], held: Mapping[str, DesiredAdapter] | None) -> Pulled:
        registry = self._held
        if held is not None:
            registry.look(held)
        with registry.unchanged():
            revision, snapshot = registry.revision, registry.snapshot()
        if known == revision:
            return Pulled(revision, registry.slots, {}, None)
        numbers = self._sources.number(snapshot)
        return Pulled(revision, registry.slots, numbers, self._sources.cut(snapshot, sources))

    @property
    def _held(self) -> HeldRegistry:
        if self._registry is None:  # it has its name before it is open
            raise ConfigError("the registry is being started; ask again")
        return self._registry
