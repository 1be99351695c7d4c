"""A trainer that cannot be built on one of several ranks is built on none, and none of them waits for the timeout."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.distributed.builders import STAGES, Builder
from tests.distributed.ranks import _CONTEXT, WORLD, Ranks

ALL = range(WORLD)


@pytest.fixture(scope="module")
def processes() -> Iterator[Ranks]:
    """Four processes and a store."""
    _CONTEXT.set_forkserver_preload(["pytest", "tests.distributed.warm"])
    with Ranks(Builder) as ranks:
        yield ranks


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("stage", STAGES)
def test_what_fails_on_one_rank_while_a_trainer_is_built_fails_on_all(processes: Ranks, stage: str, rank: int) -> None:
    """The others say who and why without waiting for the timeout, which would be RanksMissing.

    Every byte and every store is as it was, so that all can build again.
    """
    processes.all("model")
    answers = processes.all("build", but={rank: {"fails": stage}})

    own = answers.pop(rank)

    assert own.kind in {"ConfigError", "SaverError", "RuntimeError"}
    assert {(one.kind, one.keys["ranks"]) for one in answers.values()} == {("RanksFailed", (rank,))}
    assert {one.text for one in answers.values()} == {f"rank {rank} failed: rank {rank}: {own.kind}: {own.text}"}
    assert processes.all("is_as_before") == dict.fromkeys(ALL, True)
    assert processes.all("build") == dict.fromkeys(ALL, "awake")
    assert processes.all("is_as_before") == dict.fromkeys(ALL, True)
