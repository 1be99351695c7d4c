"""docs/from-miles.md is true: its code runs, in an actor of the shape that miles has."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lifecycle import compat
from lifecycle.compat import TensorBackuper
from lifecycle.errors import EventRefused
from lifecycle.saver import Backup, HostArena
from states import TrainerState
from tests.docs.blocks import code_of
from tests.lifecycle.world import FakeEngine
from tests.megatron.world import SLOT_RANK, forward, gpt, parallel

TEXT = (Path(__file__).parents[2] / "docs" / "from-miles.md").read_text(encoding="utf-8")
BLOCKS = code_of("from-miles.md")


class Regions:
    """The stand-in for an actor of miles: its weights lie in a region of the saver, as torch allocated them there."""

    arena: HostArena

    def init(self, args: Namespace, with_ref: bool, with_opd_teacher: bool) -> None:  # noqa: FBT001 - as there
        self.args, self.with_ref, self.with_opd_teacher = args, with_ref, with_opd_teacher
        self.model = nn.ParameterDict({"base": torch.randn(500), "lora": torch.randn(12)})
        self.model.base.requires_grad_(False)  # type: ignore[union-attr]
        memory = self.arena.allocate(4096, "default", Backup.CPU).view(torch.float32)
        for first, one in zip((0, 512), self.model.values(), strict=True):
            one.data = memory[first : first + one.numel()].copy_(one.data)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        return self.model.named_parameters()


class OneModel:
    """The stand-in for an actor of miles over a real ``GPTModel``."""

    def init(self, args: Namespace, with_ref: bool, with_opd_teacher: bool) -> None:  # noqa: FBT001 - as there
        self.args, self.with_ref, self.with_opd_teacher = args, with_ref, with_opd_teacher
        self.model = [gpt()]

    def loss(self, _: object) -> Tensor:
        return forward(self.model[0], labels=True)


def actor_of(block: int, name: str, base: type) -> Any:
    """The class that a block defines."""
    namespace: dict[str, Any] = {"MegatronTrainActor": base, "torch": torch}
    exec(BLOCKS[block], namespace)  # noqa: S102 - the page's own
    return namespace[name]()


@pytest.fixture
def arena() -> Iterator[HostArena]:
    """Closed afterwards."""
    found = HostArena()
    yield found
    found.close()


@pytest.mark.parametrize("colocate", [True, False])
@pytest.mark.parametrize("with_ref", [True, False])
def test_the_actor_that_keeps_its_own_sleep_reads_the_right_bytes(
    colocate: bool,  # noqa: FBT001 - pytest passes by name
    with_ref: bool,  # noqa: FBT001
    arena: HostArena,
) -> None:
    """FB-01: awake, asleep and awake again, in every kind of run, whether copies are kept or not."""
    Regions.arena = arena
    actor = actor_of(0, "LeanActor", Regions)
    args = Namespace(colocate=colocate, lora_rank=4, offload_train=True, offload_train_target="cpu")
    actor.init(args, arena, with_ref=with_ref)
    for _ in range(2):
        actor.model.lora.data.add_(1)
        if actor._enable_weight_backup:
            actor.weights_backuper.mark_dirty(["lora"])
            actor.weights_backuper.backup("actor")
        before = {name: one.detach().clone() for name, one in actor.named_weights()}
        actor.sleep()
        got = actor.get_actor_weights()
        assert all(torch.equal(got[name], before[name]) for name in before)
        del got
        actor.wake_up()
        assert all(torch.equal(actor.get_actor_weights()[name], one) for name, one in before.items())

    assert actor._enable_weight_backup == with_ref
    assert bool(actor.weights_backuper.backup_tags) == with_ref


def test_the_backuper_s_example_runs() -> None:
    """Its figures are asserted in it."""
    exec(BLOCKS[1], {})  # noqa: S102 - the page's own


def test_the_controller_runs_a_megatron_actor(arena: HostArena) -> None:
    """The five lines over a real GPTModel: load, train, sleep, send what changed while asleep, wake up."""
    engine = FakeEngine()
    with parallel(dist.HashStore()):
        actor = actor_of(2, "LifecycleActor", OneModel)
        actor.init(Namespace(colocate=True, lora_rank=SLOT_RANK, multi_lora_n_adapters=2, lr=1e-2), arena)
        actor.adapters.registry.register("math")
        actor.lifecycle.reconcile_adapters()
        for _ in range(2):
            actor.train("math", None)
            actor.sleep()
            actor.update_weights([engine])
            assert actor.lifecycle.state is TrainerState.OFFLOADED_CPU
            with pytest.raises(EventRefused):
                actor.train("math", None)
            actor.wake_up()

    assert engine.calls.count("base:frozen-base") == 1
    assert engine.calls.count("adapter:math") == 2


def test_five_lines_are_five_lines() -> None:
    """Numbered in the block."""
    assert re.findall(r"# (\d)\n", BLOCKS[2]) == ["1", "2", "3", "4", "5"]
    assert len(BLOCKS) == 3


def test_the_page_names_the_reference_change_and_everything_that_is_public() -> None:
    """And no name that does not exist."""
    reference = ("_weight_sync_reads_tms_backup", "_enable_weight_backup", "named_params_and_buffers")
    calls = [name for name in vars(TensorBackuper) if not name.startswith("_")]
    named = [*reference, "_maybe_get_cpu_backup", *compat.__all__, *calls]

    assert [name for name in named if name not in TEXT] == []
    for name in re.findall(r"`lifecycle\.compat\.(\w+)", TEXT):
        assert name in compat.__all__
