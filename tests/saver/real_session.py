"""One process's use of a memory saver over the real library: any call, and what must hold after each. Runs in a fork.

Tensors are named by number, so that a call is plain data that another process can draw, send and shrink.
"""

from __future__ import annotations

import shutil
import types
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lifecycle.errors import LifecycleError
from lifecycle.memory import host
from lifecycle.saver.managed import ManagedSaver
from lifecycle.saver.protocol import Backup
from tests.saver.proc import PAGE_BYTES, writable_of
from tests.saver.real_port import RealLibrary, RealPort

UNLIMITED = 1 << 62


class LatePort(RealPort):
    """The real library under an allocator that frees when it likes, as torch's does."""

    def __init__(self, library: RealLibrary, disk_dir: str, *, late: bool) -> None:
        super().__init__(library, disk_dir)
        self.late = late
        self.released: list[Tensor] = []

    def free(self, allocation: Tensor) -> None:
        if self.late:
            self.released.append(allocation)
        else:
            super().free(allocation)

    def collect(self) -> None:
        """The allocator's clean-up."""
        for allocation in self.released:
            super().free(allocation)
        self.released.clear()


@dataclass(eq=False)
class Entry:
    """A tensor, what is in it (None once its values were lost), and whether a framework owns its memory."""

    tensor: Tensor
    content: list[int] | None
    adopted: bool = False


class Session:
    """The saver, everything that was put into it, and a machine whose room can be taken away.

    Args:
        library: the real library.
        folder: of disk backups.
        kind: the class of saver.
        retain: whether host backups outlive a resume.
        late: whether freed memory stays in the library for a while.
    """

    def __init__(
        self, library: RealLibrary, folder: Path, kind: type[ManagedSaver], *, retain: bool, late: bool
    ) -> None:
        library.driver.stub_leave_at_once()
        library.driver.stub_set_granularity(PAGE_BYTES)
        self.library = library
        self.folder = folder
        self.port = LatePort(library, str(folder), late=late)
        self.saver = kind(self.port, retain_host_backup=retain, disk_dir=str(folder))
        self.entries: list[Entry] = []
        self.drawn = 0
        self.host_free, self.disk_free = UNLIMITED, UNLIMITED
        host.host_free_bytes = lambda *_: self.host_free
        shutil.disk_usage = lambda _: types.SimpleNamespace(free=self.disk_free)  # type: ignore[return-value, assignment]

    def do(self, call: str, *arguments: object) -> str:
        """Make a call; says whether it was refused. Then everything that must hold is checked.

        Raises:
            AssertionError: something does not.
        """
        try:
            getattr(self, call)(*arguments)
        except LifecycleError as error:
            answer = type(error).__name__
        else:
            answer = "done"
        self.check()
        return answer

    def place(self, tag: str, backup: str) -> None:
        """A new tensor and a view of it."""
        tensor = self._new(5)
        self.saver.place({"tensor": tensor, "view": tensor[1:]}, tag, Backup(backup))
        self.entries.append(Entry(tensor, tensor.tolist()))

    def place_again(self, tag: str, backup: str, which: int) -> None:
        """A tensor that lies in a region already."""
        if self.entries:
            self.saver.place({"tensor": self._entry(which).tensor}, tag, Backup(backup))

    def adopt(self, tag: str, backup: str) -> None:
        """A framework allocates in a region, as long as its tag is not paused, and tells the saver."""
        info = self.saver.tags().get(tag)
        if info is not None and (info.paused or info.backup != backup):
            return
        memory = self.port.allocate(64, tag, Backup(backup)).copy_(self._new(64))
        try:
            self.saver.adopt({"memory": memory}, tag, Backup(backup), paused=False)
        except LifecycleError:
            RealPort.free(self.port, memory)  # the framework heeds the refusal
            raise
        self.entries.append(Entry(memory, memory.tolist(), adopted=True))

    def adopt_again(self, tag: str, backup: str, which: int, paused: bool) -> None:  # noqa: FBT001  # it is sent as data
        """Memory that is known already."""
        if self.entries:
            self.saver.adopt({"memory": self._entry(which).tensor}, tag, Backup(backup), paused=paused)

    def pause(self, tag: str) -> None:
        """Pause whatever the state is."""
        self.saver.pause(tag)
        if self.saver.tags()[tag].backup is Backup.NONE:
            for entry in self._under(tag):
                entry.content = None

    def resume(self, tag: str) -> None:
        """Resume whatever the state is."""
        self.saver.resume(tag)

    def release(self, tag: str) -> None:
        """Release whatever the state is. The saver's tensors are not used any more, the framework frees its own."""
        gone = self._under(tag)
        self.saver.release(tag)
        for entry in gone:
            self.entries.remove(entry)
            if entry.adopted:
                RealPort.free(self.port, entry.tensor)

    def collect(self) -> None:
        """The allocator frees what was released, whatever is paused."""
        self.port.collect()

    def write(self, which: int) -> None:
        """New values, on the device or in the backup of a paused tensor."""
        if not self.entries:
            return
        entry = self._entry(which)
        tag = self.saver.tag_of(entry.tensor)
        paused = tag is not None and self.saver.tags()[tag].paused
        target = self.saver.host_backup(entry.tensor) if paused else entry.tensor
        if target is not None:
            target.copy_(self._new(target.numel()))
            entry.content = target.tolist()

    def query(self, which: int, first: int, last: int) -> None:
        """The backup of a part of a tensor, or of memory that lies nowhere."""
        tensor = self._entry(which).tensor if self.entries else torch.zeros(5)
        self.saver.host_backup(tensor[first:last])

    def take_room(self, where: str) -> None:
        """Another tenant takes what is left, and the machine says so to whoever asks."""
        if where == "device":
            self.library.driver.stub_set_capacity(self.library.used_bytes())
        elif where == "host":
            self.host_free = 0
            self.library.runtime.stub_set_host_capacity(0)
        else:
            self.disk_free = 0
            self.library.driver.stub_set_disk_is_full(1)

    def give_room(self) -> None:
        """Everything is free again."""
        self.host_free, self.disk_free = UNLIMITED, UNLIMITED
        self.library.driver.stub_set_capacity(UNLIMITED)
        self.library.runtime.stub_set_host_capacity(UNLIMITED)
        self.library.driver.stub_set_disk_is_full(0)

    def spoil_disk(self) -> None:
        """Somebody removes all backup files."""
        for path in self.folder.iterdir():
            path.unlink()

    def check(self) -> None:
        """The books say what the kernel says, and every byte that can be read is the one that was written."""
        regions = [(region.address, book.paused) for book in self.saver._books for region in book.regions]
        mapped = writable_of(address for address, _ in regions)
        assert [address in mapped for address, _ in regions] == [not paused for _, paused in regions]
        for entry in self.entries:
            if entry.content is not None:
                self._check_content(entry)

    def _check_content(self, entry: Entry) -> None:
        tag = self.saver.tag_of(entry.tensor)
        if tag is None or not self.saver.tags()[tag].paused:
            assert entry.tensor.tolist() == entry.content
        elif self.saver.tags()[tag].backup is Backup.CPU:
            backup = self.saver.host_backup(entry.tensor)
            assert backup is not None
            assert backup.tolist() == entry.content

    def _new(self, count: int) -> Tensor:
        self.drawn += 1
        return torch.arange(count, dtype=torch.uint8) + self.drawn % 100

    def _entry(self, which: int) -> Entry:
        return self.entries[which % len(self.entries)]

    def _under(self, tag: str) -> list[Entry]:
        return [entry for entry in self.entries if self.saver.tag_of(entry.tensor) == tag]
