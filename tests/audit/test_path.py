"""Where a log may lie."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from lifecycle import AuditError, AuditLog, HostArena


def test_a_log_does_not_follow_a_symlink(tmp_path: Path) -> None:
    """Somebody else could have put it there to have a file of ours written to."""
    target = tmp_path / "target"
    target.write_text("untouched")
    (tmp_path / "audit.jsonl").symlink_to(target)
    with pytest.raises(AuditError, match="cannot be opened"):
        AuditLog(tmp_path / "audit.jsonl")

    assert target.read_text() == "untouched"


def test_a_disk_directory_that_has_to_be_made_is_for_its_owner_only(tmp_path: Path) -> None:
    """It holds the weights."""
    folder = tmp_path / "backups"
    HostArena(disk_dir=str(folder)).close()

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
