"""One registry for all ranks: what it costs, what travels, and what happens when it changes, is lost or is another."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import pytest
import torch

from lifecycle.adapters import AdapterRegistry
from lifecycle.adapters import wire as told_wire
from lifecycle.adapters.protocol import DesiredAdapter
from lifecycle.adapters.records import RegistrySnapshot
from lifecycle.distributed import RankAgreement, RanksDisagree
from lifecycle.distributed.sharing import SharedRegistry
from lifecycle.errors import ConfigError, TransitionFailed
from states.adapters import AdapterState
from states.agreement import BALLOT_BYTES
from tests.distributed.registries import RegistryHost, given_tensors, registered_trainer
from tests.distributed.threads import Hub, alike

WORLD = 3
_UNKNOWN_ID = msgspec.json.encode(
    {"slot_versions": [0], "next_registration_id": 2, "adapters": [1]}
    | dict.fromkeys(("completed", "batches", "uncounted", "unaccounted"), ())
)


class Shared:
    """Ranks in threads, each with a registry of its own, and rank 0's for all."""

    def __init__(self, slots: int = 4, world: int = WORLD) -> None:
        self.hub = Hub(world)
        self.ranks = self.hub.agreements(registry_from=0)
        self.registries = [AdapterRegistry(slots) for _ in range(world)]

    def begin(self, *, but: dict[int, Any] | None = None) -> list[Any]:
        """What every rank does before it gathers the facts of an event, and its end."""
        hosts = [(but or {}).get(rank, SimpleNamespace(registry=one)) for rank, one in enumerate(self.registries)]

        def event(rank: int) -> None:
            self.ranks[rank].begins(hosts[rank])

        return self.hub.all(event)

    def snapshots(self) -> list[RegistrySnapshot]:
        return [one.snapshot() for one in self.registries]


@pytest.fixture
def shared() -> Shared:
    """Ranks that have begun an event with an empty registry."""
    made = Shared()
    assert made.begin() == [None] * WORLD
    made.hub.forget()
    return made


def test_where_nothing_has_changed_sharing_costs_one_collective_of_a_ballot(shared: Shared) -> None:
    """Whatever the registry holds, and whoever it was told to before."""
    shared.registries[0].register("A", tensors=given_tensors(1), rank=2)
    shared.begin()
    shared.hub.forget()

    assert shared.begin() == [None] * WORLD
    assert dict(shared.hub.collectives) == {"Gather": 1}
    assert shared.hub.payload_bytes == WORLD * BALLOT_BYTES


def test_ranks_that_share_no_registry_pay_nothing() -> None:
    """The default: no meeting before an event's first."""
    hub = Hub(2)
    ranks = hub.agreements()

    assert hub.all(lambda rank: ranks[rank].begins(None)) == [None] * 2
    assert not hub.collectives


def test_what_rank_0_has_done_alone_every_rank_has_at_the_next_event(shared: Shared) -> None:
    """Ids, slots, states, counts, settings, batches and versions of slots."""
    first = shared.registries[0]
    for name in "ABC":
        first.register(name, seed=5)
    first.record_weight_update(["A", "B"])
    first.record_batch_adapters(3, {"A": 2}, ["A"])
    first.deregister("B")
    shared.begin()
    assert alike(shared.snapshots()).batches[0].rollout_id == 3

    first.mark_batch_trained(3)
    first.retire_adapters()
    first.free_slot("B")
    shared.begin()

    assert alike(shared.snapshots()) == first.snapshot()
    assert alike([one.next_id for one in map(_roster, shared.registries)]) == 4


def _roster(registry: AdapterRegistry) -> Any:
    return registry._roster


def test_tensors_that_an_adapter_was_registered_with_travel_once(shared: Shared) -> None:
    """Bit for bit, in every dtype; a later change of the registration does not send them again."""
    tensors = {"a": torch.randn(2, 8, dtype=torch.bfloat16), "b": torch.randn(8, 2, dtype=torch.float64)[:, :1]}
    shared.registries[0].register("A", tensors=tensors, rank=2)
    shared.begin()
    for one in shared.registries[1:]:
        record = one.find("A")
        assert record is not None
        assert record.source is not None
        held = record.source.tensors
        assert held is not None
        assert {name: (each.dtype, each.tolist()) for name, each in held.items()} == {
            name: (each.dtype, each.tolist()) for name, each in tensors.items()
        }

    shared.registries[0].record_weight_update(["A"])
    with mock.patch.object(told_wire, "render_tensors_told", side_effect=AssertionError):
        assert shared.begin() == [None] * WORLD
    assert alike([one.adapter_state("A") for one in shared.registries]) is AdapterState.ACTIVE
    assert all(_source(one).tensors is not None for one in shared.registries)


