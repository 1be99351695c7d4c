"""For each refused row of the table something that must not be attached."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import peft
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils._pytree import tree_map_only

from lifecycle import HostArena
from lifecycle.adapters import PeftAdapters
from lifecycle.memory import attachable
from lifecycle.memory.attach_checks import refuse_mixed_backups
from lifecycle.memory.sharing import groups_sharing_storage
from lifecycle.saver.placement import Obstacle
from tests.adapters.world import host, peft_directory, quiet
from tests.attach.world import Bag, Case, attach, frozen, numbers, one_rank
from tests.models import llama


@dataclass
class Refusal:
    """What is refused.

    Attributes:
        model: must stay as it is.
        names: must be in the message.
        saver: whose books must stay as they are.
        attach: tries it; attaches the model when None.
        settings: of the configuration.
    """

    model: nn.Module
    names: tuple[str, ...] = ("bad",)
    saver: HostArena = field(default_factory=HostArena)
    attach: Callable[[], object] | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def run(self) -> object:
        """Try to attach it."""
        if self.attach is not None:
            return self.attach()
        case = Case(self.model, settings=self.settings, saver=self.saver)
        return attach(case, case.optimizer() if not self.settings else None)


def with_bad(bad: Any, **more: Any) -> Refusal:
    """A good parameter beside a bad one: neither may move."""
    return Refusal(Bag(good=frozen(numbers(4)), bad=bad, **more))


@contextmanager
def lazy() -> Iterator[Refusal]:
    """A linear layer that has seen no input."""
    yield Refusal(nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(3)), ("1.weight", "1.bias"))


@contextmanager
def meta() -> Iterator[Refusal]:
    """Built on the meta device, and never loaded."""
    yield Refusal(nn.Linear(3, 3, device="meta"), ("weight", "bias"))


@contextmanager
def sparse() -> Iterator[Refusal]:
    """Coordinates and values."""
    yield with_bad(frozen(torch.eye(3).to_sparse()))


@contextmanager
def quantised() -> Iterator[Refusal]:
    """Torch's own quantised dtype."""
    with quiet():
        yield with_bad(frozen(torch.quantize_per_tensor(numbers(3, 3), 0.1, 0, torch.qint8)))


@contextmanager
def sharded() -> Iterator[Refusal]:
    """FSDP2 on a mesh of one rank."""
    with one_rank():
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        yield Refusal(model, ("0.weight", "1.weight", "fully_shard"))


class Int8Weight(Tensor):
    """Codes and a scale that pass for one float tensor, as torchao's do."""

    codes: Tensor
    scale: Tensor

    @staticmethod
    def __new__(cls: type[Self], codes: Tensor, scale: Tensor) -> Self:
        return Tensor._make_wrapper_subclass(cls, codes.shape, dtype=scale.dtype)  # type: ignore[attr-defined]

    def __init__(self, codes: Tensor, scale: Tensor) -> None:
        self.codes, self.scale = codes, scale

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].codes, args[0].scale)
        args, kwargs = tree_map_only(cls, lambda one: one.codes * one.scale, (args, kwargs or {}))
        return func(*args, **kwargs)


@contextmanager
def wrapper() -> Iterator[Refusal]:
    """A quantised weight of torchao's make."""
    yield with_bad(frozen(Int8Weight(torch.ones(3, 3, dtype=torch.int8), torch.tensor(0.5))))


@contextmanager
def conjugate() -> Iterator[Refusal]:
    """Complex numbers that are yet to be conjugated."""
    yield with_bad(torch.ones(2, dtype=torch.complex64).conj())


@contextmanager
def non_leaf() -> Iterator[Refusal]:
    """A buffer that was computed from a parameter."""
    weight = nn.Parameter(numbers(3))
    yield with_bad(weight * 2, weight=weight)


@contextmanager
def freed() -> Iterator[Refusal]:
    """What FSDP1 leaves behind of a parameter that is not gathered."""
    model = with_bad(frozen(numbers(4)))
    model.model.bad.untyped_storage().resize_(0)
    yield model


@contextmanager
def devices() -> Iterator[Refusal]:
    """One part was never loaded."""
    yield with_bad(frozen(torch.empty(3, device="meta")), also=frozen(numbers(2)))


@contextmanager
def shared_memory() -> Iterator[Refusal]:
    """As share_memory() leaves a model."""
    yield with_bad(frozen(numbers(4).share_memory_()))


@contextmanager
def inference() -> Iterator[Refusal]:
    """An engine's loader was used."""
    with torch.inference_mode():
        value = numbers(3)
    yield with_bad(value)


