"""What needs no cluster: who failed first, how errors cross, which engines can be, what is pulled of a registry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, cast
from unittest import mock

import pytest
import ray
import torch
from ray import cloudpickle
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayTaskError

from lifecycle.adapters.registry import AdapterRegistry
from lifecycle.distributed import RankAgreement, RankFenced, RanksFailed, RanksMissing
from lifecycle.engines.protocol import AdapterPayload
from lifecycle.errors import ConfigError, EngineError, EngineUnanswered, TransitionFailed
from lifecycle.outcome import Moved, Unchanged
from lifecycle.ray import (
    ActorEngine,
    EachRank,
    GroupError,
    RankLost,
    RegistryLost,
    RegistryProxy,
    RemoteFailure,
    UrlEngine,
)
from lifecycle.ray import calls as calls_module
from lifecycle.ray.answers import Answer, answered, portable
from lifecycle.ray.calls import Limits, collect
from lifecycle.ray.engines import RankEngines, SpecNumbers, checked_specs
from lifecycle.ray.members import Members
from lifecycle.ray.outcome import joined
from lifecycle.ray.place import Place, host_of
from lifecycle.ray.pulled import Sources
from lifecycle.ray.ray_engine import RayEngine
from lifecycle.ray.registry_actor import RegistryActor
from states import TrainerEvent, TrainerState
from states.agreement import Failed, Fenced, Missing
from tests.lifecycle.world import FakeEngine, content_of
from tests.ray.world import OddError

ROOT = Path(__file__).parents[2]
AWAY = RankLost(2, "it has ended", is_dead=True)
HANGS = RankLost(2, "it did not answer", is_dead=False)
MISSING = RanksMissing(Missing((2,), 1, 4.0))
OTHERS = RanksFailed(Failed({1: "SlotWriteError: A"}, (1,)))
UNDONE = TransitionFailed(TrainerEvent.SLEEP, TrainerState.AWAKE, "pause", OTHERS)


@pytest.mark.parametrize(
    ("errors", "rank"),
    [
        ({0: MISSING, 1: MISSING, 2: AWAY}, 2),
        ({0: MISSING, 2: HANGS}, 2),
        ({0: UNDONE, 1: UNDONE, 3: UNDONE}, 1),
        ({0: OTHERS, 1: ValueError("mine")}, 1),
        ({0: MISSING, 1: ValueError("mine"), 2: HANGS}, 1),
        ({0: ValueError("mine"), 2: AWAY}, 2),
        ({0: MISSING, 3: MISSING}, 0),
        ({3: RankFenced(Fenced(1, "late")), 0: MISSING}, 0),
    ],
)
def test_the_first_cause_is_who_ended_or_failed_for_itself_or_is_named(errors: dict[int, Exception], rank: int) -> None:
    """Not who was left waiting. The message has that error once, and the ranks in question."""
    error = GroupError("sleep", errors)

    assert error.rank == rank
    assert error.cause is errors[rank]
    assert str(error).count(str(error.cause)) == 1
    assert list(error.errors) == sorted(errors)
    assert error.kind == type(errors[rank]).__name__


def test_an_error_says_who_else_is_gone() -> None:
    """And what to do about it."""
    error = GroupError("sleep", {1: ValueError("mine"), 2: HANGS, 3: RankLost(3, "silent", is_dead=False)})

    assert (error.dead, error.silent) == ((), (2, 3))
    assert "ranks 2, 3 did not answer" in str(error)
    assert "replace()" in str(error)


class _Ref:
    """An answer that arrives at a moment; None: never."""

    def __init__(self, answer: Any, after: int | None = 0) -> None:
        self.answer, self.after = answer, after


@pytest.fixture
def arrivals(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Ray's wait and get, and the clock: each wait takes a second, and gives what has arrived by then."""
    now = [0.0]

    def wait(refs: list[_Ref], timeout: float) -> tuple[list[_Ref], list[_Ref]]:
        due = [one for one in refs if one.after is not None and one.after <= now[0] + timeout]
        if not due:
            now[0] += timeout
            return [], refs
        first = min(one.after or 0 for one in due)
        now[0] = max(now[0], first)
        ready = [one for one in due if (one.after or 0) <= now[0]]
        return ready, [one for one in refs if one not in ready]

    def get(ref: _Ref, timeout: float | None = None) -> Any:
        if isinstance(ref.answer, Exception):
            raise ref.answer
        return ref.answer

    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(calls_module.time, "monotonic", lambda: now[0])
    return now


