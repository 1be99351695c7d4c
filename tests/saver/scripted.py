"""A native port that behaves as the real library does: on misuse the process is over."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from lifecycle.errors import SaverError
from lifecycle.saver.protocol import Backup


class ProcessDeath(BaseException):
    """Where the real library calls exit(1)."""


@dataclass
class Allocation:
    """As the library's own record, without any way to ask for it."""

    memory: Tensor
    tag: str
    backup: Backup
    paused: bool = False
    slot: Tensor | None = None


class ScriptedPort:
    """Allocations in ordinary memory. ``fail_next`` makes the next allocate, pause or resume fail softly."""

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self.retain = False
        self.died = ""
        self.fail_next = False
        self.synchronized = 0
        self.free_bytes: int | None = None

    def die(self, why: str) -> ProcessDeath:
        """The process ends here."""
        self.died = why
        return ProcessDeath(why)

    def fail_if_armed(self, tag: str) -> None:
        """A failure that a port may have."""
        if self.fail_next:
            self.fail_next = False
            raise SaverError(tag, "scripted failure")

    def enabled(self) -> bool:
        return True

    def allocate(self, size_bytes: int, tag: str, backup: Backup) -> Tensor:
        self.fail_if_armed(tag)
        memory = torch.zeros(size_bytes, dtype=torch.uint8)
        self.allocations.append(Allocation(memory, tag, backup))
        return memory

    def free(self, allocation: Tensor) -> None:
        """A caching allocator: the memory stays in the library, in the state it is in."""

    def pause(self, tag: str) -> None:
        self.fail_if_armed(tag)
        for allocation in self._of(tag):
            if allocation.paused:
                raise self.die(f"pause of a paused allocation in {tag!r}")
            if allocation.backup is Backup.CPU:
                allocation.slot = allocation.memory.clone()
            allocation.memory.fill_(0xFF)
            allocation.paused = True

    def resume(self, tag: str) -> None:
        self.fail_if_armed(tag)
        for allocation in self._of(tag):
            if not allocation.paused:
                raise self.die(f"resume of an active allocation in {tag!r}")
            if allocation.slot is not None:
                allocation.memory.copy_(allocation.slot)
                allocation.slot = allocation.slot if self.retain else None
            allocation.paused = False

    def backup_pointer(self, address: int, size_bytes: int) -> int | None:
        for allocation in self.allocations:
            start = allocation.memory.data_ptr()
            if start <= address < start + allocation.memory.nbytes:
                if address + size_bytes > start + allocation.memory.nbytes:
                    raise self.die("backup of bytes that span allocations")
                if allocation.paused and allocation.backup is Backup.NONE:
                    raise self.die("backup of a paused allocation without one")
                return None if allocation.slot is None else allocation.slot.data_ptr() + address - start
        raise self.die(f"backup of unknown address {address:#x}")

    def set_retain(self, *, retain: bool) -> None:
        self.retain = retain

    def unmanaged(self) -> AbstractContextManager[None]:
        return nullcontext()

    def synchronize(self) -> None:
        self.synchronized += 1

    def device_free_bytes(self) -> int | None:
        return self.free_bytes

    def device_used_bytes(self) -> int | None:
        return sum(allocation.memory.nbytes for allocation in self.allocations if not allocation.paused)

    def frees_while_paused(self) -> bool:
        return True

    def _of(self, tag: str) -> list[Allocation]:
        if not tag:
            return self.allocations
        return [allocation for allocation in self.allocations if allocation.tag == tag]
