"""Who trains is the registry's word, who is in use is a block's; what happens to one adapter touches no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.optim import Adam

from lifecycle import (
    EventRefused,
    HostArena,
    LifecycleConfig,
    MemoryAudit,
    TrainerLifecycle,
    TrainerState,
    TransitionFailed,
)
from lifecycle.adapters import AdapterSettings, PeftAdapters
from lifecycle.errors import AdapterError
from tests.adapters.world import IDS, factors, host, llama, logits, peft_directory

FROZEN = AdapterSettings(trainable=False)


class World:
    """A trainer on three slots, awake, with adapter a loaded."""

    def __init__(self) -> None:
        self.made: PeftAdapters = host()
        self.optimizers = self.made.optimizers(lambda owned: Adam(owned, lr=0.01))
        self.trainer = TrainerLifecycle(
            LifecycleConfig(),
            saver=HostArena(),
            model=self.made.model,
            optimizer=self.optimizers,
            adapters=self.made,
            audit=MemoryAudit(),
            initial_state=TrainerState.AWAKE,
        )
        self.load("a", 1)

    def load(self, name: str, seed: int, settings: AdapterSettings | None = None) -> None:
        """Register and reconcile."""
        given = AdapterSettings() if settings is None else settings
        self.made.registry.register(name, tensors=factors(seed, 4), rank=4, settings=given)
        self.trainer.reconcile_adapters()

    def retire(self, name: str) -> None:
        """Deregister and reconcile."""
        self.made.registry.deregister(name)
        self.trainer.reconcile_adapters()

    def train(self, name: str) -> None:
        """One optimizer step on what is in use."""
        with self.trainer.step([name]) as step:
            self.made.model(input_ids=IDS).logits.square().mean().backward()
            self.optimizers[self.made.slot_of(name)].step()
            self.optimizers[self.made.slot_of(name)].zero_grad(set_to_none=False)
            step.stepped()

    def train_in_use(self, name: str) -> None:
        """The same in a block of its own."""
        with self.made.use(name):
            self.train(name)

    def flags(self) -> dict[int, bool]:
        """Whether the parameters of each slot train: all of one slot alike."""
        found = {}
        for slot in range(self.made.slots):
            (found[slot],) = {one.requires_grad for one in self.made.slot_tensors(slot).values()}
        return found

    def bytes_of(self, *slots: int) -> dict[str, Tensor]:
        """Weights, gradients and moments of slots, copied."""
        found: dict[str, Tensor] = {}
        for slot in slots:
            for name, one in self.made.slot_tensors(slot).items():
                found[name] = one.detach().clone()
                if one.grad is not None:
                    found[f"{name}.grad"] = one.grad.clone()
                for key, value in self.optimizers[slot].state[one].items():
                    found[f"{name}#{key}"] = value.clone()
        return found


@pytest.fixture
def world() -> World:
    """Awake, with adapter a in slot 0."""
    return World()


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Equal names and bits."""
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def test_flags_equal_the_registry_after_every_event(world: World, tmp_path: Path) -> None:
    """Load, load frozen, use, retire, replace, sleep, wake, and a load that fails (FB-38)."""
    told = [world.flags()]
    world.load("f", 2, FROZEN)
    told.append(world.flags())
    with world.made.use("f"):
        told.append(world.flags())
    with world.made.base_only():
        told.append(world.flags())
    world.trainer.sleep(offload=True)
    world.load("b", 3)
    told.append(world.flags())
    directory = peft_directory(tmp_path / "bad", seed=3, rank=3)
    world.retire("a")
    world.made.registry.register("bad", directory)
    (directory / "adapter_model.safetensors").write_bytes(b"cut")
    with pytest.raises(Exception, match="'bad'"):
        world.trainer.reconcile_adapters()
    world.trainer.wake_up()
    told.append(world.flags())
    world.made.registry.deregister("bad")
    world.retire("f")
    told.append(world.flags())

    assert told == [dict.fromkeys(range(3), True), *[{0: True, 1: False, 2: True}] * 5, dict.fromkeys(range(3), True)]
    assert world.made.misflagged() == ()


def test_a_frozen_adapter_changes_nothing_of_the_others(world: World) -> None:
    """It is loaded while another trains: weights, moments and gradients of that one stay bit-identical (FB-38)."""
    with world.made.use("a"):
        world.train("a")
        before = world.bytes_of(0)
        world.load("f", 2, FROZEN)
        after = world.bytes_of(0)
        world.train("a")

    assert same(before, after)
    assert not same(before, world.bytes_of(0))
    assert world.flags() == {0: True, 1: False, 2: True}


