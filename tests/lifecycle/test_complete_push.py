"""What is sent of a version is all of it, or the version stays to be pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import pytest
import torch
from torch import Tensor, nn

from lifecycle import (
    EventRefused,
    HostArena,
    IncompletePush,
    LifecycleConfig,
    MemoryAudit,
    TrainerFaulted,
    TrainerLifecycle,
    TrainerState,
    TransitionFailed,
)
from lifecycle.adapters import PeftAdapters
from lifecycle.standing import Serves
from tests.adapters.world import factors, host
from tests.lifecycle.torn_engine import TornEngine, holds_everything
from tests.lifecycle.world import World, make_world

Exported = tuple[int, float, tuple[str, ...], Mapping[str, Tensor]]


def break_export(target: object, change: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]) -> None:
    """Let exports give other tensors."""
    original = target.export  # type: ignore[attr-defined]

    def export(name: str, read: Callable[[str], Tensor]) -> Exported:
        rank, alpha, targets, tensors = original(name, read)
        return rank, alpha, targets, change(tensors)

    target.export = export  # type: ignore[attr-defined]


def refused(world: World, engine: TornEngine, told: str) -> IncompletePush:
    """The push fails before the engine hears of it; it serves on, at what it has, and the push stays pending."""
    before = dict(engine.versions)
    engine.calls.clear()
    with pytest.raises(TransitionFailed, match=told) as raised:
        world.trainer.update_weights([engine])
    assert isinstance(raised.value.cause, IncompletePush)
    assert raised.value.engines["E0"].sent == ()
    assert (engine.writes(), engine.versions) == ([], before)
    standing = world.trainer.serving([engine])["E0"]
    assert (standing.serves, standing.because) == (
        Serves.BEHIND, ("it lacks the newest buffers", "it lacks the newest adapter/A"),
    )  # fmt: skip
    return raised.value.cause


BROKEN: dict[str, tuple[Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]], list[str]]] = {
    "nothing": (lambda _: {}, ["lora_a.0", "lora_b.0"]),
    "one factor": (lambda one: {"lora_a.0": one["lora_a.0"]}, ["lora_b.0"]),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_version_whose_payload_lacks_tensors_is_not_sent(what: str) -> None:
    """Training goes on and the policy must not silently stay what it was (FB-30, scenario 1 and 2)."""
    change, missing = BROKEN[what]
    world, engine = make_world(), TornEngine()
    world.trainer.update_weights([engine])
    world.train("A")
    original = world.host.export
    break_export(world.host, change)
    version = world.trainer.versions["adapter/A"]
    error = refused(world, engine, rf"A v{version} missing: {', '.join(missing)}")
    assert (error.group, error.version, list(error.missing)) == ("A", version, missing)

    world.host.export = original  # type: ignore[method-assign]
    world.trainer.update_weights([engine])
    assert holds_everything(world, engine)


@pytest.mark.parametrize("strange", ["lora_a.1", "up"])
def test_a_payload_that_was_read_from_other_tensors_is_not_sent(strange: str) -> None:
    """Of the neighbour's slot, or of the base (FB-30)."""
    world, engine = make_world(), TornEngine()
    world.trainer.update_weights([engine])
    world.train("A")
    original = world.host.export

    def export(name: str, read: Callable[[str], Tensor]) -> Exported:
        read(strange)
        return original(name, read)

    world.host.export = export  # type: ignore[method-assign]
    error = refused(world, engine, f"not of it: {strange}")
    assert error.strange == (strange,)


