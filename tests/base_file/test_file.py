"""A base file holds exactly the tensors it was given, and reads them without a copy or in chunks."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from torch import Tensor

from lifecycle.base_file import BaseFile, BaseFileStore, disk
from lifecycle.base_file.layout import DTYPES
from lifecycle.errors import BaseFileError
from lifecycle.weights import chunks
from lifecycle.weights.digests import digest, same_bytes
from tests.base_file.world import base, big_base, names, obtain, opened

OTHER = "0" * 64


@st.composite
def bases(draw: st.DrawFn) -> dict[str, Tensor]:
    """Tensors of every dtype, of any shape and strides."""
    found = {}
    for name in draw(st.lists(st.sampled_from(["a", "b.weight", "c/ü", "d e"]), unique=True)):
        shape = draw(st.lists(st.integers(0, 5), max_size=3))
        dtype = draw(st.sampled_from(list(DTYPES)))
        generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
        values = torch.randint(0, 2, (*shape,), generator=generator).to(dtype)
        values = values.permute(*draw(st.permutations(range(len(shape))))) if shape else values
        found[name] = values[:: draw(st.integers(1, 2))] if values.dim() and values.shape[0] else values
    return found


@given(tensors=bases())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_tensor_comes_back_bit_by_bit(tensors: dict[str, Tensor], tmp_path: Path) -> None:
    """Mapped, read into memory, and read by the safetensors library."""
    with opened(tmp_path, tensors) as file, safe_open(file.path, framework="pt") as library:
        assert file.names() == tuple(sorted(tensors)) == tuple(sorted(library.keys()))
        for name, tensor in tensors.items():
            target = torch.empty_strided(tensor.shape, tensor.contiguous().stride(), dtype=tensor.dtype)
            assert file.read_into(name, target) == tensor.numel() * tensor.element_size()
            assert file.tensor(name).is_contiguous()
            assert same_bytes(file.tensor(name), tensor)
            assert same_bytes(target, tensor)
            assert same_bytes(library.get_tensor(name), tensor)


def test_the_file_says_whose_content_it_is_and_is_the_owners_alone(tmp_path: Path) -> None:
    """FB-07: its digest is its name and stands in its header; mode 0600 in a folder 0700; nothing else is left."""
    with opened(tmp_path / "made", base()) as file, safe_open(file.path, framework="pt") as library:
        assert library.metadata() == {"digest": digest(base()), "format": "pt"}
        assert names(tmp_path / "made") == [f"base-{digest(base())}.safetensors"]
        assert file.size_bytes == file.written_bytes == file.path.stat().st_size
        assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700


def test_tied_tensors_are_stored_under_each_of_their_names(tmp_path: Path) -> None:
    """A reader of the file needs no list of ties."""
    tied = torch.randn(6, 4)
    with opened(tmp_path, {"embed": tied, "head": tied, "part": tied[1:3]}) as file:
        assert torch.equal(file.tensor("head"), tied)
        assert torch.equal(file.tensor("part"), tied[1:3])


@pytest.mark.parametrize("chunk", [1, 4, 24, 1000])
def test_a_read_goes_into_any_strides_in_chunks(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right elements at the right places, nothing between them."""
    values = torch.arange(60, dtype=torch.uint8).view(3, 4, 5)
    room = torch.full((6, 5, 4), 255, dtype=torch.uint8)
    target = room[::2].transpose(1, 2)
    for function in (chunks.pieces, chunks.staging_for):
        monkeypatch.setattr(function, "__defaults__", (chunk,))
    with opened(tmp_path, {"w": values}) as file:
        assert file.read_into("w", target) == 60

    assert torch.equal(target, values)
    assert bool((room[1::2] == 255).all())


def test_a_read_goes_into_a_parameter(tmp_path: Path) -> None:
    """Without a word from autograd, and without a history."""
    parameter = torch.nn.Parameter(torch.zeros(64, 32))
    with opened(tmp_path, base()) as file:
        file.read_into("lm_head.weight", parameter)

    assert torch.equal(parameter.detach(), base()["lm_head.weight"])
    assert parameter.grad_fn is None


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (torch.empty(32, 64), "it is torch.float32 (32, 64), the file holds torch.float32 (64, 32)"),
        (torch.empty(64, 32, dtype=torch.int32), "it is torch.int32 (64, 32)"),
        (torch.empty(64, 32, device="meta"), "it is on the meta device"),
        (torch.empty(64, 1).expand(64, 32), "its elements overlap"),
    ],
    ids=["shape", "dtype", "meta", "overlap"],
)
def test_a_target_that_does_not_fit_is_refused(target: Tensor, problem: str, tmp_path: Path) -> None:
    """Before a byte is read."""
    with opened(tmp_path, base()) as file, pytest.raises(BaseFileError) as caught:
        file.read_into("lm_head.weight", target)

    assert caught.value.path == str(file.path)
    assert problem in caught.value.why


