"""A rank joins with a real registry and PEFT slots: registrations, sources and counts come along."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import Adam

from lifecycle import ConfigError, HostArena, LifecycleConfig, MemoryAudit, TrainerLifecycle, TrainerState
from lifecycle.adapters import AdapterSettings, PeftAdapters
from lifecycle.distributed.errors import JoinRefused
from lifecycle.transition.ranks import ALONE, Alone
from lifecycle.weights.digests import digest
from tests.adapters.world import IDS, factors, host, load, peft_directory
from tests.distributed.pairs import Half, Other, Table, both


@dataclass
class Side:
    """One of two ranks, with its slots."""

    made: PeftAdapters
    half: Alone
    arena: HostArena
    trainer: TrainerLifecycle | None = None

    def build(
        self, *, joins: bool = False, state: TrainerState = TrainerState.AWAKE, **changes: Any
    ) -> TrainerLifecycle:
        """A trainer on the slots."""
        self.trainer = TrainerLifecycle(
            LifecycleConfig(**changes),
            saver=self.arena,
            model=self.made.model,
            optimizer=self.made.optimizers(lambda parameters: Adam(parameters, lr=0.01)),
            adapters=self.made,
            audit=MemoryAudit(),
            ranks=self.half,
            joins=joins,
            initial_state=state,
        )
        return self.trainer

    def train(self, *names: str) -> None:
        """One step of these."""
        assert self.trainer is not None
        with self.trainer.step(names) as step:
            for name in names:
                with self.made.use(name):
                    self.made.model(input_ids=IDS).logits.square().mean().backward()
                owner = next(one for one in self.trainer._parts.moments.optimizers if self.owns(one, name))
                owner.step()
                owner.zero_grad(set_to_none=False)
            step.stepped()

    def owns(self, optimizer: torch.optim.Optimizer, name: str) -> bool:
        """Whether this is the optimizer of the slot."""
        return self.made.parameters_of(name)[0] in set(optimizer.param_groups[0]["params"])

    def logits(self, name: str) -> torch.Tensor:
        """What the model says with an adapter."""
        with torch.no_grad(), self.made.use(name):
            found: torch.Tensor = self.made.model(input_ids=IDS).logits
        return found


def pair(retain: bool = False) -> tuple[Side, Side]:  # noqa: FBT001, FBT002 - a fixture's switch
    """Two ranks that can meet."""
    table = Table()
    sides = [Side(host(), Half(rank, table), HostArena(retain_host_backup=retain)) for rank in (0, 1)]
    return sides[0], sides[1]


def admitting(tmp_path: Path, **settings: Any) -> tuple[Side, Side]:
    """One with adapters from a directory, from tensors and from a seed, that have trained; one with nothing."""
    one, other = pair(**settings)
    registry = one.made.registry
    registry.register("file", peft_directory(tmp_path / "file", 1, 4), settings=AdapterSettings(num_step=9))
    registry.register("given", tensors=factors(2, 3), rank=3)
    registry.register("fresh", seed=5)
    trainer = one.build()
    trainer.reconcile_adapters()
    one.train("file", "given")
    registry.deregister("fresh")
    trainer.reconcile_adapters()
    registry.register("later", tensors=factors(3, 2), rank=2)
    return one, other


def bytes_of(side: Side) -> dict[str, str]:
    """Digests of every loaded adapter."""
    assert side.trainer is not None
    parts = side.trainer._parts
    return {group: digest(parts.own_bytes(group)) for group in parts.inventory.groups()}


def test_registrations_come_along_with_their_sources(tmp_path: Path) -> None:
    """Loaded ones with their bytes, waiting ones with the tensors that they were given; both go on alike."""
    one, other = admitting(tmp_path)
    assert one.trainer is not None
    admitted, joined = both(one.trainer.admit, lambda: other.build(joins=True))

    assert admitted == (1,)
    assert isinstance(joined, TrainerLifecycle)
    mine, theirs = one.made.registry.snapshot(), other.made.registry.snapshot()
    assert (theirs.completed, theirs.slot_versions, theirs.next_registration_id) == (
        mine.completed,
        mine.slot_versions,
        mine.next_registration_id,
    )
    assert list(theirs.adapters) == list(mine.adapters) == ["file", "given", "later"]
    assert other.made.loaded() == one.made.loaded()
    assert bytes_of(other) == bytes_of(one)
    for side in (one, other):
        assert side.trainer is not None
        side.trainer.reconcile_adapters()
        side.train("file", "later")
    assert bytes_of(other) == bytes_of(one)
    assert torch.equal(one.logits("given"), other.logits("given"))


def test_what_the_saver_retained_is_no_newcomers(tmp_path: Path) -> None:
    """Awake it is refused with the way out; offloaded all have the same."""
    one, other = admitting(tmp_path, retain=True)
    assert one.trainer is not None
    for event in (one.trainer.sleep, one.trainer.offload, one.trainer.wake_up):
        event()
    refused, told = both(one.trainer.admit, lambda: other.build(joins=True))

    assert [verdict.name for verdict in refused.failed] == ["no-backup-is-retained"]
    assert isinstance(told, Other)


@pytest.mark.parametrize("parts", [True, False])
def test_tensor_parallel_slots_are_not_handed_over(tmp_path: Path, *, parts: bool) -> None:
    """Nobody is left who has the lost rank's part; a host that says that it holds whole factors hands them over."""
    one, other = admitting(tmp_path)
    assert one.trainer is not None
    one.made.is_split = parts  # type: ignore[attr-defined]
    found, _ = both(one.trainer.admit, lambda: other.build(joins=True))

    if parts:
        assert [verdict.name for verdict in found.failed] == ["each-rank-holds-the-same"]
    else:
        assert found == (1,)


def test_what_a_newcomer_has_registered_itself_is_not_kept(tmp_path: Path) -> None:
    """It has the registry of the others."""
    one, other = admitting(tmp_path)
    assert one.trainer is not None
    other.made.registry.register("own", seed=1)
    admitted, _ = both(one.trainer.admit, lambda: other.build(joins=True))

    assert admitted == (1,)
    assert sorted(other.made.registry.snapshot().adapters) == ["file", "given", "later"]


def test_a_newcomer_with_something_of_its_own_is_refused(tmp_path: Path) -> None:
    """Its slots and its store are empty, or nobody knew which bytes are right."""
    one, other = admitting(tmp_path)
    assert one.trainer is not None
    other.made.registry.register("own", seed=1)
    load(other.made, "own")
    told, refused = both(one.trainer.admit, lambda: other.build(joins=True))

    assert isinstance(refused, JoinRefused)
    assert "it holds own already" in refused.why
    assert isinstance(told, Other)


def test_a_newcomer_begins_awake_and_not_alone(tmp_path: Path) -> None:
    """Anything else is a wrong call, and says what to do."""
    one, other = admitting(tmp_path)
    assert one.trainer is not None
    asleep = dataclasses.replace(other, made=host(), arena=HostArena())
    told, refused = both(one.trainer.admit, lambda: asleep.build(joins=True, state=TrainerState.SLEEPING))

    assert isinstance(refused, ConfigError)
    assert "is built awake" in str(refused)
    assert isinstance(told, Other)
    with pytest.raises(ConfigError, match="needs other ranks"):
        dataclasses.replace(other, made=host(), half=ALONE).build(joins=True)
    with pytest.raises(ConfigError, match="needs other ranks"):
        dataclasses.replace(other, made=host(), arena=HostArena(), half=ALONE).build().admit()
