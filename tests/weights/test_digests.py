"""Digests and comparisons of bytes: the same result whatever the strides, in bounded memory."""

from __future__ import annotations

import hashlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lifecycle.weights import chunks
from lifecycle.weights.chunks import as_bytes, buffer_of, host_chunks, pieces
from lifecycle.weights.digests import BLOCK_BYTES, digest, same_bytes, sample

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn, torch.complex128)


def _plain_digest(tensors: dict[str, Tensor]) -> str:
    """The definition, in other words: everything at once."""
    parts = []
    for name, tensor in sorted(tensors.items()):
        whole = tensor.detach().cpu().contiguous().reshape(-1)
        content = bytes(whole.view(torch.uint8).tolist()) if whole.numel() else b""
        parts.append(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode() + content)
    return hashlib.sha256(b"".join(parts)).hexdigest()


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Any shape, dtype and strides."""
    shape = draw(st.lists(st.integers(0, 7), max_size=4))
    dtype = draw(st.sampled_from(DTYPES))
    seed = draw(st.integers(0, 2**16))
    values = torch.randint(0, 2, (*shape,), generator=torch.Generator().manual_seed(seed)).to(dtype)
    values = values.permute(*draw(st.permutations(range(len(shape))))) if shape else values
    step = draw(st.integers(1, 3))
    return values[::step] if values.dim() and values.shape[0] else values


@given(tensor=tensors(), chunk=st.sampled_from([16, 40, 4096]))
@settings(max_examples=150, deadline=None)
def test_chunks_in_order_are_the_bytes_whatever_the_strides(tensor: Tensor, chunk: int) -> None:
    """And none is larger than asked for."""
    found = [bytes(buffer_of(one)) for one in host_chunks(tensor, chunk)]
    whole = tensor.contiguous()

    assert b"".join(found) == (bytes(as_bytes(whole).tolist()) if whole.numel() else b"")
    assert all(0 < len(one) <= chunk for one in found)


@given(tensor=tensors())
@settings(max_examples=50, deadline=None)
def test_where_chunks_are_cut_depends_on_the_shape_alone(tensor: Tensor) -> None:
    """So that two tensors can be compared chunk by chunk."""
    own = [tuple(piece.shape) for piece in pieces(tensor, 48)]

    assert own == [tuple(piece.shape) for piece in pieces(tensor.contiguous(), 48)]


def test_the_digest_of_a_known_base_is_what_it_always_was() -> None:
    """Logs and file names hold digests: they outlive a release."""
    base = {"b": torch.arange(6).view(2, 3), "a": torch.tensor([0.5, -0.0], dtype=torch.bfloat16)}

    assert digest(base) == "50eecf27b906f025fb7122b977a5d9cdb1415b4f451a720241d49cce30b650c2"


def test_a_digest_in_chunks_is_the_digest_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contiguous, strided, without dimensions, without elements, with a gradient, conjugated."""
    base = {
        "contiguous": torch.randn(100, 30),
        "strided": torch.randn(30, 100).t()[::2],
        "scalar": torch.tensor(3.0),
        "empty": torch.empty(3, 0),
        "parameter": torch.nn.Parameter(torch.randn(5)),
    }
    monkeypatch.setattr(chunks.host_chunks, "__defaults__", (64,))

    assert digest(base) == _plain_digest(base)
    assert digest({"c": torch.randn(9, dtype=torch.complex64).conj()}) != digest({"c": torch.zeros(9)})


def test_a_conjugated_tensor_is_read_as_its_values() -> None:
    """Not as the bytes of the tensor that it is a lazy view of."""
    values = torch.randn(9, dtype=torch.complex64)

    assert digest({"c": values.conj()}) == digest({"c": values.conj().resolve_conj()})


def test_contiguous_host_memory_is_not_copied_for_a_digest() -> None:
    """The chunks alias it."""
    tensor = torch.randn(1000)

    assert [one.data_ptr() for one in host_chunks(tensor, 2000)] == [tensor.data_ptr(), tensor.data_ptr() + 2000]


