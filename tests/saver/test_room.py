"""What is asked for before a native call that would end the process for want of it."""

from __future__ import annotations

import shutil
import types
from pathlib import Path

import pytest
import torch

from lifecycle.errors import SaverError
from lifecycle.memory import host
from lifecycle.saver.protocol import Backup
from lifecycle.saver.room import CarefulSaver, segment_bytes
from tests.saver.scripted import ScriptedPort

MIB = 1 << 20


def test_segments_are_those_of_torchs_caching_allocator() -> None:
    """Up to 1 MiB takes 2 MiB, below 10 MiB takes 20 MiB, above it is rounded up to 2 MiB."""
    sizes = [1, MIB, MIB + 1, 10 * MIB - 1, 10 * MIB, 11 * MIB]

    assert [segment_bytes([size]) // MIB for size in sizes] == [2, 2, 20, 20, 10, 12]


def disk_saver(folder: Path) -> tuple[CarefulSaver, ScriptedPort]:
    """A disk-backed tag over a port that writes no files: the test writes them."""
    port = ScriptedPort()
    saver = CarefulSaver(port, disk_dir=str(folder))
    saver.place({"x": torch.ones(1)}, "tag", Backup.DISK)
    return saver, port


def test_a_disk_folder_that_is_gone_is_refused_before_the_pause(tmp_path: Path) -> None:
    """The library ends the process when its file cannot be made (FB-20)."""
    folder = tmp_path / "disk"
    folder.mkdir()
    saver, _ = disk_saver(folder)
    folder.rmdir()

    with pytest.raises(SaverError, match="is not a directory; mend that first"):
        saver.pause("tag")

    assert not saver.tags()["tag"].paused


def test_backup_files_that_are_gone_are_refused_before_the_resume(tmp_path: Path) -> None:
    """Which file is whose cannot be asked, but together they have to hold what was written."""
    saver, _ = disk_saver(tmp_path)
    saver.pause("tag")
    (tmp_path / "tms_abcdef").write_bytes(bytes(saver.usage().disk_bytes - 1))

    with pytest.raises(SaverError, match="put the missing ones back"):
        saver.resume("tag")
    assert saver.tags()["tag"].paused
    (tmp_path / "tms_abcdef").write_bytes(bytes(saver.usage().disk_bytes))

    saver.resume("tag")
    assert not saver.tags()["tag"].paused


def test_memory_that_is_freed_late_counts_in_what_its_tag_needs() -> None:
    """Torch may still hold what was released: it is paused and resumed with the tag's next memory."""
    port = ScriptedPort()
    saver = CarefulSaver(port)
    saver.place({"old": torch.ones(1)}, "tag", Backup.CPU)
    saver.release("tag")
    saver.place({"new": torch.ones(1)}, "tag", Backup.CPU)
    saver.pause("tag")
    assert [allocation.paused for allocation in port.allocations] == [True, True]
    port.free_bytes = 4 * MIB - 1

    with pytest.raises(SaverError, match=f"up to {4 * MIB} bytes"):
        saver.resume("tag")


@pytest.mark.parametrize("backup", [Backup.CPU, Backup.DISK])
def test_a_backup_that_is_there_needs_no_room_again(
    backup: Backup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retained host backup and a file that was written are overwritten in place."""
    saver = CarefulSaver(ScriptedPort(), retain_host_backup=True, disk_dir=str(tmp_path))
    saver.place({"x": torch.ones(1)}, "tag", backup)
    saver.pause("tag")
    (tmp_path / "tms_abcdef").write_bytes(bytes(saver.usage().disk_bytes))
    saver.resume("tag")
    monkeypatch.setattr(host, "host_free_bytes", lambda: 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: types.SimpleNamespace(free=0))

    saver.pause("tag")

    assert saver.tags()["tag"].paused
