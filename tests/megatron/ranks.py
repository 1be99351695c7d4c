"""What each tensor-parallel rank does. The same functions run alone in the test's process and in spawned ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor

from lifecycle import HostArena, LifecycleConfig, MemoryAudit, TrainerLifecycle, TrainerState
from lifecycle.adapters import MegatronAdapters
from lifecycle.engines.protocol import AdapterPayload
from lifecycle.errors import LifecycleError
from tests.lifecycle.world import FakeEngine
from tests.megatron.world import SHAPES, SLOT_RANK, Result, export, factors, forward, gpt, load

LAYERS = ("self_attention.linear_qkv", "self_attention.linear_proj", "mlp.linear_fc1", "mlp.linear_fc2")


def everything(rank: int) -> Result:
    """Every task, its results under its name."""
    tasks = {"trained": trained, "exact": exact, "awake": awake, "slept": slept, "refused": refused}
    return {f"{name} {key}": one for name, task in tasks.items() for key, one in task(rank).items()}


def with_adapter(model: Any, *, targets: tuple[str, ...] = tuple(SHAPES), **changes: Any) -> MegatronAdapters:
    """A host on the model that holds adapter a, of rank 4 and scale 3."""
    made = MegatronAdapters(model, slots=2, rank=SLOT_RANK, **changes)
    dtype = next(iter(made.slot_tensors(0).values())).dtype
    made.registry.register("a", tensors=factors(1, 4, targets, dtype), rank=4, alpha=12)
    load(made, "a")
    return made


def gradients(made: MegatronAdapters, name: str) -> dict[str, Tensor]:
    """The gradients of an adapter under PEFT names, whole. Those of replicated factors must agree on all ranks."""
    slot = made.slot_tensors(made.slot_of(name))
    read = {key: torch.zeros_like(one) if one.grad is None else one.grad for key, one in slot.items()}
    return dict(made.export(name, read.__getitem__)[3])


def trained(_rank: int) -> Result:
    """Logits and loss with an adapter and without, its gradients, and what three steps of Adam make of it."""
    made = with_adapter(gpt(dtype=torch.float64))
    given = factors(1, 4, dtype=torch.float64)
    exported = export(made, "a")
    found: Result = {"returned": exported.keys() == given.keys() and all(map(torch.equal, *_pairs(exported, given)))}
    with torch.no_grad():
        found["base logits"] = forward(made.model)
        with made.use("a"):
            found["logits"], found["loss"] = forward(made.model), forward(made.model, labels=True)
    adam = made.optimizers(lambda parameters: torch.optim.Adam(parameters, lr=0.01))[0]
    for step in range(3):
        adam.zero_grad()
        with made.use("a"):
            # Not the cross entropy: megatron computes that in float32.
            (forward(made.model).pow(2).sum() / 100).backward()
        if step == 0:
            found |= {f"gradient {key}": one for key, one in gradients(made, "a").items()}
        adam.step()
    return found | {f"weight {key}": one for key, one in export(made, "a").items()}


def _pairs(one: Any, other: Any) -> tuple[list[Tensor], list[Tensor]]:
    return [one[key] for key in sorted(one)], [other[key] for key in sorted(one)]


def exact(rank: int) -> Result:
    """Each kind of layer on small whole numbers, where every sum is exact in any order."""
    model = gpt()
    made = MegatronAdapters(model, slots=1, rank=4)
    whole = {key: (one * 5).round() for key, one in factors(2, 4).items()}
    made.registry.register("a", tensors=whole, rank=4, alpha=12)
    load(made, "a")
    found: Result = {}
    for name in LAYERS:
        layer = model.get_submodule(f"decoder.layers.0.{name}")
        is_column = hasattr(layer, "gather_output")
        draw = torch.Generator().manual_seed(3)

        def numbers(*shape: int, draw: torch.Generator = draw) -> Tensor:
            return torch.randint(-2, 3, shape, generator=draw).float()

        # Of gates above ups each rank has a part of both.
        fused = 2 if name.endswith("fc1") else 1

        def own(one: Tensor, dim: int, fused: int = fused) -> Tensor:
            return torch.cat([half.chunk(dist.get_world_size(), dim)[rank] for half in one.chunk(fused, dim)], dim)

        weight, given = numbers(layer.output_size, layer.input_size), numbers(5, 2, layer.input_size)
        wanted = numbers(5, 2, layer.output_size)
        layer.weight.data.copy_(own(weight, 0 if is_column else 1))
        given = (given if is_column else own(given, -1)).requires_grad_()
        with made.use("a"):
            output = layer(given)[0]
        (output * (own(wanted, -1) if is_column else wanted)).sum().backward()
        assert given.grad is not None
        found |= {f"{name} output": output, f"{name} input gradient": given.grad}
    return found | {f"gradient {key}": one for key, one in gradients(made, "a").items()}


@dataclass
class Receiver(FakeEngine):
    """An engine that keeps the adapters it was sent."""

    got: dict[str, AdapterPayload] = field(default_factory=dict)

    def load_adapter(self, payload: AdapterPayload) -> None:
        super().load_adapter(payload)
        tensors = {key: one.detach().clone() for key, one in payload.tensors.items()}
        self.got[payload.name] = AdapterPayload(
            payload.name, payload.version, payload.rank, payload.alpha, payload.target_modules, tensors
        )


@contextmanager
def opened() -> Iterator[dist.ProcessGroup]:
    """A group of all ranks, for the time of the block."""
    group = dist.new_group()
    try:
        yield group
    finally:
        dist.destroy_process_group(group)


def awake(_rank: int) -> Result:
    """The life of :func:`slept` without any sleep."""
    return _life(sleeps=False)


def slept(_rank: int) -> Result:
    """Train a; while offloaded load b, retire nothing, and push both; wake, train both, push again while offloaded."""
    return _life(sleeps=True)


def _life(*, sleeps: bool) -> Result:
    arena = HostArena()
    try:
        life = Life(arena)
        engine, states = Receiver(), []

        def hand_over() -> None:
            if sleeps:
                life.trainer.sleep(offload=True)
            life.trainer.reconcile_adapters()
            life.trainer.update_weights([engine])
            states.append(str(life.trainer.state))
            if sleeps:
                life.trainer.wake_up()

        life.made.registry.register("a", tensors=factors(1, 4), rank=4, alpha=12)
        life.trainer.reconcile_adapters()
        life.train("a")
        life.made.registry.register("b", tensors=factors(2, SLOT_RANK), rank=SLOT_RANK)
        hand_over()
        found = {f"first {name} {key}": one for name in "ab" for key, one in engine.got[name].tensors.items()}
        life.train("b")
        life.train("a")
        hand_over()
        found |= {f"last {name} {key}": one for name in "ab" for key, one in engine.got[name].tensors.items()}
        if dist.get_world_size() > 1:
            found["checkpoint"] = _words(lambda: life.trainer.save_checkpoint("a", "nowhere", step=2))
        return {**found, "states": ",".join(states), "active": ",".join(life.made.registry.active_adapters())}
    finally:
        arena.close()


class Life:
    """A trainer on a GPTModel with slots, in an arena.

    Attributes:
        made: the slots.
        trainer: the controller.
    """

    def __init__(self, arena: HostArena) -> None:
        self.made = MegatronAdapters(gpt(), slots=2, rank=SLOT_RANK, gather_group=opened)
        self._adams = self.made.optimizers(lambda parameters: torch.optim.Adam(parameters, lr=0.01))
        self.trainer = TrainerLifecycle(
            LifecycleConfig(),
            saver=arena,
            model=self.made.model,
            optimizer=self._adams,
            adapters=self.made,
            audit=MemoryAudit(),
            initial_state=TrainerState.AWAKE,
        )

    def train(self, name: str) -> None:
        """One step of one adapter."""
        adam = self._adams[self.made.slot_of(name)]
        with self.trainer.step([name]), self.made.use(name):
            forward(self.made.model, labels=True).backward()
            adam.step()
            adam.zero_grad(set_to_none=False)


def refused(rank: int) -> Result:
    """What two ranks refuse, in words."""
    if dist.get_world_size() == 1:
        return {}
    made = with_adapter(gpt())
    shared = made.slot_tensors(0)["lora_slots.slot_0.model.layers.0.self_attn.q_proj.lora_A"]
    alone = [dist.new_group([one]) for one in range(dist.get_world_size())][rank]
    elsewhere = with_adapter(gpt(), gather_group=alone)
    found = {
        "group": _words(lambda: export(elsewhere, "a")),
        "query groups": _words(lambda: MegatronAdapters(gpt(num_query_groups=1), slots=1, rank=2)),
    }
    with mock.patch("torch.distributed.get_backend_config", return_value="cuda:nccl"):
        found["backend"] = _words(lambda: export(made, "a"))
    if rank == 1:
        shared.data[0, 0] += 1
    return {**found, "apart": _words(lambda: export(made, "a"))}


def _words(call: Any) -> str:
    try:
        call()
    except LifecycleError as error:
        return str(error)
    return "nothing was refused"
