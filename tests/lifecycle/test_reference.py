"""The reference of a KL run: the base with its adapters off and no second copy, or a kept model and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Adam

from lifecycle import ConfigError, EventRefused, HostArena, LifecycleConfig, MemoryAudit, TrainerLifecycle, TrainerState
from lifecycle.adapters import PeftAdapters
from lifecycle.errors import AdapterError
from states import Strategy, weight_sync_reads_saver_backup
from tests.adapters.world import factors, host, logits
from tests.lifecycle.world import make_world
from tests.models import llama

KINDS = ("adapter_off", "snapshot")
BASE = "frozen-base"


class World:
    """A trainer on three slots, awake, with adapters a and b loaded."""

    def __init__(self, *, keep: bool = True, names: tuple[str, ...] = ("a", "b"), **settings: Any) -> None:
        self.made: PeftAdapters = host()
        self.audit = MemoryAudit()
        self.trainer = TrainerLifecycle(
            LifecycleConfig(**settings),
            saver=HostArena(),
            model=self.made.model,
            optimizer=self.made.optimizers(lambda owned: Adam(owned, lr=0.01)),
            adapters=self.made,
            audit=self.audit,
            initial_state=TrainerState.AWAKE,
        )
        if keep and settings.get("ref") == "snapshot":
            self.trainer.keep_model("ref")
        for seed, name in enumerate(names):
            self.made.registry.register(name, tensors=factors(seed, 4), rank=4)
        if names:
            self.trainer.reconcile_adapters()

    def train(self, name: str) -> None:
        """The adapter becomes another one."""
        with self.trainer.step([name]) as step, torch.no_grad():
            for one in self.made.parameters_of(name):
                one.add_(0.05 * (one != 0))
            step.stepped()

    def logprobs(self) -> Tensor:
        """Log-probabilities of the whole vocabulary at every token."""
        return torch.log_softmax(logits(self.made.model), dim=-1)

    def reference_logprobs(self) -> Tensor:
        """The same inside of a block."""
        with self.trainer.reference():
            return self.logprobs()

    def flags(self) -> dict[str, bool]:
        """Which parameters train."""
        return {name: one.requires_grad for name, one in self.made.model.named_parameters()}


@contextmanager
def as_before(world: World) -> Iterator[None]:
    """Model, flags, the adapter in use and its numbers are afterwards what they were."""
    before = (world.trainer.active_model, world.flags(), world.trainer.state)
    numbers = world.logprobs()
    yield
    assert (world.trainer.active_model, world.flags(), world.trainer.state) == before
    assert torch.equal(world.logprobs(), numbers)
    assert world.trainer.facts().leases == ()


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_is_the_base_whatever_is_in_use(kind: str) -> None:
    """Also after training, and inside of use(); afterwards the adapter in use computes again, bit for bit."""
    world = World(ref=kind)
    base = torch.log_softmax(logits(llama()), dim=-1)
    world.train("a")
    with world.made.use("a"), as_before(world):
        found = world.reference_logprobs()

    assert torch.equal(found, base)
    with world.made.use("a"):
        assert not torch.equal(world.logprobs(), base)


def test_both_references_give_identical_log_probabilities_when_the_ref_is_the_base() -> None:
    """Bit for bit."""
    one, other = (World(ref=kind).reference_logprobs() for kind in KINDS)

    assert torch.equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_put_back_after_an_error(kind: str) -> None:
    """The error goes on as it is; nested blocks are left one by one."""
    world = World(ref=kind)

    def fail() -> None:
        with world.trainer.reference():
            world.reference_logprobs()
            raise RuntimeError("in the block")

    with world.made.use("b"), as_before(world), pytest.raises(RuntimeError, match="in the block"):
        fail()
    world.train("b")
    world.trainer.sleep(offload=True)
    assert world.trainer.state is TrainerState.OFFLOADED_CPU


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("offload", [False, True])
def test_it_needs_live_weights(kind: str, *, offload: bool) -> None:
    """Asleep it is refused with a reason and a remedy, on the record, and nothing has changed."""
    world = World(ref=kind)
    world.trainer.sleep(offload=offload)
    state = world.trainer.state
    with pytest.raises(EventRefused, match="needs-live-weights: reference") as refused, world.trainer.reference():
        pytest.fail("the body runs")
    record = world.audit.records[-1]
    world.trainer.wake_up()

    assert refused.value.remedy == "wake_up() first"
    assert refused.value.state is state
    assert (record["event"], record["trigger"]) == ("lifecycle.refused", "reference")
    assert torch.equal(world.reference_logprobs(), torch.log_softmax(logits(llama()), dim=-1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_transition_inside_is_refused_and_names_the_holder(kind: str) -> None:
    """Sleep, a step, a retirement, a switch: nothing may take the bytes away under a forward pass."""
    world = World(ref=kind)
    world.trainer.keep_model("teacher")
    world.made.registry.deregister("b")
    told = {}
    with as_before(world), world.trainer.reference():
        for name, event in {
            "sleep": world.trainer.sleep,
            "step": lambda: world.trainer.begin_step(["a"]),
            "reconcile": world.trainer.reconcile_adapters,
            "switch": lambda: world.trainer.switch_model("teacher"),
        }.items():
            with pytest.raises(EventRefused, match=r"reference\(\)") as refused:
                event()
            told[name] = refused.value.failed

    assert [one.name for one in told["sleep"]] == ["no-reference-block-is-open"]
    assert "leave the reference() block first" in told["sleep"][0].remedy
    assert all("reference()" in " ".join(one.because for one in told[name]) for name in ("step", "reconcile", "switch"))
    world.trainer.reconcile_adapters()


def test_adapters_cannot_be_used_inside_when_they_are_off() -> None:
    """The policy itself would pass for its reference, and the divergence would be zero, unseen."""
    world = World(ref="adapter_off")
    with world.trainer.reference():
        with pytest.raises(AdapterError, match=r"adapters are off inside of reference\(\)"), world.made.use("a"):
            pytest.fail("the body runs")
        with world.made.base_only():
            inside = world.logprobs()
    with world.made.use("a"):
        assert not torch.equal(world.logprobs(), inside)


def test_a_snapshot_applies_the_adapters_that_it_keeps_as_they_were_kept() -> None:
    """One that it lacks would be the actor's newest: using it is refused."""
    world = World(ref="snapshot", keep=False, names=("a",))
    world.trainer.keep_model("ref")
    with world.made.use("a"):
        as_kept = world.logprobs()
    world.train("a")
    world.made.registry.register("new", tensors=factors(8, 4), rank=4)
    world.trainer.reconcile_adapters()
    with world.trainer.reference():
        with world.made.use("a"):
            found = world.logprobs()
        with (
            pytest.raises(AdapterError, match=r"'new': adapters are off inside of reference\(\)"),
            world.made.use("new"),
        ):
            pytest.fail("the body runs")
    with world.made.use("a"):
        now = world.logprobs()

    assert torch.equal(found, as_kept)
    assert not torch.equal(now, as_kept)


