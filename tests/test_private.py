"""What a run writes is its owner's alone: the log, the folders that had to be made, and the bytes of its weights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lifecycle import AuditLog, HostArena, private
from lifecycle.audit.read import read_log
from lifecycle.audit.verify import verify_chain
from lifecycle.errors import AuditError, ConfigError


def mode(path: Path) -> int:
    """Its permission bits."""
    return path.stat().st_mode & 0o777


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Nothing is private by the habit of the account that runs the tests."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_disk_folder_that_has_to_be_made_is_the_owners_alone(tmp_path: Path) -> None:
    """0700 for the folder and for each above it that was missing: disk backups are the weights."""
    tmp_path.chmod(0o755)
    folder = tmp_path / "scratch" / "backups"
    HostArena(disk_dir=str(folder))

    assert [mode(one) for one in (folder, folder.parent, tmp_path)] == [0o700, 0o700, 0o755]


def test_a_disk_folder_that_exists_stays_as_it_is(tmp_path: Path) -> None:
    """Its owner has decided who may look into it."""
    tmp_path.chmod(0o750)
    HostArena(disk_dir=str(tmp_path))

    assert mode(tmp_path) == 0o750


@pytest.mark.parametrize("kind", ["a file", "a link to nothing"])
def test_a_disk_folder_that_is_none_is_refused(tmp_path: Path, kind: str) -> None:
    """The error names it."""
    path = tmp_path / "backups"
    if kind == "a file":
        path.write_text("")
    else:
        path.symlink_to("nowhere")

    with pytest.raises(ConfigError, match="backups cannot be made"):
        HostArena(disk_dir=str(path))


@pytest.mark.parametrize("there", [True, False], ids=["to a log", "to nothing"])
def test_a_log_does_not_follow_a_link(tmp_path: Path, there: bool) -> None:  # noqa: FBT001 - a parameter
    """Whoever may write into the folder could otherwise lead the records into a file of the owner's."""
    target, link = tmp_path / "target", tmp_path / "audit.jsonl"
    if there:
        AuditLog(target).close()
    before = target.read_bytes() if there else None
    link.symlink_to(target)

    with pytest.raises(AuditError, match="symbolic link; name the file itself"):
        AuditLog(link)

    assert (target.read_bytes() if target.exists() else None) == before


def test_a_log_that_is_continued_becomes_the_owners_alone(tmp_path: Path) -> None:
    """An older file, or one made by a shell, may be open to others."""
    path = tmp_path / "audit.jsonl"
    AuditLog(path).close()
    path.chmod(0o666)
    AuditLog(path).close()

    assert mode(path) == 0o600
    assert verify_chain(read_log(path)) == []


def test_a_file_that_is_no_log_keeps_its_mode(tmp_path: Path) -> None:
    """A wrong path must not lock others out of somebody's file."""
    path = tmp_path / "shared.txt"
    path.write_text("not a log\n")
    path.chmod(0o664)

    with pytest.raises(AuditError, match="something else"):
        AuditLog(path)

    assert mode(path) == 0o664


@pytest.mark.parametrize("bits", [0o666, 0o620, 0o602])
def test_anothers_log_that_others_may_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    """Its mode cannot be set, and its records could be anybody's."""
    path = tmp_path / "audit.jsonl"
    AuditLog(path).close()
    path.chmod(bits)
    before = path.read_bytes()
    monkeypatch.setattr(private.os, "geteuid", lambda: path.stat().st_uid + 1)

    with pytest.raises(AuditError, match="others may write it"):
        AuditLog(path)

    assert (path.read_bytes(), mode(path)) == (before, bits)


def test_anothers_log_that_nobody_else_may_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service account's file that this process was let in to."""
    path = tmp_path / "audit.jsonl"
    AuditLog(path).close()
    path.chmod(0o644)
    monkeypatch.setattr(private.os, "geteuid", lambda: path.stat().st_uid + 1)
    AuditLog(path).close()

    assert mode(path) == 0o644
    assert len(read_log(path)) == 2