def _source(registry: AdapterRegistry, name: str = "A") -> Any:
    record = registry.find(name)
    assert record is not None
    return record.source


def test_other_tensors_of_a_registration_are_told_anew(shared: Shared) -> None:
    """``resupply`` on rank 0 is enough."""
    first = shared.registries[0]
    first.register("A", tensors=given_tensors(1), rank=2)
    shared.begin()
    first.resupply("A", tensors=given_tensors(2), rank=2)
    shared.begin()

    assert all(torch.equal(_source(one).tensors["a"], given_tensors(2)["a"]) for one in shared.registries)


def test_what_was_told_before_is_not_told_again() -> None:
    """Of a long list of adapters only the one that has changed."""
    shared = Shared(slots=64)
    for number in range(60):
        shared.registries[0].register(f"a{number}")
    shared.begin()
    full_bytes = shared.hub.payload_bytes
    shared.hub.forget()
    shared.registries[0].register("b")
    shared.begin()

    assert shared.hub.payload_bytes < full_bytes / 10
    assert len(alike(shared.snapshots()).adapters) == 61


def test_what_a_transition_writes_on_every_rank_alike_stays_alike(shared: Shared) -> None:
    """Releases, pushes and changes of tensors: at the next event rank 0's copy is the truth."""
    adapter = shared.registries[0].register("A")
    shared.registries[0].register("B")
    shared.begin()
    for one in shared.registries:
        one.record_weight_update([adapter])
        one.note_changed([adapter])
        one.deregister("B")
    shared.begin()

    assert alike(shared.snapshots()).uncounted == (adapter.registration_id,)


def test_a_call_on_another_rank_is_overwritten_by_the_next_event(shared: Shared) -> None:
    """Also where rank 0 has changed nothing."""
    shared.registries[2].register("stray")
    shared.begin()

    assert shared.registries[2].find("stray") is None


def test_a_new_process_of_a_rank_hears_everything(shared: Shared) -> None:
    """With a new registry of its own; the others hear it too, from the beginning."""
    shared.registries[0].register("A", tensors=given_tensors(1), rank=2)
    shared.begin()
    shared.registries[2] = AdapterRegistry(4)
    shared.ranks[2]._shared = SharedRegistry(shared.ranks[2], 2)
    shared.begin()

    assert alike(shared.snapshots()).names(AdapterState.PENDING) == ("A",)
    assert all(torch.equal(_source(one).tensors["a"], given_tensors(1)["a"]) for one in shared.registries)


def test_another_registry_of_rank_0_is_heard_although_its_revision_is_the_same(shared: Shared) -> None:
    """A registry has an identity besides its revision, which begins again with it."""
    shared.registries[0].register("A")
    shared.begin()
    another = AdapterRegistry(4)
    another.register("B")
    shared.registries[0] = another
    shared.begin()

    assert alike([tuple(one.adapters) for one in shared.snapshots()]) == ("B",)


def _connected(shared: Shared) -> list[dict[str, DesiredAdapter]]:
    """Every rank's registry faces a host; what each of them holds, to be changed."""
    held: list[dict[str, DesiredAdapter]] = [{} for _ in shared.registries]
    for registry, one in zip(shared.registries, held, strict=True):
        registry.connect(lambda _name, _source: None, one.copy)
    return held


def test_an_empty_registry_in_the_place_of_a_lost_one_retires_nobody(shared: Shared) -> None:
    """A rank whose host holds what the other registry has never known does not take it over, and says so."""
    held = _connected(shared)
    held[1]["A"] = shared.registries[0].register("A")
    shared.begin()
    shared.registries[0] = AdapterRegistry(4)
    came = shared.begin()

    assert isinstance(came[1], ConfigError)
    assert "has never known what the host holds: A" in str(came[1])
    assert shared.registries[1].find("A") is not None


