"""The calls of a shared engine, one rank after the other, without a group: who is asked, and what every rank hears."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from lifecycle.distributed import RanksApart, RanksMissing, SharedEngine
from lifecycle.engines import AdapterPayload, AnswersChecksums, AnswersGreedily, RolloutEngine
from lifecycle.errors import ConfigError, EngineError, EngineRefused, IncompletePush, LeaseError, LifecycleError
from lifecycle.transport import ChoosesTransport, HoldsTransport
from states.agreement import Missing
from states.seat import Seat
from tests.lifecycle.world import FakeEngine

PAYLOAD = AdapterPayload("A", 3, 2, 4.0, ("up",), {"lora_a": torch.zeros(2)})
OPTIONAL = (AnswersChecksums, AnswersGreedily, HoldsTransport, ChoosesTransport)


class End:
    """One rank's end of what is told: rank 0 goes first."""

    def __init__(self, rank: int, said: deque[bytes]) -> None:
        self.seat = Seat(rank, 2, 1.0, str(rank))
        self.said = said
        self.is_lost = False

    def told(self, payload: bytes | None, *, by: int = 0) -> bytes:
        """Say it, or hear what was said before."""
        if self.is_lost:
            raise RanksMissing(Missing((1,), 0, 1.0))
        if payload is not None:
            self.said.append(payload)
        return payload if payload is not None else self.said.popleft()


class AbleEngine(FakeEngine):
    """An engine with everything that is optional."""

    def checksums(self, group: str) -> Mapping[str, str] | None:
        """None of the base."""
        return {"up": "ab"} if group.startswith("adapter/") else None

    def greedy(self, adapter: str, prompts: Sequence[Sequence[int]], _max: int) -> tuple[tuple[int, ...], ...]:
        """The prompts."""
        return tuple(tuple(one) for one in prompts)

    def outstanding_bytes(self) -> int:
        """Some."""
        return 7

    def transport_notes(self) -> Sequence[tuple[str, dict[str, object]]]:
        """One."""
        return [("a way was chosen", {})]


class Pair:
    """Two ranks that share an engine, and each its end of what is told."""

    def __init__(self, engine: Any = None) -> None:
        said: deque[bytes] = deque()
        self.engine = FakeEngine() if engine is None else engine
        self.ends = [End(rank, said) for rank in range(2)]
        self.shared = [
            SharedEngine(self.engine if rank == 0 else None, self.ends[rank], name="E0") for rank in range(2)
        ]

    def call(self, what: str, *positional: Any) -> list[Any]:
        """What each rank got, or raised."""
        return [_caught(lambda one=one: getattr(one, what)(*positional)) for one in self.shared]  # type: ignore[misc]