def test_a_snapshot_that_is_not_kept_is_refused_with_what_to_do() -> None:
    """Nothing is switched; adapters are as before."""
    world = World(ref="snapshot", keep=False)
    why = r'keep_model\("ref", tensors\) first'
    with world.made.use("a"), as_before(world), pytest.raises(EventRefused, match=why), world.trainer.reference():
        pytest.fail("the body runs")


def test_another_base_in_live_memory_is_no_reference() -> None:
    """With adapters off the actor's base must be live; a snapshot comes back to the model that was there."""
    off, kept = World(ref="adapter_off"), World(ref="snapshot")
    for world in (off, kept):
        other = {name: one.detach() * 1.5 for name, one in world.made.base_tensors()[0].items()}
        world.trainer.keep_model("teacher", other)
        world.trainer.switch_model("teacher")
    with pytest.raises(EventRefused, match='the active model is "teacher"'), off.trainer.reference():
        pytest.fail("the body runs")
    with as_before(kept):
        found = kept.reference_logprobs()

    assert kept.trainer.active_model == "teacher"
    assert torch.equal(found, torch.log_softmax(logits(llama()), dim=-1))


def test_inside_a_step_the_reference_is_there_without_a_copy() -> None:
    """As a loss needs it. With a snapshot the step would compute on other bytes: refused."""
    off, kept = World(ref="adapter_off"), World(ref="snapshot")
    with off.trainer.step(["a"]) as step, off.made.use("a"):
        found = off.reference_logprobs()
        step.stepped()
    with kept.trainer.step(["a"]) as step:
        with pytest.raises(EventRefused, match="no-step-in-flight"), kept.trainer.reference():
            pytest.fail("the body runs")
        step.stepped()

    assert torch.equal(found, torch.log_softmax(logits(llama()), dim=-1))


def held_and_moved(world: World) -> tuple[Any, Any]:
    """A turn of a KL run: train, reference, sleep, offload, wake; what is held while offloaded, and what was moved."""
    if world.trainer.config.reference is not None:
        world.reference_logprobs()
    world.train("a")
    world.trainer.sleep(offload=True)
    ledger = world.trainer.ledger
    world.trainer.wake_up()
    held = {place: dict(tags) for place, tags in ledger.held.by_place().items()}
    return held, {key: count for key, count in ledger.moved.items() if key[0] != "switch_model"}


