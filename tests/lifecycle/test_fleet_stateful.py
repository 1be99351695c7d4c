"""Three engines that fail, restart, meddle and lie, in any order: who is current answers as the trainer does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from torch import Tensor

from lifecycle import EngineError, GreedyProbe, HostArena, LifecycleConfig, LifecycleError, TrainerLifecycle
from lifecycle.engines.local import BASE_ONLY, TAGS, LocalEngine, Rollout
from lifecycle.standing import Serves
from states import TrainerState
from tests.adapters.world import IDS, SLOT_RANK, TARGETS, factors, host, llama
from tests.lifecycle.bad_wire import CALLS, ERRORS, LIES, WAYS, BadWire

NAMES = st.sampled_from(["a", "b"])
SOME = st.sets(st.integers(0, 2), min_size=1)
ONE = st.integers(0, 2)
SOME_TAGS = st.sampled_from([("weights",), ("kv_cache",), ("weights", "kv_cache")])
PUSHING = st.sampled_from(["begin_update", "send_base", "load_adapter", "load_adapter", "commit_update"])
FAULT = st.tuples(st.integers(1, 2), st.sampled_from(WAYS), st.sampled_from(sorted(ERRORS)))
Fault = tuple[int, str, str]
PROBE = GreedyProbe(((1, 5, 9),), max_new_tokens=3)
KIND = st.fixed_dictionaries(
    {
        "memory_peak": st.sampled_from([None, "host", "device"]),
        "engine_keeps_weights": st.sampled_from([None, True, False]),
        "offload_target": st.sampled_from(["cpu", "disk", None]),
        "device_budget_bytes": st.sampled_from([None, 1 << 30]),
        "frozen_buffers": st.sampled_from([(), ("*inv_freq",)]),
    }
)


def tokens_of(model: Any) -> Tensor:
    """What it says next to the prompts of these tests, two tokens each."""
    found = IDS
    with torch.no_grad():
        for _ in range(2):
            found = torch.cat([found, model(input_ids=found).logits[:, -1:].argmax(-1)], dim=1)
    return found[:, IDS.shape[1] :]


class Fleet(RuleBasedStateMachine):
    """The truth is what the trainer itself answered when it was awake, by the versions that it had then."""

    @initialize(kind=KIND, is_probed=st.booleans())
    def start(self, *, kind: Mapping[str, Any], is_probed: bool) -> None:
        """A trainer with two slots, and three engines that were never pushed to."""
        self.folder = TemporaryDirectory()
        self.arena, self.made = HostArena(disk_dir=self.folder.name), host(slots=2)
        self.optimizers = self.made.optimizers(lambda given: torch.optim.Adam(given, lr=0.05))
        self.trainer = TrainerLifecycle(
            LifecycleConfig(**kind), saver=self.arena, model=self.made.model, optimizer=self.optimizers,
            adapters=self.made, probe=PROBE if is_probed else None, initial_state=TrainerState.AWAKE,
        )  # fmt: skip
        self.wires = [BadWire(self.engine(f"E{number}")) for number in range(3)]
        self.truth: dict[tuple[str, tuple[tuple[str, int], ...]], Tensor] = {}
        self.seeds = 0
        self.join("a")

    def engine(self, name: str) -> LocalEngine:
        """One that holds nothing yet."""
        return LocalEngine(
            name, lambda: llama(99), saver=self.arena, slots=2, rank=SLOT_RANK, target_modules=TARGETS,
            kv_cache_bytes=1 << 18,
        )  # fmt: skip

    def teardown(self) -> None:
        """Once nothing fails any more one pass repairs everything; then all memory goes."""
        if hasattr(self, "trainer"):
            try:
                self.one_pass_repairs_everything()
            finally:
                self.arena.close()
                self.folder.cleanup()

    # what the trainer does

    @rule(name=NAMES, leaves=st.booleans())
    def join(self, name: str, *, leaves: bool = False) -> None:
        """An adapter is registered or retires, and slots follow where that can be done now."""
        self.seeds += 1
        with suppress(LifecycleError):  # it is there already, or its last tenancy has not ended
            if leaves:
                self.made.registry.deregister(name)
            else:
                self.made.registry.register(name, rank=2, alpha=40, tensors=factors(self.seeds, 2))
        self.reconcile()

    def reconcile(self) -> None:
        """Slots follow the registry."""
        self.attempt(self.trainer.reconcile_adapters, changes=True)

    @rule(name=NAMES, fails=st.booleans())
    def train(self, name: str, *, fails: bool) -> None:
        """A real step, or one that fails after it has changed the weights."""
        if name not in self.made.loaded():
            return

        def step() -> None:
            with self.trainer.step([name]) as one, self.made.use(name):
                self.made.model(input_ids=IDS).logits.square().mean().backward()
                self.optimizers[self.made.slot_of(name)].step()
                one.stepped()
                if fails:
                    raise EngineError("loop", "the reward is not a number")

        self.attempt(step, changes=True)

    @rule(events=st.sampled_from([("sleep",), ("sleep", "offload"), ("wake_up",), ("recover",)]))
    def move(self, events: tuple[str, ...]) -> None:
        """Memory goes or comes back."""
        for event in events:
            self.attempt(getattr(self.trainer, event))

    @rule(which=SOME, call=st.sampled_from(["update_weights", "verify_engines", "adopt_versions"]))
    def sync(self, which: Collection[int], call: str) -> None:
        """Engines are pushed to, or asked."""
        self.attempt(lambda: getattr(self.trainer, call)([self.wires[one] for one in sorted(which)]))

    @rule(which=SOME, peak=st.sampled_from([None, "host", "device"]), fails=st.booleans())
    def hand_over(self, which: Collection[int], peak: str | None, *, fails: bool) -> None:
        """A whole turn; who takes part and is current serves, with all of its memory."""
        wires = [self.wires[one] for one in sorted(which)]

        def turn() -> None:
            with self.trainer.handoff(wires, memory_peak=peak):
                self.compare_answers(wires, is_turn=True)
                if fails:
                    raise EngineError("loop", "a rollout failed")
            assert self.trainer.state is TrainerState.AWAKE

        self.attempt(turn)

    # what the world does

    @rule(name=NAMES, which=ONE, call=PUSHING, fault=FAULT)
    def a_push_fails(self, name: str, which: int, call: str, fault: Fault) -> None:
        """Engines hold everything and have all of their memory; then one of the calls that push a step fails."""
        self.attempt(self.trainer.wake_up)
        for one in self.wires:
            with suppress(EngineError):  # an update may have been left open there; the push gives it up
                one.real.resume(TAGS)
        self.sync({0, 1, 2}, "update_weights")
        self.train(name, fails=False)
        self.fail_later(which, call, fault)
        self.sync({0, 1, 2}, "update_weights")

    @rule(name=NAMES, which=ONE, call=PUSHING, fault=FAULT, then=st.sampled_from(["abort_update", "report"]))
    def a_push_fails_and_what_follows_too(self, name: str, which: int, call: str, fault: Fault, then: str) -> None:
        """The engine is not heard of any more when it is told to give up, or asked what it holds."""
        self.wires[which].faults.append((then, 1 if then == "abort_update" else 3, "is not heard", "connection"))
        self.a_push_fails(name, which, call, fault)

    @rule(name=NAMES, which=ONE, call=st.sampled_from([*CALLS, "resume", "release"]), fault=FAULT)
    def a_hand_over_fails(self, name: str, which: int, call: str, fault: Fault) -> None:
        """On its way there or back."""
        self.train(name, fails=False)
        self.fail_later(which, call, fault)
        self.hand_over({0, 1, 2}, None, fails=False)

    @rule(which=ONE, call=st.sampled_from(CALLS), fault=FAULT)
    def fail_later(self, which: int, call: str, fault: Fault) -> None:
        """The next call of a kind, or the one after it."""
        self.wires[which].faults.append((call, *fault))

    @rule(which=ONE, lie=st.sampled_from([*LIES, "calm", "restart"]))
    def change(self, which: int, lie: str) -> None:
        """It reports other versions than it holds, or is well again, or is another instance, which holds nothing."""
        wire = self.wires[which]
        if lie == "calm":
            wire.calm()
        elif lie == "restart":
            wire.real.restart()
        else:
            wire.lie = LIES[lie]

    @rule(which=ONE, tags=SOME_TAGS, name=NAMES, what=st.sampled_from(["resume", "release", "discard", "drop", "load"]))
    def meddle(self, which: int, tags: tuple[str, ...], name: str, what: str) -> None:
        """Somebody else moves its memory, drops an adapter, or loads a base under a version of no trainer (FB-56)."""
        real, own = self.wires[which].real, llama(55)
        base = dict(own.named_parameters()) | (dict(own.named_buffers()) if self.trainer.config.frozen_buffers else {})
        with suppress(LifecycleError):
            if what in ("drop", "load"):
                real.begin_update()
                real.unload_adapter(name) if what == "drop" else real.send_base("frozen-base", 1, base.items())
                real.commit_update()
            elif what == "resume":
                real.resume(tags)
            else:
                real.release(tags, discard=what == "discard")

    # what has to hold

    def attempt(self, call: Callable[[], object], *, changes: bool = False) -> None:
        """Whatever fails: an error of this library, or the interrupt itself, and no byte of the trainer is another."""
        before = {} if changes else self.held()
        with suppress(LifecycleError, KeyboardInterrupt):
            call()
        now = self.held() if before else {}
        assert all(torch.equal(one, before[name]) for name, one in now.items() if name in before)
        assert not self.trainer.facts().leases
        self.note()

    def held(self) -> dict[str, Tensor]:
        """Every weight of the trainer, wherever it is; while it is awake the optimizers' moments as well."""
        with self.trainer.weights("compare") as lease:
            found = {name: lease[name].detach().clone() for name in lease}
        if self.trainer.state is TrainerState.AWAKE:
            for slot, one in self.optimizers.items():
                for number, state in enumerate(one.state_dict()["state"].values()):
                    found |= {f"{slot}.{number}.{key}": torch.as_tensor(value).clone() for key, value in state.items()}
        return found

    def key(self, versions: Mapping[str, int], name: str) -> tuple[str, tuple[tuple[str, int], ...]]:
        """All versions that an answer depends on."""
        groups = (one for one in versions if not one.startswith("adapter/") or one == f"adapter/{name}")
        return name, tuple(sorted((one, versions[one]) for one in groups))

    def note(self) -> None:
        """What the trainer answers under its versions of now."""
        if self.trainer.state is not TrainerState.AWAKE:
            return
        for name in (BASE_ONLY, *self.made.loaded()):
            key = self.key(self.trainer.versions, name)
            if key not in self.truth:
                with nullcontext() if name == BASE_ONLY else self.made.use(name):
                    self.truth[key] = tokens_of(self.made.model)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """No fault is used up by a look; lies are told."""
        kept = [one.faults for one in self.wires]
        for one in self.wires:
            one.faults = []
        yield
        for one, faults in zip(self.wires, kept, strict=True):
            one.faults = faults

    @invariant()
    def who_is_current_answers_as_the_trainer_does(self) -> None:
        """Between all steps."""
        if hasattr(self, "wires"):
            self.compare_answers(self.wires)

    def compare_answers(self, wires: Collection[BadWire], *, is_turn: bool = False) -> None:
        """What an engine says it has answered with is what has answered (FB-54); who is current has the newest (FB-51).

        Args:
            wires: the engines.
            is_turn: they have been handed over to.
        """
        versions = self.trainer.versions
        with self.quiet():
            found = self.trainer.serving(wires)
        for one in wires:
            is_current, resident = found[one.name].serves is Serves.CURRENT, one.real.report().resident
            assert not is_current or found[one.name].versions == versions
            assert not (is_turn and is_current) or len(resident) == len(TAGS)
            for name in (BASE_ONLY, "a", "b"):
                given = self.answer(one.real, name)
                wanted = None if given is None else self.truth.get(self.key(given.versions, name))
                assert given is None or wanted is None or torch.equal(given.tokens, wanted)
                if is_current and len(resident) == len(TAGS) and name in (BASE_ONLY, *self.made.loaded()):
                    assert given is not None
                    assert self.key(given.versions, name) == self.key(versions, name)

    @staticmethod
    def answer(engine: LocalEngine, name: str) -> Rollout | None:
        """What it says under this name, None where it refuses."""
        try:
            return engine.generate(IDS, name, max_new_tokens=2, temperature=0)
        except EngineError:
            return None

    def one_pass_repairs_everything(self) -> None:
        """Whatever has happened before, and without anything sent twice."""
        for one in self.wires:
            one.calm()
        if self.trainer.state is TrainerState.FAULTED:
            self.trainer.recover()
        self.trainer.wake_up()
        self.trainer.reconcile_adapters()
        self.note()
        with self.trainer.handoff(self.wires):
            found = self.trainer.serving(self.wires)
            assert {one.serves for one in found.values()} == {Serves.CURRENT}
            self.compare_answers(self.wires, is_turn=True)
            assert not self.trainer.update_weights(self.wires).moved_bytes
        assert self.trainer.state is TrainerState.AWAKE


pytestmark = [pytest.mark.timeout(600), pytest.mark.no_cover]  # what random runs reach has tests of its own

TestFleet = Fleet.TestCase
TestFleet.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