def test_what_rank_0_has_declared_complete_is_unaccounted_nowhere(shared: Shared) -> None:
    """A registry that was lost, on ranks whose hosts go on: it is said once what there should be."""
    held = _connected(shared)
    adapter = shared.registries[0].register("A")
    shared.begin()
    for one in held:
        one["A"] = adapter
    shared.registries[0] = AdapterRegistry(4)
    shared.registries[0].connect(lambda _name, _source: None, held[0].copy)
    shared.begin()
    assert alike([one.unaccounted() for one in shared.registries]) == ("A",)

    shared.registries[0].declare_complete()
    shared.begin()
    assert alike([one.unaccounted() for one in shared.registries]) == ()


def test_a_registry_of_another_number_of_slots_is_refused_on_all_ranks(shared: Shared) -> None:
    """Who cannot take it over says why; the others hear it when they meet."""
    shared.registries[1] = AdapterRegistry(3)
    came = shared.begin()

    assert isinstance(came[1], ConfigError)
    assert "has 3 slots, the one to adopt has 4" in str(came[1])


def test_a_rank_without_a_registry_says_so() -> None:
    """A host that keeps its own books has nothing to be shared."""
    with pytest.raises(ConfigError, match="have no AdapterRegistry; give every rank a host that has one"):
        RankAgreement(0, 2, mock.Mock(), registry_from=0).begins(None)


@pytest.mark.parametrize("given", [True, -1, 2, "0", 0.0])
def test_registry_from_is_the_number_of_a_rank(given: Any) -> None:
    """Whatever else is refused when the agreement is made."""
    with pytest.raises(ConfigError, match=r"registry_from is .*; use the number of a rank, 0 to 1, or None"):
        RankAgreement(0, 2, mock.Mock(), registry_from=given)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "truncated"),
        (b"[]", "Expected `object`"),
        (b"\xff", "malformed"),
        (_UNKNOWN_ID, "registration 1 is said to be known"),
    ],
    ids=["truncated", "another kind", "no text", "unknown id"],
)  # fmt: skip
def test_what_is_malformed_is_an_error_of_every_rank_and_changes_nothing(
    shared: Shared, content: bytes, why: str
) -> None:
    """A rank that hears it says so before it decides, and all raise."""
    shared.registries[0].register("A")
    before = shared.registries[1].snapshot()
    with mock.patch.object(told_wire, "render_registry", return_value=(content, ())):
        came = shared.begin()

    assert came[0] is None
    for rank in (1, 2):
        assert isinstance(came[rank], ConfigError)
        assert "what was told of the registry is malformed" in str(came[rank])
        assert why in str(came[rank])
        assert shared.registries[rank].snapshot() == before


def _trainers(registry_from: int | None = 0, world: int = 2, slots: int = 3) -> tuple[Hub, list[Any], list[Any]]:
    hub = Hub(world)
    ranks = hub.agreements(registry_from=registry_from)
    registries = [AdapterRegistry(slots) for _ in range(world)]
    made = hub.all(lambda rank: registered_trainer(ranks[rank], registries[rank]))
    return hub, [one[0] for one in made], [one[1] for one in made]


def test_adapters_that_rank_0_registers_are_loaded_on_every_rank() -> None:
    """In the same slots, with the same tensors; and retired again."""
    hub, trainers, hosts = _trainers()
    hosts[0].registry.register("B", seed=3)
    hosts[0].registry.register("A", tensors=given_tensors(1), rank=2)

    assert alike([str(one.edge) for one in hub.all(lambda rank: trainers[rank].reconcile_adapters())])
    assert alike([dict(host.loaded()) for host in hosts]) == hosts[0].registry.desired()
    assert alike([host.model.lora_a[1].tolist() for host in hosts]) == given_tensors(1)["a"].tolist()
    hosts[0].registry.deregister("B")
    hub.all(lambda rank: trainers[rank].reconcile_adapters())
    assert alike([tuple(host.loaded()) for host in hosts]) == ("A",)
    assert alike([host.registry.snapshot().names(AdapterState.COMPLETED) for host in hosts]) == ("B",)


def _when(hosts: list[RegistryHost], rank: int, method: str, do: Callable[[], object]) -> Any:
    """Do something the first time that a rank's host is asked something."""
    real, done = getattr(hosts[rank], method), []

    def asked(*given: Any) -> Any:
        found = real(*given)
        if not done:
            done.append(True)
            do()
        return found

    return mock.patch.object(hosts[rank], method, asked)