def test_a_base_that_the_engine_did_not_take_to_its_end_is_not_committed() -> None:
    """It names what was left, the engine is fenced, and the next pass sends the base again (FB-30)."""

    class Hasty(TornEngine):
        def send_base(self, group: str, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
            super().send_base(group, version, islice(tensors, 2) if group == "frozen-base" else tensors)

    world, engine = make_world(), Hasty()
    version = world.trainer.versions["frozen-base"]
    with pytest.raises(TransitionFailed, match=f"frozen-base v{version} missing: down") as raised:
        world.trainer.update_weights([engine])

    assert raised.value.cause.missing == ("down",)
    assert "commit" not in engine.calls
    assert world.trainer.serving([engine])["E0"].serves is Serves.FENCED


def peft_world() -> tuple[TrainerLifecycle, PeftAdapters]:
    """Adapter a is on both kinds of module, q on one."""
    made = host(slots=2)
    trainer = TrainerLifecycle(
        LifecycleConfig(frozen_buffers=("*inv_freq",)), saver=HostArena(), model=made.model, optimizer=None,
        adapters=made, audit=MemoryAudit(), initial_state=TrainerState.AWAKE,
    )  # fmt: skip
    made.registry.register("a", rank=2, alpha=4, tensors=factors(1, 2))
    made.registry.register("q", rank=2, alpha=4, tensors=factors(2, 2, ("q_proj",)))
    trainer.reconcile_adapters()
    return trainer, made


def test_an_adapter_of_fewer_modules_than_the_slots_is_whole() -> None:
    """What its host says it consists of is what counts."""
    trainer, made = peft_world()
    engine = TornEngine()
    trainer.update_weights([engine])

    assert set(engine.held["adapter/q"]) == made.exported("q") == set(factors(2, 2, ("q_proj",)))
    assert set(engine.held["adapter/a"]) == made.exported("a")


@pytest.mark.parametrize("what", ["a tensor is left out", "a tensor is put in"])
def test_the_export_of_a_real_host_is_compared_with_what_the_adapter_consists_of(what: str) -> None:
    """Under the names that PEFT gives them (FB-30)."""
    trainer, made = peft_world()
    first, *rest = sorted(made.exported("a"))

    def change(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if what == "a tensor is left out":
            return {name: one for name, one in tensors.items() if name != first}
        return {**tensors, "model.norm.weight": nn.Parameter(tensors[rest[0]])}

    break_export(made, change)
    told = f"missing: {first}" if what == "a tensor is left out" else "not of it: model.norm.weight"
    with pytest.raises(TransitionFailed, match=told):
        trainer.update_weights([TornEngine()])


def test_an_engine_that_is_ahead_is_refused_and_its_versions_can_be_adopted() -> None:
    """Ids only grow, also over a fail-over (FB-52, scenario 2); the bytes are the same, the ids are new."""
    world, engine = make_world(), TornEngine()
    world.trainer.sleep(offload=True)
    world.trainer.update_weights([engine])
    newer = max(world.trainer.versions.values()) + 57
    engine.versions["frozen-base"] = newer
    with pytest.raises(EventRefused, match=rf"E0 holds frozen-base in version {newer}.*adopt_versions\(engines\)"):
        world.trainer.update_weights([engine])
    assert world.trainer.serving([engine])["E0"].serves is Serves.BEHIND

    before = world.all_bytes()
    given = world.trainer.adopt_versions([engine])
    assert given == world.trainer.versions
    assert min(given.values()) > newer
    assert world.all_bytes() == before
    world.trainer.update_weights([engine])
    assert holds_everything(world, engine)
    assert world.trainer.adopt_versions([engine]) == {}
    [note] = [one for one in world.records("noted") if one["note"] == "versions of engines were adopted"]
    assert note["engines"] == {"E0": newer}
    world.trainer.wake_up()
    world.train("A")
    assert world.trainer.versions["adapter/A"] > newer


@pytest.mark.parametrize("kind", [{}, {"frozen_base": "file"}, {"strategy": "duplicate"}])
def test_copies_under_other_names_go_with_the_new_ids(kind: dict[str, str], tmp_path: object) -> None:
    """A kept model, the base file and the notes of a pause serve on after versions were adopted."""
    world = make_world(arena=HostArena(disk_dir=str(tmp_path)), **kind)
    world.trainer.keep_model("ref")
    if kind.get("strategy") == "duplicate":
        world.trainer.snapshots.backup("actor")
    world.trainer.sleep(offload=True)
    ahead = TornEngine(versions={"frozen-base": max(world.trainer.versions.values()) + 9})
    before = world.weights()
    world.trainer.adopt_versions([ahead])

    assert world.weights() == before
    world.trainer.wake_up()
    world.trainer.switch_model("ref")
    world.trainer.switch_model("actor")
    assert world.weights() == before
    assert set(world.trainer.snapshots.versions("ref").values()) <= set(world.trainer.versions.values())


def test_a_bit_that_flips_after_versions_were_adopted_is_noticed_at_the_wake() -> None:
    """What was noted of the bytes before the pause goes with the new ids."""
    world = make_world()
    world.trainer.sleep(offload=True)
    world.trainer.adopt_versions([TornEngine(versions={"frozen-base": max(world.trainer.versions.values()) + 9})])
    backup = world.arena.host_backup(world.model.up)
    assert backup is not None
    backup.view(-1).view(torch.uint8)[0] ^= 1

    with pytest.raises(TrainerFaulted, match="frozen-base"):
        world.trainer.wake_up()


def test_versions_are_not_adopted_in_the_middle_of_a_step() -> None:
    """Nor from an engine that does not answer."""
    world, engine = make_world(), TornEngine()
    with world.trainer.step(["A"]), pytest.raises(EventRefused, match="nothing-is-under-way"):
        world.trainer.adopt_versions([engine])
    engine.fails = {1: "before"}
    from lifecycle import EngineError  # noqa: PLC0415 - only here

    with pytest.raises(EngineError, match="it does not answer"):
        world.trainer.adopt_versions([engine])


@pytest.mark.parametrize("told", ["57", None, 5.5, True])
def test_versions_that_are_no_versions_are_not_adopted(told: object) -> None:
    """What an engine says is its error, and the ids of the trainer are as before (FB-52, scenario 2)."""
    from lifecycle import EngineError  # noqa: PLC0415 - only here

    world, engine = make_world(), TornEngine(versions={"adapter/A": told})  # type: ignore[dict-item]
    before = world.trainer.versions
    with pytest.raises(EngineError, match=r"engine E0: .*a version is a whole number"):
        world.trainer.adopt_versions([engine])

    assert world.trainer.versions == before


def test_samples_are_as_old_as_the_versions_they_were_made_with() -> None:
    """Steps of others do not age a sample; one that is newer than the trainer is an error (FB-52, scenario 3)."""
    from lifecycle import StalenessError  # noqa: PLC0415 - only here

    world, engine = make_world(frozen_buffers=("bias",)), TornEngine()
    world.trainer.update_weights([engine])
    sample = engine.report().versions
    assert world.trainer.staleness(sample) == 0
    world.train("A", "B")
    world.train("A")

    assert world.trainer.staleness(sample) == 2
    assert world.trainer.staleness({"adapter/B": sample["adapter/B"]}) == 1
    with pytest.raises(StalenessError, match="a sample cannot be newer than the trainer"):
        world.trainer.staleness({"adapter/A": world.trainer.versions["adapter/A"] + 2})
