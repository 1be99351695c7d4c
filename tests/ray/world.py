"""What the ranks of these tests build: a small model with adapter slots on a real arena, and a trainer around it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from lifecycle import HostArena, LifecycleConfig, MemoryAudit, TrainerLifecycle, TrainerState
from lifecycle.adapters.fit import SlotLayout
from lifecycle.adapters.registry import AdapterRegistry
from lifecycle.adapters.slots_host import SlotsHost
from lifecycle.audit.projection import canonical
from lifecycle.distributed import RankAgreement
from states import Effect
from tests.lifecycle.world import FakeEngine, content_of

WIDTH, RANK, SLOTS = 16, 2, 3
ADAPTERS: Final = ("A", "B")
FORWARD: Final = "up"


class TinyNet(nn.Module):
    """One frozen layer, and slots beside it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.up = nn.Linear(WIDTH, WIDTH, bias=False).requires_grad_(requires_grad=False)
        self.slots = nn.ModuleList(
            nn.ParameterDict({"A": torch.zeros(RANK, WIDTH), "B": torch.zeros(WIDTH, RANK)}) for _ in range(SLOTS)
        )
        self.scales = [0.0] * SLOTS
        self.applied: int | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Through the layer, and the slot that is applied."""
        y: Tensor = self.up(x)
        if self.applied is not None:
            slot: Any = self.slots[self.applied]
            y = y + self.scales[self.applied] * ((x @ slot["A"].T) @ slot["B"].T)
        return y


class TinySlots(SlotsHost):
    """The slots of a :class:`TinyNet`."""

    def __init__(self, model: TinyNet, registry: AdapterRegistry) -> None:
        super().__init__(model, registry, SlotLayout(RANK, {FORWARD: FORWARD}, {FORWARD: (WIDTH, WIDTH)}))

    def base_tensors(self) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        return {name: one for name, one in self.model.named_parameters() if not name.startswith("slots.")}, {}

    def _name_of(self, slot: int, module: str, side: str) -> str:
        return f"slots.{slot}.{side}"

    def _set_scale(self, slot: int, scale: float) -> None:
        self.model.scales[slot] = scale

    def _apply(self, slot: int | None) -> None:
        self.model.applied = slot


class Member:
    """What a rank of these tests builds: its trainer, and what tests do to it."""

    def __init__(self, rank: int, ranks: RankAgreement, registry: AdapterRegistry | None, *, joins: bool) -> None:
        self.rank, self.ranks, self.given = rank, ranks, registry
        self.fresh(joins=joins)

    def fresh(self, adapters: tuple[str, ...] = (), *, joins: bool = False, **changes: object) -> None:
        """A new trainer, with these adapters registered on this rank and loaded."""
        self.faults: set[str] = set()
        self.audit = MemoryAudit(rank=self.rank)
        self.registry = AdapterRegistry(SLOTS) if self.given is None else self.given
        model = TinyNet()
        if joins and self.given is None:
            self.register(*ADAPTERS)  # a registry of its own has to say what those of the others say
        self.host = TinySlots(model, self.registry)
        self.optimizers = self.host.optimizers(lambda parameters: torch.optim.Adam(parameters, lr=0.01))
        self.trainer = TrainerLifecycle(
            LifecycleConfig(**{"offload_target": "cpu", **changes}),  # type: ignore[arg-type]
            saver=HostArena(faults=self._fault),
            model=model,
            optimizer=self.optimizers,
            adapters=self.host,
            audit=self.audit,
            ranks=self.ranks,
            joins=joins,
            initial_state=TrainerState.AWAKE,
        )
        if adapters:
            self.register(*adapters)
            self.trainer.reconcile_adapters()

    def fresh_as(self, changes: Mapping[str, object], adapters: tuple[str, ...] = ()) -> None:
        """The same, with a configuration of this rank alone."""
        self.fresh(adapters, **changes)

    def register(self, *names: str) -> None:
        """Register on this rank alone."""
        for name in names:
            self.registry.register(name, seed=5)

    def train(self, *names: str, ones: float = 1.0) -> float:
        """One optimizer step of each adapter, all on one batch."""
        with self.trainer.step(names) as step:
            for name in names:
                optimizer = self.optimizers[self.host.slot_of(name)]
                optimizer.zero_grad(set_to_none=False)
                with self.host.use(name):
                    loss = (self.host.model(torch.full((2, WIDTH), ones)) ** 2).mean()
                    loss.backward()
                optimizer.step()
            step.stepped()
        return float(loss.detach())

    def look(self) -> dict[str, Any]:
        """Where this rank is: its state, its versions, a digest of every tensor, the projection of its log."""
        parts = self.trainer._parts
        tensors = {name: one for held in parts.inventory.groups().values() for name, one in held.items()}
        tensors |= parts.inventory.slot_tensors() | parts.moments.tensors()
        return {
            "state": str(self.trainer.state),
            "versions": dict(self.trainer.versions),
            "bytes": {name: content_of({name: parts.door.own_bytes(name, one)}) for name, one in tensors.items()},
            "loaded": sorted(self.host.loaded()),
        }

    def records(self, after: int = 0) -> list[dict[str, Any]]:
        """The projection of this rank's log, from a transition's number on."""
        return [one for one in canonical(self.audit.records) if int(str(one["transition"])) > after]

    def register_as(self, names: tuple[str, ...]) -> None:
        """Register what is named for this rank alone."""
        self.register(*names)

    def fault(self, operation: str, rank: int) -> None:
        """On this rank, an operation of the saver fails from now on."""
        if rank == self.rank:
            self.faults.add(operation)

    def mend(self) -> None:
        """Nothing fails any more, and all effects are as they were."""
        from lifecycle.transition.effects import EFFECTS  # noqa: PLC0415

        self.faults.clear()
        self.trainer._runner.effects = dict(EFFECTS)

    def hook(self, effect: str, what: str, rank: int) -> None:
        """On this rank, an effect raises, ends the process, or stops it."""
        if rank != self.rank:
            return

        def hooked(parts: Any, work: Any) -> Callable[[], None]:
            if what != "raise":
                os.kill(os.getpid(), getattr(signal, what))
            raise OddError(rank)

        self.trainer._runner.effects[Effect(effect)] = hooked

    def die(self, rank: int) -> None:
        """End the process of one rank, in the middle of a call."""
        if rank == self.rank:
            os.kill(os.getpid(), signal.SIGKILL)

    def raise_odd(self, rank: int) -> str:
        """Raise on one rank what cannot be pickled."""
        if rank == self.rank:
            raise OddError(rank)
        return "fine"

    def close(self) -> None:
        """Called when the group is closed."""

    def _fault(self, operation: str, tag: str) -> None:
        if operation in self.faults:
            raise OSError(f"{operation} of {tag}: told to")


class OddError(Exception):
    """An error of a user that cannot be pickled."""

    def __init__(self, rank: int) -> None:
        super().__init__(f"odd on {rank}")
        self.lock = (one for one in ())


def build(
    rank: int, world: int, ranks: RankAgreement, *, registry: AdapterRegistry | None = None, joins: bool = False
) -> Member:
    """A rank of these tests."""
    torch.set_num_threads(1)
    return Member(rank, ranks, registry, joins=joins)


class EngineInActor(FakeEngine):
    """An engine as a class of an actor."""

    def pid(self) -> int:
        return os.getpid()

    def look(self) -> dict[str, Any]:
        """What it holds and what was called."""
        return {"versions": self.versions, "digests": self.digests, "calls": self.calls}

    def fail(self, where: str) -> None:
        """Fail at this call from now on."""
        self.fails_at = where
