"""A trainer on a real PEFT model whose slots have everything that can belong to one, in several layouts."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from lifecycle import HostArena, LifecycleConfig, MemoryAudit, TrainerLifecycle, TrainerState
from lifecycle.adapters import AdapterRegistry, PeftAdapters
from tests.models import llama, step_rounding

TARGETS = ("q_proj", "down_proj")
SLOT_RANK = 4


class GroupAdam(Optimizer):
    """Adam that counts steps in its group, as the fused ones of apex and Megatron do; its state is there at once."""

    def __init__(self, parameters: list[Tensor], *, as_tensor: bool) -> None:
        super().__init__(parameters, {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8})
        for group in self.param_groups:
            group["step"] = torch.zeros(1, dtype=torch.int32) if as_tensor else 0
            for one in group["params"]:
                self.state[one] = {"exp_avg": torch.zeros_like(one), "exp_avg_sq": torch.zeros_like(one)}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step."""
        for group in self.param_groups:
            group["step"] += 1
            count = int(group["step"])
            first, second = group["betas"]
            for one in group["params"]:
                state = self.state[one]
                state["exp_avg"].mul_(first).add_(one.grad, alpha=1 - first)
                state["exp_avg_sq"].mul_(second).addcmul_(one.grad, one.grad, value=1 - second)
                scale = (state["exp_avg_sq"] / (1 - second**count)).sqrt_().add_(group["eps"])
                one.addcdiv_(state["exp_avg"], scale, value=-group["lr"] / (1 - first**count))


class NumberAdam(GroupAdam):
    """The same, but it counts in each parameter's state, with a plain number."""

    def __init__(self, parameters: list[Tensor]) -> None:
        super().__init__(parameters, as_tensor=False)
        del self.param_groups[0]["step"]
        for one in parameters:
            self.state[one]["step"] = 0

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step."""
        group = self.param_groups[0]
        group["step"] = self.state[group["params"][0]]["step"]
        super().step(closure)
        count = group.pop("step")
        for one in group["params"]:
            self.state[one]["step"] = count


COUNTS: dict[str, Callable[[list[Tensor]], Optimizer]] = {
    "a tensor a parameter": lambda ps: torch.optim.Adam(ps, lr=0.01),
    "a number a parameter": NumberAdam,
    "a number a group": lambda ps: GroupAdam(ps, as_tensor=False),
    "a tensor a group": lambda ps: GroupAdam(ps, as_tensor=True),
}
"""Optimizers by where they count their steps."""

LAYOUTS = {"fp32": torch.float32, "bf16 and main copies": torch.bfloat16}
RESTING = [TrainerState.AWAKE, TrainerState.SLEEPING, TrainerState.OFFLOADED_CPU, TrainerState.OFFLOADED_DISK]


@dataclass
class SlotWorld:
    """One trainer. ``host``, ``arena``, ``audit`` and ``trainer`` are called as in the other world."""

    host: PeftAdapters
    arena: HostArena
    audit: MemoryAudit
    trainer: TrainerLifecycle
    optimizers: dict[int, Optimizer]
    mains: dict[str, Tensor]
    schedulers: dict[int, LRScheduler]
    trained: dict[str, int] = field(default_factory=dict)

    def train(self, name: str, steps: int = 1) -> None:
        """Really train, on data that depends on the adapter and on how often it was trained."""
        for _ in range(steps):
            with self.trainer.step([name]) as step:
                self.clear_gradients(name)
                self.backward(name)
                self.step(name)
                step.stepped()
            self.trained[name] = self.trained.get(name, 0) + 1

    def clear_gradients(self, name: str) -> None:
        """Zero the gradients of an adapter's parameters."""
        for one in self.host.parameters_of(name):
            assert one.grad is not None
            one.grad.zero_()

    def backward(self, name: str) -> None:
        """Add the gradients of its next batch."""
        seed = sum(map(ord, name)) * 1000 + self.trained.get(name, 0)
        ids = torch.randint(0, 64, (2, 5), generator=torch.Generator().manual_seed(seed))
        with self.host.use(name):
            self.host.model(input_ids=ids, labels=ids).loss.backward()

    def step(self, name: str) -> None:
        """Step what the optimizer holds, as Megatron does it: gradients to fp32, step, round."""
        slot = self.host.slot_of(name)
        step_rounding(self.optimizers[slot], self.host.slot_tensors(slot), self.mains)
        if slot in self.schedulers:
            self.schedulers[slot].step()

    def slot_state(self, slot: int) -> dict[str, Any]:
        """Everything that belongs to a slot, wherever it is, by names without the slot's number."""
        parts, names = self.trainer._parts, self.host.slot_tensors(slot)
        tensors = {**names, **parts.moments.of(names)}
        tensors |= {f"{name}#main": self.mains[name] for name in names if name in self.mains}
        optimizer = self.optimizers[slot]
        return {
            **{k.replace(f"slot_{slot}", "slot"): parts.door.own_bytes(k, v).clone() for k, v in tensors.items()},
            "settings": [
                {key: deepcopy(value) for key, value in one.items() if key != "params"}
                for one in optimizer.param_groups
            ],
            "steps": [int(one.get("step", 0)) for one in optimizer.param_groups],
            "numbers": [one["step"] for one in optimizer.state.values() if isinstance(one.get("step"), int)],
            "schedule": dict(self.schedulers[slot].state_dict()) if slot in self.schedulers else None,
        }

    def everything(self) -> dict[str, Any]:
        """All slots, gradients that were accumulated, and every book that a reconcile touches."""
        parts = self.trainer._parts
        return {
            **{f"slot {slot}": self.slot_state(slot) for slot in range(self.host.slots)},
            "state": self.trainer.state,
            "loaded": self.host.loaded(),
            "desired": self.host.desired(),
            "scales": {k: dict(v.scaling) for k, v in self.host._layers.items()},
            "versions": parts.versions.save(),
            "digests": {k: v for k, v in parts.versions.digests.items() if k in parts.versions.wanted.values()},
            "accumulated": parts.runtime.accumulated,
            "kept": dict(parts.gradients._kept),
            "tags": self.arena.tags(),
        }

    def rest(self, state: TrainerState) -> None:
        """Bring an awake trainer into a resting state."""
        if state is not TrainerState.AWAKE:
            self.trainer.sleep(offload=state is not TrainerState.SLEEPING)
        assert self.trainer.state is state

    def wake(self) -> None:
        """Bring it back."""
        if self.trainer.state is not TrainerState.AWAKE:
            self.trainer.wake_up()


