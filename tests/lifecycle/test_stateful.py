"""Any order of events on the real controller, against a model that only remembers bytes."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lifecycle import EventRefused, TransitionFailed
from lifecycle.weights.leases import WeightLease
from states import Effect, Strategy, TrainerState
from tests.lifecycle.world import FakeEngine, World, content_of, make_world

NAMES = st.sampled_from(["A", "B", "C"])
SLOTS = {"A": 0, "B": 1, "C": 2}


class LifecycleMachine(RuleBasedStateMachine):
    """The trainer, an engine, a lease; the model is a dict of digests."""

    world: World

    @initialize(strategy=st.sampled_from(list(Strategy)), colocate=st.booleans(), trainable=st.booleans())
    def start(self, *, strategy: Strategy, colocate: bool, trainable: bool) -> None:
        """A fresh world of one of several configurations."""
        self.world = make_world(strategy=strategy, colocate=colocate, trainable=trainable)
        self.engine = FakeEngine()
        self.leases: list[WeightLease] = []
        self.expected = self.world.weights()
        self.pushed: dict[str, str] = {}

    def remember(self) -> None:
        """The model takes the bytes that a step or a reconcile has just made."""
        self.expected = self.world.weights()

    def try_to(self, call: Any, *arguments: object) -> bool:
        """Send an event; a refusal must leave the bytes alone, which the invariants see."""
        try:
            call(*arguments)
        except EventRefused:
            return False
        return True

    @rule(name=NAMES)
    def train(self, name: str) -> None:
        """A real step, where it is allowed."""
        if name in self.world.host.loaded() and self.try_to(self.world.train, name):
            self.remember()

    @rule(name=NAMES)
    def accumulate(self, name: str) -> None:
        """Only gradients change."""
        if name not in self.world.host.loaded() or self.world.trainer.state is not TrainerState.AWAKE or self.leases:
            return
        with self.world.trainer.step([name]) as step:
            self.world.backward(name)
            step.accumulated()

    @rule()
    def sleep(self) -> None:
        """Quiesce."""
        self.try_to(self.world.trainer.sleep)

    @rule()
    def offload(self) -> None:
        """Give the device memory back."""
        self.try_to(self.world.trainer.offload)

    @rule()
    def wake_up(self) -> None:
        """Take it again."""
        self.try_to(self.world.trainer.wake_up)

    @rule(name=NAMES, seed=st.integers(0, 3))
    def register(self, name: str, seed: int) -> None:
        """A name is registered, or registered anew."""
        self.world.host.register(name, SLOTS[name], seed)

    @rule(name=NAMES)
    def deregister(self, name: str) -> None:
        """A name goes."""
        if name in self.world.host.desired():
            self.world.host.deregister(name)

    @rule()
    def reconcile(self) -> None:
        """Slots follow the registry; untouched groups keep their bytes."""
        before, loaded = dict(self.expected), dict(self.world.host.loaded())
        if not self.try_to(self.world.trainer.reconcile_adapters):
            return
        self.remember()
        kept = [name for name, one in self.world.host.loaded().items() if loaded.get(name) == one]
        same = ["embed", "up", "down", *(f"lora_a.{SLOTS[name]}" for name in kept)]
        assert {name: self.expected[name] for name in same} == {name: before[name] for name in same}
        for name in set(self.world.host.loaded()) - set(kept):
            values = self.world.host.values[name]
            assert {key: self.expected[key] for key in values} == {
                key: content_of({key: values[key]}) for key in values
            }

    @rule()
    def push(self) -> None:
        """The engine gets what it lacks."""
        self.try_to(self.world.trainer.update_weights, [self.engine])

    @rule()
    def restart_engine(self) -> None:
        """A new instance holds nothing."""
        self.engine.restart()

    @rule()
    def lease(self) -> None:
        """Somebody reads and does not stop yet."""
        if len(self.leases) < 2:
            self.leases.append(self.world.trainer.weights(f"reader {len(self.leases)}"))

    @precondition(lambda self: self.leases)
    @rule()
    def close(self) -> None:
        """What a lease shows at its end is what it pinned."""
        lease = self.leases.pop()
        for name in lease:
            if name in ("embed", "up", "down"):
                assert content_of({name: lease[name]}) == self.expected[name]
        lease.close()

    @rule(effect=st.sampled_from([Effect.PAUSE_WEIGHTS, Effect.RESUME_SCRATCH, Effect.WRITE_ADAPTERS]), event=st.data())
    def fail_once(self, effect: Effect, event: st.DataObject) -> None:
        """An effect fails: everything is undone."""
        effects = self.world.trainer._runner.effects
        original = effects[effect]

        def broken(_: object, __: object) -> None:
            raise OSError("injected")

        effects[effect] = broken  # type: ignore[assignment]
        state = self.world.trainer.state
        call = event.draw(st.sampled_from(["offload", "wake_up", "reconcile_adapters"]))
        try:
            self.try_to(getattr(self.world.trainer, call))
        except TransitionFailed:
            assert self.world.trainer.state is state
        finally:
            effects[effect] = original
        if self.world.host.loaded():
            self.expected.update(self.changed_by_a_reconcile_that_did_succeed())

    def changed_by_a_reconcile_that_did_succeed(self) -> dict[str, str]:
        """The injected fault may have hit an event that does not run this effect."""
        now = self.world.weights()
        return {name: one for name, one in now.items() if name.startswith("lora_")}

    @invariant()
    def every_weight_is_readable_and_what_it_was(self) -> None:
        """In every state, from whatever source."""
        if hasattr(self, "world"):
            now = self.world.weights()
            assert {name: one for name, one in now.items() if name in self.expected} == {
                name: one for name, one in self.expected.items() if name in now
            }

    @invariant()
    def memory_is_where_the_state_says(self) -> None:
        """The saver's books agree with the state."""
        if not hasattr(self, "world"):
            return
        offloaded = self.world.trainer.state is TrainerState.OFFLOADED_CPU
        tags = self.world.arena.tags()
        assert all(info.paused is offloaded for tag, info in tags.items() if tag != "actor/gradients")
        assert tags["actor/gradients"].paused is (self.world.trainer.state is not TrainerState.AWAKE)

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


TestLifecycleMachine = LifecycleMachine.TestCase
TestLifecycleMachine.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