def _caught(refs: Mapping[int, _Ref], limits: Limits) -> GroupError:
    with pytest.raises(GroupError) as caught:
        collect("sleep", refs, limits)
    assert caught.value.__cause__ is caught.value.cause
    return caught.value


def test_all_answers_are_waited_for_however_late(arrivals: list[float]) -> None:
    """A rank may take long while nobody has failed."""
    assert collect("sleep", {1: _Ref(Answer(value=5), 90), 0: _Ref(Answer(value=4))}, Limits(100, 4)) == {0: 4, 1: 5}


def test_a_rank_that_does_not_answer_in_time_is_silent(arrivals: list[float]) -> None:
    """Nobody else has failed: the call's own bound holds."""
    error = _caught({0: _Ref(Answer(value=4)), 1: _Ref(None, None)}, Limits(100, 4))

    assert (error.silent, arrivals[0]) == ((1,), 100.0)
    assert "did not answer within 100 s" in str(error)


def test_a_rank_that_all_others_call_missing_is_not_waited_for(arrivals: list[float]) -> None:
    """Their word is enough."""
    error = _caught({0: _Ref(Answer(error=MISSING), 5), 1: _Ref(Answer(error=MISSING), 6), 2: _Ref(None, None)}, Limits(100, 4))  # fmt: skip  # noqa: E501

    assert (error.silent, arrivals[0]) == ((2,), 6.0)


def test_after_a_failure_the_others_have_two_meetings_time(arrivals: list[float]) -> None:
    """They find out in one; a rank that hangs with no word of it is silent."""
    error = _caught({0: _Ref(Answer(error=ValueError("mine")), 10), 1: _Ref(None, None)}, Limits(1000, 4))

    assert (error.rank, error.silent, arrivals[0]) == (0, (1,), 10 + 2 * 4 + 5.0)


def test_what_ray_could_not_carry_out_is_told_in_its_words(arrivals: list[float]) -> None:
    """An actor that ended is dead, one that cannot be reached is not known to be, and a failed task is its cause."""
    failed = RayTaskError("sleep", "a traceback", OSError("full"))
    refs = {
        0: _Ref(ActorDiedError()),
        1: _Ref(ActorUnavailableError("away", b"1" * 16)),
        2: _Ref(failed),
    }
    error = _caught(refs, Limits(100, 4))

    assert (error.dead, error.silent) == ((0,), (1,))
    assert isinstance(error.errors[2], RemoteFailure)
    assert (error.errors[2].kind, error.errors[2].why) == ("OSError", "full")


def test_a_rank_that_is_fenced_counts_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have gone on without it; it answers, and can do nothing for the group any more."""
    members = Members(lambda: None, 2, "run", None, Limits(100, 4), 10)
    fenced = RankFenced(Fenced(1, "it was late"))

    def fail(*_: object) -> None:
        raise GroupError("sleep", {1: fenced, 0: RankLost(0, "gone", is_dead=True)})

    monkeypatch.setattr("lifecycle.ray.members.collect", fail)
    with pytest.raises(GroupError):
        members.there("sleep", "look", "state")

    assert members.lost[0].is_dead
    assert "it was late" in members.lost[1].why


def test_calls_of_two_threads_come_to_all_ranks_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that got them in different orders would wait for each other in different meetings."""
    members, came = Members(lambda: None, 2, "run", None, Limits(100, 4), 10), list[tuple[str, int]]()
    other = Thread(target=lambda: members._collect("b", {0: None, 1: None}, lambda rank, _: came.append(("b", rank))))

    def ask(rank: int, _: object) -> None:
        came.append(("a", rank))
        if rank == 0:
            other.start()
            other.join(0.5)  # it would be through by now

    monkeypatch.setattr("lifecycle.ray.members.collect", lambda *_: {})
    members._collect("a", {0: None, 1: None}, ask)
    other.join()

    assert came == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


