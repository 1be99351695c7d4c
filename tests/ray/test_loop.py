"""The whole loop on four ranks: one registry, one engine, one driver; and what is left when a rank was replaced."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Any

import pytest
import ray
import torch

from lifecycle.adapters.refusals import AdapterRefused, NoFreeSlot
from lifecycle.errors import AdapterError, ConfigError
from lifecycle.ray import (
    ActorEngine,
    EachRank,
    GroupError,
    RegistryLost,
    RegistryProxy,
    TrainerGroup,
    registry,
    start_registry,
)
from tests.ray.world import SLOTS, EngineInActor, build

pytestmark = pytest.mark.timeout(300)  # each rank's process imports torch for itself
WORLD, TIMEOUT_S = 4, 16.0


@pytest.fixture(scope="module")
def adapters(cluster: None) -> Iterator[RegistryProxy]:
    """The registry, as an actor that outlives the ranks."""
    with start_registry("adapters", SLOTS) as found:
        yield found


@pytest.fixture(scope="module")
def group(adapters: RegistryProxy) -> Iterator[TrainerGroup]:
    """Four ranks that go by it."""
    with TrainerGroup(build, WORLD, registry=adapters, timeout_s=TIMEOUT_S, options={"num_cpus": 0}) as found:
        yield found


def _engine(name: str) -> ActorEngine:
    return ActorEngine(name, ray.remote(EngineInActor).options(num_cpus=0).remote(name))


def _alike(looks: dict[int, Any]) -> Any:
    first, *others = looks.values()
    assert all(one == first for one in others)
    return first


def test_a_share_that_cannot_be_sent_calls_no_rank(group: TrainerGroup) -> None:
    """The first ranks would be in the call alone, and the last would never come."""
    with pytest.raises(ConfigError, match="the share of rank 3 cannot be sent to another process"):
        group.call_each("register_as", [(), (), (), (Lock(),)])

    assert group.lost == ()
    assert set(group.call_each("register_as", [()] * WORLD)) == set(range(WORLD))


def test_the_whole_loop(group: TrainerGroup, adapters: RegistryProxy) -> None:
    """Register once, and all ranks load, train, sleep, push and wake alike; the engine gets each push once."""
    engine = _engine("E")
    adapters.register("A", seed=1)
    registry("adapters").register("B", seed=2)
    assert group.reconcile_adapters().edge == "reads-saver-backup"
    assert adapters.adapter_state("A") == "pending"
    group.call("train", "A", "B")
    slept = group.sleep(offload=True)
    assert (slept.event, slept.source, slept.target) == ("offload", "sleeping", "offloaded-cpu")
    assert slept.moved_bytes == sum(one.moved_bytes for one in slept.outcomes.values()) > 0
    pushed = group.update_weights([engine])
    assert sorted(pushed.engines["E"].sent) == ["adapter/A", "adapter/B", "frozen-base"]
    assert group.serving([engine])["E"].is_routable
    assert group.update_weights([engine]).is_unchanged
    group.wake_up()
    assert group.wake_up().is_unchanged

    held = ray.get(engine.actor.look.remote())
    assert held["versions"] == group.versions()[0]
    assert held["calls"].count("commit") == 1
    assert {str(adapters.adapter_state(name)) for name in "AB"} == {"active"}
    _alike(group.call("look"))
    _alike(group.call("records"))


def test_a_batch_is_counted_in_the_registry_of_all(group: TrainerGroup, adapters: RegistryProxy) -> None:
    """The driver counts; ranks see the count, and an adapter that is through is retired by the next reconcile."""
    adapters.register("C", seed=3)
    group.reconcile_adapters()
    group.update_weights([_engine("E2")])
    adapters.record_batch_adapters(1, {"C": 2}, ["C"])
    group.call("train", "C")
    assert adapters.mark_batch_trained(1).stepped == ("C",)
    assert adapters.step_count("C") == 1
    adapters.deregister("C")
    assert adapters.adapter_state("C") == "retiring"
    group.reconcile_adapters()

    assert adapters.adapter_state("C") == "completed"
    assert "C" not in _alike(group.call("look"))["loaded"]


def test_what_leaves_before_it_was_loaded_gives_its_slot_back_at_the_next_event(
    group: TrainerGroup, adapters: RegistryProxy
) -> None:
    """Not before: ranks may be loading it."""
    adapters.register("D", seed=4)
    adapters.deregister("D")
    assert adapters.adapter_state("D") == "retiring"
    group.reconcile_adapters()

    assert adapters.adapter_state("D") == "completed"


def test_errors_of_the_registry_keep_their_kind(group: TrainerGroup, adapters: RegistryProxy) -> None:
    """With their attributes; nothing was changed."""
    before = adapters.snapshot()
    with pytest.raises(AdapterRefused) as refused:
        adapters.register("A", seed=1)
    with pytest.raises(AdapterError, match="a name is a string"):
        adapters.find(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="there are 3 slots"):
        adapters.slot_version(9)
    with pytest.raises(TypeError):
        adapters.register()  # type: ignore[call-arg]

    assert refused.value.adapter == "A"
    assert refused.value.refusal.event == "register"
    assert adapters.snapshot() == before


def test_no_slot_is_free(adapters: RegistryProxy, group: TrainerGroup) -> None:
    """What does not fit is refused for what it is."""
    adapters.register("F", seed=6)
    with pytest.raises(NoFreeSlot) as refused:
        adapters.register("G", seed=6)
    adapters.deregister("F")
    group.reconcile_adapters()

    assert refused.value.slots == SLOTS


def test_tensors_that_are_registered_are_those_that_are_loaded(group: TrainerGroup, adapters: RegistryProxy) -> None:
    """They travel to the actor, to rank 0 and to all ranks; what does not fit is found when it is loaded, and named."""
    key = "base_model.model.up.lora_{}.weight"
    good = {key.format("A"): torch.ones(2, 16), key.format("B"): torch.ones(16, 2)}
    adapters.register("T", tensors=good, rank=2)
    group.reconcile_adapters()
    adapters.deregister("T")
    group.reconcile_adapters()
    adapters.register("T", tensors={name: one[:1, :1] for name, one in good.items()}, rank=2)
    with pytest.raises(GroupError) as caught:
        group.reconcile_adapters()
    adapters.deregister("T")
    group.reconcile_adapters()

    assert caught.value.kind == "TransitionFailed"
    assert "'T'" in str(caught.value)


def test_an_engine_each_rank_gets_a_push_each(group: TrainerGroup) -> None:
    """Colocated engines: each is called by its own rank, and all go by one name."""
    engines = [_engine(f"own {rank}") for rank in range(WORLD)]
    pushed = group.update_weights([EachRank("own", engines)])
    held = [ray.get(one.actor.look.remote()) for one in engines]

    assert sorted(pushed.engines) == ["own"]
    assert all(one["versions"] == held[0]["versions"] for one in held)
    assert all(one["digests"] == held[0]["digests"] for one in held)
    assert [one["calls"].count("commit") for one in held] == [1] * WORLD


def test_an_engine_that_fails_is_one_error_and_repaired_by_the_next_push(group: TrainerGroup) -> None:
    """All ranks' books say the same."""
    engine = _engine("weak")
    ray.get(engine.actor.fail.remote("adapter:A"))
    with pytest.raises(GroupError, match="told to fail") as caught:
        group.update_weights([engine])
    ray.get(engine.actor.fail.remote(""))

    assert caught.value.kind == "TransitionFailed"
    assert group.update_weights([engine]).engines["weak"].committed
    _alike(group.call("records"))