def test_a_step_of_a_frozen_adapter_is_refused_and_it_computes_all_the_same(world: World) -> None:
    """It is served and never trained; the refusal names it."""
    world.load("f", 2, FROZEN)
    before = world.bytes_of(1)
    with (
        pytest.raises(EventRefused, match="step-adapters-are-trainable: frozen: f") as refused,
        world.trainer.step(["f"]),
    ):
        pytest.fail("the body runs")
    with world.made.use("f"):
        computed = world.made.model(input_ids=IDS).logits

    assert "register it anew as trainable" in refused.value.remedy
    assert not world.trainer.may("begin_step", adapters=["a", "f"])
    assert world.trainer.may("begin_step", adapters=["a"])
    assert not computed.requires_grad
    assert not torch.allclose(computed, logits(llama()), atol=1e-3)
    assert same(before, world.bytes_of(1))


def test_retiring_the_adapter_in_use_without_a_successor_is_refused(world: World) -> None:
    """Nothing is written, the adapter in use goes on, and outside of its block it may go (FB-38)."""
    world.load("b", 2)
    with world.made.use("a"):
        before = logits(world.made.model)
        world.made.registry.deregister("a")
        with pytest.raises(EventRefused, match="an-adapter-in-use-has-a-successor: to be retired while in use: a"):
            world.trainer.reconcile_adapters()
        after = logits(world.made.model)
    world.trainer.reconcile_adapters()

    assert torch.equal(before, after)
    assert list(world.made.loaded()) == ["b"]


def test_a_named_successor_takes_over_and_really_trains(world: World) -> None:
    """After the retirement the same block computes with it, and its weights move (FB-38)."""
    world.load("b", 2)
    with world.made.use("b"):
        wanted = logits(world.made.model)
    with world.made.use("a", successor="b"):
        world.retire("a")
        found, before = logits(world.made.model), world.bytes_of(1)
        world.train("b")

    assert torch.equal(found, wanted)
    assert not same(before, world.bytes_of(1))
    assert world.flags() == dict.fromkeys(range(3), True)


def test_no_successor_can_be_named_on_purpose(world: World) -> None:
    """Then the base computes, also when name and slot have a new tenant by then (FB-35)."""
    with world.made.use("a", successor=None):
        world.retire("a")
        alone = logits(world.made.model)
        world.load("a", 3)
        still_alone = logits(world.made.model)

    assert world.made.slot_of("a") == 0
    assert torch.equal(alone, logits(llama()))
    assert torch.equal(still_alone, alone)


def test_a_successor_that_has_taken_over_is_in_use(world: World) -> None:
    """Retiring it inside the block would leave the base alone, which nobody named."""
    world.load("b", 2)
    with world.made.use("a", successor="b"):
        world.retire("a")
        before = logits(world.made.model)
        world.made.registry.deregister("b")
        with pytest.raises(EventRefused, match="to be retired while in use: b"):
            world.trainer.reconcile_adapters()
        assert torch.equal(logits(world.made.model), before)
    world.trainer.reconcile_adapters()

    assert world.made.loaded() == {}


def test_a_successor_that_cannot_be_loaded_leaves_the_adapter_in_use_also_where_what_succeeds_is_kept(
    world: World,
) -> None:
    """Forward passes would go without any adapter; the error says why the successor is not there."""
    given = factors(2, 4)
    world.made.registry.register("b", tensors=given, rank=4)
    with world.made.use("a", successor="b"):
        before = logits(world.made.model)
        world.made.registry.deregister("a")
        next(iter(given.values())).fill_(float("nan"))
        with pytest.raises(TransitionFailed, match=r"'a': it is in use, and the successor.*b: .*NaN"):
            world.trainer.reconcile_adapters(partial="keep")
        assert torch.equal(logits(world.made.model), before)

    assert list(world.made.loaded()) == ["a"]


def test_a_successor_must_stay(world: World) -> None:
    """One that is not registered, or goes in the same reconcile, takes nothing over; one that comes in it does."""
    world.load("b", 2)
    with world.made.use("a", successor="nobody"):
        world.made.registry.deregister("a")
        with pytest.raises(EventRefused, match="in use: a"):
            world.trainer.reconcile_adapters()
    with world.made.use("a", successor="b"):
        world.made.registry.deregister("b")
        with pytest.raises(EventRefused, match="in use: a"):
            world.trainer.reconcile_adapters()
    with world.made.use("a", successor="c"):
        world.load("c", 3)
        found = logits(world.made.model)
    with world.made.use("c"):
        assert torch.equal(found, logits(world.made.model))