def test_an_interrupt_while_a_group_is_left_ends_it_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process stays behind."""
    members, killed = Members(lambda: None, 2, "run", None, Limits(100, 4), 10), list[object]()
    actors = {rank: mock.MagicMock() for rank in (-1, 0, 1)}
    members._actors = dict(actors)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "kill", lambda actor, no_restart: killed.append(actor))
    monkeypatch.setattr(ray, "wait", mock.Mock(side_effect=[KeyboardInterrupt, None]))
    with pytest.raises(KeyboardInterrupt):
        members.close()

    assert killed == list(actors.values())


def test_an_error_of_the_library_crosses_whole() -> None:
    """What it carries that cannot be pickled is told in words; an error inside of it crosses likewise."""
    undone = TransitionFailed(TrainerEvent.SLEEP, TrainerState.AWAKE, "pause", OddError(1))
    undone.__dict__["odd"] = (one for one in ())
    there = portable(undone)

    assert type(there) is TransitionFailed
    assert str(there) == str(undone)
    assert isinstance(there.cause, RemoteFailure)
    assert there.cause.kind == "tests.ray.world.OddError"
    assert there.__dict__["odd"].startswith("<generator")
    assert isinstance(undone.cause, OddError)  # the one here is as it was


def test_errors_of_others_cross_by_kind_and_words() -> None:
    """Python's own as they are, with where they were raised, unless they carry what cannot be pickled."""

    def fail() -> None:
        raise ValueError("mine", 5)

    mine = answered(fail).error
    odd = portable(ValueError(one for one in ()))

    assert type(mine) is ValueError
    assert mine.args == ("mine", 5)
    assert "in fail" in mine.__notes__[0]
    assert isinstance(odd, RemoteFailure)
    assert odd.kind == "ValueError"
    assert isinstance(portable(KeyboardInterrupt()), RemoteFailure)
    assert answered(lambda: 5) == Answer(value=5)


def test_a_chain_of_errors_has_an_end() -> None:
    """Errors that carry each other are cut."""
    one = TransitionFailed(TrainerEvent.SLEEP, TrainerState.AWAKE, "pause", ValueError("inner"))
    one.cause = one

    assert "awake as before" in str(portable(one))


def test_an_outcome_is_of_all_ranks() -> None:
    """One event, edge and target; bytes are summed, the slowest rank counts; and it is no truth value."""
    moved = Moved(TrainerEvent.SLEEP, "quiesces", TrainerState.AWAKE, TrainerState.SLEEPING, moved_bytes=3, duration_s=1.0)  # fmt: skip  # noqa: E501
    outcome = joined({1: moved, 0: replace(moved, duration_s=2.0)})
    unchanged = joined({0: Unchanged(TrainerEvent.SLEEP, TrainerState.SLEEPING)})

    assert (outcome.edge, outcome.moved_bytes, outcome.duration_s) == ("quiesces", 6, 2.0)
    assert not outcome.is_unchanged
    assert str(outcome) == "sleep (quiesces): awake to sleeping on 2 ranks, 6 bytes moved in 2.000 s"
    assert (unchanged.is_unchanged, unchanged.duration_s, unchanged.moved_bytes) == (True, 0.0, 0)
    assert (unchanged.failed, unchanged.engines) == ((), {})
    assert "1 ranks are sleeping" in str(unchanged)
    with pytest.raises(TypeError):
        bool(outcome)


def test_ranks_meet_on_loopback_while_they_are_on_one_node() -> None:
    """Else at the addresses of their nodes."""
    here, there = Place("a", "10.0.0.1", 1), Place("b", "10.0.0.2", 2)

    assert host_of(here, [here, here]) == "127.0.0.1"
    assert host_of(there, [here, there]) == "10.0.0.2"


URL, TOKEN_IN = UrlEngine("e", "http://127.0.0.1:1"), "ENGINE_TOKEN"


@pytest.mark.parametrize(
    ("engines", "told"),
    [
        (URL, "not a list"),
        ([5], "int is no engine of a group"),
        ([URL, URL], "same name"),
        ([replace(URL, kind="tgi")], "vllm or sglang"),
        ([replace(URL, name="")], "give a string"),
        ([replace(URL, token=lambda: "t", token_variable=TOKEN_IN)], "give one of them"),
        ([replace(URL, options={"token": "t"})], "name token; give that as a field"),
        ([replace(URL, options=5)], "no mapping"),
        ([EachRank("e", [URL])], "give 2, one a rank"),
        ([EachRank("e", [URL, EachRank("f", [])])], "give 2, one a rank"),
    ],
)
def test_engines_that_cannot_be_are_refused(engines: object, told: str) -> None:
    """Before any rank is asked."""
    with pytest.raises(ConfigError, match=told):
        checked_specs(engines, 2)