def test_an_adapter_that_is_registered_while_ranks_gather_is_no_disagreement() -> None:
    """Rank 0 says in the meeting that its registry has moved; all look again, and decide anew."""
    hub, trainers, hosts = _trainers()
    hosts[0].registry.register("A")
    with _when(hosts, 0, "desired", lambda: hosts[0].registry.register("B")):
        came = hub.all(lambda rank: trainers[rank].reconcile_adapters())

    assert not any(isinstance(one, Exception) for one in came), came
    assert alike([tuple(host.loaded()) for host in hosts]) == ("A", "B")


def test_a_name_that_is_registered_anew_after_the_decision_is_not_loaded_on_one_rank_alone() -> None:
    """What was decided is loaded, or nothing; the next reconcile loads the new one everywhere."""
    hub, trainers, hosts = _trainers()
    hosts[0].registry.register("A", seed=1)
    hub.all(lambda rank: trainers[rank].reconcile_adapters())
    first = hosts[0].registry
    first.register("B", seed=1)

    def anew() -> None:
        first.deregister("B")
        first.register("B", seed=2)

    real = trainers[0]._runner._ranks.decided

    def decided(*given: Any) -> Any:
        found = real(*given)
        anew()
        return found

    with mock.patch.object(trainers[0]._runner._ranks, "decided", decided):
        came = hub.all(lambda rank: trainers[rank].reconcile_adapters())
    assert all(isinstance(one, TransitionFailed) for one in came), came
    assert all("it was registered anew while the reconcile began" in str(one) for one in came)
    assert alike([tuple(host.loaded()) for host in hosts]) == ("A",)

    hub.all(lambda rank: trainers[rank].reconcile_adapters())
    assert alike([host.loaded()["B"].registration_id for host in hosts]) == 3


def test_a_refused_event_keeps_what_was_taken_over() -> None:
    """It is what rank 0 says, whatever becomes of the event."""
    hub, trainers, hosts = _trainers()
    hosts[0].registry.register("A")
    came = hub.all(lambda rank: trainers[rank].offload())

    assert alike([type(one).__name__ for one in came]) == "EventRefused"
    assert alike([host.registry.adapter_state("A") for host in hosts]) is AdapterState.PENDING


def test_without_a_shared_registry_another_plan_is_named() -> None:
    """By the plan's digest, where names are alike and registrations are not."""
    hub, trainers, hosts = _trainers(registry_from=None, world=3)
    for host in hosts:
        host.registry.register("A")
    hosts[1].registry.deregister("A")
    hosts[1].registry.register("A")
    came = hub.all(lambda rank: trainers[rank].reconcile_adapters())

    assert all(isinstance(one, RanksDisagree) for one in came)
    assert came[0].ranks == (1,)
    assert "plan_digest" in {one.fact for one in came[0].differences}


def test_ranks_that_differ_in_whose_registry_it_is_do_not_wait_for_each_other() -> None:
    """The meeting itself finds it."""
    hub = Hub(2)
    ranks = hub.agreements(registry_from=0)
    ranks[1]._registry_from = 1
    hosts = [SimpleNamespace(registry=AdapterRegistry(2)) for _ in range(2)]
    came = hub.all(lambda rank: ranks[rank].begins(hosts[rank]))

    assert all(isinstance(one, RanksDisagree) for one in came)
    assert came[0].differences[0].values[1][1] == "shared by rank 1 (1 before decided)"


def test_adapters_are_handled_in_the_order_of_their_names_on_every_rank() -> None:
    """Whatever the order in which they were registered: what is gathered from all ranks has one order."""
    hub, trainers, hosts = _trainers(slots=5)
    for name in ("d", "b", "e", "a"):
        hosts[0].registry.register(name)
    orders: list[list[str]] = [[], []]
    with _spied(hosts[0], orders[0]), _spied(hosts[1], orders[1]):
        hub.all(lambda rank: trainers[rank].reconcile_adapters())

    assert alike(orders) == ["a", "b", "d", "e"]


def _spied(host: RegistryHost, order: list[str]) -> Any:
    real = host.install

    def install(prepared: Any) -> None:
        order.append(prepared.desired.name)
        real(prepared)

    return mock.patch.object(host, "install", install)
