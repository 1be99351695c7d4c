"""One batch on four ranks: rows, tokens, gradients and digests are those of one process that has it whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lifecycle.demo.build import Colocated, colocated
from lifecycle.demo.errors import PeersLost, WeightsUnlike
from lifecycle.demo.messages import Failure, Message, Start, decoded, encoded, first_cause
from lifecycle.demo.options import DemoOptions, Training
from lifecycle.demo.report import DemoReport, RanksReport, Tenancy, TurnReport
from lifecycle.demo.run import Loop
from lifecycle.demo.seat import Seat
from lifecycle.demo.share import RankShare
from lifecycle.demo.table import notes
from lifecycle.engines.sampling import Rollout
from lifecycle.errors import EngineError
from lifecycle.process_groups import ProcessGroups

WORLD = 4
ROWS = 10
TRAINING = Training(prompts=ROWS, prompt_tokens=4, new_tokens=8)


class Meeting:
    """Sums over four threads, each of which is a rank."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(WORLD, timeout=20)
        self._told: list[Tensor] = []

    def add(self, tensor: Tensor, _during: str) -> None:
        self._told.append(tensor.clone())
        self._barrier.wait()
        tensor.copy_(torch.stack(self._told).sum(dim=0))
        if self._barrier.wait() == 0:
            self._told.clear()
        self._barrier.wait()