def same(one: object, other: object) -> bool:
    """Equal to the bit, tensors included."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and bits(one) == bits(other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def bits(tensor: Tensor) -> bytes:
    """The bytes of a tensor."""
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes()


def _decay(base: float, count: int) -> float:
    return base**count


def halving(optimizer: Optimizer) -> LRScheduler:
    """Half the learning rate after each step."""
    return LambdaLR(optimizer, partial(_decay, 0.5))


def make(
    layout: str = "fp32",
    counts: str = "a tensor a parameter",
    *,
    slots: int = 2,
    rank: int = SLOT_RANK,
    registry: AdapterRegistry | None = None,
    scheduled: bool = True,
    folder: Path | None = None,
    optimizer: Callable[[list[Tensor]], Optimizer] | None = None,
    schedule: Callable[[Optimizer], LRScheduler] = halving,
    **changes: Any,
) -> SlotWorld:
    """A trainer that is awake, with empty slots; with a folder it offloads to disk."""
    dtype = LAYOUTS[layout]
    host = PeftAdapters(llama(), slots=slots, rank=rank, target_modules=TARGETS, dtype=dtype, registry=registry)
    named = {name: one for slot in range(slots) for name, one in host.slot_tensors(slot).items()}
    mains = {} if layout == "fp32" else {name: one.detach().float() for name, one in named.items()}
    held = [[mains.get(name, one) for name, one in host.slot_tensors(slot).items()] for slot in range(slots)]
    build = COUNTS[counts] if optimizer is None else optimizer
    optimizers = {slot: build(parameters) for slot, parameters in enumerate(held)}
    schedulers = {slot: schedule(one) for slot, one in optimizers.items()} if scheduled else {}
    arena, audit = HostArena(disk_dir=None if folder is None else str(folder)), MemoryAudit()
    settings: dict[str, Any] = {
        "main_copies": mains or None,
        "schedulers": schedulers or None,
        **changes,
    }
    trainer = TrainerLifecycle(
        LifecycleConfig(frozen_buffers=("*inv_freq",), offload_target="cpu" if folder is None else "disk"),
        saver=arena,
        model=host.model,
        optimizer=optimizers,
        adapters=host,
        audit=audit,
        initial_state=TrainerState.AWAKE,
        **settings,
    )
    return SlotWorld(host, arena, audit, trainer, optimizers, mains, schedulers)


def make_for(state: TrainerState, folder: Path, **settings: Any) -> SlotWorld:
    """One that can get into this state."""
    return make(folder=folder if state is TrainerState.OFFLOADED_DISK else None, **settings)