@contextmanager
def expanded() -> Iterator[Refusal]:
    """A buffer that counts as mutable."""
    yield with_bad(numbers(3, 1).expand(3, 4))


@contextmanager
def overlap() -> Iterator[Refusal]:
    """A frozen window on a vector that trains."""
    vector = numbers(10)
    model = Bag(good=frozen(numbers(2)), bad=frozen(vector[:6]), worse=nn.Parameter(vector[5:]))
    yield Refusal(model, ("bad", "worse", "frozen-base and trainable-base"))


@contextmanager
def mixed_backups() -> Iterator[Refusal]:
    """The frozen part is to come from a file, the other one from the saver."""
    flat = numbers(10)
    model = Bag(bad=frozen(flat[:6]), worse=nn.Parameter(flat[6:]))
    shared = groups_sharing_storage({"frozen-base": {"bad": model.bad}, "trainable-base": {"worse": model.worse}})
    kinds = {"frozen-base": "file", "trainable-base": "cpu"}
    names = ("bad", "worse", "frozen-base: file, trainable-base: cpu")
    yield Refusal(model, names, attach=lambda: refuse_mixed_backups(shared, kinds.get))


@contextmanager
def held_flat() -> Iterator[Refusal]:
    """The framework gathers into the flat buffer itself."""
    flat = numbers(10)
    yield Refusal(Bag(good=nn.Parameter(numbers(2)), bad=nn.Parameter(flat[:6]), worse=nn.Parameter(flat[6:])))
    assert torch.equal(flat, numbers(10))


@contextmanager
def alias() -> Iterator[Refusal]:
    """A transposed weight that is kept at hand."""
    refusal = with_bad(nn.Parameter(numbers(3, 2)))
    object.__setattr__(refusal.model, "kept", refusal.model.bad.t())
    yield Refusal(refusal.model, ("kept", "of bad"))


@contextmanager
def prefix_taken() -> Iterator[Refusal]:
    """The critic was given no name of its own."""
    actor = Case(Bag(w=nn.Parameter(numbers(5))))
    trainer = attach(actor)
    yield Refusal(Bag(w=nn.Parameter(numbers(4))), ("actor/", "not this trainer's"), saver=actor.saver)
    trainer.sleep(offload=True)


@contextmanager
def two_trainers() -> Iterator[Refusal]:
    """Actor and critic on one trunk."""
    trunk = frozen(numbers(6))
    actor = Case(Bag(trunk=trunk, head=nn.Parameter(numbers(2))))
    trainer = attach(actor)
    critic = Bag(trunk=trunk, head=nn.Parameter(numbers(3)))
    yield Refusal(critic, ("trunk", "also of actor"), saver=actor.saver, settings={"model": "critic"})
    trainer.sleep(offload=True)


@contextmanager
def slot_modules() -> Iterator[Refusal]:
    """An adapter that brings a head of its own."""
    made = host()
    with TemporaryDirectory() as folder:
        directory = peft_directory(Path(folder) / "bad", 0, 4, modules_to_save=["lm_head"])
        names = ("'bad'", "modules_to_save")
        yield Refusal(made.model, names, attach=lambda: made.registry.register("bad", directory))
    assert not made.loaded()


@contextmanager
def wrapped_by_peft() -> Iterator[Refusal]:
    """It has adapters already."""
    with quiet():
        model = peft.get_peft_model(llama(), peft.LoraConfig(r=2, target_modules=["q_proj"]))
    yield Refusal(model, ("wrapped by PEFT", "unwrapped"), attach=lambda: PeftAdapters(model, slots=1, rank=2))


CASES: dict[str, Callable[[], Any]] = {
    Obstacle.LAZY: lazy,
    Obstacle.META: meta,
    Obstacle.LAYOUT: sparse,
    Obstacle.QUANTISED: quantised,
    Obstacle.DTENSOR: sharded,
    Obstacle.WRAPPER: wrapper,
    Obstacle.LAZY_VIEW: conjugate,
    Obstacle.NON_LEAF: non_leaf,
    Obstacle.FREED: freed,
    attachable.DEVICES: devices,
    attachable.SHARED_MEMORY: shared_memory,
    attachable.INFERENCE: inference,
    attachable.EXPANDED: expanded,
    attachable.OVERLAP: overlap,
    attachable.MIXED_BACKUPS: mixed_backups,
    attachable.HELD_FLAT: held_flat,
    attachable.ALIAS: alias,
    attachable.PREFIX_TAKEN: prefix_taken,
    attachable.TWO_TRAINERS: two_trainers,
    attachable.SLOT_MODULES: slot_modules,
    attachable.WRAPPED_BY_PEFT: wrapped_by_peft,
}
