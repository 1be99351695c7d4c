"""Writing a checkpoint: the old one or the new one, wherever the writer fails or is killed, and never a gap."""

from __future__ import annotations

import gc
import json
import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from lifecycle.adapters.checkpoint import FILES, MANIFEST_NAME
from lifecycle.adapters.checkpoint_write import write_checkpoint
from lifecycle.base_file.locks import claim
from lifecycle.errors import AdapterError
from tests.adapters.checkpoints import BEFORE, Faults, contents_of, damage, manifest_of, put, whole
from tests.saver.proc import descriptors, run_child


def tree(directory: Path) -> dict[str, bytes]:
    """Every file below, by its path."""
    return {str(one.relative_to(directory)): one.read_bytes() for one in directory.rglob("*") if one.is_file()}


def test_a_checkpoint_is_five_private_files_in_a_private_directory(tmp_path: Path) -> None:
    """0700 and 0600 whatever the umask says, also of directories that had to be made."""
    before = os.umask(0)
    try:
        written = put(tmp_path / "runs" / "a", 6, 1)
    finally:
        os.umask(before)
    folders = (written, written.parent, written.parent.parent)

    assert written == tmp_path / "runs" / "a" / "step_6"
    assert sorted(one.name for one in written.iterdir()) == sorted((*FILES, MANIFEST_NAME))
    assert {stat.S_IMODE(one.stat().st_mode) for one in folders} == {0o700}
    assert {stat.S_IMODE(one.stat().st_mode) for one in written.iterdir()} == {0o600}
    assert sorted(one.name for one in written.parent.iterdir()) == [".lock", "step_6"]


def test_the_same_checkpoint_once_more_writes_nothing(tmp_path: Path) -> None:
    """A saver that is asked twice, or after a resume that came to the same bytes, is content."""
    put(tmp_path, 6, 1)
    before = tree(tmp_path)
    again = put(tmp_path, 6, 1, registration_id=8)

    assert again == tmp_path / "step_6"
    assert tree(tmp_path) == before


def test_another_checkpoint_of_the_same_step_is_refused_and_nothing_is_overwritten(tmp_path: Path) -> None:
    """There is no moment at which the old one is gone and the new one not there."""
    put(tmp_path, 6, 1)
    before = tree(tmp_path)

    with pytest.raises(AdapterError, match="step_6 holds another checkpoint of this step; nothing is overwritten"):
        put(tmp_path, 6, 2)

    assert tree(tmp_path) == before


def test_a_damaged_checkpoint_of_the_same_step_is_set_aside_with_all_its_bytes(tmp_path: Path) -> None:
    """The new one takes its name; the damaged ones stay, under names that no resume reads."""
    for _ in range(2):
        damage(put(tmp_path, 6, 1))
    damaged = (tmp_path / "step_6" / FILES[1]).read_bytes()
    put(tmp_path, 6, 1)

    assert whole(tmp_path) == {6: 1}
    assert sorted(one.name for one in tmp_path.iterdir()) == [".lock", "step_6", "step_6.damaged-0", "step_6.damaged-1"]
    assert (tmp_path / "step_6.damaged-1" / FILES[1]).read_bytes() == damaged


@pytest.mark.parametrize("kind", ["file", "empty directory", "directory", "link", "dangling link"])
def test_what_is_no_checkpoint_of_ours_is_never_touched(tmp_path: Path, kind: str) -> None:
    """Not renamed, not followed, not removed."""
    target, other = tmp_path / "runs" / "step_6", tmp_path / "other"
    target.parent.mkdir()
    put(other, 6, 1)
    {
        "file": target.touch,
        "empty directory": target.mkdir,
        "directory": lambda: shutil.copytree(other / "step_6", target, ignore=shutil.ignore_patterns(MANIFEST_NAME)),
        "link": lambda: (damage(other / "step_6"), target.symlink_to(other / "step_6")),
        "dangling link": lambda: target.symlink_to("nowhere"),
    }[kind]()
    before = tree(tmp_path)

    with pytest.raises(AdapterError, match="step_6 exists and is no checkpoint; nothing is overwritten"):
        put(target.parent, 6, 1)

    assert {name: one for name, one in tree(tmp_path).items() if name != "runs/.lock"} == before
    assert sorted(one.name for one in target.parent.iterdir()) == [".lock", "step_6"]


def test_two_adapters_do_not_save_to_one_directory(tmp_path: Path) -> None:
    """A resume takes the newest, whosever it is."""
    put(tmp_path, 6, 1)

    with pytest.raises(AdapterError, match="holds checkpoints of 'a'; save to a directory of its own"):
        put(tmp_path, 9, 2, adapter="b")

    assert whole(tmp_path) == {6: 1}


def test_what_a_dead_writer_left_is_removed_and_a_live_one_is_refused(tmp_path: Path) -> None:
    """The lock says which; it goes with its holder, also when that is killed."""
    BEFORE["a dead writer's rest"][0](tmp_path)
    held = claim(tmp_path / ".lock", exclusive=True)
    assert held is not None
    with pytest.raises(AdapterError, match="another checkpoint is being written to"):
        put(tmp_path, 9, 2)
    while_held = sorted(one.name for one in tmp_path.iterdir())
    os.close(held)
    put(tmp_path, 9, 2)

    assert while_held == [".lock", ".step-dead.tmp", "step_6"]
    assert sorted(one.name for one in tmp_path.iterdir()) == [".lock", "step_6", "step_9"]