@pytest.mark.parametrize("place", [0, 999, 5000])
def test_same_bytes_sees_one_bit(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any chunk, and against other strides."""
    monkeypatch.setattr(chunks.host_chunks, "__defaults__", (256,))
    one = torch.randn(100, 51)
    other = one.t().contiguous().t()
    assert same_bytes(one, other)

    other.view(torch.int32)[place // 51, place % 51] ^= 1

    assert not same_bytes(one, other)


def test_same_bytes_tells_zeros_apart_and_a_nan_is_itself() -> None:
    """Bytes count, not values; tensors of another shape or dtype are not the same."""
    nan = torch.tensor([float("nan")])

    assert same_bytes(nan, nan.clone())
    assert not same_bytes(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bytes(torch.zeros(2), torch.zeros(3))
    assert not same_bytes(torch.zeros(2), torch.zeros(2, dtype=torch.int32))


LARGE_BYTES = 4 * 2**20


def _large() -> Tensor:
    return torch.arange(LARGE_BYTES // 4, dtype=torch.int32).view(1024, -1)


def test_a_sample_is_equal_for_equal_bytes_whatever_the_strides() -> None:
    """Gathered from the elements, in the order that the digest reads them."""
    strided = _large().t().contiguous().t()
    assert not strided.is_contiguous()

    assert sample({"w": _large()}, seed=3) == sample({"w": strided}, seed=3)


def test_a_sample_depends_on_seed_name_dtype_and_shape() -> None:
    """All of them are part of it."""
    one = sample({"w": _large()}, seed=3)

    others = {
        sample({"w": _large()}, seed=4),
        sample({"v": _large()}, seed=3),
        sample({"w": _large().view(torch.float32)}, seed=3),
        sample({"w": _large().view(-1)}, seed=3),
    }
    assert one not in others
    assert len(others) == 4


@pytest.mark.parametrize("place", [0, BLOCK_BYTES - 1, LARGE_BYTES - BLOCK_BYTES, LARGE_BYTES - 1])
def test_a_sample_always_covers_the_first_and_the_last_block(place: int) -> None:
    """Where truncated and shifted bytes show."""
    changed = _large()
    changed.view(-1).view(torch.uint8)[place] ^= 1

    assert sample({"w": changed}, seed=5) != sample({"w": _large()}, seed=5)


def _covered(seed: int) -> set[int]:
    """Blocks whose change the sample of this seed sees, found by changing each one."""
    plain = sample({"w": _large()}, seed)
    seen = set()
    tensor = _large()
    flat = tensor.view(-1).view(torch.uint8).view(-1, BLOCK_BYTES)
    for index in range(flat.shape[0]):
        flat[index] ^= 1
        if sample({"w": tensor}, seed) != plain:
            seen.add(index)
        flat[index] ^= 1
    return seen


def test_another_seed_covers_other_places() -> None:
    """So that a change which one sample misses is seen by a later one."""
    one, other = _covered(1), _covered(2)

    assert len(one) > 16
    assert len(other - one) > 8


def test_a_small_tensor_counts_whole_in_a_sample() -> None:
    """There is nothing to save."""
    plain = torch.zeros(18 * BLOCK_BYTES, dtype=torch.uint8)
    changed = [plain.clone() for _ in range(0, plain.numel(), 1000)]
    for index, tensor in enumerate(changed):
        tensor[index * 1000] = 1

    assert sample({"w": plain}, seed=1) not in {sample({"w": tensor}, seed=1) for tensor in changed}


def test_samples_of_different_seeds_are_never_equal() -> None:
    """Not even where both count every byte: comparing them is a mistake that shows."""
    assert sample({"w": torch.zeros(1)}, seed=1) != sample({"w": torch.zeros(1)}, seed=2)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16, torch.uint16])
def test_every_dtype_can_be_sampled(dtype: torch.dtype) -> None:
    """Contiguous or not, with equal results."""
    tensor = (torch.arange(2**16).view(256, 256) % 2).to(dtype).repeat(2, 2)

    assert sample({"w": tensor.t()}, seed=0) == sample({"w": tensor.t().contiguous()}, seed=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_digests_and_samples_are_the_same_on_a_device() -> None:
    """Strided tensors too."""
    tensor = _large()
    here = {"w": tensor, "t": tensor.t(), "f8": tensor.to(torch.float8_e4m3fn)}
    there = {name: one.cuda() for name, one in here.items()}

    assert digest(there) == digest(here)
    assert sample(there, 9) == sample(here, 9)
    assert same_bytes(there["t"], here["t"])