def _caught(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except LifecycleError as error:
        return error


def test_an_update_is_made_once() -> None:
    """Every call, in order, by the one rank; each rank gets what it gave."""
    pair = Pair()
    pair.call("begin_update")
    pair.call("load_adapter", PAYLOAD)
    pair.call("unload_adapter", "B")
    pair.call("commit_update")
    pair.call("release", ("kv_cache",))
    pair.call("resume", ("kv_cache",))
    here, there = pair.call("report")

    assert pair.engine.calls == ["begin", "adapter:A", "unload:B", "commit", "release:kv_cache", "resume:kv_cache"]
    assert here == there == pair.engine.report()
    assert [one.name for one in pair.shared] == ["E0", "E0"]
    assert all(isinstance(one, RolloutEngine) for one in pair.shared)


def test_every_rank_takes_what_a_base_consists_of_and_only_one_sends_it() -> None:
    """Reading may be a collective: who does not take part in it lets the others hang."""
    pair, taken = Pair(), [list[str](), list[str]()]

    def stream(rank: int) -> Iterator[tuple[str, Tensor]]:
        for name in ("up", "down"):
            taken[rank].append(name)
            yield name, torch.zeros(2)

    for rank, one in enumerate(pair.shared):
        one.send_base("frozen-base", 3, stream(rank))
    assert taken == [["up", "down"], ["up", "down"]]
    assert pair.engine.calls == ["base:frozen-base"]


class Picky(FakeEngine):
    """Takes one tensor, and fails if it is told to."""

    def send_base(self, _group: str, _version: int, tensors: Any) -> None:
        """Take the first."""
        next(iter(tensors))
        self._call("base")


@pytest.mark.parametrize("fails_at", ["", "base"])
def test_what_an_engine_left_of_a_base_is_taken_too(fails_at: str) -> None:
    """And the same error names it on every rank; why the engine failed comes first."""
    pair, left = Pair(Picky(fails_at=fails_at)), []
    for one in pair.shared:
        stream = iter([("up", torch.zeros(2)), ("down", torch.zeros(2))])
        error = _caught(lambda one=one, stream=stream: one.send_base("frozen-base", 3, stream))  # type: ignore[misc]
        left.append((type(error), getattr(error, "missing", None), next(stream, None)))

    kind = EngineError if fails_at else IncompletePush
    assert left == [(kind, None if fails_at else ("down",), None)] * 2


def test_an_error_is_raised_on_every_rank_alike() -> None:
    """Kind, words and attributes; the abort that follows is a meeting as the others."""
    pair = Pair()
    pair.engine._call = lambda _: (_ for _ in ()).throw(EngineRefused("E0", "no", status=400, answer="full"))
    here, there = pair.call("load_adapter", PAYLOAD)

    assert (type(here), type(there)) == (EngineRefused, EngineRefused)
    assert (str(here), vars(here)) == (str(there), vars(there))
    assert pair.call("abort_update") == [None, None]
    assert pair.engine.calls == ["abort"]


def test_whatever_else_is_raised_is_an_error_of_the_engine_on_every_rank() -> None:
    """Also one of this library that only the one rank can understand; there it says what it came from."""
    for cause in (KeyError("up"), LeaseError("over")):
        pair = Pair()

        def fail(_: str, cause: Exception = cause) -> None:
            raise cause

        pair.engine._call = fail
        here, there = pair.call("load_adapter", PAYLOAD)

        assert (type(here), type(there), str(here)) == (EngineError, EngineError, str(there))
        assert f"load_adapter(A, 3) failed on rank 0: {type(cause).__name__}" in str(there)
        assert here.__cause__ is cause


@pytest.mark.parametrize("engine", [FakeEngine, AbleEngine])
def test_a_shared_engine_can_what_its_engine_can(engine: type[FakeEngine]) -> None:
    """On every rank, and no more."""
    pair, real = Pair(engine()), engine()

    assert [[isinstance(one, kind) for kind in OPTIONAL] for one in pair.shared] == [
        [isinstance(real, kind) for kind in OPTIONAL]
    ] * 2


def test_what_an_engine_answers_is_told() -> None:
    """Checksums, also none, and tokens."""
    pair = Pair(AbleEngine())

    assert pair.call("checksums", "adapter/A") == [{"up": "ab"}] * 2
    assert pair.call("checksums", "frozen-base") == [None, None]
    assert pair.call("greedy", "A", [[1, 2], [3]], 4) == [((1, 2), (3,))] * 2


def test_buffers_and_ways_are_those_of_the_one_rank() -> None:
    """Nobody meets about them: they are asked whenever a rank looks at its own memory."""
    pair = Pair(AbleEngine())

    assert [one.outstanding_bytes() for one in reversed(pair.shared)] == [0, 7]
    assert [len(one.transport_notes()) for one in reversed(pair.shared)] == [0, 1]


def test_ranks_that_make_different_calls_find_out() -> None:
    """Both calls are named. What is called by then was called."""
    pair = Pair()
    pair.call("begin_update")
    pair.shared[0].load_adapter(PAYLOAD)
    apart = _caught(pair.shared[1].commit_update)

    assert (type(apart), apart.made, apart.expected) == (RanksApart, "load_adapter(A, 3)", "commit_update()")
    assert pair.engine.calls == ["begin", "adapter:A"]
    assert "make the same calls on every rank" in str(apart)


def test_an_update_is_aborted_although_a_rank_is_lost() -> None:
    """By the one rank; that it was is told to nobody, so every rank counts what the engine holds as unknown."""
    pair = Pair()
    pair.call("begin_update")
    pair.ends[0].is_lost = True
    pair.ends[1].is_lost = True

    assert [type(one) for one in pair.call("load_adapter", PAYLOAD)] == [RanksMissing, RanksMissing]
    assert [type(one) for one in pair.call("abort_update")] == [RanksMissing, RanksMissing]
    assert pair.engine.calls == ["begin", "adapter:A", "abort"]


def test_what_is_told_by_another_library_is_an_error_of_the_engine() -> None:
    """It says of which call, and what to do."""
    pair = Pair()
    pair.ends[1].said.append(b"{}")

    with pytest.raises(EngineError, match=r"told of report\(\) is malformed: .*; run the same library on every rank"):
        pair.shared[1].report()


@pytest.mark.parametrize(
    ("engine", "name", "match"),
    [
        (None, "E0", "rank 0 has no engine E0"),
        (FakeEngine("E1"), "E0", "the engine of rank 0 is called 'E1', not 'E0'"),
    ],
)
def test_an_engine_that_is_none_is_refused_on_every_rank(engine: Any, name: str, match: str) -> None:
    """Nobody waits for the others."""
    said: deque[bytes] = deque()
    for rank in range(2):
        with pytest.raises(ConfigError, match=match):
            SharedEngine(engine if rank == 0 else None, End(rank, said), name=name)


def test_a_second_engine_and_a_rank_that_is_none_are_refused() -> None:
    """The one that has it is named."""
    said: deque[bytes] = deque()
    SharedEngine(FakeEngine(), End(0, said), name="E0")

    with pytest.raises(ConfigError, match="rank 0 has the engine E0; pass None on rank 1"):
        SharedEngine(FakeEngine(), End(1, said), name="E0")
    for by in (-1, 2, "0"):
        with pytest.raises(ConfigError, match="use the number of a rank, 0 to 1"):
            SharedEngine(FakeEngine(), End(1, said), name="E0", by=by)  # type: ignore[arg-type]
