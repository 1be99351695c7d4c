"""What the registry and the slots should hold after any call: plain dictionaries, no tensors, no transaction.

A tenant is one registration. ``live`` are those that hold a slot in the registry, ``held`` those whose bytes are in a
slot of the trainer; the two differ between a registration and the reconcile that follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

NEVER = 10**9


@dataclass
class Tenant:
    """One registration.

    Attributes:
        kind: of its source: ``fresh``, ``tensors`` or ``directory``.
        number: of the directory of its source.
        word: where it stands, in the registry's word.
        broken: its source cannot be read now.
        lost: its source went with an earlier registry.
        holds: what its slot holds while it is loaded, by short name.
        gradients: what was accumulated for it, by short name.
        is_new: it was not trained since it was loaded.
        pushed: an engine has committed it.
    """

    name: str
    registration_id: int
    slot: int
    kind: str
    seed: int
    rank: int
    trainable: bool
    num_step: int
    number: int
    life: int = 0
    loaded_rank: int = 0
    word: str = "pending"
    broken: bool = False
    lost: bool = False
    step: int = 0
    groups: int = 0
    holds: dict[str, bytes] = field(default_factory=dict)
    gradients: dict[str, bytes] = field(default_factory=dict)
    is_new: bool = False
    pushed: bool = False

    @property
    def is_wanted(self) -> bool:
        """Whether it should be loaded."""
        return self.word in {"pending", "active"}


class TenancyModel:
    """The whole.

    Args:
        slots: how many there are.
        loaded: what the host says it holds: a registry asks it what has nothing to clear.

    Attributes:
        slot_versions: by slot, how often it was pushed.
        served: (life of the registry, slot, slot version) of everything that was ever pushed.
        batches: rollout id to (tenant, groups, steps) of each adapter in it.
    """

    def __init__(self, slots: int, loaded: Callable[[], Mapping[str, Any]]) -> None:
        self.slots = slots
        self._loaded = loaded
        self.life = 0
        self.live: dict[str, Tenant] = {}
        self.held: dict[str, Tenant] = {}
        self.newest: dict[str, Tenant] = {}
        self.slot_versions = [0] * slots
        self.next_id = 1
        self.served: set[tuple[int, int, int]] = set()
        self.batches: dict[int, list[tuple[Tenant, int, bool]]] = {}

    def free_slots(self) -> list[int]:
        """Lowest first."""
        return sorted(set(range(self.slots)) - {one.slot for one in self.live.values()})

    def register(self, tenant: Tenant) -> None:
        """It has its slot."""
        tenant.life = self.life
        self.live[tenant.name] = self.newest[tenant.name] = tenant
        self.next_id += 1

    def holds(self, tenant: Tenant) -> bool:
        """Whether the trainer has this registration in a slot."""
        return self.held.get(tenant.name) is tenant

    def is_in_the_host(self, tenant: Tenant) -> bool:
        """What the host itself says: while the trainer is faulted it is in the middle of something."""
        return any(one.registration_id == tenant.registration_id for one in self._loaded().values())

    def deregister(self, tenant: Tenant) -> None:
        """One that is in no slot has nothing to clear."""
        tenant.word = "retiring"
        if not self.is_in_the_host(tenant):
            self.complete(tenant)

    def retire(self) -> tuple[str, ...]:
        """Everything that retires is demoted."""
        names = tuple(sorted(name for name, one in self.live.items() if one.word == "retiring"))
        for name in names:
            self.live[name].word = "cleanup"
            if not self.is_in_the_host(self.live[name]):
                self.complete(self.live[name])
        return names

    def complete(self, tenant: Tenant) -> None:
        """Its slot may be given out."""
        tenant.word = "completed"
        if self.live.get(tenant.name) is tenant:
            del self.live[tenant.name]

    def plan(self) -> tuple[list[str], list[str]]:
        """Names to load and names to retire."""
        wanted = {name: one for name, one in self.live.items() if one.is_wanted}
        loads = sorted(name for name, one in wanted.items() if not self.holds(one))
        retires = sorted(name for name, one in self.held.items() if wanted.get(name) is not one)
        return loads, retires

    def unloadable(self) -> list[str]:
        """Names to load whose source gives nothing."""
        return [name for name in self.plan()[0] if self.live[name].broken or self.live[name].lost]

    def of_another_life(self) -> tuple[str, ...]:
        """What the trainer holds of a registry that was lost."""
        return tuple(sorted(name for name, one in self.held.items() if one.life != self.life))

    def blocked(self, bad: Iterable[str]) -> list[str]:
        """Names to load whose slot is kept by one that stays, because its own successor cannot be loaded."""
        stuck = set(bad)
        while True:
            kept = {one.slot for name, one in self.held.items() if name in stuck}
            more = {name for name in self.plan()[0] if name not in stuck and self.live[name].slot in kept}
            if not more:
                return sorted(stuck - set(bad))
            stuck |= more

    def reconcile(self, without: Iterable[str] = ()) -> list[Tenant]:
        """Everything of the plan but these names is done. Returns whom the slots got."""
        loads, retires = ([name for name in part if name not in set(without)] for part in self.plan())
        for name in retires:
            gone = self.held.pop(name)
            gone.holds, gone.gradients = {}, {}
            if self.live.get(name) is gone and not gone.is_wanted:
                self.complete(gone)
        for name in loads:
            self.held[name] = self.live[name]
        return [self.held[name] for name in loads]

    def push(self, names: Iterable[str]) -> None:
        """An engine has committed what the trainer holds under these names."""
        for name in set(names):
            tenant = self.held[name]
            tenant.pushed = True
            if self.live.get(name) is not tenant or tenant.word == "cleanup":
                continue
            self.slot_versions[tenant.slot] += 1
            pair = (self.life, tenant.slot, self.slot_versions[tenant.slot])
            assert pair not in self.served, "a pair of slot and version came back"
            self.served.add(pair)
            if tenant.word == "pending":
                tenant.word = "active"

    def may_count(self, tenant: Tenant) -> bool:
        """Whether a batch of this registration counts."""
        is_live = self.live.get(tenant.name) is tenant
        return is_live and tenant.trainable and tenant.word in {"active", "retiring", "cleanup"}

    def train_batch(self, rollout_id: int) -> list[str]:
        """Counted once. Returns who has stepped."""
        stepped, ended = [], []
        for tenant, groups, steps in self.batches.pop(rollout_id, []):
            if not self.may_count(tenant):
                continue
            tenant.groups += groups
            if steps:
                tenant.step, tenant.groups = tenant.step + 1, 0
                stepped.append(tenant.name)
                if tenant.word == "active" and tenant.step >= tenant.num_step:
                    ended.append(tenant)
        for tenant in ended:
            self.deregister(tenant)
        return sorted(stepped)

    def reload(self) -> None:
        """The registry was saved and loaded: sources that are not in the file are lost."""
        for tenant in list(self.live.values()):
            tenant.lost = tenant.lost or tenant.kind == "tensors" or tenant.step > 0
            if not self.holds(tenant):
                tenant.groups = 0
                if not tenant.is_wanted:
                    self.complete(tenant)

    def lose(self) -> None:
        """The registry is gone, and a new one is told that it holds all there should be: nothing."""
        self.life += 1
        for tenant in list(self.live.values()):
            self.complete(tenant)
        self.newest.clear()
        self.batches.clear()
        self.slot_versions = [0] * self.slots
        self.next_id = max((one.registration_id for one in self.held.values()), default=0) + 1