def test_a_token_is_in_no_repr_and_is_looked_up_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of a variable, which has to be set there, or by a function."""
    monkeypatch.setenv(TOKEN_IN, "secret-1")
    engines = RankEngines(0)
    specs = [
        replace(URL, name="a", token_variable=TOKEN_IN),
        replace(URL, name="b", token=lambda: "secret-2"),
        replace(URL, name="c", kind="sglang", token_variable=TOKEN_IN),
        replace(URL, name="d", url="http://me:secret-4@127.0.0.1:1", options={"token": "secret-3"}),
    ]
    engines.hold(SpecNumbers().of(specs[:3]))
    held: list[Any] = [one for _, one in engines._own.values()]

    assert "secret" not in repr([specs, held])
    assert [one._http._headers["authorization"] for one in held[:2]] == ["Bearer secret-1", "Bearer secret-2"]
    assert held[2]._http[0]._headers["authorization"] == "Bearer secret-1"
    with pytest.raises(ConfigError, match="MISSING_ENGINE_TOKEN, which is not set"):
        engines.hold(SpecNumbers().of([replace(URL, token_variable=f"MISSING_{TOKEN_IN}")]))
    RankEngines(1).hold(SpecNumbers().of(specs))  # only the rank that calls builds them


def test_an_engine_that_is_named_again_is_the_one_that_was_built() -> None:
    """Also where it has a function, which arrives as another one each time."""
    numbers, engines = SpecNumbers(), RankEngines(0)
    spec = replace(URL, token=lambda: "t")
    arrived: list[Any] = [cloudpickle.loads(cloudpickle.dumps(numbers.of([spec]))) for _ in range(2)]
    engines.hold(arrived[0])
    first = engines._own["e"][1]
    engines.hold(arrived[1])

    assert arrived[0] != arrived[1]
    assert engines._own["e"][1] is first


class _Left(FakeEngine):
    """An engine that is left, and cannot be."""

    def close(self) -> None:
        self.calls.append("close")
        raise EngineError(self.name, "it is away")


def test_another_engine_of_the_same_name_takes_its_place() -> None:
    """On every rank alike; the one before is left, and is called no more."""
    numbers, engines, others = SpecNumbers(), RankEngines(0), RankEngines(1)
    here = numbers.of([URL])
    before = _Left("e")
    engines._own["e"] = here[0].number, before
    first = engines.of(here, _agreement(0))[0]
    there = numbers.of([replace(URL, url="http://127.0.0.1:2")])
    for one in (engines, others):
        one.hold(there)
    second = engines.of(there, _agreement(0))[0]

    assert before.calls == ["close"]
    assert second is not first
    assert engines._own["e"][1] is not before
    apart = numbers.of([EachRank("e", [URL, URL])])
    others.hold(apart)
    assert others.of(apart, _agreement(1)) == [others._own["e"][1]]
    others.hold(numbers.of([URL]))
    assert others._own == {}


def test_what_cannot_be_left_does_not_keep_the_others_from_being_left() -> None:
    """A server may be gone when a group is closed."""
    engines = RankEngines(0)
    left = [_Left("a"), _Left("b")]
    engines._own = {one.name: (1, one) for one in left}
    engines.close()

    assert [one.calls for one in left] == [["close"], ["close"]]


def _agreement(rank: int) -> RankAgreement:
    """Whose other ranks say what this one says."""
    seat = type("Seat", (), {"world": 2, "rank": rank})()
    return cast("RankAgreement", type("Ranks", (), {"seat": seat, "told": lambda _, payload, by: payload})())


class _Actor:
    """A Ray actor's handle whose actor is here. What it is to answer with can be set."""

    def __init__(self, instance: object) -> None:
        self._instance = instance
        self.fails: Exception | None = None

    @property
    def __ray_call__(self) -> Any:
        return self

    def remote(self, function: Callable[..., Any], *args: Any) -> Any:
        return self, lambda: function(self._instance, *args)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's object store, and its actors, in this process; objects are read-only there."""

    def get(ref: Any, timeout: float | None = None) -> Any:
        if isinstance(ref, list):
            return ref
        actor, call = ref
        if actor.fails is not None:
            raise actor.fails
        return call()

    def put(value: Any) -> Any:
        for one in value:
            one.content.flags.writeable = False
        return value

    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(ray, "put", put)