def test_an_engine_whose_actor_ended_is_named(group: TrainerGroup) -> None:
    """It is the engine that does not answer, no rank."""
    engine = _engine("gone")
    group.update_weights([engine])
    ray.kill(engine.actor)
    group.call("train", "A")
    with pytest.raises(GroupError) as caught:
        group.update_weights([engine])

    assert "engine gone: its actor has ended" in str(caught.value)
    assert (caught.value.dead, group.lost) == ((), ())


def test_rank_0_is_replaced_and_goes_on_with_the_registry(group: TrainerGroup, adapters: RegistryProxy) -> None:
    """The registry outlives it; what was registered meanwhile is loaded by all."""
    before = _alike(group.call("look"))
    with pytest.raises(GroupError) as caught:
        group.call("die", 0)
    assert caught.value.dead == (0,)
    adapters.register("Z", seed=9)
    group.replace(0)
    assert _alike(group.call("look")) == before
    group.reconcile_adapters()
    group.call("train", "A", "Z")
    engine = _engine("last")
    group.update_weights([engine])

    assert "Z" in _alike(group.call("look"))["loaded"]
    assert ray.get(engine.actor.look.remote())["versions"] == group.versions()[0]
    assert adapters.adapter_state("Z") == "active"


def test_a_registry_that_is_gone_is_a_clear_error(group: TrainerGroup, adapters: RegistryProxy) -> None:
    """For the driver and for every rank; no rank has done anything."""
    before = _alike(group.call("look"))
    adapters.close()
    with pytest.raises(RegistryLost):
        adapters.find("A")
    with pytest.raises(GroupError, match="registry 'adapters'") as caught:
        group.sleep()
    with pytest.raises(RegistryLost):
        registry("adapters")

    assert caught.value.kind == "RegistryLost"
    assert caught.value.rank == 0
    assert set(group.states().values()) == {before["state"]}
