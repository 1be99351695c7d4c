"""Device memory emulated on pages of host memory, with the semantics of torch_memory_saver 0.0.10.

Differences, all deliberate: misuse raises :class:`~lifecycle.errors.SaverMisuse` where the library ends the
process; what fails raises :class:`~lifecycle.errors.SaverError` and has changed nothing; disk backups are
removed when the arena is closed; a region without backup comes back as bytes 0xFF rather than by chance.

What a paused tensor does: a read gives bytes 0xFF (NaN in float64, float32, float16, bfloat16, float8_e4m3fn and
float8_e5m2, -1 in signed integers, True in bool) and a write ends the process with SIGSEGV.
"""

from __future__ import annotations

from torch import Tensor

from lifecycle.errors import SaverMisuse
from lifecycle.saver.arena_port import ArenaPort, Faults
from lifecycle.saver.books import Region
from lifecycle.saver.managed import ManagedSaver
from lifecycle.saver.protocol import Backup

__all__ = ["ArenaPort", "Faults", "HostArena"]


class HostArena(ManagedSaver):
    """The default memory saver: a :class:`~lifecycle.saver.managed.ManagedSaver` over an :class:`ArenaPort`.

    Args:
        capacity_bytes: of the emulated device, None for no limit.
        disk_dir: folder of disk backups; None refuses them.
        retain_host_backup: whether host backups outlive a resume.
        faults: see :class:`ArenaPort`.

    Raises:
        ConfigError: see :class:`ArenaPort`.
    """

    def __init__(
        self,
        capacity_bytes: int | None = None,
        disk_dir: str | None = None,
        *,
        retain_host_backup: bool = False,
        faults: Faults | None = None,
    ) -> None:
        self.port = ArenaPort(capacity_bytes, disk_dir, faults=faults)
        super().__init__(self.port, retain_host_backup=retain_host_backup, disk_dir=disk_dir)

    def allocate(self, size_bytes: int, tag: str, backup: Backup) -> Tensor:
        """Raw memory of the arena, as a framework would allocate it in a region. In no book until adopted.

        Raises:
            SaverMisuse, SaverError: see :meth:`ArenaPort.allocate`.
        """
        return self.port.allocate(size_bytes, tag, backup)

    def close(self) -> None:
        """Give everything back, files included. Tensors that are left may die, but not be used. Idempotent."""
        with self._lock:
            self.port.close()
            self._forget_all()

    def _check_adoptable(self, call: str, region: Region, tag: str, backup: Backup, *, paused: bool) -> None:
        found = self.port.describe(region.address, region.size_bytes)
        if found != (tag, backup, paused):
            wanted = f"memory of this arena with tag {tag}, backup {backup} and paused={paused}"
            raise SaverMisuse(call, f"the tensors do not lie in {wanted}, but in {found or 'other memory'}")
