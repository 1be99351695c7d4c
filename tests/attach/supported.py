"""A model for each supported row of the table."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import peft
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lifecycle import HostArena
from lifecycle.saver import Backup
from tests.adapters.world import quiet
from tests.attach.world import Bag, Case, attach, frozen, numbers
from tests.models import llama


def tied_names() -> Case:
    """The embedding is the head."""
    model = Bag(embed=nn.Parameter(numbers(4, 3)), other=frozen(numbers(2)))
    model.head = model.embed
    return Case(model)


def tied_storage() -> Case:
    """Two parameters, one storage."""
    embed = nn.Parameter(numbers(4, 3))
    return Case(Bag(embed=embed, head=nn.Parameter(embed.detach()), base=frozen(numbers(2))))


def zero_size() -> Case:
    """An empty shard."""
    empty = nn.Parameter(torch.empty(0, 3))
    return Case(Bag(empty=empty, none=frozen(torch.empty(2, 0)), w=nn.Parameter(numbers(3)), b=torch.empty(0)))


def scalar() -> Case:
    """A learned temperature."""
    return Case(Bag(scale=nn.Parameter(torch.tensor(0.7)), fixed=frozen(torch.tensor(2.0)), seen=torch.tensor(3)))


def transposed() -> Case:
    """As checkpoints of other frameworks are loaded."""
    return Case(Bag(w=nn.Parameter(numbers(4, 3).t()), f=frozen(numbers(5, 2).t()), b=numbers(2, 6).t()[1:]))


def expanded() -> Case:
    """One row for all."""
    return Case(Bag(row=frozen(numbers(3, 1).expand(3, 5)), w=nn.Parameter(numbers(2))))


def flat_views() -> Case:
    """Parameters in a flat storage that nobody else holds."""
    flat = numbers(20)
    return Case(Bag(a=nn.Parameter(flat[:6].view(2, 3)), b=nn.Parameter(flat[6:18]), rest=frozen(numbers(2))))


def partly_frozen() -> Case:
    """One flat storage, frozen and trainable in turn."""
    flat = numbers(20)
    return Case(Bag(a=frozen(flat[:6]), b=nn.Parameter(flat[6:10]), c=frozen(flat[10:15]), d=nn.Parameter(flat[15:])))


def adopted() -> Case:
    """A framework's flat buffer, in a region of its own."""
    saver = HostArena()
    flat = saver.allocate(80, "framework", Backup.CPU).view(torch.float32)
    flat.copy_(numbers(20))
    model = Bag(a=nn.Parameter(flat[:6].view(2, 3)), b=nn.Parameter(flat[6:]))
    model.flat = [flat]
    saver.adopt({"a": model.a, "b": model.b}, "framework", Backup.CPU, paused=False)
    return Case(model, saver=saver)


def overlapping() -> Case:
    """Two windows of one vector."""
    flat = numbers(8)
    return Case(Bag(a=frozen(flat[:5]), b=frozen(flat[3:]), w=nn.Parameter(numbers(2))))


def buffers() -> Case:
    """Both kinds, one of them trained by hand, as MoE routers do."""
    model = Bag(w=nn.Parameter(numbers(3)), kept=numbers(2))
    model.register_buffer("scratch", numbers(4), persistent=False)
    return Case(model)


def frozen_buffer() -> Case:
    """Named by a pattern."""
    return Case(Bag(w=nn.Parameter(numbers(3)), inv_freq=numbers(4)), settings={"frozen_buffers": ("*inv_freq",)})


def view_buffer() -> Case:
    """A causal mask, reshaped."""
    return Case(Bag(w=nn.Parameter(numbers(3)), mask=torch.ones(4, 4).tril().view(1, 1, 4, 4)))


def modules_to_save() -> Case:
    """PEFT's own copy of the head trains."""
    targets = {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}
    with quiet():
        torch.manual_seed(1)
        model = peft.get_peft_model(llama(), peft.LoraConfig(r=2, **targets))
    return Case(model, lambda one: one(input_ids=torch.arange(6)[None]).logits)


def packed() -> Case:
    """Two numbers a byte, and their scales."""
    codes = torch.arange(24, dtype=torch.uint8).view(4, 6)
    return Case(Bag(q=frozen(codes), z=frozen(codes.to(torch.int8)), scale=numbers(4), w=nn.Parameter(numbers(2))))


