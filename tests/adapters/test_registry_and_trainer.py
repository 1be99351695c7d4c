"""Any order of calls on registry, trainer and engines, and any fault in it, against a model of plain dictionaries.

What must hold after each call: every served (slot, version) is unique, nothing is served that was never pushed, nothing
is trained that is not loaded, no slot is lost or held twice, and every byte is whose the model says (FB-35 to FB-44).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lifecycle import AdapterError, EventRefused, Moved, TransitionFailed, Unchanged
from lifecycle.adapters import AdapterRegistry, AdapterSettings
from lifecycle.adapters.files import save_adapter
from lifecycle.engines.protocol import AdapterPayload
from lifecycle.errors import AuditError, EngineError
from lifecycle.transition.steps import TrainingStep
from states import TrainerState
from tests.adapters.tenancy_model import NEVER, TenancyModel, Tenant
from tests.adapters.tenancy_world import (
    LAYOUTS,
    PLACES,
    REPLY,
    SLOT_RANK,
    SLOTS,
    TARGETS,
    ServingEngine,
    TenancyWorld,
    bits,
    given_tensors,
    make,
)
from tests.lifecycle.injector import Injector

NAMES: Final = ("a", "b", "c", "d")
ALPHA: Final = 3.0
KINDS: Final = st.sampled_from(["error", "interrupt", "ENOSPC", "EIO", "out of memory", "is gone"])
ENGINES: Final = st.sampled_from([(0,), (1,), (0, 1), (1, 0)])
MOVES: Final = {
    "sleep": {TrainerState.AWAKE: TrainerState.SLEEPING},
    "offload": {TrainerState.SLEEPING: "offloaded"},
    "wake_up": dict.fromkeys(
        (TrainerState.SLEEPING, TrainerState.OFFLOADED_CPU, TrainerState.OFFLOADED_DISK), TrainerState.AWAKE
    ),
}
FRESH: dict[tuple[str, int, int], dict[str, bytes]] = {}


SELDOM: Final = 7
"""Of 0 to 9."""


class AbortedError(Exception):
    """A training step that failed in the middle."""


class Faults(Injector):
    """What fails for good until it is mended is never the state machine itself: it lives in memory."""

    def point(self, name: str) -> str:
        """Reach a point."""
        try:
            return super().point(name)
        finally:
            if self._broken == "commit":
                self._broken = ""


def end_step(step: TrainingStep, how: str) -> None:
    """Say what it was, or fail."""
    if how == "aborted":
        raise AbortedError
    getattr(step, how)()


class RegistryAndTrainer(RuleBasedStateMachine):
    """A registry, a trainer with three slots and two engines."""

    world: TenancyWorld

    @initialize(
        layout=st.sampled_from(sorted(LAYOUTS)),
        place=st.sampled_from(sorted(PLACES)),
        count=st.integers(0, SLOTS),
        trainable=st.sampled_from([True, True, False]),
    )
    def start(self, layout: str, place: str, count: int, *, trainable: bool) -> None:
        """Awake; some adapters are there already, and served."""
        self.folder, self.layout = TemporaryDirectory(), layout
        self.world = make(layout, place, Path(self.folder.name))
        self.model = TenancyModel(SLOTS, self.world.host.loaded)
        self.engines = [ServingEngine("E0"), ServingEngine("E1")]
        self.contents: dict[tuple[str, int], tuple[object, str]] = {}
        self.registered = self.newest_version = 0
        for name, kind in zip(NAMES[:count], ("tensors", "fresh", "directory"), strict=False):
            self.add(name, kind, seed=1, rank=1, num_step=NEVER, trainable=trainable)
        self.reconcile(keep=False)
        self.push((0, 1), "")

    def teardown(self) -> None:
        """Files and memory go with the example."""
        if hasattr(self, "world"):
            self.world.arena.close()
            self.folder.cleanup()

    @property
    def state(self) -> TrainerState:
        """The trainer's."""
        return self.world.trainer.state

    @property
    def is_faulted(self) -> bool:
        """Nothing but the registry answers then."""
        return self.state is TrainerState.FAULTED

    def attempt(self, call: Callable[[AdapterRegistry], object], *, allowed: bool) -> None:
        """The registry does it exactly when the model allows it, and changes nothing otherwise."""
        before = self.world.registry.snapshot()
        try:
            call(self.world.registry)
        except AdapterError:
            assert not allowed
            assert self.world.registry.snapshot() == before
        else:
            assert allowed

    def a_name(self, data: st.DataObject, likely: Iterable[str]) -> str:
        """Mostly one of the likely ones, and else any."""
        found = sorted(likely)
        return data.draw(st.sampled_from(NAMES if not found or data.draw(st.integers(0, 9)) == SELDOM else found))

    # The registry

    @rule(
        data=st.data(),
        kind=st.sampled_from(["fresh", "tensors", "directory"]),
        seed=st.integers(0, 3),
        rank=st.integers(1, SLOT_RANK),
        trainable=st.sampled_from([True, True, False]),
        num_step=st.sampled_from([NEVER, 1, 2]),
    )
    def register(self, data: st.DataObject, kind: str, seed: int, rank: int, num_step: int, *, trainable: bool) -> None:
        """A name that is free gets the lowest free slot and a new id."""
        name = self.a_name(data, {*NAMES} - {*self.model.live})
        self.add(name, kind, seed, rank, num_step, trainable=trainable)

    def add(self, name: str, kind: str, seed: int, rank: int, num_step: int, *, trainable: bool) -> None:
        """Register it."""
        free = self.model.free_slots()
        self.registered += 1
        how: dict[str, Any] = {"seed": seed, "rank": rank, "alpha": ALPHA}
        if kind == "tensors":
            how = {"tensors": given_tensors(seed, rank), "rank": rank, "alpha": ALPHA}
        if kind == "directory":
            payload = AdapterPayload(name, 0, rank, ALPHA, TARGETS, given_tensors(seed, rank))
            how = {"path": save_adapter(self.directory_of(self.registered), payload)}
        given = AdapterSettings(num_step=None if num_step == NEVER else num_step, trainable=trainable)
        allowed = name not in self.model.live and bool(free)
        self.attempt(lambda registry: registry.register(name, settings=given, **how), allowed=allowed)
        if allowed:
            tenant = Tenant(name, self.model.next_id, free[0], kind, seed, rank, trainable, num_step, self.registered)
            self.model.register(tenant)

    def wanted(self) -> list[str]:
        """Registrations that should be loaded."""
        return [name for name, one in self.model.live.items() if one.is_wanted]

    def directory_of(self, number: int) -> Path:
        """Where the source of a registration lies."""
        return Path(self.folder.name, f"source {number}")

    @rule(data=st.data())
    def deregister(self, data: st.DataObject) -> None:
        """It begins to retire."""
        name = self.a_name(data, self.wanted())
        tenant = self.model.live.get(name)
        allowed = tenant is not None and tenant.is_wanted
        self.attempt(lambda registry: registry.deregister(name), allowed=allowed)
        if tenant is not None and allowed:
            self.model.deregister(tenant)

    @rule()
    def retire(self) -> None:
        """All that retire are demoted."""
        assert self.world.registry.retire_adapters() == self.model.retire()

    @rule(data=st.data())
    def free_slot(self, data: st.DataObject) -> None:
        """By hand; the trainer may hold the tenant still."""
        name = self.a_name(data, [n for n, one in self.model.live.items() if one.word == "cleanup"])
        tenant = self.model.live.get(name)
        allowed = tenant is not None and tenant.word == "cleanup"
        self.attempt(lambda registry: registry.free_slot(name), allowed=allowed)
        if tenant is not None and allowed:
            self.model.complete(tenant)

    @rule(data=st.data())
    def break_or_mend_a_source(self, data: st.DataObject) -> None:
        """The weights of a directory disappear, or come back."""
        name = self.a_name(data, [n for n, one in self.model.live.items() if one.kind == "directory"])
        tenant = self.model.live.get(name)
        if tenant is not None and tenant.kind == "directory":
            file = self.directory_of(tenant.number) / "adapter_model.safetensors"
            away = file.with_suffix(".away")
            (away.rename(file) if tenant.broken else file.rename(away))
            tenant.broken = not tenant.broken

    @rule(data=st.data(), seed=st.integers(0, 3))
    def resupply(self, data: st.DataObject, seed: int) -> None:
        """A registration is given its tensors again; a slot that holds it is not written."""
        name = self.a_name(data, [name for name in self.wanted() if self.model.live[name].lost])
        tenant = self.model.live.get(name)
        allowed = tenant is not None and tenant.is_wanted
        how: dict[str, Any] = {"tensors": given_tensors(seed, 1), "rank": 1, "alpha": ALPHA}
        self.attempt(lambda registry: registry.resupply(name, **how), allowed=allowed)
        if tenant is not None and allowed:
            tenant.kind, tenant.seed, tenant.rank, tenant.broken, tenant.lost = "tensors", seed, 1, False, False

    @rule(data=st.data(), rollout=st.integers(0, 2), steps=st.booleans())
    def note_a_batch(self, data: st.DataObject, rollout: int, *, steps: bool) -> None:
        """Of adapters that were served and are trained."""
        likely = [name for name, one in self.model.live.items() if self.model.may_count(one)]
        names = sorted({self.a_name(data, likely) for _ in range(data.draw(st.integers(1, 2)))})
        tenants = [self.model.live.get(name) for name in names]
        allowed = all(one is not None and self.model.may_count(one) for one in tenants)
        groups, stepping = dict.fromkeys(names, 2), names[:steps]
        self.attempt(lambda registry: registry.record_batch_adapters(rollout, groups, stepping), allowed=allowed)
        if allowed:
            self.model.batches[rollout] = [(one, 2, one.name in stepping) for one in tenants if one is not None]

    @rule(rollout=st.integers(0, 2))
    def mark_a_batch_trained(self, rollout: int) -> None:
        """Counted once, for the registrations that were in it."""
        assert list(self.world.registry.mark_batch_trained(rollout).stepped) == self.model.train_batch(rollout)

    @precondition(lambda self: not self.is_faulted)
    @rule(number=st.integers(0, 9))
    def start_the_registry_again(self, number: int) -> None:
        """From what it has saved, or seldom from nothing."""
        if number == SELDOM:
            self.lose_the_registry()
            return
        file = Path(self.folder.name, "registry.json")
        self.world.registry.save(file)
        self.model.reload()
        self.world.serve(AdapterRegistry.load(file))
        assert self.world.registry.declare_complete() == self.model.of_another_life()

    def lose_the_registry(self) -> None:
        """An empty one retires nothing, until it is said to be complete."""
        self.world.serve(AdapterRegistry(SLOTS))
        if self.model.held:
            with pytest.raises(EventRefused, match="registry-knows-what-is-loaded"):
                self.world.trainer.reconcile_adapters()
        assert set(self.world.host.loaded()) == set(self.model.held)
        assert self.world.registry.declare_complete() == tuple(sorted(self.model.held))
        self.model.lose()

    # The trainer

    @rule(keep=st.booleans())
    def reconcile(self, *, keep: bool) -> None:
        """Slots follow the registry: all or nothing, or what can be."""
        loads, retires = self.model.plan()
        bad = self.model.unloadable()
        try:
            outcome = self.world.trainer.reconcile_adapters(partial="keep" if keep else None)
        except EventRefused:
            assert self.is_faulted
        except TransitionFailed as failed:
            blamed = failed.cause.adapter if isinstance(failed.cause, AdapterError) else ""
            assert not keep
            assert blamed in bad
        else:
            assert not bad or keep
            assert isinstance(outcome, Moved if loads or retires else Unchanged)
            told = [one.name for one in outcome.failed] if isinstance(outcome, Moved) else []
            assert told == sorted({*bad, *self.model.blocked(bad)})
            self.reconciled(told)

    @rule(
        data=st.data(),
        kind=st.sampled_from(["fresh", "tensors"]),
        rank=st.integers(1, SLOT_RANK),
        at_once=st.booleans(),
    )
    def change_tenants(self, data: st.DataObject, kind: str, rank: int, *, at_once: bool) -> None:
        """One leaves, its slot is freed now or later, and another one comes, maybe of its name."""
        leaving = self.model.live.get(self.a_name(data, self.wanted()))
        if leaving is not None and leaving.is_wanted:
            self.world.registry.deregister(leaving.name)
            self.model.deregister(leaving)
            way = data.draw(st.sampled_from(["later", "by a reconcile", "by hand"]), "way")
            if way == "by hand":
                self.retire()
            if leaving.word == "cleanup":
                self.world.registry.free_slot(leaving.name)
                self.model.complete(leaving)
            elif way == "by a reconcile":
                self.reconcile(keep=False)
        name = self.a_name(data, {*NAMES} - {*self.model.live})
        self.add(name, kind, seed=rank, rank=rank, num_step=NEVER, trainable=True)
        if at_once:
            self.reconcile(keep=False)

    def reconciled(self, without: list[str]) -> None:
        """New tenants have what their source has, and zero everywhere else."""
        for tenant in self.model.reconcile(without):
            found = self.world.slot_bytes(tenant.slot)
            given = self.given(tenant, found)
            assert found == {key: given.get(key, bytes(len(value))) for key, value in found.items()}
            tenant.holds, tenant.gradients, tenant.is_new = found, {}, True
            tenant.loaded_rank = tenant.rank

    def given(self, tenant: Tenant, found: dict[str, bytes]) -> dict[str, bytes]:
        """What its source has; of a fresh adapter what the first one of its seed had: A, and nothing in B."""
        if tenant.kind == "fresh":
            first = {key: one for key, one in found.items() if "lora_A" in key and "#exp" not in key}
            assert all(any(one) for key, one in first.items() if "#step" not in key)
            return FRESH.setdefault((self.layout, tenant.seed, tenant.rank), first)
        given = {}
        for name, slot in self.world.host.slot_tensors(tenant.slot).items():
            short = self.world.short(tenant.slot, name)
            value = given_tensors(tenant.seed, tenant.rank)[short.replace(".slot", "")]
            padded = torch.zeros(slot.shape)
            padded[: value.shape[0], : value.shape[1]] = value
            given[short] = bits(padded.to(slot.dtype))
            given[f"{short}#main"] = bits(padded)
        return given

    @rule(data=st.data(), how=st.sampled_from(["stepped", "accumulated", "aborted"]), wakes=st.booleans())
    def train(self, data: st.DataObject, how: str, *, wakes: bool) -> None:
        """A real step of what is loaded and not frozen; of anything else none."""
        if wakes and not self.is_faulted:
            self.world.trainer.wake_up()
        likely = [name for name, one in self.model.held.items() if one.trainable]
        names = sorted({self.a_name(data, likely) for _ in range(data.draw(st.integers(1, 2)))})
        tenants = [self.model.held.get(name) for name in names]
        allowed = self.state is TrainerState.AWAKE and all(one is not None and one.trainable for one in tenants)
        try:
            with self.world.trainer.step(names) as step:
                assert allowed
                for one in tenants:
                    assert one is not None
                    self.train_one(one, is_stepped=how != "accumulated")
                end_step(step, how)
        except EventRefused:
            assert not allowed
            return
        except AbortedError:
            pass
        for one in filter(None, tenants):
            before, one.holds, one.is_new = one.holds, self.world.slot_bytes(one.slot), False
            assert (before == one.holds) is (how == "accumulated")
            goes_on = how == "accumulated" or (how == "aborted" and bool(one.gradients))
            one.gradients = self.world.gradients(one.slot) if goes_on else {}

    def train_one(self, tenant: Tenant, *, is_stepped: bool) -> None:
        """Add the gradients of a batch, and step."""
        if not tenant.gradients:
            self.world.clear_gradients(tenant.name)
        self.world.backward(tenant.name)
        if is_stepped:
            self.world.optimizer_step(tenant.name)

    @rule(data=st.data())
    def leave_gradients_behind(self, data: st.DataObject) -> None:
        """Somebody goes in whose gradients were accumulated before the trainer slept."""
        if self.state is TrainerState.AWAKE:
            self.train(data, "accumulated", wakes=False)
            self.turn()
            self.change_tenants(data, "tensors", 1, at_once=True)
            self.move("wake_up")

    @rule(event=st.sampled_from(sorted(MOVES)))
    def move(self, event: str) -> None:
        """Memory goes or comes back."""
        target = MOVES[event].get(self.state)
        try:
            moved = isinstance(getattr(self.world.trainer, event)(), Moved)
        except EventRefused:
            moved = False
        assert moved is (target is not None)
        assert not moved or self.state.startswith(str(target))

    @rule()
    def turn(self) -> None:
        """To sleep and offloaded at once, as most turns go."""
        if self.state is TrainerState.AWAKE:
            self.world.trainer.sleep(offload=True)

    # Engines

    @rule(order=ENGINES, fails_at=st.sampled_from(["", "", "begin", "base", "adapter", "unload", "commit", REPLY]))
    def push(self, order: tuple[int, ...], fails_at: str) -> None:
        """Engines get what they lack; the last one may fail, and one that is away fails for itself."""
        engines = [self.engines[one] for one in order]
        engines[-1].fails_at = fails_at
        before, held = [len(one.commits) for one in engines], dict(engines[-1].versions)
        away = {one.name for one in engines if one.is_away}
        asleep = any("weights" not in one.resident for one in engines if one.name not in away)
        try:
            self.world.trainer.update_weights(engines)
        except EventRefused:
            assert self.is_faulted or asleep
        except TransitionFailed as failed:
            is_the_engines = isinstance(failed.cause, EngineError)
            assert is_the_engines
            self.failed(engines[-1], {name for name, one in failed.engines.items() if not one.committed}, away, held)
        else:
            assert not away
            for engine in engines:
                assert not self.fence_of(engine)
                assert engine.versions == {group: one[0] for group, one in self.world.served_content().items()}
        finally:
            engines[-1].fails_at = ""
        self.pushed(engines, before)
        if not (away or asleep or fails_at or self.is_faulted):
            assert not any(one.word == "pending" for name, one in self.model.live.items() if self.model.holds(one))

    def failed(self, last: ServingEngine, hit: set[str], away: set[str], held: dict[str, int]) -> None:
        """Whoever is away, and the last one where it was told to: it has given the update up.

        It is fenced, unless nothing had been sent yet: it holds what it *held* then.
        """
        assert away <= hit <= away | {last.name}
        if hit > away:
            assert last.fails_at
            assert self.fence_of(last) or last.versions == held
            assert last.calls[-1] == "abort"

    def fence_of(self, engine: ServingEngine) -> str:
        """Why the trainer lets it serve nothing."""
        return self.world.trainer.explain("update_weights", engines=[engine]).facts.engines[0].fenced

    def pushed(self, engines: list[ServingEngine], before: list[int]) -> None:
        """What was committed somewhere is served; once for all engines together."""
        brought = [
            group for one, count in zip(engines, before, strict=True) for new in one.commits[count:] for group in new
        ]
        self.model.push(group.removeprefix("adapter/") for group in brought if group.startswith("adapter/"))

    @rule(one=st.integers(0, 1), what=st.sampled_from(["restart", "away", "back", "release", "resume"]))
    def something_happens_to_an_engine(self, one: int, what: str) -> None:
        """A new instance holds nothing; one may be away, or asleep."""
        engine = self.engines[one]
        if what == "restart":
            engine.restart()
        elif what in ("away", "back"):
            engine.is_away = what == "away"
        else:
            getattr(engine, what)(["weights"])

    # Crashes

    @precondition(lambda self: not self.is_faulted)
    @rule(nth=st.integers(1, 120), kind=KINDS, stuck=st.booleans(), event=st.data())
    def crash(self, *, nth: int, kind: str, stuck: bool, event: st.DataObject) -> None:
        """Something fails somewhere in an event: it is done, or nothing of it is, or the trainer is faulted."""
        trainer, engines = self.world.trainer, list(self.engines)
        calls: dict[str, Callable[[], object]] = {
            **{one: getattr(trainer, one) for one in MOVES},
            "reconcile": trainer.reconcile_adapters,
            "reconcile what can be": lambda: trainer.reconcile_adapters(partial="keep"),
            "push": lambda: trainer.update_weights(engines),
        }
        call = event.draw(st.sampled_from([*sorted(calls), "reconcile", "reconcile what can be"]))
        if call.startswith("reconcile") and not any(self.model.plan()):
            for rank in (1, 2):
                self.change_tenants(event, "tensors", rank, at_once=False)
        state, before, injector = self.state, [len(one.commits) for one in engines], Faults()
        injector.arm(nth, kind, sticky=stuck and kind != "interrupt")
        try:
            with injector.on(self.world, tuple(engines)):  # type: ignore[arg-type]
                outcome = calls[call]()
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever it is, no byte may be lost
            outcome = error.outcome if isinstance(error, AuditError) else None
            error.__traceback__ = None
        if call == "push":
            self.pushed(engines, before)
        if isinstance(outcome, Moved) and call.startswith("reconcile"):
            failed = [one.name for one in outcome.failed]
            assert set(failed) <= {*self.model.plan()[0], *self.model.plan()[1]}
            self.reconciled(failed)
        assert outcome is not None or self.state in (state, TrainerState.FAULTED)

    @precondition(lambda self: self.is_faulted)
    @rule()
    def recover(self) -> None:
        """Everything is as it was before what failed."""
        gc.collect()
        self.world.trainer.recover()
        assert not self.is_faulted

    # What holds after each of them

    @invariant()
    def the_registry_says_what_the_model_says(self) -> None:
        """States, slots, ids, versions and counts."""
        if not hasattr(self, "world"):
            return
        snapshot = self.world.registry.snapshot()
        live = self.model.live
        assert {n: (r.adapter.registration_id, r.adapter.slot, r.state) for n, r in snapshot.adapters.items()} == {
            name: (one.registration_id, one.slot, one.word) for name, one in live.items()
        }
        assert {name: one.step for name, one in snapshot.adapters.items()} == {n: one.step for n, one in live.items()}
        newest = {name: self.world.registry.adapter_state(name) for name in self.model.newest}
        assert newest == {name: one.word for name, one in self.model.newest.items()}
        assert snapshot.next_registration_id == self.model.next_id
        assert list(snapshot.slot_versions) == self.model.slot_versions

    @invariant()
    def no_slot_is_lost_or_held_twice(self) -> None:
        """Each is free or has one registration, and each tenant in the trainer has one of its own."""
        if not hasattr(self, "world"):
            return
        snapshot = self.world.registry.snapshot()
        given = [one.adapter.slot for one in snapshot.adapters.values()]
        assert sorted([*given, *snapshot.free_slots]) == list(range(SLOTS))
        if not self.is_faulted:
            loaded = self.world.host.loaded()
            assert {name: (one.registration_id, one.slot) for name, one in loaded.items()} == {
                name: (one.registration_id, one.slot) for name, one in self.model.held.items()
            }
            assert len({one.slot for one in loaded.values()}) == len(loaded)

    @invariant()
    def every_slot_holds_its_tenants_bytes_and_an_empty_one_zeros(self) -> None:
        """Weights through a lease; main copies, moments and counts where they are; gradients while awake."""
        if not hasattr(self, "world") or self.is_faulted:
            return
        tenants = {one.slot: one for one in self.model.held.values()}
        for slot in range(SLOTS):
            found, tenant = self.world.slot_bytes(slot), tenants.get(slot)
            assert found == (tenant.holds if tenant else {key: bytes(len(one)) for key, one in found.items()})
            if tenant is not None:
                leased = self.world.leased_bytes(tenant.name)
                assert leased == {key: tenant.holds[key] for key in leased}
                assert len(leased) == 2 * len(TARGETS)
                self.check_gradients(tenant)

    def check_gradients(self, tenant: Tenant) -> None:
        """What was accumulated is there; a new tenant begins with none."""
        if self.state is TrainerState.AWAKE and (tenant.gradients or tenant.is_new):
            found = self.world.gradients(tenant.slot)
            assert found == (tenant.gradients or {key: bytes(len(one)) for key, one in found.items()})

    @invariant()
    def flags_and_scales_are_those_of_the_tenants(self) -> None:
        """A slot that is empty trains and has scale 0."""
        if not hasattr(self, "world") or self.is_faulted:
            return
        tenants = {one.slot: one for one in self.model.held.values()}
        for slot in range(SLOTS):
            tenant = tenants.get(slot)
            trains = {one.requires_grad for one in self.world.host.slot_tensors(slot).values()}
            assert trains == {tenant is None or tenant.trainable}
            scales = {layer.scaling[f"slot_{slot}"] for layer in self.world.host._layers.values()}
            assert scales == {ALPHA / tenant.loaded_rank if tenant else 0.0}

    @invariant()
    def equal_versions_are_equal_bytes_of_one_registration(self) -> None:
        """On the trainer and on every engine; versions only grow; what an engine serves was the trainer's."""
        if not hasattr(self, "world") or self.is_faulted:
            return
        for group, (version, told) in self.world.served_content().items():
            tenant = self.model.held.get(group.removeprefix("adapter/"))
            content = (tenant.registration_id if tenant else None, told)
            if (group, version) not in self.contents:
                assert version > self.newest_version
            assert self.contents.setdefault((group, version), content) == content
        self.newest_version = max(version for _, version in self.contents)
        for engine in self.engines:
            for group, version in engine.versions.items():
                assert engine.digests[group] == self.contents[group, version][1]

    @invariant()
    def what_is_active_was_pushed(self) -> None:
        """And what only waits was not."""
        if hasattr(self, "world"):
            for tenant in self.model.live.values():
                assert tenant.word != "active" or tenant.pushed
                assert tenant.word != "pending" or not tenant.pushed


pytestmark = [pytest.mark.timeout(600), pytest.mark.no_cover]  # what random runs reach has tests of its own

TestRegistryAndTrainer = RegistryAndTrainer.TestCase
TestRegistryAndTrainer.settings = settings(
    max_examples=35,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
