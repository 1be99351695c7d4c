"""Calls that end the process with the real library, each made in a fork. A program, started by test_real_library."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from lifecycle.saver.protocol import Backup
from tests.saver.real_port import RealLibrary, RealPort


class Victim:
    """The real library with one allocation with and one without backup, and no guards."""

    def __init__(self, stub: Path, folder: Path) -> None:
        self.folder = folder
        self.library = RealLibrary(stub)
        self.port = RealPort(self.library, str(folder))
        self.cpu = self.port.allocate(4096, "cpu", Backup.CPU).data_ptr()
        self.none = self.port.allocate(4096, "none", Backup.NONE).data_ptr()


def pause_twice(victim: Victim) -> None:
    victim.port.pause("cpu")
    victim.port.pause("cpu")


def resume_while_active(victim: Victim) -> None:
    victim.port.resume("cpu")


def pause_every_tag(victim: Victim) -> None:
    victim.port.pause("cpu")
    victim.library.native.tms_pause(None)


def place_into_a_paused_tag(victim: Victim) -> None:
    victim.port.pause("cpu")
    victim.port.allocate(8, "cpu", Backup.CPU)
    victim.port.resume("cpu")


def backup_of_an_unknown_address(victim: Victim) -> None:
    victim.port.backup_pointer(4096, 8)


def backup_that_spans_allocations(victim: Victim) -> None:
    victim.port.backup_pointer(victim.cpu, 8192)


def backup_of_a_paused_region_without_one(victim: Victim) -> None:
    victim.port.pause("none")
    victim.port.backup_pointer(victim.none, 8)


def resume_on_a_full_device(victim: Victim) -> None:
    victim.port.pause("cpu")
    victim.library.driver.stub_set_capacity(0)
    victim.port.resume("cpu")


def disk_folder_that_is_a_file(victim: Victim) -> None:
    victim.folder.rmdir()
    victim.folder.touch()
    victim.port.allocate(8, "disk", Backup.DISK)
    victim.port.pause("disk")


DEATHS: dict[str, Callable[[Victim], None]] = {
    death.__name__: death
    for death in (
        pause_twice,
        resume_while_active,
        pause_every_tag,
        place_into_a_paused_tag,
        backup_of_an_unknown_address,
        backup_that_spans_allocations,
        backup_of_a_paused_region_without_one,
        resume_on_a_full_device,
        disk_folder_that_is_a_file,
    )
}


def survives(victim: Victim) -> None:
    """Not misuse: an unknown tag is a silent success, and so is a plain cycle."""
    victim.port.pause("unknown")
    victim.port.pause("cpu")
    victim.port.resume("cpu")


def main(stub: str, folder: str) -> None:
    """Print one line a call: its name, and how the process that made it ended (0: it lived on)."""
    victim = Victim(Path(stub), Path(folder))
    for name, death in {"survives": survives, **DEATHS}.items():
        child = os.fork()
        if child == 0:
            victim.library.driver.stub_leave_at_once()
            try:
                death(victim)
            finally:
                os._exit(0)  # also after an exception: only the library itself may end it otherwise
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(f"{name} {code}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