class _Fussy(FakeEngine):
    """An engine that hashes, and leaves the last tensor of a base group."""

    leaves = False

    def send_base(self, group: str, version: int, tensors: Any) -> None:
        if self.leaves:
            next(tensors)
        else:
            super().send_base(group, version, tensors)

    def checksums(self, group: str) -> dict[str, str]:
        return {"up": group}

    def greedy(self, adapter: str, prompts: Any, max_new_tokens: int) -> Any:
        return ((1,) * max_new_tokens,)


def test_an_engine_in_an_actor_gets_tensors_of_its_own(here: None) -> None:
    """Of any dtype and layout; nothing that it keeps is the trainer's."""
    engine = _Fussy("inside")
    proxy = RayEngine("E", _Actor(engine))
    base = {"up": torch.randn(3, 4).T, "down": torch.randn(5, dtype=torch.bfloat16), "none": torch.zeros(0, 2)}
    lora = {"a": torch.randn(2, 3)}
    engine.hoards = True
    proxy.begin_update()
    proxy.send_base("frozen-base", 7, iter(base.items()))
    proxy.load_adapter(AdapterPayload("A", 8, 2, 4.0, ("up",), lora))
    proxy.unload_adapter("B")
    proxy.commit_update()
    proxy.release(["kv_cache"])
    proxy.resume(["kv_cache"])
    proxy.abort_update()

    assert (proxy.name, proxy.report().versions) == ("E", {"frozen-base": 7, "adapter/A": 8})
    assert engine.digests == {"frozen-base": content_of(base), "adapter/A": content_of(lora)}
    theirs = {one.untyped_storage().data_ptr() for one in (*base.values(), *lora.values()) if one.numel()}
    assert theirs.isdisjoint(one.untyped_storage().data_ptr() for one in engine.keeps)
    assert proxy.checksums("frozen-base") == {"up": "frozen-base"}
    assert proxy.greedy("A", [[1]], 2) == ((1, 1),)
    assert engine.calls[-4:] == ["commit", "release:kv_cache", "resume:kv_cache", "abort"]
    assert repr(proxy) == "RayEngine('E')"