def float8() -> Case:
    """Both formats."""
    return Case(
        Bag(
            e4m3=frozen(numbers(3, 4).to(torch.float8_e4m3fn)),
            e5m2=numbers(5).to(torch.float8_e5m2),
            w=nn.Parameter(numbers(2)),
        )
    )


def complex_numbers() -> Case:
    """Rotations."""
    turns = torch.polar(torch.ones(4), numbers(4))
    return Case(Bag(w=nn.Parameter(turns.clone()), f=frozen(turns.to(torch.complex128)), b=turns.clone()))


class State:
    """What bitsandbytes keeps beside a packed weight."""

    def __init__(self) -> None:
        self.absmax = numbers(16)
        self.nested = {"code": numbers(4)}


class Packed(nn.Parameter):
    """A parameter with a class and attributes of its own."""


def four_bit() -> Case:
    """The state is no parameter."""
    weight = Packed(torch.arange(32, dtype=torch.uint8), requires_grad=False)
    weight.quant_state = State()
    return Case(Bag(weight=weight, w=nn.Parameter(numbers(2))))


def plain_attribute() -> Case:
    """A table that the first forward pass made."""
    model = Bag(w=nn.Parameter(numbers(2)))
    object.__setattr__(model, "cos_cached", numbers(8))
    model.tables = {"sin": [numbers(4)]}
    return Case(model, lambda one: one() + one.cos_cached.sum() + one.tables["sin"][0].sum())


def critic() -> Case:
    """An actor is there already."""
    actor = Case(Bag(w=nn.Parameter(numbers(5)), f=frozen(numbers(3))))
    case = Case(Bag(v=nn.Parameter(numbers(4)), f=frozen(numbers(3))), settings={"model": "critic"}, saver=actor.saver)
    trainer = attach(actor)
    object.__setattr__(case.model, "actor", lambda: trainer)  # it lives as long as the critic
    return case


def compile_only(module: nn.Module) -> nn.Module:
    """By the compiler's front end alone; importing it warns about torch itself."""
    with quiet():
        result: nn.Module = torch.compile(module, backend="eager")
    return result


def compiled() -> Case:
    """Whose names begin with _orig_mod."""
    inner = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).requires_grad_(True)
    return Case(compile_only(_seeded(inner)), _on_ones)


def wrapped() -> Case:
    """Whose names begin with module."""
    return Case(nn.DataParallel(_seeded(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)))), _on_ones)


def data_parallel(**settings: bool) -> Case:
    """Inside of a process group."""
    model = DistributedDataParallel(_seeded(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))), **settings)
    return Case(model, _on_ones)


def mapped() -> Case:
    """A checkpoint that is mapped, not read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"
        torch.save({"w": numbers(40), "f": numbers(9)}, path)
        held = torch.load(path, mmap=True)
    return Case(Bag(w=nn.Parameter(held["w"]), f=frozen(held["f"])))


def _seeded(model: nn.Module) -> nn.Module:
    for one in model.parameters():
        one.data = numbers(*one.shape)
    return model


def _on_ones(model: nn.Module) -> Tensor:
    result: Tensor = model(numbers(4, 3))
    return result


CASES: dict[str, Callable[[], Case]] = {
    "tied weights, one parameter under two names": tied_names,
    "tied weights, two parameters over one storage": tied_storage,
    "zero-size tensor": zero_size,
    "0-dim tensor": scalar,
    "non-contiguous tensor (transposed)": transposed,
    "expanded tensor (stride 0) that is frozen": expanded,
    "views into one flat storage": flat_views,
    "frozen and trainable views into one flat storage": partly_frozen,
    "flat buffer of a framework that was adopted": adopted,
    "parameters that overlap in one content group": overlapping,
    "buffer, persistent or not": buffers,
    "frozen buffer (frozen_buffers)": frozen_buffer,
    "buffer that is a view of another tensor": view_buffer,
    "modules_to_save of a PeftModel without slots": modules_to_save,
    "packed integers (int8, uint8)": packed,
    "float8": float8,
    "complex numbers": complex_numbers,
    "4-bit state held outside of parameters (bitsandbytes)": four_bit,
    "tensor in a plain attribute (a cached rotary table)": plain_attribute,
    "second model on the same saver (critic)": critic,
    "compiled model (torch.compile)": compiled,
    "wrapped model (DataParallel, DDP)": wrapped,
    "memory-mapped checkpoint": mapped,
}
