"""A tensor that was handed out is found as long as anything of it lives, whatever memory it aliases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

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
    watched = Watched("w", found)
    view = found.reshape(-1)[:2] if found.is_contiguous() else found[:1]
    del found
    assert watched.alive()
    del view

    assert not watched.alive()
    assert source.numel() > 0


def test_a_tensor_without_elements_can_be_aliased() -> None:
    """There is nothing to pin."""
    assert alias(torch.empty(0, 3)).shape == (0, 3)
