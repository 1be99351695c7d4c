"""Runs the contract on the real library and prints one line a rule. A program, started by test_real_library."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from torch import Tensor

from lifecycle.saver.managed import ManagedSaver
from lifecycle.saver.protocol import Backup, MemorySaver
from lifecycle.testing import SaverContract
from tests.saver.real_port import RealLibrary, RealPort


class RealContract(SaverContract):
    """The contract over the library's own calls."""

    def __init__(self, folder: Path) -> None:
        self.library = RealLibrary(folder)
        self.made: list[tuple[ManagedSaver, RealPort]] = []

    def new_saver(self, *, retain_host_backup: bool = False, disk_dir: str | None = None) -> MemorySaver:
        """A saver over the one library of this process."""
        port = RealPort(self.library, disk_dir)
        saver = ManagedSaver(port, retain_host_backup=retain_host_backup, disk_dir=disk_dir)
        self.made.append((saver, port))
        return saver

    def allocate(self, saver: MemorySaver, size_bytes: int, tag: str, backup: Backup) -> Tensor:
        """Memory in a region of the library."""
        return next(port for made, port in self.made if made is saver).allocate(size_bytes, tag, backup)

    def clean_up(self) -> None:
        """Free everything, paused or not."""
        for _, port in self.made:
            port.free_all()
        self.made.clear()


def main(folder: str) -> None:
    """Run every rule."""
    contract = RealContract(Path(folder))
    for rule in contract.rules():
        print(f"began {rule}", flush=True)
        try:
            getattr(contract, rule)()
        except Exception:  # noqa: BLE001  # the parent reports it
            traceback.print_exc()
        else:
            print(f"held {rule}", flush=True)
        contract.clean_up()
    print(f"left {contract.library.used_bytes()} bytes", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