def test_a_name_that_the_file_lacks_is_an_error(tmp_path: Path) -> None:
    """Mapped or read."""
    with opened(tmp_path, base()) as file:
        for ask in (lambda: file.tensor("nothing"), lambda: file.read_into("nothing", torch.empty(1))):
            with pytest.raises(BaseFileError, match="holds no tensor named 'nothing'"):
                ask()


@pytest.mark.parametrize(
    ("tensors", "problem"),
    [
        ({"w": torch.zeros(2, dtype=torch.complex128)}, "'w' has dtype torch.complex128"),
        ({"w": torch.zeros(2, device="meta")}, "is on the meta device"),
        ({"w": torch.zeros(2, 2).to_sparse()}, "is laid out as torch.sparse_coo"),
        (
            {"w": torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)},
            "is a NestedTensor, which wraps other tensors",
        ),
        ({"a\nb": torch.zeros(2)}, r"tensor 'a\nb' has characters in its name that cannot be printed"),
        ({"": torch.zeros(2)}, "has no name"),
        ({"__metadata__": torch.zeros(2)}, "the format keeps for itself"),
    ],
    ids=["dtype", "meta", "sparse", "wrapper", "control", "empty", "reserved"],
)
def test_what_the_format_lacks_is_refused_by_name(tensors: dict[str, Tensor], problem: str, tmp_path: Path) -> None:
    """And nothing is written."""
    with pytest.raises(BaseFileError) as caught:
        BaseFileStore(tmp_path).obtain(tensors, OTHER)

    assert problem in caught.value.why
    assert names(tmp_path) == []


@pytest.mark.parametrize("bad", ["", "../../etc", "A" * 64, "0" * 63, "0" * 64 + "\n"])
def test_a_digest_that_is_none_names_no_file(bad: str, tmp_path: Path) -> None:
    """It would lead out of the directory."""
    with pytest.raises(BaseFileError, match="cannot name a file"):
        BaseFileStore(tmp_path).obtain(base(), bad)


def test_a_file_that_was_cut_off_is_an_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    """A mapped read behind the end would be SIGBUS: every access looks at the size first."""
    with opened(tmp_path, base()) as file:
        file.check()
        os.truncate(file.path, file.size_bytes - 1)
        for ask in (
            file.check,
            lambda: file.tensor("lm_head.weight"),
            lambda: file.read_into("lm_head.weight", torch.empty(64, 32)),
        ):
            with pytest.raises(BaseFileError, match=rf"has {file.size_bytes - 1} bytes now and had {file.size_bytes}"):
                ask()


def test_a_file_that_ends_during_a_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size was right when it was looked at."""
    with opened(tmp_path, base()) as file:
        monkeypatch.setattr(BaseFile, "check", lambda self: os.truncate(self.path, 5000))
        with pytest.raises(BaseFileError, match=r"it ends within lm_head\.weight"):
            file.read_into("lm_head.weight", torch.empty(64, 32))


def test_a_disk_error_during_a_read_is_an_error_that_names_the_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EIO from the operating system."""

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with opened(tmp_path, base()) as file:
        monkeypatch.setattr(disk.os, "preadv", fail)
        with pytest.raises(BaseFileError, match=r"lm_head\.weight cannot be read: Input/output error"):
            file.read_into("lm_head.weight", torch.empty(64, 32))


