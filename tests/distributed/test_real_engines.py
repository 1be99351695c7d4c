"""Four processes share a real engine: what it serves is what every rank has, and it was sent once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.distributed.ranks import _CONTEXT, WORLD, Ranks
from tests.distributed.real_engines import Colocated

ALL = range(WORLD)
NOTHING = dict.fromkeys(ALL)
LOAD, UNLOAD, PAUSE = "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/pause?mode=wait"


@pytest.fixture(scope="module")
def processes() -> Iterator[Ranks]:
    """Four processes and a store."""
    _CONTEXT.set_forkserver_preload(["pytest", "tests.distributed.warm"])
    with Ranks(Colocated) as ranks:
        yield ranks


def test_an_engine_in_the_process_of_one_rank_serves_what_all_have(processes: Ranks) -> None:
    """It is compared by checksums on every rank; records and books are alike; it computes what the trainers compute."""
    assert processes.all("begin", "local") == NOTHING
    try:
        assert processes.all("life") == NOTHING
        found = processes.all("found")
        differences = [processes.one(0, "difference", name) for name in ("a", "bb")]
    finally:
        processes.all("close")

    assert [one for one in found.values() if one != found[0]] == []
    assert found[0]["serves"] == "current"
    assert {how for _, how in found[0]["books"][1]["e0"].values()} == {"checksum"}
    assert {one["event"] for one in found[0]["records"]} == {"lifecycle.began", "lifecycle.moved"}
    assert max(differences) < 1e-4


def test_a_vllm_server_gets_each_adapter_once(processes: Ranks) -> None:
    """Over HTTP from the one rank; what it cannot load fails on every rank for the same reason, said once."""
    assert processes.all("begin", "vllm") == NOTHING
    try:
        assert processes.all("life") == NOTHING
        took = processes.one(0, "took")
        processes.all("train")
        processes.one(0, "refuse", "/a/")
        refused = processes.all("push")
        processes.one(0, "refuse", "")
        pushed = processes.all("push")
        found = processes.all("found")
    finally:
        processes.all("close")

    assert [one for one in took if one in {LOAD, UNLOAD}] == [LOAD, LOAD, UNLOAD, LOAD]
    assert {one.kind for one in refused.values()} == {"TransitionFailed"}
    assert all("ranks 0, 1, 2, 3: EngineUnanswered: engine e0: " in one.text for one in refused.values())
    assert pushed == NOTHING
    assert [one for one in found.values() if one != found[0]] == []
    assert found[0]["serves"] == "current"
