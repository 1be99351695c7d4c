"""Tensor parallel over two ranks is the same model, the same training and the same adapter as on one.

Where sums of whole numbers are exact, bit for bit. Elsewhere a sum over 32 numbers is taken in two halves, which
in float64 (epsilon 2.2e-16) moves what has the size of 1 by some 1e-15: the tolerance is 1e-12. Losses and the
steps of :func:`tests.megatron.ranks.slept` are computed in float32 (epsilon 1.2e-7); theirs is 1e-5.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tests.megatron.ranks import LAYERS
from tests.megatron.world import SHAPES, Result

IN_FLOAT64, IN_FLOAT32 = 1e-12, 1e-5


def _under(result: Result, prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): one for key, one in result.items() if key.startswith(prefix)}


def _distances(one: Result, two: list[Result], prefix: str) -> Iterator[float]:
    """Largest difference of each whole tensor between one rank and each of two."""
    wanted = _under(one, prefix)
    for result in two:
        found = _under(result, prefix)
        assert found.keys() == wanted.keys()
        yield from (float((found[key] - wanted[key]).abs().max()) for key in wanted)


def test_two_ranks_compute_the_logits_and_the_loss_of_one(one_rank: Result, two_ranks: list[Result]) -> None:
    """Without an adapter and with one, which matters."""
    for name in ("trained base logits", "trained logits"):
        whole = torch.cat([one[name] for one in two_ranks], dim=-1)
        assert (whole - one_rank[name]).abs().max() < IN_FLOAT64
    assert (one_rank["trained logits"] - one_rank["trained base logits"]).abs().max() > 1
    for one in two_ranks:
        assert abs(float(one["trained loss"] - one_rank["trained loss"])) < IN_FLOAT32


def test_what_is_exported_is_what_was_imported_bit_for_bit(one_rank: Result, two_ranks: list[Result]) -> None:
    """Other A's for q, k and v included, on one rank and gathered from two, on each of them."""
    assert [one["trained returned"] for one in (one_rank, *two_ranks)] == [True, True, True]


def test_gradients_on_two_ranks_are_those_of_one(one_rank: Result, two_ranks: list[Result]) -> None:
    """Of every factor, replicated or sharded; none of them is zero."""
    distances = list(_distances(one_rank, two_ranks, "trained gradient "))

    assert len(distances) == 2 * 2 * 2 * len(SHAPES)
    assert max(distances) < IN_FLOAT64
    assert all(bool(one.any()) for one in _under(one_rank, "trained gradient ").values())


def test_equal_training_gives_the_same_exported_adapter(one_rank: Result, two_ranks: list[Result]) -> None:
    """Three steps of Adam; both ranks export the same bits."""
    first, second = (_under(one, "trained weight ") for one in two_ranks)

    assert max(_distances(one_rank, two_ranks, "trained weight ")) < IN_FLOAT64
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("layer", LAYERS)
def test_on_whole_numbers_two_ranks_are_one_bit_for_bit(one_rank: Result, two_ranks: list[Result], layer: str) -> None:
    """Output and input gradient of each kind of layer, and below the gradient of every factor."""
    outputs = [one[f"exact {layer} output"] for one in two_ranks]
    inputs = [one[f"exact {layer} input gradient"] for one in two_ranks]
    if layer.endswith(("qkv", "fc1")):
        outputs = [_whole(layer, outputs)]
    else:
        inputs = [torch.cat(inputs, dim=-1)]

    assert all(torch.equal(one, one_rank[f"exact {layer} output"]) for one in outputs)
    assert all(torch.equal(one, one_rank[f"exact {layer} input gradient"]) for one in inputs)


def _whole(layer: str, parts: list[Tensor]) -> Tensor:
    """The fused output of one rank, from those of two: of a gated MLP each rank has its gates, then its ups."""
    if layer.endswith("fc1"):
        halves = [one.chunk(2, dim=-1) for one in parts]
        return torch.cat([one[side] for side in (0, 1) for one in halves], dim=-1)
    return torch.cat(parts, dim=-1)


def test_on_whole_numbers_the_gradients_are_equal_bit_for_bit(one_rank: Result, two_ranks: list[Result]) -> None:
    """A under column parallel is summed over the ranks once, B under row parallel not at all."""
    wanted = _under(one_rank, "exact gradient ")
    first_layer = {key: one for key, one in wanted.items() if ".layers.0." in key}

    assert len(first_layer) == 2 * len(SHAPES)
    assert all(bool(one.any()) for one in first_layer.values())
    for result in two_ranks:
        found = _under(result, "exact gradient ")
        assert all(torch.equal(found[key], wanted[key]) for key in wanted)


def test_a_life_with_sleeps_gives_the_bits_of_a_life_without(one_rank: Result, two_ranks: list[Result]) -> None:
    """Trained, loaded and pushed while offloaded, trained on: on one rank and on each of two."""
    for one in (one_rank, *two_ranks):
        slept, awake = _under(one, "slept "), _under(one, "awake ")
        tensors = [key for key in awake if key.startswith(("first", "last"))]

        assert slept["states"] == "offloaded-cpu,offloaded-cpu"
        assert awake["states"] == "awake,awake"
        assert slept["active"] == "a,b"
        assert len(tensors) == 2 * 2 * 2 * 2 * len(SHAPES)
        assert all(torch.equal(slept[key], awake[key]) for key in tensors)
        assert not any(torch.equal(awake[key], awake[key.replace("last", "first")]) for key in tensors if "last" in key)


@pytest.mark.parametrize("when", ["first", "last"])
def test_what_two_ranks_send_while_offloaded_is_what_one_sends(
    one_rank: Result, two_ranks: list[Result], when: str
) -> None:
    """Gathered from the host backups of both, through a group that is opened for that time."""
    assert max(_distances(one_rank, two_ranks, f"slept {when} ")) < IN_FLOAT32


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("apart", "tensor-parallel rank(s) 1 hold another adapter than rank 0"),
        ("backend", "carries cuda:nccl; give a gloo group for bytes on the host (gather_group=)"),
        ("query groups", "1 query groups cannot be split over 2 tensor-parallel ranks"),
    ],
)
def test_what_two_ranks_cannot_do_is_refused_alike_on_both(two_ranks: list[Result], case: str, words: str) -> None:
    """The same error on every rank, before anything was exported or built."""
    for one in two_ranks:
        assert words in one[f"refused {case}"]


def test_a_checkpoint_of_what_is_spread_over_ranks_is_refused(two_ranks: list[Result]) -> None:
    """One rank cannot write the optimizer state of all; nothing is written."""
    for one in two_ranks:
        assert "its factors are spread over ranks" in one["slept checkpoint"]
        assert "its factors are spread over ranks" in one["awake checkpoint"]


def test_a_group_of_other_ranks_is_refused(two_ranks: list[Result]) -> None:
    """An adapter gathered from a part of the ranks would be a wrong one."""
    for rank, one in enumerate(two_ranks):
        assert f"has rank 0 of 1, the layers have {rank} of 2" in one["refused group"]
