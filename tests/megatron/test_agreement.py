"""Tensor parallel over two ranks under an agreement: each has other bytes, and both write the same records."""

from __future__ import annotations

from functools import partial

import pytest

from lifecycle.audit.projection import first_difference
from tests.megatron.agreeing import both, store
from tests.megatron.world import Result, in_ranks

EVENTS = {
    "sleep", "offload", "wake_up", "reconcile_adapters", "update_weights", "begin_step", "trained", "switch_model"
}  # fmt: skip


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    """What each of the two found."""
    with store() as address:
        return in_ranks(partial(both, address), 2, tmp_path_factory.mktemp("agreeing"))


def test_parts_differ_and_the_records_do_not(ranks: list[Result]) -> None:
    """Over the whole life: loads, steps, sleep, offload, a load and a push while offloaded, a switch and back."""
    zero, one = (found["life"] for found in ranks)

    assert first_difference(zero["records"], one["records"]) is None
    assert {str(record["event"]) for record in zero["records"]} == {"lifecycle.began", "lifecycle.moved"}
    assert {record["trigger"] for record in zero["records"]} == EVENTS
    assert zero["names"] == one["names"] == ["a", "c"]
    unlike = [key for key, digest in zero["bytes"].items() if one["bytes"][key] != digest]
    assert len(unlike) > len(zero["bytes"]) // 4


def test_whole_adapters_are_sent_once_by_one_of_two_parts(ranks: list[Result]) -> None:
    """Both ranks gather what is sent; the engine that they share gets it from the one that has it."""
    zero, one = (found["life"] for found in ranks)

    assert [call for call in zero["calls"] if call.startswith("adapter:")] == ["adapter:a", "adapter:c"] * 2
    assert one["calls"] is None


def test_a_part_that_one_rank_cannot_load_is_loaded_on_none(ranks: list[Result]) -> None:
    """Awake and offloaded: both are as before to the bit, with the reason of the one; then both load it."""
    zero, one = (found["failed_load"] for found in ranks)

    for when in ("awake", "offloaded"):
        for found in (zero, one):
            assert found[f"{when} error"].startswith("TransitionFailed: ")
            assert "rank 1: AdapterError: adapter" in found[f"{when} error"]
            assert "its part of layer 1 is torn" in found[f"{when} error"]
            assert found[f"{when} same"] is True
    assert first_difference(zero["records"], one["records"]) is None
    assert zero["names"] == one["names"] == ["a", "awake", "offloaded"]
