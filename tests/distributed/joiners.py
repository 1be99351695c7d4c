"""Ranks that train, are lost, and are replaced by processes that join."""

from __future__ import annotations

import hashlib
import os
import signal
from typing import Any

import torch
from torch import nn

from lifecycle import HostArena, LifecycleConfig, MemoryAudit, TrainerLifecycle, TrainerState
from lifecycle.audit.projection import canonical
from lifecycle.distributed import giving, taking
from tests.distributed.ranks import Member
from tests.lifecycle.world import SlotHost, TinyModel, World, content_of

SLOTS = 3


class Joiner(Member):
    """A rank whose trainer has two adapters, each with a scheduler that was declared."""

    def build(
        self,
        *,
        joins: bool = False,
        seed: int = 7,
        full: bool = False,
        kind: type[torch.optim.Adam] = torch.optim.Adam,
        **changes: Any,
    ) -> str:
        """A trainer, new or joining. Returns its state."""
        self.faults, self.held = {}, None
        model = TinyModel(SLOTS, trainable=full)
        if seed != 7:
            with torch.no_grad():
                model.up.add_(1.0)
        host = SlotHost(model)
        for slot, name in enumerate(("A", "B")):
            host.register(name, slot)
        optimizers: dict[int, torch.optim.Optimizer] = {
            slot: kind([model.lora_a[slot], model.lora_b[slot]], lr=0.01) for slot in range(SLOTS)
        }
        self.schedulers = {slot: torch.optim.lr_scheduler.StepLR(optimizers[slot], 2, 0.5) for slot in range(SLOTS)}
        if full:
            optimizers[SLOTS] = kind([model.p], lr=0.01)
        audit, arena = self.new_audit(), HostArena(faults=self._fault)
        trainer = TrainerLifecycle(
            LifecycleConfig(**changes),
            saver=arena,
            model=model,
            optimizer=optimizers,
            adapters=host,
            schedulers=self.schedulers,
            audit=audit,
            ranks=self.agreement,
            joins=joins,
            initial_state=TrainerState.AWAKE,
        )
        self.world = World(model, host, arena, audit, trainer, optimizers)
        return str(trainer.state)

    def new_audit(self) -> Any:
        """Where the records of the next trainer go."""
        return MemoryAudit(rank=self.rank)

    def train(self, *names: str, steps: int = 1) -> None:
        """Steps of these adapters (and of the trainable base), schedulers too. The same on every rank."""
        for _ in range(steps):
            with self.world.trainer.step(names) as step:
                slots = [self.world.host.holds[name].slot for name in names]
                for number in (*slots, *((SLOTS,) if SLOTS in self.world.optimizers else ())):
                    self.world.optimizers[number].zero_grad(set_to_none=False)
                self.world.backward(*names)
                for number in (*slots, *((SLOTS,) if SLOTS in self.world.optimizers else ())):
                    self.world.optimizers[number].step()
                for slot in slots:
                    self.schedulers[slot].step()
                step.stepped()

    def keep(self, tag: str) -> int:
        """Keep a model."""
        return self.world.trainer.keep_model(tag)

    def accumulate(self) -> None:
        """A backward pass of A whose optimizer step is yet to come."""
        with self.world.trainer.step(["A"]) as step:
            self.world.backward("A")
            step.accumulated()

    def switch(self, tag: str) -> None:
        """Put another model into live memory."""
        self.world.trainer.switch_model(tag)

    def die_at(self, what: str) -> None:
        """This process ends in the middle of the next hand-over: when it ``tells`` bytes, or ``fills`` them in."""
        module, name = {"tells": (giving, "render"), "fills": (taking, "fill")}[what]
        setattr(module, name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))

    def spoil(self) -> None:
        """One number of a loaded adapter is another one on this rank, and nobody was told."""
        with torch.no_grad():
            self.world.model.lora_a[0].view(-1)[0] += 1.0

    def damage(self) -> None:
        """What this rank tells of its bytes from now on has another last byte than it has, until it is mended."""
        real = giving.render

        def damaged(chunk: list[torch.Tensor]) -> bytes:
            content = bytearray(real(chunk))
            content[-1] ^= 1
            return bytes(content)

        giving.render = damaged
        self.mend = lambda: setattr(giving, "render", real)

    def fence(self) -> None:
        """No push to these engines was confirmed: of the one nothing is believed, of the other a group is in doubt."""
        engines = self.world.trainer._parts.runtime.engines
        engines.fence("E0", "a push failed", None)
        engines.fence("E1", "a push was not confirmed", frozenset({"adapter/A"}))

    def admit(self) -> tuple[int, ...]:
        """Let newcomers in."""
        return self.world.trainer.admit()

    def state(self) -> str:
        """Where the trainer is."""
        return str(self.world.trainer.state)

    def stands(self) -> dict[str, Any]:
        """Everything that the next step depends on: bytes, versions, counts, schedules; and the numbers of the log."""
        parts = self.world.trainer._parts
        rates = {slot: one.param_groups[0]["lr"] for slot, one in self.world.optimizers.items()}
        return {
            "state": self.state(),
            "bytes": self.world.all_bytes(),
            "copies": {tag: self.copy(tag) for tag in parts.snapshots.backup_tags},
            "versions": dict(parts.versions.wanted),
            "newest": parts.versions.newest,
            "history": {group: tuple(ids) for group, ids in parts.versions.history.items()},
            "schedules": {slot: one.state_dict()["last_epoch"] for slot, one in self.schedulers.items()},
            "rates": rates,
            "loaded": sorted(self.world.host.holds),
            "fences": {name: (one.because, one.suspect) for name, one in parts.runtime.engines.fences.items()},
        }

    def copy(self, tag: str) -> str:
        """Digest of a kept model."""
        held = self.world.trainer.snapshots.get(tag)
        return hashlib.sha256(
            repr(sorted((name, content_of({name: one})) for name, one in held.items())).encode()
        ).hexdigest()

    def projection(self, after: int) -> list[dict[str, Any]]:
        """The canonical projection of the log, from a transition's number on."""
        return [one for one in canonical(self.world.audit.records) if int(str(one["transition"])) > after]

    def joined(self) -> dict[str, Any]:
        """The last note that ranks joined, and the number of the transition before it."""
        notes = [one for one in self.world.audit.records if one.get("note") == "ranks joined"]
        return {key: notes[-1][key] for key in ("transition", "ranks", "by", "versions")}

    def build_full(self, *, joins: bool = False, frozen: bool = False, **changes: Any) -> str:
        """A trainer of all parameters of a model with buffers, its first layer frozen on demand. Returns its state."""
        torch.manual_seed(3)
        self.made = nn.Sequential(nn.Linear(32, 48), nn.BatchNorm1d(48), nn.Linear(48, 4))
        self.made[0].requires_grad_(not frozen)
        audit, arena = MemoryAudit(rank=self.rank), HostArena()
        optimizer = torch.optim.AdamW((one for one in self.made.parameters() if one.requires_grad), lr=0.01)
        self.optimizer = optimizer
        trainer = TrainerLifecycle(
            LifecycleConfig(lora=False, **changes),
            saver=arena,
            model=self.made,
            optimizer=optimizer,
            adapters=None,
            audit=audit,
            ranks=self.agreement,
            joins=joins,
            initial_state=TrainerState.AWAKE,
        )
        self.schedulers = {}
        tiny = TinyModel(1)  # nothing of it is used: what a world needs to look at a trainer
        self.world = World(tiny, SlotHost(tiny), arena, audit, trainer, {0: optimizer})
        return str(trainer.state)

    def train_full(self, steps: int = 1) -> None:
        """Steps of the whole model. The same on every rank."""
        for _ in range(steps):
            with self.world.trainer.step() as step:
                self.optimizer.zero_grad(set_to_none=False)
                (self.made(torch.linspace(-1, 1, 8 * 32).view(8, 32)) ** 2).mean().backward()
                self.optimizer.step()
                step.stepped()