def test_large_groups_travel_in_pieces(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """And arrive whole."""
    monkeypatch.setattr("lifecycle.ray.ray_engine.CHUNK_BYTES", 64)
    engine = FakeEngine("inside")
    tensors = {f"t{number}": torch.full((10,), float(number)) for number in range(5)}
    proxy = RayEngine("E", _Actor(engine))
    proxy.send_base("frozen-base", 1, iter(tensors.items()))
    proxy.commit_update()

    assert engine.digests == {"frozen-base": content_of(tensors)}
    assert not hasattr(proxy, "checksums")


def test_what_an_engine_leaves_of_a_group_is_an_error(here: None) -> None:
    """As it is for an engine that is called directly."""
    engine = _Fussy("inside")
    engine.leaves = True

    with pytest.raises(EngineError, match="left 1 tensors of frozen-base v1"):
        RayEngine("E", _Actor(engine)).send_base("frozen-base", 1, iter({"a": torch.ones(1), "b": torch.ones(1)}.items()))  # fmt: skip  # noqa: E501


def test_what_an_engine_raises_is_an_engines_error(here: None) -> None:
    """Its own errors as they are, others by kind; an actor that ended, or hangs, has not answered."""
    engine = FakeEngine("inside", fails_at="begin")
    actor = _Actor(engine)
    proxy = RayEngine("E", actor)
    with pytest.raises(EngineError, match="told to fail"):
        proxy.begin_update()
    engine.resident = cast("Any", 5)
    with pytest.raises(EngineError, match="engine E: TypeError: unsupported"):
        proxy.report()
    for fails, kind in (
        (ActorDiedError(), EngineUnanswered),
        (GetTimeoutError("late"), EngineUnanswered),
        (RayTaskError("call", "a traceback", OSError("full")), EngineError),
    ):
        actor.fails = fails
        with pytest.raises(kind):
            proxy.report()


def test_an_actor_that_is_no_engine_is_refused(here: None) -> None:
    """When it is to be used the first time."""
    engines = RankEngines(0)
    with pytest.raises(EngineError, match="no rollout engine"):
        engines.hold(SpecNumbers().of([ActorEngine("E", _Actor(object()))]))


def test_a_registry_that_does_not_answer_is_lost(here: None) -> None:
    """Whatever its actor fails with; what Ray cannot carry out is told."""
    actor: Any = type("Handle", (), {})()
    actor.ask = _Actor(None)
    proxy = RegistryProxy("adapters", actor)
    for fails, kind in (
        (ActorDiedError(), RegistryLost),
        (GetTimeoutError("late"), RegistryLost),
        (RayTaskError("ask", "a traceback", OSError("full")), RemoteFailure),
    ):
        actor.ask.fails = fails
        with pytest.raises(kind):
            proxy.find("A")
    assert repr(proxy) == "RegistryProxy('adapters')"


def test_sources_that_a_rank_has_are_not_sent_again() -> None:
    """Until a registration is supplied anew; a registry that did not change is not sent at all."""
    actor, mine = RegistryActor(), Sources()
    tensors = {"base_model.model.up.lora_A.weight": torch.ones(2, 4), "base_model.model.up.lora_B.weight": torch.ones(4, 2)}  # fmt: skip  # noqa: E501
    actor.open(2, None, None)
    actor.ask("register", ("A",), {"tensors": tensors, "rank": 2})
    first = actor.pull(None, {}, None).value
    assert first is not None
    held = mine.joined(first)
    assert held is not None
    actor.ask("register", ("B",), {"seed": 3})
    second = actor.pull(first.revision, mine.numbers(), {}).value
    assert second is not None
    assert second.snapshot is not None
    sent = {name: one.source for name, one in second.snapshot.adapters.items()}
    whole = mine.joined(second)
    assert whole is not None

    assert sent["A"] is None
    assert sent["B"] is not None
    assert whole.adapters["A"].source is held.adapters["A"].source
    same = actor.pull(second.revision, mine.numbers(), {}).value
    assert same is not None
    assert mine.joined(same) is None
    actor.ask("resupply", ("A",), {"tensors": tensors, "rank": 2})
    third = actor.pull(second.revision, mine.numbers(), {}).value
    assert third is not None
    assert third.snapshot is not None
    assert third.snapshot.adapters["A"].source is not None
    assert third.snapshot.adapters["B"].source is None


def test_a_registry_goes_on_from_what_was_saved(tmp_path: Path) -> None:
    """From a file or a snapshot, not from both, and not from nothing; it is found by name a moment before."""
    registry = AdapterRegistry(2)
    registry.register("A", seed=1)
    registry.save(tmp_path / "registry.json")
    from_file, from_snapshot, wrong = RegistryActor(), RegistryActor(), RegistryActor()
    not_yet = wrong.ask("adapter_state", ("A",), {}).error
    from_file.open(None, tmp_path / "registry.json", None)
    from_snapshot.open(2, None, registry.snapshot())

    assert from_file.ask("adapter_state", ("A",), {}).value == "pending"
    assert from_snapshot.ask("snapshot", (), {}).value == registry.snapshot()
    assert isinstance(not_yet, ConfigError)
    assert "ask again" in str(not_yet)
    for given in ((None, None, None), (2, tmp_path / "registry.json", registry.snapshot())):
        assert isinstance(wrong.open(*given).error, ConfigError)


def test_without_ray_the_import_says_what_to_install() -> None:
    """In an error of this library; and nothing else of it needs ray."""
    program = (
        "import sys; sys.modules['ray'] = None\n"
        "import lifecycle, lifecycle.distributed\n"
        "from lifecycle.errors import ConfigError\n"
        "try:\n    import lifecycle.ray\nexcept ConfigError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert "install the extra: adapter-lifecycle[ray]" in done.stdout


def test_engines_of_ranks_are_met_about_anew_when_a_rank_was_replaced() -> None:
    """The real engine stays; what was agreed with a rank that is gone does not."""
    engines = RankEngines(0)
    specs = SpecNumbers().of([replace(URL, name="E")])
    engines._own["E"] = specs[0].number, FakeEngine("E")
    first = engines.of(specs, _agreement(0))
    again = engines.of(specs, _agreement(0))
    engines.forget()

    assert first[0] is again[0]
    assert engines.of(specs, _agreement(0))[0] is not first[0]
    engines.close()
