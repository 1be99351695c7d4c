"""A tensor that was handed out is found as long as anything of it lives, whatever memory it aliases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lifecycle.weights import aliases
from lifecycle.weights.aliases import Watched, alias


def in_memory(_: Path) -> Tensor:
    """Ordinary memory."""
    return torch.arange(64, dtype=torch.float32)


def memory_mapped(folder: Path) -> Tensor:
    """A file, mapped."""
    path = folder / "weights.bin"
    path.write_bytes(bytes(256))
    return torch.from_file(str(path), shared=True, size=64, dtype=torch.float32)


def parameter(_: Path) -> Tensor:
    """A leaf that trains."""
    return torch.nn.Parameter(torch.ones(8, 8))


def strided(_: Path) -> Tensor:
    """A view with gaps."""
    return torch.arange(64, dtype=torch.bfloat16).reshape(8, 8).T[::2]


@pytest.mark.parametrize("make", [in_memory, memory_mapped, parameter, strided])
def test_an_alias_has_the_bytes_of_its_source_and_a_storage_of_its_own(
    make: Callable[[Path], Tensor], tmp_path: Path
) -> None:
    """Same address, shape, strides and dtype; another storage object; no copy."""
    source = make(tmp_path)
    found = alias(source)

    assert found.data_ptr() == source.data_ptr()
    assert (found.shape, found.stride(), found.dtype) == (source.shape, source.stride(), source.dtype)
    assert found.untyped_storage()._cdata != source.untyped_storage()._cdata
    assert not found.requires_grad


@pytest.mark.parametrize("make", [in_memory, memory_mapped, parameter, strided])
def test_a_view_of_an_alias_keeps_it_alive_and_the_source_does_not(
    make: Callable[[Path], Tensor], tmp_path: Path
) -> None:
    """Watching keeps nothing alive itself."""
    source = make(tmp_path)
    found = alias(source)
    watched: Watched[str] = Watched()
    watched.add(found, "w")
    view = found.reshape(-1)[:2] if found.is_contiguous() else found[:1]
    del found
    assert watched.alive() == ["w"]
    del view

    assert watched.alive() == []
    assert source.numel() > 0


def test_a_tensor_without_elements_can_be_aliased() -> None:
    """There is nothing to pin."""
    assert alias(torch.empty(0, 3)).shape == (0, 3)


def test_an_alias_is_no_change_in_place() -> None:
    """A backward pass whose graph has saved the tensor goes on (autograd counts changes by version)."""
    weight = torch.nn.Parameter(torch.ones(3))
    loss = (weight**2).sum()
    alias(weight)
    alias(weight[1:])
    loss.backward()

    assert weight._version == 0


def test_an_alias_of_what_a_capsule_cannot_carry_has_the_values_all_the_same() -> None:
    """A lazy conjugate and a lazy negative are bytes and a promise."""
    source = torch.tensor([1 + 2j, 3 - 4j]).conj()
    for lazy in (source, source.imag):
        found = alias(lazy)
        assert torch.equal(found, lazy)
        assert found.untyped_storage()._cdata != lazy.untyped_storage()._cdata


def test_a_dtype_that_is_not_exchanged_is_aliased_by_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which dtypes those are differs from one torch to the next."""

    def refuse(_: Tensor) -> object:
        raise BufferError("this dtype is not exchanged")

    monkeypatch.setattr(aliases, "to_dlpack", refuse)
    for make in (parameter, strided):
        source = make(Path())
        found = alias(source)
        assert torch.equal(found, source)
        assert (found.stride(), found.data_ptr()) == (source.stride(), source.data_ptr())
        assert found.untyped_storage()._cdata != source.untyped_storage()._cdata
        assert source._version == 0


DTYPES = [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.int64, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("first", [0, 64, 66, 67])
def test_other_memory_gives_the_bytes_at_the_tensors_offset(dtype: torch.dtype, first: int) -> None:
    """Whatever the dtype, and also for a tensor that lies between two elements."""
    memory = torch.randint(0, 2, (512,), dtype=torch.uint8)
    like = torch.empty(4, 3, dtype=dtype).T[1:]
    found = aliases.OtherMemory(memory.untyped_storage()).alias(like, first)

    assert found is not None
    assert (found.shape, found.stride(), found.dtype) == (like.shape, like.stride(), like.dtype)
    assert found.data_ptr() == memory.data_ptr() + first
    assert found.untyped_storage()._cdata != memory.untyped_storage()._cdata
    assert not found.is_inference()


def test_other_memory_gives_nothing_beyond_its_end() -> None:
    """A tensor that reaches over the end of its region has no bytes there."""
    memory = aliases.OtherMemory(torch.zeros(64, dtype=torch.uint8).untyped_storage())

    assert memory.alias(torch.empty(8), 32) is not None
    assert memory.alias(torch.empty(8), 36) is None
    assert memory.alias(torch.empty(8), 37) is None


def test_what_is_gone_is_forgotten_and_what_lives_is_told() -> None:
    """Each with what was said of it."""
    watched: Watched[str] = Watched()
    kept = alias(torch.ones(2))
    watched.add(kept, "kept")
    for number in range(5):
        watched.add(alias(torch.ones(2)), f"gone {number}")

    assert len(watched) == 6
    assert watched.alive() == ["kept"]
    assert len(watched) == 1