def test_a_name_that_returns_is_another_adapter_for_a_block_that_is_open(world: World) -> None:
    """Replaced under its name it would be applied unseen: it is refused, unless it is its own successor (FB-35)."""
    world.made.registry.deregister("a")
    world.made.registry.retire_adapters()
    world.made.registry.free_slot("a")
    world.made.registry.register("a", tensors=factors(7, 4), rank=4)
    with world.made.use("a"):
        before = logits(world.made.model)
        with pytest.raises(EventRefused, match="in use: a"):
            world.trainer.reconcile_adapters()
        assert torch.equal(logits(world.made.model), before)
    with world.made.use("a", successor="a"):
        world.trainer.reconcile_adapters()
        after = logits(world.made.model)
    with world.made.use("a"):
        assert torch.equal(after, logits(world.made.model))

    assert not torch.equal(after, before)


def test_an_outer_block_counts_as_use_too(world: World) -> None:
    """It will compute again when the inner one is left."""
    world.load("b", 2)
    with world.made.use("a"), world.made.use("b"):
        world.made.registry.deregister("a")
        with pytest.raises(EventRefused, match="in use: a"):
            world.trainer.reconcile_adapters()


def test_an_undone_retirement_gives_the_block_its_adapter_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The successor had taken over when the reconcile failed."""
    world.load("b", 2)
    world.made.registry.deregister("a")
    world.made.registry.register("c", rank=2)

    def fail(prepared: object) -> None:
        raise OSError("told to fail")

    with world.made.use("a", successor="b"):
        before = logits(world.made.model)
        monkeypatch.setattr(world.made, "install", fail)
        with pytest.raises(Exception, match="told to fail"):
            world.trainer.reconcile_adapters()
        assert torch.equal(logits(world.made.model), before)


def test_a_host_alone_refuses_as_well(world: World) -> None:
    """Whoever retires without the controller is told the same."""
    with world.made.use("a"), pytest.raises(AdapterError, match="it is in use and nobody who stays was named"):
        world.made.uninstall("a")

    assert list(world.made.loaded()) == ["a"]


@pytest.mark.parametrize(
    "event",
    [
        lambda world: world.load("c", 3),
        lambda world: world.load("c", 3, FROZEN),
        lambda world: world.retire("b"),
        lambda world: world.train_in_use("b"),
    ],
    ids=["load", "load frozen", "retire", "train"],
)
def test_what_happens_to_one_leaves_the_other_bit_and_flag_identical(
    world: World, event: Callable[[World], None]
) -> None:
    """Weights, gradients, moments and flags (FB-38)."""
    world.load("b", 2)
    with world.made.use("a"):
        world.train("a")
    before, flags = world.bytes_of(0), world.flags()[0]
    event(world)

    assert same(before, world.bytes_of(0))
    assert world.flags()[0] == flags


def test_what_peft_freezes_behind_the_registry_is_found_before_a_step(world: World) -> None:
    """Its own set_adapter lets one adapter train and no other; use() puts that right (FB-38)."""
    world.load("b", 2)
    with world.made.use("a"):
        world.made.model.set_adapter("slot_1")
        found = world.made.misflagged()
        with pytest.raises(EventRefused, match="frozen, trainable or replaced"), world.trainer.step(["a"]):
            pytest.fail("the body runs")
    with world.made.use("a"):
        world.train("a")

    assert {name.split(".slot_")[1][0] for name in found} == {"0", "2"}
    assert world.made.misflagged() == ()


def test_a_block_sets_no_flag_that_is_right(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who trains changes with what is loaded; begin and end of a block only read it, and tell PEFT what is applied."""
    world.load("f", 2, FROZEN)
    flags = world.flags()

    def fail(*_: object) -> None:
        pytest.fail("a flag is set")

    with monkeypatch.context() as patched:
        patched.setattr(Tensor, "requires_grad_", fail)
        with world.made.use("f"):
            told = [world.made.model.active_adapters]
            with world.made.use("a"):
                told.append(world.made.model.active_adapters)
            with world.made.base_only():
                told.append(world.made.model.active_adapters)
        told.append(world.made.model.active_adapters)

    assert told == [["slot_1"], ["slot_0"], [], []]
    assert world.flags() == flags


def test_what_somebody_merged_into_the_base_is_taken_out_when_a_block_begins_or_ends(world: World) -> None:
    """Otherwise the next would compute with what was merged instead of its own adapter. PEFT warns of it."""
    world.load("b", 2)
    with world.made.use("b"):
        wanted = logits(world.made.model)
    with pytest.warns(UserWarning, match="when the model is merged"), world.made.use("a"):
        world.made.model.merge_adapter()
    with world.made.use("b"):
        found = logits(world.made.model)

    assert torch.allclose(found, wanted, atol=1e-5)
    assert world.made.misflagged() == ()