def test_a_read_that_comes_in_parts_is_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system may give less than was asked for, at most 2 GiB a call."""
    read = os.preadv
    target = torch.empty(64, 32)
    with opened(tmp_path, base()) as file:
        monkeypatch.setattr(disk.os, "preadv", lambda fd, into, offset: read(fd, [into[0][:100]], offset))
        file.read_into("lm_head.weight", target)

    assert torch.equal(target, base()["lm_head.weight"])


@pytest.mark.parametrize("change", ["write", "touch", "unlink", "truncate"])
def test_a_file_that_somebody_touched_is_not_untouched(change: str, tmp_path: Path) -> None:
    """Its times, size and inode are those of when its bytes were compared, or it must be compared again."""
    with opened(tmp_path, base()) as file:
        assert file.is_untouched()
        os.utime(file.path, ns=(0, 0))
        assert not file.is_untouched()
    with opened(tmp_path, base()) as file:
        assert file.is_untouched()
        changes = {
            "write": lambda: file.path.write_bytes(b"\0" * file.size_bytes),
            "touch": lambda: os.utime(file.path, ns=(1, 1)),
            "unlink": file.path.unlink,
            "truncate": lambda: os.truncate(file.path, 10),
        }
        changes[change]()

        assert not file.is_untouched()


def test_reading_leaves_a_file_untouched(tmp_path: Path) -> None:
    """Also when another process opens, compares and closes it."""
    with opened(tmp_path, base()) as file:
        with opened(tmp_path, base()) as other:
            other.read_into("scale", torch.empty(()))
            assert (other.written_bytes, other.is_untouched()) == (0, True)

        assert file.is_untouched()


def test_a_mapped_tensor_aliases_the_page_cache_and_a_stray_write_does_not_reach_the_file(tmp_path: Path) -> None:
    """Other ranks share the file."""
    with opened(tmp_path, base()) as file:
        first, second = file.tensor("lm_head.weight"), file.tensor("lm_head.weight")
        assert first.data_ptr() == second.data_ptr()
        assert first.untyped_storage()._cdata != second.untyped_storage()._cdata
        first.zero_()
        target = torch.empty(64, 32)
        file.read_into("lm_head.weight", target)

        assert torch.equal(target, base()["lm_head.weight"])
        assert file.is_untouched()


def test_a_tensor_outlives_the_file_that_it_came_from(tmp_path: Path) -> None:
    """The mapping goes with the last tensor, and until then nobody cleans the file away."""
    file = obtain(tmp_path, base())
    tensor = file.tensor("lm_head.weight")
    file.close()
    assert BaseFileStore(tmp_path).clean().held == (file.path.name,)
    assert torch.equal(tensor, base()["lm_head.weight"])

    del tensor

    assert list(BaseFileStore(tmp_path).clean().removed) == [file.path.name]


def test_a_closed_file_answers_with_an_error(tmp_path: Path) -> None:
    """Closing twice is fine."""
    file = obtain(tmp_path, base())
    file.close()
    file.close()

    asks = (file.check, file.is_untouched, lambda: file.tensor("scale"))
    for ask in (*asks, lambda: file.read_into("scale", torch.empty(()))):
        with pytest.raises(BaseFileError, match="it is closed"):
            ask()
    assert "closed" in repr(file)


def test_opening_and_closing_leaves_no_descriptor_and_no_mapping(tmp_path: Path) -> None:
    """Written, found, refused, or cut off."""

    def held() -> tuple[int, int]:
        maps = Path("/proc/self/maps").read_text(encoding="ascii")
        return len(list(Path("/proc/self/fd").iterdir())), maps.count(str(tmp_path))

    before = held()
    for _ in range(3):
        with opened(tmp_path, base()) as file, opened(tmp_path, base()):
            file.tensor("scale")
            os.truncate(file.path, 100)
            with pytest.raises(BaseFileError):
                obtain(tmp_path, base(), grace_s=0.0)

    assert held() == before


def test_the_layout_does_not_depend_on_the_order_of_the_tensors(tmp_path: Path) -> None:
    """Two ranks that hold the same tensors make the same file."""
    with opened(tmp_path / "one", base()) as one, opened(tmp_path / "two", dict(reversed(base().items()))) as two:
        assert one.path.read_bytes() == two.path.read_bytes()


def test_a_tensor_larger_than_a_chunk_is_written_whole(tmp_path: Path) -> None:
    """In chunks, one after the other, and compared so."""
    large = {"w": torch.arange(5 * 2**20, dtype=torch.int32).view(-1, 2**20), "t": torch.ones(3, 2**21).t()}
    with opened(tmp_path, large) as file, opened(tmp_path, large) as again:
        assert again.written_bytes == 0
        assert all(same_bytes(file.tensor(name), tensor) for name, tensor in large.items())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_base_on_a_device_is_written_from_it_and_read_into_it(tmp_path: Path) -> None:
    """Strided tensors too."""
    here = base() | big_base(40)
    there = {name: tensor.cuda() for name, tensor in here.items()}
    with opened(tmp_path, there) as file:
        for name, tensor in here.items():
            target = torch.empty_like(there[name])
            file.read_into(name, target)
            assert same_bytes(target, tensor)


def test_a_touched_file_with_the_right_bytes_is_untouched_again_once_compared(tmp_path: Path) -> None:
    """The content decides, and the comparison is paid once."""
    with opened(tmp_path, base()) as file:
        os.utime(file.path, ns=(1, 1))
        assert not file.is_untouched()
        file.compare()

        assert file.is_untouched()


def test_a_comparison_sees_a_byte_that_another_program_wrote(tmp_path: Path) -> None:
    """FB-07: corrupted while it is in use: refused, and not taken for untouched."""
    with opened(tmp_path, base()) as file:
        with file.path.open("r+b") as writer:
            writer.seek(-1, os.SEEK_END)
            writer.write(b"\x07")
        with pytest.raises(BaseFileError, match="not those of its digest any more"):
            file.compare()

        assert not file.is_untouched()
