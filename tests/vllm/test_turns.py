"""A trainer with three adapters and a real vLLM server, turn after turn."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from lifecycle.engines.verifying import BASE_ONLY
from tests.vllm.server import RunningServer
from tests.vllm.world import LONG, SHORT, World, world


@pytest.fixture(scope="module")
def made(server: RunningServer) -> Iterator[World]:
    with world(server.model, server.url) as one:
        yield one


def _prefix_hits(server: RunningServer) -> float:
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:prefix_cache_hits_total"))


def test_every_push_is_served_token_for_token_over_ten_turns(made: World, server: RunningServer) -> None:
    """Adapters train, are pushed, retire and are replaced; each answers as the trainer's own version does."""
    changes = {3: (["b"], ["d"]), 6: (["a", "c"], ["e", "f"]), 8: (["d"], ["b"])}
    hits = _prefix_hits(server)
    for turn in range(10):
        made.change(*changes.get(turn, ((), ())))
        for name in made.names[turn % 2 :]:
            made.train(name)
        own = made.all_own()
        made.trainer.update_weights([made.engine])

        assert made.all_served() == own
        assert made.all_served(LONG) == {name: one[len(SHORT) :] for name, one in own.items()}  # from the prefix cache
        assert made.engine.report().versions == made.versions()
        assert len(set(own.values())) == 4
    assert _prefix_hits(server) - hits >= 10 * 4 * 128


def test_a_whole_turn_hands_over_and_takes_back(made: World) -> None:
    """The engine releases and resumes; its adapters are sent again after that, and are the newest."""
    for _ in range(2):
        for name in made.names:
            made.train(name)
        own = made.all_own()
        with made.trainer.handoff([made.engine]):
            served = made.all_served()

        assert served == own
        assert made.engine.report().released == {"weights", "kv_cache"}


def test_only_what_changed_is_sent(made: World) -> None:
    """A second pass sends nothing, and a step of one adapter sends that one."""
    made.engine.resume(["weights", "kv_cache"])
    made.trainer.update_weights([made.engine])
    first, second = made.names[:2]
    paths = made.engine._served._paths
    before = dict(paths)
    made.trainer.update_weights([made.engine])
    made.train(first)
    made.trainer.update_weights([made.engine])

    assert paths.keys() == before.keys()
    assert made.engine._served._paths[first] != before[first]
    assert made.engine._served._paths[second] == before[second]


def test_a_request_says_whose_answer_it_wants(made: World) -> None:
    """Sampled answers carry the versions they were drawn from."""
    name = made.names[0]
    answer = made.engine.generate([[1, 2, 3]], name, max_new_tokens=4, seed=1, logprobs=True, expected=made.versions())

    assert answer.versions.items() <= made.versions().items()
    assert [len(one) for one in (*answer.tokens, *answer.logprobs)] == [4, 4]
    assert made.engine.generate([[1, 2, 3]], BASE_ONLY, max_new_tokens=4).adapter == BASE_ONLY
