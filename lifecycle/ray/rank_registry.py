"""The registry as a rank has it: a copy of one moment, whose truth is in an actor.

Rank 0 looks at the actor before each event and tells the other ranks what it found, who adopt it
(``registry_from``). What a transition writes is written to every rank's copy alike, and rank 0 posts it to the actor:
without waiting, since a transition that is committed cannot fail any more, and before its call returns to the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lifecycle.adapters.protocol import DesiredAdapter
from lifecycle.adapters.records import RegistrySnapshot
from lifecycle.adapters.registry import AdapterRegistry
from lifecycle.adapters.sources import AdapterSource
from lifecycle.ray.pulled import Sources
from lifecycle.ray.registry import RegistryProxy


class GroupRegistry(AdapterRegistry):
    """The copy of the rank that asks the actor.

    Args:
        proxy: of the actor.

    Raises:
        RegistryLost: the actor does not answer.
    """

    def __init__(self, proxy: RegistryProxy) -> None:
        pulled = proxy.pull(None, {}, None)
        super().__init__(pulled.slots, saved=pulled.snapshot)
        self._proxy, self._sources = proxy, Sources()
        self._sources.joined(pulled)
        self._pulled: int | None = pulled.revision
        self._posted: list[Any] = []

    def connect(
        self, check: Callable[[str, AdapterSource], object], loaded: Callable[[], Mapping[str, DesiredAdapter]]
    ) -> None:
        """Called by the host that owns the slots; the actor hears what is in them."""
        super().connect(check, loaded)
        self._proxy.connect(loaded())

    def adopt(self, snapshot: RegistrySnapshot) -> None:
        """Be as another registry was. What the actor holds is looked at anew."""
        super().adopt(snapshot)
        self._pulled = None

    def refresh(self) -> None:
        """Be as the actor is now. Called before an event, while nothing is under way.

        Raises:
            RegistryLost: the actor does not answer.
        """
        self.flush()
        held = None if self._loaded is None else self._loaded()
        pulled = self._proxy.pull(self._pulled, self._sources.numbers(), held)
        snapshot = self._sources.joined(pulled)
        if snapshot is not None:
            self.adopt(snapshot)
        self._pulled = pulled.revision

    def flush(self) -> None:
        """Wait until the actor has heard all that was posted.

        Raises:
            RegistryLost: the actor does not answer. What was posted is not posted again.
        """
        posted, self._posted = self._posted, []
        for ref in posted:
            self._proxy.posted(ref)

    def release(self, adapter: DesiredAdapter) -> None:
        """A host has cleared this registration's slot; see :meth:`AdapterRegistry.release`."""
        super().release(adapter)
        self._post("release", adapter)

    def reinstate(self, adapter: DesiredAdapter) -> None:
        """Undo of :meth:`release`."""
        super().reinstate(adapter)
        self._post("reinstate", adapter)

    def record_weight_update(self, adapters: Iterable[str | DesiredAdapter]) -> tuple[str, ...]:
        """An engine has committed these adapters; see :meth:`AdapterRegistry.record_weight_update`."""
        given = tuple(adapters)
        updated = super().record_weight_update(given)
        self._post("record_weight_update", given)
        return updated

    def note_changed(self, adapters: Iterable[DesiredAdapter]) -> None:
        """The trainer has changed the tensors of these registrations."""
        given = tuple(adapters)
        super().note_changed(given)
        self._post("note_changed", given)

    def _post(self, method: str, *args: object) -> None:
        self._posted.append(self._proxy.post(method, *args))


def rank_registry(proxy: RegistryProxy, *, is_first: bool) -> AdapterRegistry:
    """The registry of one rank: the one that asks the actor, or one that is told by it."""
    return GroupRegistry(proxy) if is_first else AdapterRegistry(proxy.slots)
