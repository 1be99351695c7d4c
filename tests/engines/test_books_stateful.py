"""The books of an engine against an engine that really does what it is told, and fails wherever it can."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lifecycle.engines.books import EngineBooks
from lifecycle.errors import EngineError
from states.engine_decision import EngineStep
from states.engine_memory import BASE_ONLY, EngineEvent, EngineState, TagState
from tests.engines.simulated import BASE, FAULTS, TAGS, UNANSWERED, SimulatedEngine

E = EngineEvent
FAULT = st.one_of(st.just(""), st.just(""), st.sampled_from(FAULTS))
NAMES = st.sampled_from(["a", "b"])
DEEDS = ("opens", "shuts", "sleeps", "sleeps deeply", "wakes", "unloads", "reloads")
SOME_TAGS = st.sets(st.sampled_from(TAGS), min_size=1).map(sorted).map(tuple)


pytestmark = pytest.mark.timeout(300)


class BooksAgainstAnEngine(RuleBasedStateMachine):
    """A client that asks its books before each call, and a world that fails, restarts and meddles."""

    @initialize(keeps=st.booleans(), mirrored=st.sampled_from([(), ("weights",), ("weights", "cuda_graph")]))
    def start(self, *, keeps: bool, mirrored: tuple[str, ...]) -> None:
        """An engine of one kind, and books that know its kind and nothing else."""
        self.engine = SimulatedEngine(mirrored=mirrored, keeps_adapters=keeps)
        self.books = EngineBooks("sim", tags=TAGS, mirrored=mirrored, keeps_adapters=keeps, base_groups=BASE)
        self.version = 0

    def ask(self, event: EngineEvent, call: Callable[[EngineStep], object], fault: str = "", **asked: Any) -> bool:
        """Ask the books, then the engine; whether it was acknowledged. A client that has lost its engine probes it."""
        if self.books.memory.state is EngineState.LOST:
            self.probe()
        before = self.engine.calls
        try:
            with self.books.asking(event, **asked) as step:
                if not step.settled:
                    self.engine.fault = fault
                    call(step)
        except EngineError:
            self.engine.fault = ""
            return False
        assert self.engine.calls - before == (not step.settled)
        return True

    def write(self, event: EngineEvent, group: str, version: int | None, fault: str) -> None:
        """Ask for a write of one group."""
        call = partial(self.engine.write, self.known, group, version)
        self.ask(event, lambda _: call(), fault, group=group, version=version)

    @property
    def known(self) -> str:
        """The instance that a call is meant for."""
        return self.books.memory.instance_id

    def start_from(self, state: str, *, whole: bool) -> None:
        """Where a random walk seldom gets to: an engine that holds everything, in the state where the call belongs."""
        if whole:
            self.repair(until=state)

    # what the client does

    @rule(fault=FAULT)
    def pause(self, fault: str = "") -> None:
        """Admission stops, and the engine drains."""
        self.ask(E.PAUSE, lambda _: self.engine.pause(self.known), fault)

    @rule(fault=FAULT, whole=st.booleans())
    def unpause(self, fault: str = "", *, whole: bool = False) -> None:
        """Requests are admitted."""
        self.start_from("paused", whole=whole)
        self.ask(E.UNPAUSE, lambda _: self.engine.unpause(self.known), fault)

    @rule(tags=SOME_TAGS, discard=st.booleans(), fault=FAULT, whole=st.booleans())
    def release(self, tags: tuple[str, ...], fault: str = "", *, discard: bool = False, whole: bool = False) -> None:
        """Some memory is given back, with or without its bytes."""
        self.start_from("paused", whole=whole)
        event = E.DISCARD if discard else E.RELEASE
        self.ask(event, lambda step: self.engine.release(self.known, step.tags, discard=discard), fault, tags=tags)

    @rule(tags=SOME_TAGS, fault=FAULT, whole=st.booleans())
    def resume(self, tags: tuple[str, ...] = TAGS, fault: str = "", *, whole: bool = False) -> None:
        """Some memory is taken again."""
        self.start_from("paused", whole=whole)
        self.ask(E.RESUME, lambda step: self.engine.resume(self.known, step.tags), fault, tags=tags)

    @rule(fault=FAULT)
    def begin(self, fault: str = "") -> None:
        """An update is opened."""
        self.ask(E.BEGIN_UPDATE, lambda _: self.engine.nothing(self.known), fault)

    @rule(group=st.sampled_from(BASE), fault=st.one_of(FAULT, FAULT, st.just("refused late")), whole=st.booleans())
    def send_base(self, group: str, fault: str = "", *, whole: bool = False) -> None:
        """A group of the base is written, under a version of its own."""
        self.start_from("updating", whole=whole)
        self.version += 1
        self.write(E.SEND_BASE, group, self.version, fault)

    @rule(name=NAMES, fault=FAULT, whole=st.booleans())
    def load(self, name: str = "a", fault: str = "", *, whole: bool = False) -> None:
        """An adapter is written, under a version of its own."""
        self.start_from("updating", whole=whole)
        self.version += 1
        self.write(E.LOAD_ADAPTER, f"adapter/{name}", self.version, fault)

    @rule(name=NAMES, fault=FAULT, whole=st.booleans())
    def unload(self, name: str, fault: str = "", *, whole: bool = False) -> None:
        """An adapter is dropped."""
        self.start_from("updating", whole=whole)
        self.write(E.UNLOAD_ADAPTER, f"adapter/{name}", None, fault)

    @rule(fault=FAULT)
    def flush(self, fault: str = "") -> None:
        """Caches are dropped."""
        self.ask(E.FLUSH, lambda _: self.engine.flush(self.known), fault)

    @rule(fault=FAULT)
    def commit(self, fault: str = "") -> None:
        """The open update is to be served."""
        self.ask(E.COMMIT_UPDATE, lambda _: self.engine.nothing(self.known), fault)

    @rule(fault=FAULT)
    def abort(self, fault: str = "") -> None:
        """The open update is given up."""
        self.ask(E.ABORT_UPDATE, lambda _: self.engine.nothing(self.known), fault)

    @rule(adapter=st.sampled_from(["a", "b", BASE_ONLY]), fault=FAULT)
    def generate(self, adapter: str = "a", fault: str = "") -> None:
        """A request is answered by exactly the versions that the books name."""
        served = self.books.memory.served(adapter)
        answers: list[dict[str, int]] = []
        call = partial(self.engine.generate, self.known, adapter)
        asked = {"adapter": adapter, "expected": tuple(served.items())}
        self.answered = self.ask(E.GENERATE, lambda _: answers.append(call()), fault, **asked)
        assert not self.answered or answers == [served]

    @rule(ends=st.booleans())
    def a_long_request(self, *, ends: bool) -> None:
        """A request that is still running when the next call is made, or the end of those that were."""
        if ends:
            self.engine.in_flight = 0
        elif self.books.memory.state is EngineState.OPEN and self.known == str(self.engine.instance):
            self.engine.in_flight += 1

    @rule(adapters=st.booleans())
    def probe(self, *, adapters: bool = True) -> None:
        """The engine says what it holds, of its base nothing."""
        self.books.probed(self.engine.says(adapters=adapters))

    # what happens to it

    @precondition(lambda self: self.known == str(self.engine.instance))
    @rule(deed=st.sampled_from(["", "dies", "is lost", *DEEDS]))
    def something_else_happens(self, deed: str) -> None:
        """The process dies, and nobody tells the client; or it is lost; or somebody else does something to it.

        Of the last, the next look at the engine shows what it holds.
        """
        engine = self.engine
        match deed:
            case "dies":
                engine.restart()
                return
            case "is lost":
                self.books.lost("a watchdog barked")
                return
            case "opens":
                engine.admits = all(state is TagState.RESIDENT for state in engine.tags.values())
            case "shuts":
                engine.admits, engine.in_flight = False, 0
            case "sleeps" | "sleeps deeply":
                engine.admits, engine.in_flight = False, 0
                for tag in (tag for tag in TAGS if engine.tags[tag] is TagState.RESIDENT):
                    engine.drop(tag, discard=deed == "sleeps deeply")
            case "wakes":
                engine.tags = dict.fromkeys(TAGS, TagState.RESIDENT)
            case "unloads":
                engine.bytes.pop("adapter/a", None)
            case "reloads" if engine.tags["weights"] is TagState.RESIDENT:
                engine.bytes["frozen-base"] = 10_000 + engine.calls
        self.books.probed(engine.says(base=True))

    # what is promised

    @rule(until=st.sampled_from(["open", "open", "paused", "updating"]))
    def repair(self, until: str) -> None:
        """From wherever it is, a whole push makes it serve again, and nothing on the way is refused."""
        self.probe()
        self.abort()
        self.pause()
        self.resume()
        self.begin()
        for group in BASE:
            self.send_base(group)
        for name in ("a", "b"):
            self.load(name)
        self.flush()
        self.commit()
        self.unpause()
        self.generate()
        if until != "open":
            self.pause()
        if until == "updating":
            self.begin()

        assert self.answered
        assert self.books.memory.state == until

    @invariant()
    def what_is_claimed_is_true(self) -> None:
        """Of the instance that it is claimed of: tags, admission, versions, and that no cache is stale."""
        memory, engine = self.books.memory, self.engine
        report = self.books.report()
        if memory.state is EngineState.LOST:
            assert report.unknown
            assert (report.versions, report.resident, report.released) == ({}, frozenset(), frozenset())
            return
        if memory.instance_id != str(engine.instance):
            return
        assert all(state in (engine.tags[tag], TagState.UNKNOWN) for tag, state in memory.tags)
        assert report.versions.items() <= engine.bytes.items()
        assert memory.state is EngineState.OPEN or (not engine.admits and engine.in_flight == 0)
        if memory.flushed:
            assert all(then.items() <= engine.bytes.items() for _, then in engine.cached)


def test_no_order_of_calls_faults_and_restarts_makes_the_books_lie() -> None:
    """What they claim is true, what they let through is safe, and a whole push always repairs."""
    run_state_machine_as_test(
        BooksAgainstAnEngine, settings=settings(max_examples=120, stateful_step_count=40, deadline=None)
    )


@pytest.mark.parametrize("fault", UNANSWERED)
def test_the_simulated_engine_fails_where_it_is_told_to(fault: str) -> None:
    """The control: a call that fails before it was done, after it, and half-way, leaves the engine differently."""
    engine = SimulatedEngine(fault=fault)
    with pytest.raises(EngineError, match="timed out"):
        engine.release("1", ("weights", "kv_cache"), discard=False)

    left = {"before": (), "half": ("weights",), "after": ("weights", "kv_cache")}
    assert tuple(tag for tag in TAGS if engine.tags[tag] is not TagState.RESIDENT) == left[fault]
