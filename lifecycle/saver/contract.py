"""The first half of the contract of memory savers: what happens to bytes. Import it from ``lifecycle.testing``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import torch
from torch import Tensor

from lifecycle.errors import SaverMisuse
from lifecycle.saver.protocol import Backup, MemorySaver, Usage

DTYPES: Final = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.complex64,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.bool,
)
TAG: Final = "actor/base"


def random_tensor(dtype: torch.dtype, *shape: int) -> Tensor:
    """Random bits, also NaN and infinity where the format has them; 0 and 1 for bool. On the CPU."""
    count = torch.Size(shape).numel() * dtype.itemsize
    high = 2 if dtype is torch.bool else 256
    return torch.randint(0, high, (count,), dtype=torch.uint8).view(dtype).view(shape)


def bits(tensor: Tensor) -> bytes:
    """The tensor's bytes in row-major order, wherever it is."""
    flat = tensor.detach().cpu().contiguous().view(-1)
    return bytes(flat.view(torch.uint8).tolist())


@contextmanager
def refused() -> Iterator[None]:
    """The body has to raise :class:`~lifecycle.errors.SaverMisuse` with a reason.

    Raises:
        AssertionError: it does not.
    """
    try:
        yield
    except SaverMisuse as error:
        if not error.call or not error.why:
            raise AssertionError("the error does not name the call and the reason") from error
    else:
        raise AssertionError("the call was not refused")


class BytesContract:
    """What a memory saver does to bytes: at rest, while paused, and over cycles."""

    def new_saver(self, *, retain_host_backup: bool = False, disk_dir: str | None = None) -> MemorySaver:
        """A saver with empty books. Made by the subclass."""
        raise NotImplementedError

    def test_every_dtype_keeps_its_bits_and_its_address_over_cycles(self) -> None:
        """Pause and resume change neither a bit nor an address."""
        saver = self.new_saver()
        tensors = {str(dtype): random_tensor(dtype, 7, 5) for dtype in DTYPES}
        saver.place(tensors, TAG, Backup.CPU)
        before = {name: (bits(tensor), tensor.data_ptr()) for name, tensor in tensors.items()}

        for _ in range(3):
            saver.pause(TAG)
            saver.resume(TAG)

        assert {name: (bits(tensor), tensor.data_ptr()) for name, tensor in tensors.items()} == before

    def test_a_paused_tensor_is_read_from_the_host_backup(self) -> None:
        """The backup has the tensor's shape, dtype, strides and bits, on a storage of its own."""
        saver = self.new_saver()
        tensors = {str(dtype): random_tensor(dtype, 6, 4) for dtype in DTYPES}
        tensors["view"] = tensors["torch.float32"].t()[1:3]
        saver.place(tensors, TAG, Backup.CPU)
        before = {name: bits(tensor) for name, tensor in tensors.items()}
        saver.pause(TAG)

        for name, tensor in tensors.items():
            backup = saver.host_backup(tensor)

            assert backup is not None
            assert bits(backup) == before[name]
            assert (backup.dtype, backup.shape, backup.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
            assert backup.device.type == "cpu"

    def test_the_host_backup_is_not_a_copy(self) -> None:
        """What is written into the backup while the tag is paused is in the tensor after resume."""
        saver = self.new_saver()
        first, second = torch.zeros(4), torch.zeros(4)
        saver.place({"first": first, "second": second}, TAG, Backup.CPU)
        saver.pause(TAG)
        backup = saver.host_backup(second)
        assert backup is not None

        backup.copy_(torch.arange(4.0))
        saver.resume(TAG)

        assert second.tolist() == [0.0, 1.0, 2.0, 3.0]
        assert first.tolist() == [0.0] * 4

    def test_without_retain_an_active_tag_has_no_backup(self) -> None:
        """Before the first pause, and after resume, there is nothing to read on the host."""
        saver = self.new_saver()
        tensor = torch.randn(4)
        saver.place({"tensor": tensor}, TAG, Backup.CPU)

        assert saver.host_backup(tensor) is None
        saver.pause(TAG)
        saver.resume(TAG)
        assert saver.host_backup(tensor) is None
        assert saver.usage().host_bytes == 0

    def test_a_retained_backup_holds_the_bytes_of_the_last_pause(self) -> None:
        """With retain the backup answers while active, and is as old as the last pause."""
        saver = self.new_saver(retain_host_backup=True)
        tensor = torch.zeros(4)
        saver.place({"tensor": tensor}, TAG, Backup.CPU)
        assert saver.host_backup(tensor) is None
        saver.pause(TAG)
        saver.resume(TAG)

        tensor.fill_(1.0)

        backup = saver.host_backup(tensor)
        assert backup is not None
        assert backup.tolist() == [0.0] * 4
        saver.pause(TAG)
        renewed = saver.host_backup(tensor)
        assert renewed is not None
        assert renewed.tolist() == [1.0] * 4
        assert saver.usage().host_bytes == saver.tags()[TAG].size_bytes

    def test_a_region_without_backup_comes_back_writable(self) -> None:
        """Its values are lost, its address is not."""
        saver = self.new_saver()
        tensor = torch.zeros(4)
        saver.place({"tensor": tensor}, TAG, Backup.NONE)
        address = tensor.data_ptr()
        assert saver.host_backup(tensor) is None
        saver.pause(TAG)
        with refused():
            saver.host_backup(tensor)

        saver.resume(TAG)
        tensor.fill_(3.0)

        assert tensor.data_ptr() == address
        assert tensor.tolist() == [3.0] * 4

    def test_a_disk_backup_is_in_the_folder_and_not_in_host_memory(self) -> None:
        """A disk-backed tag keeps its bits, takes no host memory and has no host backup."""
        with TemporaryDirectory() as folder:
            self._check_disk_backup(self.new_saver(disk_dir=folder), Path(folder))

    def _check_disk_backup(self, saver: MemorySaver, folder: Path) -> None:
        tensor = random_tensor(torch.bfloat16, 300, 7)
        before = bits(tensor)
        saver.place({"tensor": tensor}, TAG, Backup.DISK)
        saver.pause(TAG)

        assert saver.host_backup(tensor) is None
        assert saver.usage() == Usage(0, 0, saver.tags()[TAG].size_bytes)
        assert [path.name[:4] for path in folder.iterdir()] == ["tms_"]
        saver.resume(TAG)
        assert bits(tensor) == before

    def test_a_tensor_without_elements_has_a_place_and_a_backup(self) -> None:
        """Nothing breaks on tensors of shape [0, n]."""
        saver = self.new_saver()
        empty, other = torch.empty(0, 3), torch.randn(2)
        saver.place({"empty": empty, "other": other}, TAG, Backup.CPU)
        saver.pause(TAG)

        backup = saver.host_backup(empty)

        assert saver.tag_of(empty) == TAG
        assert backup is not None
        assert backup.shape == empty.shape
