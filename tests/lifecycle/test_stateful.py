"""Any order of calls and faults on the real controller, against a model that only remembers bytes (FB-59)."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lifecycle import EventRefused, HostArena
from lifecycle.errors import AuditError
from lifecycle.weights.leases import WeightLease
from states import ACTOR, FROZEN_BASE, OFFLOADED, Strategy, TrainerState, Verify
from tests.lifecycle.injector import Injector
from tests.lifecycle.world import FakeEngine, World, content_of, make_world

NAMES = st.sampled_from(["A", "B", "C"])
TAGS = st.sampled_from(["ref", "old_actor"])
SLOTS = {"A": 0, "B": 1, "C": 2}
PLACES: dict[str, dict[str, str]] = {
    "cpu": {},
    "cpu, base in a file": {"frozen_base": "file"},
    "disk": {"offload_target": "disk"},
}
KINDS = st.sampled_from(["error", "interrupt", "ENOSPC", "EIO", "out of memory", "short", "is gone"])
BASE = ("embed", "up", "down")


class LifecycleMachine(RuleBasedStateMachine):
    """A trainer, an engine and leases; the model is a dict of digests for the actor and one for each kept model.

    A trainer under ``lean`` has a twin under ``reference`` that is told the same, as long as it can serve that.
    """

    world: World
    twin: World | None = None

    @initialize(
        strategy=st.sampled_from(list(Strategy)),
        place=st.sampled_from(sorted(PLACES)),
        retain=st.booleans(),
        colocate=st.booleans(),
        trainable=st.booleans(),
        verify=st.sampled_from(list(Verify)),
    )
    def start(self, *, strategy: str, place: str, retain: bool, colocate: bool, trainable: bool, verify: str) -> None:
        """A fresh world of one of many configurations."""
        chosen = {"colocate": colocate, "trainable": trainable, "verify": verify, "with_ref": True, **PLACES[place]}
        self.folder = TemporaryDirectory()
        self.world = self.make(strategy, retain=retain, chosen=chosen)
        if strategy == Strategy.LEAN:
            self.twin = self.make(Strategy.REFERENCE, retain=retain, chosen=chosen)
        self.engine, self.leases = FakeEngine(), list[tuple[WeightLease, dict[str, str]]]()
        self.actor, self.kept = live(self.world), dict[str, dict[str, str]]()

    def make(self, strategy: str, *, retain: bool, chosen: dict[str, Any]) -> World:
        """A world in a folder of its own."""
        folder = Path(self.folder.name, strategy)
        torch.manual_seed(3)
        return make_world(arena=HostArena(disk_dir=str(folder), retain_host_backup=retain), strategy=strategy, **chosen)

    def teardown(self) -> None:
        """Files and memory go with the example."""
        if hasattr(self, "world"):
            for lease, _ in self.leases:
                lease.close()
            self.world, self.twin = None, None  # type: ignore[assignment]
            self.folder.cleanup()

    def both(self, call: Callable[[World], object]) -> bool:
        """Send to the trainer, and to the twin what the trainer did. Whether it was done."""
        try:
            call(self.world)
        except EventRefused:
            return False
        self.tell_the_twin(call)
        return True

    def tell_the_twin(self, call: Callable[[World], object]) -> None:
        """What reference cannot serve ends the comparison."""
        try:
            if self.twin is not None:
                call(self.twin)
        except EventRefused:
            self.twin = None

    @property
    def active(self) -> str:
        """Whose bytes are live."""
        return self.world.trainer.active_model

    def active_bytes(self) -> dict[str, str]:
        """What should be live: of a kept model what it consists of, the rest it shares with the actor."""
        return self.actor | (self.kept[self.active] if self.active != ACTOR else {})

    @rule(name=NAMES)
    def train(self, name: str) -> None:
        """A real step, where it is allowed."""
        if name in self.world.host.loaded() and self.both(lambda world: world.train(name)):
            self.actor = live(self.world)

    @rule(name=NAMES)
    def accumulate(self, name: str) -> None:
        """Only gradients change."""

        def step(world: World) -> None:
            with world.trainer.step([name]) as one:
                world.backward(name)
                one.accumulated()

        if name in self.world.host.loaded():
            self.both(step)

    @rule(event=st.sampled_from(["sleep", "offload", "wake_up"]))
    def move(self, event: str) -> None:
        """Memory goes or comes back."""
        self.both(lambda world: getattr(world.trainer, event)())

    @rule()
    def turn(self) -> None:
        """To sleep and offloaded at once, as most turns go."""
        if self.both(lambda world: world.trainer.sleep()):
            self.both(lambda world: world.trainer.offload())

    @rule(name=NAMES, seed=st.integers(0, 3))
    def register(self, name: str, seed: int) -> None:
        """A name is registered, or registered anew."""
        for world in filter(None, (self.world, self.twin)):
            world.host.register(name, SLOTS[name], seed)

    @rule(name=NAMES)
    def deregister(self, name: str) -> None:
        """A name goes."""
        for world in filter(None, (self.world, self.twin)):
            world.host.wanted.pop(name, None)

    @rule()
    def reconcile(self) -> None:
        """Slots follow the registry; everything else keeps its bytes."""
        loaded = dict(self.world.host.loaded())
        if self.both(lambda world: world.trainer.reconcile_adapters()):
            self.reconciled(loaded)

    def reconciled(self, loaded: dict[str, Any]) -> None:
        """The model follows the registry: what was retired is gone, also from kept models."""
        host = self.world.host
        for name in [name for name, one in loaded.items() if host.loaded().get(name) != one]:
            for held in (self.actor, *self.kept.values()):
                for tensor in host.slot_tensors(SLOTS[name]):
                    held.pop(tensor, None)
        for name in [name for name, one in host.loaded().items() if loaded.get(name) != one]:
            self.actor |= {key: content_of({key: value}) for key, value in host.values[name].items()}

    @rule()
    def push(self) -> None:
        """The engine gets what it lacks."""
        self.both(lambda world: world.trainer.update_weights([self.engine] if world is self.world else [FakeEngine()]))

    @rule()
    def restart_engine(self) -> None:
        """A new instance holds nothing."""
        self.engine.restart()

    @rule(tag=TAGS)
    def keep(self, tag: str) -> None:
        """Keep what is live under a tag: it shares the base with whatever else has it."""
        if self.both(lambda world: world.trainer.keep_model(tag)):
            self.kept[tag] = dict(self.active_bytes())

    @rule(tag=TAGS, shift=st.integers(1, 2))
    def keep_another(self, tag: str, shift: int) -> None:
        """Keep a model with a base of its own."""
        given = {name: torch.full_like(getattr(self.world.model, name), shift) for name in BASE}
        if self.active != tag and self.both(lambda world: world.trainer.keep_model(tag, given)):
            self.kept[tag] = self.kept.get(tag, {}) | {name: content_of({name: one}) for name, one in given.items()}

    @rule(tag=st.sampled_from([ACTOR, "ref", "old_actor"]))
    def switch(self, tag: str) -> None:
        """Put another model into live memory, or the actor back."""
        self.both(lambda world: world.trainer.switch_model(tag))

    @rule(shift=st.integers(0, 2))
    def load_checkpoint(self, shift: int) -> None:
        """Another base comes, or the same again."""

        def load(world: World) -> None:
            with world.trainer.loading_checkpoint(), torch.no_grad():
                world.model.up += shift

        if self.both(load):
            self.actor = live(self.world)

    @rule()
    def lease(self) -> None:
        """Somebody reads and does not stop yet."""
        if len(self.leases) < 2:
            self.leases.append((self.world.trainer.weights(f"reader {len(self.leases)}"), dict(self.actor)))

    @precondition(lambda self: self.leases)
    @rule()
    def close(self) -> None:
        """What a lease shows at its end is what it pinned."""
        lease, pinned = self.leases.pop()
        assert {name: content_of({name: lease[name]}) for name in BASE} == {name: pinned[name] for name in BASE}
        lease.close()

    @rule(nth=st.integers(1, 60), kind=KINDS, stuck=st.booleans(), event=st.data())
    def fail(self, *, nth: int, kind: str, stuck: bool, event: st.DataObject) -> None:
        """Something fails somewhere in an event, maybe for good until it is mended: as before, or recovered."""
        calls: dict[str, Callable[[World], object]] = {
            **{one: lambda world, one=one: getattr(world.trainer, one)() for one in ("sleep", "offload", "wake_up")},
            "reconcile": lambda world: world.trainer.reconcile_adapters(),
            "push": lambda world: world.trainer.update_weights([self.engine]),
            "switch": lambda world: world.trainer.switch_model("ref"),
        }
        call = event.draw(st.sampled_from(sorted(calls)))
        loaded, state, injector = dict(self.world.host.loaded()), self.world.trainer.state, Injector()
        injector.arm(nth, kind, sticky=stuck and kind != "interrupt")
        try:
            with injector.on(self.world, (self.engine,)):
                calls[call](self.world)
            moved = True
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - whatever it is, no byte may be lost
            moved = isinstance(error, AuditError) and error.outcome is not None
            error.__traceback__ = None
        if moved and call == "reconcile":
            self.reconciled(loaded)
        if moved and call != "push":
            self.tell_the_twin(calls[call])
        self.recover(state if not moved else None)

    def recover(self, state: TrainerState | None) -> None:
        """Out of faulted; else the state is as before."""
        trainer = self.world.trainer
        if trainer.state is not TrainerState.FAULTED:
            assert state in (None, trainer.state)
            return
        while self.leases:
            self.close()
        gc.collect()
        trainer.recover()
        self.twin = None  # it was not told how far the trainer came

    @invariant()
    def every_weight_is_readable_and_what_it_was(self) -> None:
        """The actor's in every state from whatever source, and live the active model's."""
        if hasattr(self, "world"):
            assert self.world.weights() == self.actor
            if self.world.trainer.state not in OFFLOADED:
                assert live(self.world) == self.active_bytes()

    @invariant()
    def a_kept_model_is_what_it_was(self) -> None:
        """Whether it has bytes of its own or borrows them."""
        for tag, held in self.kept.items() if hasattr(self, "world") else ():
            now = {name: content_of({name: one}) for name, one in self.world.trainer.snapshots.get(tag).items()}
            assert now == held

    @invariant()
    def memory_is_where_the_state_says(self) -> None:
        """The saver's books agree with the state."""
        if not hasattr(self, "world"):
            return
        offloaded = self.world.trainer.state in OFFLOADED
        tags = self.world.arena.tags()
        assert all(info.paused is offloaded for tag, info in tags.items() if tag != "actor/gradients")
        assert tags["actor/gradients"].paused is (self.world.trainer.state is not TrainerState.AWAKE)

    @invariant()
    def lean_holds_no_more_than_reference(self) -> None:
        """Host bytes of backups and copies, whenever reference got as far."""
        # Where backups are retained, those of an offload that was undone are kept too.
        if self.twin is not None and not self.world.arena.retain_host_backup:
            lean, reference = (one.trainer.held_bytes() for one in (self.world, self.twin))
            assert self.world.trainer.state is self.twin.trainer.state
            held = [one["saver_host"] + one["snapshots"] + one["kept_gradients"] for one in (lean, reference)]
            assert held[0] <= held[1], held

    @invariant()
    def an_engine_that_is_current_serves_the_trainers_bytes(self) -> None:
        """Equal ids mean equal bytes."""
        if not hasattr(self, "world"):
            return
        for content in self.world.trainer.facts().contents:
            if self.engine.versions.get(content.group) == content.version:
                held = self.world.trainer._parts.inventory.groups()[content.group]
                with self.world.trainer.weights("compare", groups=[content.group]) as lease:
                    assert self.engine.digests[content.group] == content_of({name: lease[name] for name in held})


def live(world: World) -> dict[str, str]:
    """SHA-256 of what lies in the model's own tensors, asked of nobody."""
    tensors = {name: one for held in world.trainer._parts.inventory.groups().values() for name, one in held.items()}
    assert set(BASE) <= set(world.trainer._parts.inventory.base[FROZEN_BASE])
    return {name: content_of({name: one}) for name, one in tensors.items()}


pytestmark = [pytest.mark.timeout(600), pytest.mark.no_cover]  # what random runs reach has tests of its own

TestLifecycleMachine = LifecycleMachine.TestCase
TestLifecycleMachine.settings = settings(
    max_examples=30, stateful_step_count=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
