"""A small PEFT model under a real trainer, engines that remember what they serve, and sources of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from lifecycle import HostArena, LifecycleConfig, MemoryAudit, TrainerLifecycle, TrainerState
from lifecycle.adapters import AdapterRegistry, PeftAdapters
from lifecycle.engines.protocol import AdapterPayload, EngineReport
from lifecycle.errors import EngineError
from tests.lifecycle.world import FakeEngine, content_of
from tests.models import step_rounding

SLOTS, SLOT_RANK, TARGETS = 3, 2, ("up", "down")
LAYOUTS = {"fp32": torch.float32, "bf16 and main copies": torch.bfloat16}
PLACES: dict[str, dict[str, str]] = {
    "cpu": {},
    "cpu, base in a file": {"frozen_base": "file"},
    "disk": {"offload_target": "disk"},
}


REPLY = "the reply is lost"
"""Where an engine can fail, besides the beginning of each call."""


class Net(nn.Module):
    """Two linear modules and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up = nn.Linear(6, 5, bias=False)
        self.down = nn.Linear(5, 6, bias=False)
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        """``[batch, 6]`` to the same."""
        found: Tensor = self.down(torch.tanh(self.up(x)))
        return found


class ServingEngine(FakeEngine):
    """One that remembers of an adapter all that it was sent, and which groups each commit brought."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.is_away = False
        self.commits: list[tuple[str, ...]] = []

    def report(self) -> EngineReport:
        """Nothing is known of one that does not answer."""
        if self.is_away:
            raise ConnectionError("nobody answers")
        return super().report()

    def load_adapter(self, payload: AdapterPayload) -> None:
        """Rank and scale are part of what is served."""
        super().load_adapter(payload)
        self.staged[f"adapter/{payload.name}"] = payload.version, payload_content(payload)

    def commit_update(self) -> None:
        """Remember what came with it, if the sender hears of it."""
        brought = tuple(self.staged)
        super().commit_update()
        if self.fails_at == REPLY:
            raise EngineError(self.name, "it has committed, and nobody hears of it")
        self.commits.append(brought)

    def abort_update(self) -> None:
        """One whose replies are lost does not hear this either."""
        super().abort_update() if self.fails_at != REPLY else self.calls.append("abort")


def payload_content(payload: AdapterPayload) -> str:
    """A digest of everything that decides what an adapter computes."""
    return f"{payload.rank} {payload.alpha} {payload.target_modules} {content_of(payload.tensors)}"


@dataclass
class TenancyWorld:
    """One trainer with slots; ``host``, ``arena``, ``audit`` and ``trainer`` are called as in the other worlds."""

    host: PeftAdapters
    arena: HostArena
    audit: MemoryAudit
    trainer: TrainerLifecycle
    optimizers: dict[int, Optimizer]
    mains: dict[str, Tensor]
    seen: int = field(default=0)

    @property
    def registry(self) -> AdapterRegistry:
        """What should be loaded."""
        return self.host.registry

    def short(self, slot: int, name: str) -> str:
        """A tensor's name without the number of its slot."""
        return name.replace(f"slot_{slot}", "slot").replace(f"slot {slot} ", "slot ")

    def slot_bytes(self, slot: int) -> dict[str, bytes]:
        """Everything that belongs to a slot, where it is: weights, main copies, moments, step counts."""
        parts, names = self.trainer._parts, self.host.slot_tensors(slot)
        tensors = {**names, **parts.slots.tensors(slot)}
        tensors |= {f"{name}#main": self.mains[name] for name in names if name in self.mains}
        return {self.short(slot, name): bits(parts.door.own_bytes(name, one)) for name, one in tensors.items()}

    def leased_bytes(self, name: str) -> dict[str, bytes]:
        """The weights of a loaded adapter, from whatever source is decided."""
        slot = self.host.slot_of(name)
        with self.trainer.weights("test", groups=[f"adapter/{name}"]) as lease:
            return {self.short(slot, key): bits(lease[key]) for key in lease}

    def gradients(self, slot: int) -> dict[str, bytes]:
        """The gradients that hang on a slot's parameters; the trainer is awake."""
        held = {name: one.grad for name, one in self.host.slot_tensors(slot).items()}
        return {self.short(slot, name): bits(one) for name, one in held.items() if one is not None}

    def served_content(self) -> dict[str, tuple[int, str]]:
        """Version and digest of every content group as an engine would get it now."""
        found = {}
        groups = self.trainer._parts.inventory.groups()
        for content in self.trainer.facts().contents:
            group, name = content.group, content.group.removeprefix("adapter/")
            with self.trainer.weights("compare", groups=[group]) as lease:
                if group == name:
                    told = content_of({key: lease[key] for key in groups[group]})
                else:
                    told = payload_content(AdapterPayload(name, 0, *self.host.export(name, lease.__getitem__)))
            found[group] = content.version, told
        return found

    def backward(self, name: str) -> None:
        """Add gradients of a batch that was never seen before."""
        self.seen += 1
        x = torch.randn(3, 6, generator=torch.Generator().manual_seed(self.seen))
        with self.host.use(name):
            (self.host.model(x) - 1).square().mean().backward()

    def optimizer_step(self, name: str) -> None:
        """Step what the optimizer holds; with main copies gradients go there, and what is stepped is rounded back."""
        slot = self.host.slot_of(name)
        step_rounding(self.optimizers[slot], self.host.slot_tensors(slot), self.mains)

    def clear_gradients(self, name: str) -> None:
        """Zero those of an adapter."""
        for one in self.host.parameters_of(name):
            assert one.grad is not None
            one.grad.zero_()

    def serve(self, registry: AdapterRegistry) -> None:
        """The registry's process was started again: the same slots, another registry."""
        registry.connect(self.host._read, self.host.loaded)
        self.host.registry = registry


def make(layout: str, place: str, folder: Path) -> TenancyWorld:
    """A trainer that is awake, with empty slots."""
    host = PeftAdapters(Net(), slots=SLOTS, rank=SLOT_RANK, target_modules=TARGETS, dtype=LAYOUTS[layout])
    named = {name: one for slot in range(SLOTS) for name, one in host.slot_tensors(slot).items()}
    mains = {} if layout == "fp32" else {name: one.detach().float() for name, one in named.items()}
    optimizers: dict[int, Optimizer] = {
        slot: Adam([mains.get(name, one) for name, one in host.slot_tensors(slot).items()], lr=0.05)
        for slot in range(SLOTS)
    }
    arena, audit = HostArena(disk_dir=str(folder / "disk")), MemoryAudit()
    trainer = TrainerLifecycle(
        LifecycleConfig(**PLACES[place]),
        saver=arena,
        model=host.model,
        optimizer=optimizers,
        adapters=host,
        main_copies=mains or None,
        audit=audit,
        initial_state=TrainerState.AWAKE,
    )
    return TenancyWorld(host, arena, audit, trainer, optimizers, mains)


def bits(tensor: Tensor) -> bytes:
    """The bytes of a tensor."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@cache
def given_tensors(seed: int, rank: int) -> Mapping[str, Tensor]:
    """Random factors under PEFT names, for both modules."""
    draw, net = torch.Generator().manual_seed(seed), Net()
    found = {}
    for path in TARGETS:
        module = net.get_submodule(path)
        assert isinstance(module, nn.Linear)
        found[f"base_model.model.{path}.lora_A.weight"] = torch.randn(rank, module.in_features, generator=draw)
        found[f"base_model.model.{path}.lora_B.weight"] = torch.randn(module.out_features, rank, generator=draw)
    return found
