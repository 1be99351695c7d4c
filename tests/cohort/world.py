"""The world of a PPO run: an actor with adapters, a critic that trains whole, a teacher that only answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from lifecycle import HostArena, LifecycleConfig, MemoryAudit, TrainerLifecycle, TrainerState
from lifecycle.adapters.peft_host import PeftAdapters
from lifecycle.cohort import Cohort
from lifecycle.saver import MemorySaver
from lifecycle.saver.arena_port import Faults
from lifecycle.transition.ranks import ALONE, Ranks
from tests.lifecycle.world import content_of
from tests.models import llama

NAMES = ("actor", "critic", "teacher")
SLACK_BYTES = 16 * 4096
"""What whole pages take beyond the books."""


class Valuer(nn.Module):
    """A critic: all of it trains."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.body = nn.Sequential(nn.Linear(48, 96), nn.Tanh(), nn.Linear(96, 48), nn.Tanh(), nn.Linear(48, 1))

    def forward(self, hidden: Tensor) -> Tensor:
        """One value a row."""
        value: Tensor = self.body(hidden)
        return value


@dataclass
class World:
    """The three trainers in one cohort, with one saver."""

    cohort: Cohort
    saver: MemorySaver
    adapters: PeftAdapters
    valuer: Valuer
    asked: nn.Module
    optimizers: Mapping[str, Any]
    audits: dict[str, MemoryAudit] = field(default_factory=dict)
    moved: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Write down what moves from now on."""
        for name, trainer in self.cohort.members.items():
            trainer.subscribe(lambda outcome, name=name: self.moved.append(f"{name}.{outcome.event}"))

    def __getitem__(self, name: str) -> TrainerLifecycle:
        return self.cohort.members[name]

    @property
    def awake(self) -> tuple[str, ...]:
        """Who is awake."""
        return tuple(name for name, state in self.cohort.states.items() if state is TrainerState.AWAKE)

    def train(self, name: str) -> None:
        """One real step of a member that is awake; the teacher answers."""
        if name == "actor":
            self._train_actor()
        elif name == "critic":
            self._train_critic()
        else:
            with torch.no_grad():
                self.asked(torch.arange(8)[None])

    def accumulate(self) -> None:
        """The critic's gradients grow and no weight changes."""
        with self["critic"].step() as step:
            torch.autograd.backward(self.valuer(torch.ones(2, 48)).sum())
            step.accumulated()

    def bytes_of(self, name: str) -> dict[str, str]:
        """SHA-256 of every weight and moment of a member, wherever they are."""
        parts = self[name]._parts
        tensors = {key: one for held in parts.inventory.groups().values() for key, one in held.items()}
        tensors |= parts.inventory.slot_tensors() | parts.moments.tensors()
        return {key: content_of({key: parts.door.own_bytes(key, one)}) for key, one in tensors.items()}

    def all_bytes(self) -> dict[str, dict[str, str]]:
        """The same of all members."""
        return {name: self.bytes_of(name) for name in NAMES}

    def notes(self, name: str = "actor") -> list[dict[str, Any]]:
        """What the cohort put into a member's log."""
        return [one for one in self.audits[name].records if "cohort" in str(one.get("note", ""))]

    def events(self) -> list[str]:
        """The events that moved a member so far, in order, as ``MEMBER.EVENT``."""
        return list(self.moved)

    def _train_actor(self) -> None:
        optimizer = self.optimizers["actor"][self.adapters.slot_of("A")]
        with self["actor"].step(["A"]) as step, self.adapters.use("A"):
            optimizer.zero_grad(set_to_none=False)
            ids = torch.arange(8)[None]
            torch.autograd.backward(self.adapters.model(ids, labels=ids).loss)
            optimizer.step()
            step.stepped()

    def _train_critic(self) -> None:
        with self["critic"].step() as step:
            self.optimizers["critic"].zero_grad(set_to_none=False)
            torch.autograd.backward((self.valuer(torch.ones(2, 48)) ** 2).mean())
            self.optimizers["critic"].step()
            step.stepped()


def make_world(
    *,
    fits: int = 3,
    faults: Faults | None = None,
    saver: MemorySaver | None = None,
    configs: Mapping[str, Mapping[str, Any]] | None = None,
    ranks: Callable[[str], Ranks] = lambda _: ALONE,
    disk_dir: str | None = None,
) -> World:
    """All three, offloaded, on a device that holds so many of them; adapter A is loaded.

    Args:
        fits: how many of the largest members the device has room for at once.
        faults: of the arena.
        saver: another one than an arena of that size.
        configs: what members configure beyond their names.
        ranks: the other ranks of a member.
        disk_dir: folder of the arena's disk backups.
    """
    if saver is None:
        sizes = sorted(sizes_bytes().values(), reverse=True)
        saver = HostArena(sum(sizes[:fits]) + SLACK_BYTES * fits, disk_dir, faults=faults)
    adapters = PeftAdapters(llama(), slots=2, rank=4)
    valuer, asked = Valuer(), llama(5).requires_grad_(requires_grad=False)
    optimizers: dict[str, Any] = {
        "actor": adapters.optimizers(lambda slot: torch.optim.Adam(slot, lr=0.01)),
        "critic": torch.optim.Adam(valuer.parameters(), lr=0.01),
    }
    audits = {name: MemoryAudit(model=name) for name in NAMES}
    models = {"actor": adapters.model, "critic": valuer, "teacher": asked}
    members = {}
    for name in NAMES:
        settings: dict[str, Any] = {"model": name, "lora": name == "actor", **(configs or {}).get(name, {})}
        if name != "critic":
            settings["frozen_buffers"] = ("*inv_freq",)
        members[name] = TrainerLifecycle(
            LifecycleConfig(**settings),
            saver=saver,
            model=models[name],
            optimizer=optimizers.get(name),
            adapters=adapters if name == "actor" else None,
            audit=audits[name],
            ranks=ranks(name),
            initial_state=TrainerState.AWAKE,
        )
        if name == "actor":
            adapters.registry.register("A", rank=2, seed=3)
            members[name].reconcile_adapters()
        members[name].sleep(offload=True)
    for audit in audits.values():
        audit.records.clear()
    return World(Cohort(**members), saver, adapters, valuer, asked, optimizers, audits)


@cache
def sizes_bytes() -> dict[str, int]:
    """Device bytes of each member when it is awake."""
    world = make_world(saver=HostArena())
    return {
        name: sum(info.size_bytes for tag, info in world.saver.tags().items() if tag.startswith(f"{name}/"))
        for name in NAMES
    }