@pytest.fixture
def without_collections() -> Iterator[None]:
    """What other tests have left is finalised before, and not in the middle of a fault that is not meant for it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("before", BEFORE)
def test_a_fault_at_any_step_of_a_write_leaves_what_was_whole_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """Each call to the operating system fails once, in turn; the next save finds nothing in its way."""
    prepare, there = BEFORE[before]

    def fail() -> None:
        raise OSError(5, "Input/output error")

    for at in count():
        directory = tmp_path / str(at)
        prepare(directory)
        files = descriptors()
        with monkeypatch.context() as patch:
            faults = Faults(at, fail, patch.setattr, torn=False)
            told = _told(directory)
        found = whole(directory)
        rest = [one.name for one in directory.glob(".step-*.tmp")] if told else []
        assert found in (there, there | {9: 2}), (at, told)
        assert told or found == there | {9: 2}, at
        assert "damaged" in before or not list(directory.glob("*.damaged-*")), at
        assert rest in ([], [".step-dead.tmp"]), (at, rest)
        put(directory, 9, 2)
        assert whole(directory) == there | {9: 2}
        assert not list(directory.glob(".step-*.tmp"))
        assert descriptors() <= files + 1, at  # a close that failed is no leak of ours
        if faults.count <= at:
            break

    assert at >= {"the same checkpoint": 10}.get(before, 25)


def _told(directory: Path) -> str:
    try:
        put(directory, 9, 2)
    except AdapterError as error:
        return error.why
    return ""


_KILLED = """
import json, os, signal, sys
from itertools import count
from pathlib import Path
from tests.adapters.checkpoints import BEFORE, Faults, put, whole

for before, (prepare, there) in BEFORE.items():
    for at in count():
        directory = Path(sys.argv[1]) / before / str(at)
        prepare(directory)
        child = os.fork()
        if child == 0:
            Faults(at, lambda: os.kill(os.getpid(), signal.SIGKILL), setattr, torn=True)
            put(directory, 9, 2)
            os._exit(0)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        found = whole(directory)
        put(directory, 9, 2)
        clean = whole(directory) == there | {9: 2} and not list(directory.glob(".step-*"))
        print(json.dumps([before, killed, found == there, found == there | {9: 2}, clean]))
        if not killed:
            break
"""


def test_a_writer_that_is_killed_at_any_step_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    """SIGKILL before each call and in the middle of each file: nothing torn, and the next save cleans up."""
    child = run_child(_KILLED, str(tmp_path))
    outcomes = [json.loads(line) for line in child.stdout.splitlines()]
    runs = Counter(before for before, *_ in outcomes)

    assert child.returncode == 0, child.stderr
    assert runs.keys() == BEFORE.keys()
    assert min(runs.values()) >= 10
    assert max(runs.values()) >= 30
    assert [one for one in outcomes if not (one[2] or one[3]) or not one[4]] == []
    assert [before for before, killed, *_ in outcomes if not killed] == list(BEFORE)


def test_everything_is_on_the_disk_before_it_has_its_name_and_the_name_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of syncs and renames, which a power cut would ask about."""
    calls: list[str] = []
    synced, renamed = os.fsync, os.rename

    def fsync(descriptor: int) -> None:
        calls.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        synced(descriptor)

    def rename(source: Path, target: Path) -> None:
        calls.append(f"{Path(source).name} becomes {Path(target).name}")
        renamed(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    put(tmp_path / "runs" / "a", 6, 1)
    made, files, (place, naming, last) = calls[:2], calls[2:7], calls[7:]

    assert made == [f"sync {tmp_path.name}", "sync runs"]
    assert files == [f"sync {name}" for name in (*FILES, MANIFEST_NAME)]
    assert naming == f"{place.removeprefix('sync ')} becomes step_6"
    assert last == "sync a"


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of a write; it is not turned into another error."""

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lifecycle.adapters.checkpoint_write.write_synced", interrupt)
    with pytest.raises(KeyboardInterrupt):
        put(tmp_path, 9, 2)

    assert [one.name for one in tmp_path.iterdir()] == [".lock"]


@pytest.mark.parametrize("target", ["file/below", "nu\0l", "a" * 300])
def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path, target: str) -> None:
    """A file where the parent should be, and impossible names."""
    (tmp_path / "file").write_text("x")
    contents = contents_of(1)

    with pytest.raises(AdapterError, match="a checkpoint cannot be written to"):
        write_checkpoint(tmp_path / target, manifest_of(contents, 6), contents)


@pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
def test_a_lock_that_is_no_plain_file_is_refused(tmp_path: Path, kind: str) -> None:
    """It is not followed, and does not block."""
    lock = tmp_path / ".lock"
    {"link": lambda: lock.symlink_to("elsewhere"), "directory": lock.mkdir, "pipe": lambda: os.mkfifo(lock)}[kind]()

    with pytest.raises(AdapterError, match=r"\.lock"):
        put(tmp_path, 6, 1)