def meet(call: Callable[[int, RankShare], Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the call comes to on each rank, errors too."""
    meeting = Meeting()
    monkeypatch.setattr(RankShare, "_sum", lambda _share, tensor, during: meeting.add(tensor, during))

    def one(rank: int) -> Any:
        try:
            return call(rank, RankShare(rank, WORLD, ProcessGroups()))
        except WeightsUnlike as error:
            return error

    with ThreadPoolExecutor(WORLD) as pool:
        return list(pool.map(one, range(WORLD)))


def test_the_ranks_have_each_row_once_and_in_order() -> None:
    """Ten rows on four ranks: two or three each."""
    shares = [RankShare(rank, WORLD, ProcessGroups()) for rank in range(WORLD)]
    rows = [one.own(torch.arange(ROWS)).tolist() for one in shares]

    assert rows == [[0, 1], [2, 3, 4], [5, 6], [7, 8, 9]]
    assert [one.within(ROWS) for one in shares] == [{"within": (first, ROWS)} for first in (0, 2, 5, 7)]


def test_gathered_rows_are_the_batch_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """On every rank, and so are single values; what is no number stays where it was."""
    batch = torch.randn(ROWS, 3)
    found = meet(lambda _, share: share.gathered(share.own(batch), ROWS), monkeypatch)
    values = meet(lambda rank, share: share.of_all(float("nan") if rank == 2 else rank + 2**52), monkeypatch)

    assert all(torch.equal(one, batch) for one in found)
    assert [str(one) for one in values] == [str([2.0**52, 2.0**52 + 1, float("nan"), 2.0**52 + 3])] * WORLD


def test_gradients_of_uneven_shares_are_weighted_by_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean over all rows, not the mean of the ranks' means; a parameter without a gradient is left out."""
    batch, tensor = torch.arange(ROWS, dtype=torch.float32), torch.zeros(2, 3)

    def gradient(_: int, share: RankShare) -> Tensor:
        one, other = nn.Parameter(tensor.clone()), nn.Parameter(tensor.clone())
        (share.own(batch).mean() * one.sum()).backward()
        share.average([other, one], ROWS)
        assert one.grad is not None
        return one.grad

    assert all(torch.allclose(one, batch.mean().expand(2, 3)) for one in meet(gradient, monkeypatch))


@pytest.mark.parametrize("unlike", [0, 3])
def test_a_rank_with_other_weights_is_named_on_every_rank(monkeypatch: pytest.MonkeyPatch, unlike: int) -> None:
    """Also rank 0: it is the few that are unlike, and the adapter is the one whose digest it is."""

    def compare(rank: int, share: RankShare) -> None:
        digests = {"a": "0" * 64, "b": ("e" if rank == unlike else "f") * 64}
        share.compare(("a", "b"), digests.__getitem__)

    found = meet(compare, monkeypatch)

    assert [(one.adapter, one.ranks) for one in found] == [("b", (unlike,))] * WORLD
    assert f"adapter 'b' are others on rank {unlike}" in str(found[0])


def test_equal_weights_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is named then."""
    assert meet(lambda _, share: share.compare(("a",), lambda _: "ab" * 32), monkeypatch) == [None] * WORLD


def test_a_group_that_breaks_is_an_error_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch said is its cause, the first line of it its reason."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("Connection closed by peer\nand a trace")

    monkeypatch.setattr("lifecycle.demo.share._dist.all_reduce", broken)
    groups = ProcessGroups()
    monkeypatch.setattr(groups, "get", lambda _: None)
    with pytest.raises(PeersLost, match=r"broke: Connection closed by peer\. What to do"):
        RankShare(0, 2, groups).of_all(1.0)


class Recorded(RankShare):
    """One rank of four whose part of each sum is kept, and not added to the others'."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank, WORLD, ProcessGroups())

    def _sum(self, tensor: Tensor, during: str) -> None:
        """There is nobody else here."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Colocated]:
    """A trainer and an engine in this process, whose optimizers change nothing."""
    with colocated(DemoOptions(out=tmp_path_factory.mktemp("share"), training=TRAINING)) as made:
        for one in made.optimizers.values():
            one.step = lambda *_: None  # type: ignore[method-assign,assignment]
        yield made


def _sampled(world: Colocated) -> list[tuple[Tensor, Rollout]]:
    """Prompts and rollout of the whole batch, and then of each rank's rows, from the same weights."""
    whole, found = world.share, []
    with world.trainer.handoff([world.engine]):
        for share in (whole, *map(Recorded, range(WORLD))):
            world.share = share
            prompts = Loop(world).prompts("a")
            found.append((prompts, Loop(world).generate("a", prompts)))
    world.share = whole
    return found


def _gradient(world: Colocated, prompts: Tensor, rollout: Rollout, rewards: Tensor) -> Tensor:
    """Of adapter a, as its optimizer gets it."""
    optimizer, kept = world.optimizers[0], []
    owned = [one for group in optimizer.param_groups for one in group["params"]]
    optimizer.step = lambda *_: kept.extend(one.grad.clone() for one in owned if one.grad is not None)  # type: ignore[method-assign,assignment]
    Loop(world)._step("a", prompts, rollout, rewards, None)
    return torch.cat([one.reshape(-1) for one in kept])


def test_the_ranks_sample_and_learn_what_one_process_does(world: Colocated) -> None:
    """The tokens of each rank's rows are the batch's, and its part of the gradients adds up to the batch's gradient."""
    (prompts, rollout), *parts = _sampled(world)
    rewards = world.tenants["a"].reward.of(rollout.tokens)
    whole, share = _gradient(world, prompts, rollout, rewards), world.share
    summed = torch.zeros_like(whole)
    for rank, (own, sampled) in enumerate(parts):
        world.share = Recorded(rank)
        summed += _gradient(world, own, sampled, rewards)
    world.share = share

    assert torch.equal(torch.cat([sampled.tokens for _, sampled in parts]), rollout.tokens)
    assert torch.equal(torch.cat([own for own, _ in parts]), prompts)
    assert whole.abs().max() > 0
    assert torch.allclose(summed, whole, rtol=1e-4, atol=1e-6 * float(whole.abs().max()))


@pytest.mark.parametrize("within", [(-1, ROWS), (ROWS - 1, ROWS), (0, 1)])
def test_prompts_that_do_not_lie_in_their_batch_are_refused(world: Colocated, within: tuple[int, int]) -> None:
    """Before anything is sampled."""
    prompts = torch.zeros(2, 4, dtype=torch.int64)
    with world.trainer.handoff([world.engine]), pytest.raises(EngineError, match="do not lie within a batch"):
        world.sample(prompts, "a", max_new_tokens=1, within=within)


def test_what_is_said_arrives_as_it_was() -> None:
    """Paths, tuples, and a difference that is no number."""
    options = DemoOptions(adapters=(("a", Path("x")),), offload_target=None, ranks=2, training=TRAINING)
    start = Start(options, Seat(1, 2, "127.0.0.1:1", "run", 3.0))
    turn = TurnReport(0, ("awake",), {"a": 0.25}, 1, 2, float("nan"))
    report = DemoReport(3.0, (turn,), (_TENANCY,), "awake", Path("x"), "awake")
    heard = decoded(encoded(Message(report=report)), Message).report

    assert decoded(encoded(start), Start) == start
    assert heard is not None
    assert (heard.adapters, heard.audit, heard.weights) == (report.adapters, report.audit, report.weights)
    assert str(heard.turns[0]) == str(turn)


_TENANCY = Tenancy("a", 1, 0, 0, 0, 2, 0.25, 0.5, "0" * 64)
DEAD = Failure(2, "it was ended by signal 9")
OWN = Failure(1, "no room", "SaverError")
DISAGREE = Failure(0, "ranks disagree", "RanksDisagree", is_joint=True)
MISSING = Failure(3, "rank 2 did not come", "RanksMissing", is_joint=True, is_consequence=True)
LOST = Failure(0, "the group broke", "PeersLost", is_consequence=True)


@pytest.mark.parametrize(
    ("failures", "first"),
    [
        ([LOST, MISSING, OWN, DEAD], DEAD),
        ([LOST, MISSING, OWN], OWN),
        ([LOST, DISAGREE], DISAGREE),
        ([OWN, Failure(2, "later", "SaverError")], OWN),
        ([MISSING], MISSING),
    ],
)
def test_the_first_cause_is_what_the_others_follow_from(failures: list[Failure], first: Failure) -> None:
    """A death before an error, an error of one rank before that of all, and of equals the earlier."""
    assert first_cause(failures) is first


def test_a_silent_rank_is_the_cause_where_the_others_only_lost_it() -> None:
    """Nobody could say who is missing; where somebody could, those words stay."""
    assert first_cause([LOST], [2]) == Failure(2, "it does not answer; rank 0: the group broke")
    assert first_cause([LOST, OWN], [2]) is OWN
    assert first_cause([LOST, MISSING], [2]) is MISSING


def test_the_notes_say_what_the_ranks_have_in_common() -> None:
    """One process has no such line, and its object no such key."""
    ranks = RanksReport(4, 80, (Path("x"),))
    alone = DemoReport(3.0, (), (_TENANCY,), "awake", Path("x"), "awake")
    found = DemoReport(3.0, (), (_TENANCY,), "awake", Path("x"), "awake", ranks)

    assert notes(found).splitlines()[-1] == "4 ranks: 80 records each, projections identical"
    assert max(len(line) for line in notes(found).splitlines()) <= 80
    assert "ranks" not in notes(alone)
    assert "ranks" not in alone.as_json()
    assert found.as_json()["ranks"] == {"count": 4, "records": 80, "audits": ["x"], "difference": None}
