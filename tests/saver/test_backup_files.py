"""Files of disk backups: in use as long as their arena's process lives, and removed by the next one after it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from lifecycle.cli.app import app
from lifecycle.saver import backup_files
from lifecycle.saver.arena import HostArena
from lifecycle.saver.protocol import Backup
from tests.saver.proc import descriptors


def paused(folder: Path) -> HostArena:
    """An arena with one disk backup."""
    arena = HostArena(disk_dir=str(folder))
    arena.place({"t": torch.ones(3000)}, "t", Backup.DISK)
    arena.pause("t")
    return arena


def test_a_backup_in_use_is_not_swept_and_an_arenas_end_takes_file_lock_and_descriptor(tmp_path: Path) -> None:
    """Paused or active again: it is in use until the arena is closed."""
    before = descriptors()
    arena = paused(tmp_path)
    (name,) = backup_files.held(tmp_path)
    assert backup_files.sweep(tmp_path) == {}
    arena.resume("t")
    assert backup_files.sweep(tmp_path) == {}
    arena.close()

    assert list(tmp_path.iterdir()) == []
    assert name.startswith("tms_")
    assert descriptors() == before


def test_the_next_arena_removes_what_nobody_holds_and_nothing_else(tmp_path: Path) -> None:
    """Leftovers go; what is in use, the library's files, links and files of other names stay."""
    arena = paused(tmp_path)
    (in_use,) = backup_files.held(tmp_path)
    (tmp_path / "tms_arena_00000000").write_bytes(b"left by a process that was killed")
    others = {"tms_abc123": b"the library's", "tms_arena_0": b"no such name", "notes": b"mine"}
    for name, content in others.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "tms_arena_11111111").symlink_to(tmp_path / "notes")
    HostArena(disk_dir=str(tmp_path)).close()

    assert {path.name for path in tmp_path.iterdir()} == {in_use, *others, "tms_arena_11111111"}
    assert {name: (tmp_path / name).read_bytes() for name in others} == others
    arena.resume("t")


def test_a_file_that_a_sweep_sees_before_it_is_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep removes it, and the arena notices."""
    real, swept = backup_files.fcntl.flock, []

    def flock(descriptor: int, how: int) -> None:
        if not swept:
            swept.append(descriptor)
            (path,) = tmp_path.iterdir()
            path.unlink()
        real(descriptor, how)

    monkeypatch.setattr(backup_files.fcntl, "flock", flock)
    descriptor, path = backup_files.create(str(tmp_path))

    assert [one.name for one in tmp_path.iterdir()] == [Path(path).name]
    os.close(descriptor)


def test_clean_removes_backups_that_nobody_holds_and_names_those_of_the_library(tmp_path: Path) -> None:
    """The library's files carry no lock: whether a process needs them cannot be told."""
    arena = paused(tmp_path)
    (in_use,) = backup_files.held(tmp_path)
    (tmp_path / "tms_arena_00000000").write_bytes(b"left")
    (tmp_path / "tms_abc123").write_bytes(b"the library's")
    result = CliRunner().invoke(app, ["clean", str(tmp_path)])

    assert result.exit_code == 0
    assert "removed tms_arena_00000000 (4 bytes)" in result.output
    assert f"held    {in_use}" in result.output
    assert "left    tms_abc123" in result.output
    assert {path.name for path in tmp_path.iterdir()} == {in_use, "tms_abc123"}
    arena.close()