@pytest.mark.parametrize("strategy", list(Strategy))
def test_with_adapters_off_a_run_holds_and_moves_what_a_run_without_reference_does(strategy: Strategy) -> None:
    """By the ledger: no second base, no copy of the actor that the rule does not ask for anyway."""
    off, alone = World(ref="adapter_off", strategy=strategy), World(strategy=strategy)

    assert held_and_moved(off) == held_and_moved(alone)
    assert off.trainer.snapshots.backup_tags == alone.trainer.snapshots.backup_tags


@pytest.mark.parametrize(
    ("strategy", "kind", "tags"),
    [
        ("reference", "adapter_off", ()),
        ("reference", "snapshot", ("actor", "ref")),
        ("lean", "adapter_off", ()),
        ("lean", "snapshot", ("ref",)),
    ],
)
def test_what_the_rule_says_of_each_kind(strategy: str, kind: str, tags: tuple[str, ...]) -> None:
    """With adapters off weight sync reads the saver's backup, as the reference rule has it; a snapshot forbids that."""
    world = World(ref=kind, strategy=strategy)
    world.train("a")
    facts = world.trainer.facts()
    base_bytes = sum(one.numel() * one.element_size() for one in world.made.base_tensors()[0].values())
    held = world.trainer.snapshots.host_bytes()

    assert facts.with_ref is (kind == "snapshot")
    assert bool(weight_sync_reads_saver_backup(facts)) is (kind == "adapter_off")
    assert tuple(sorted(world.trainer.snapshots.backup_tags)) == tags
    assert (held >= base_bytes) is (strategy == "reference" and kind == "snapshot")
    assert held == 0 or kind == "snapshot"


def test_a_run_without_reference_has_none_to_lend() -> None:
    """It says what to configure."""
    world = World()
    with pytest.raises(ConfigError, match="this run has no reference"), world.trainer.reference():
        pytest.fail("the body runs")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"ref": "off"}, "use 'adapter_off', 'snapshot' or None"),
        ({"ref": True}, "use 'adapter_off', 'snapshot' or None"),
        ({"ref": "adapter_off", "with_ref": True}, "leave one of them out"),
        ({"ref": "adapter_off", "lora": False}, "needs a base that never changes"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], why: str) -> None:
    """When the configuration is built."""
    with pytest.raises(ConfigError, match=why):
        LifecycleConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "reference"),
    [
        ({}, None),
        ({"with_ref": True}, "snapshot"),
        ({"ref": "snapshot"}, "snapshot"),
        ({"ref": "snapshot", "with_ref": True}, "snapshot"),
        ({"ref": "adapter_off"}, "adapter_off"),
    ],
)
def test_with_ref_means_a_kept_snapshot(settings: dict[str, Any], reference: str | None) -> None:
    """In the rule too: what is not kept needs no second copy."""
    config = LifecycleConfig(**settings)

    assert config.reference == reference
    assert config.facts_settings()["with_ref"] is (reference == "snapshot")


def test_a_base_that_trains_cannot_be_the_reference() -> None:
    """Beside the adapters a part of it trains: with them off it would be the base of today."""
    model = llama()
    made = PeftAdapters(model, slots=1, rank=2)
    norm = made.model.get_parameter("base_model.model.model.norm.weight")
    norm.requires_grad_(True)
    arguments: dict[str, Any] = {
        "saver": HostArena(), "model": made.model, "adapters": made, "optimizer": None,
        "initial_state": TrainerState.AWAKE,
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"model\.norm\.weight train"):
        TrainerLifecycle(LifecycleConfig(ref="adapter_off"), **arguments)

    assert arguments["saver"].tags() == {}


def test_a_host_that_cannot_switch_its_adapters_off_is_refused() -> None:
    """Before any memory is laid out."""
    with pytest.raises(ConfigError, match="SlotHost cannot"):
        make_world(adapters=(), ref="adapter_off")


def test_a_full_parameter_run_has_its_snapshot() -> None:
    """No adapters are there to be switched off."""
    model = nn.Linear(3, 3)
    trainer = TrainerLifecycle(
        LifecycleConfig(lora=False, ref="snapshot"),
        saver=HostArena(),
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        adapters=None,
        initial_state=TrainerState.AWAKE,
    )
    trainer.keep_model("ref")
    began = model.weight.detach().clone()
    with trainer.step() as step, torch.no_grad():
        model.weight.add_(1)
        step.stepped()
    with trainer.reference():
        inside = model.weight.detach().clone()

    assert torch.equal(inside, began)
    assert torch.equal(model.weight, began + 1)
