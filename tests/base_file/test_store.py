"""Which file is opened, replaced, refused or removed, and what a failed write leaves behind: nothing."""

from __future__ import annotations

import errno
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lifecycle.base_file import BaseFileStore, disk, locks, store
from lifecycle.errors import BaseFileError
from lifecycle.weights.digests import digest, same_bytes
from tests.base_file.world import base, names, obtain, opened

FAULTS = ("posix_fallocate", "pwrite", "fsync")


def _path(directory: Path, seed: int = 0) -> Path:
    return directory / f"base-{digest(base(seed))}.safetensors"


def _written(directory: Path, seed: int = 0) -> Path:
    with opened(directory, base(seed)) as file:
        return file.path


def test_a_file_that_is_there_is_used_and_not_written(tmp_path: Path) -> None:
    """Its inode stays, and nothing is needed for it."""
    inode = _written(tmp_path).stat().st_ino
    needed = BaseFileStore(tmp_path).need_bytes(base(), digest(base()))

    with opened(tmp_path, base()) as file:
        assert (file.path.stat().st_ino, file.written_bytes, needed) == (inode, 0, 0)


def test_what_is_needed_is_what_is_then_written(tmp_path: Path) -> None:
    """Known before a byte is written; a partial file does not count."""
    shop = BaseFileStore(tmp_path)
    _path(tmp_path).with_suffix(".partial").write_bytes(b"left")
    needed = shop.need_bytes(base(), digest(base()))

    with opened(tmp_path, base()) as file:
        assert needed == file.written_bytes > 0


def test_a_file_of_another_content_is_never_opened(tmp_path: Path) -> None:
    """FB-07: same shapes, other bytes, same folder: each base has a file of its own."""
    with opened(tmp_path, base(1)) as one, opened(tmp_path, base(2)) as two:
        assert one.path != two.path
        assert same_bytes(one.tensor("lm_head.weight"), base(1)["lm_head.weight"])
        assert same_bytes(two.tensor("lm_head.weight"), base(2)["lm_head.weight"])


@pytest.mark.parametrize("place", [0, 9, 4096, -1])
def test_a_flipped_byte_is_found_and_the_file_replaced(place: int, tmp_path: Path) -> None:
    """FB-07: in the header or in a tensor; the content decides, not the name."""
    path = _written(tmp_path)
    right = path.read_bytes()
    wrong = bytearray(right)
    wrong[place] ^= 1
    path.write_bytes(wrong)

    with opened(tmp_path, base()) as file:
        assert file.written_bytes == file.size_bytes
        assert path.read_bytes() == right
        assert names(tmp_path) == [path.name]


@pytest.mark.parametrize("size", [0, 5000, 100_000])
def test_a_file_of_another_size_is_replaced(size: int, tmp_path: Path) -> None:
    """Cut off by a crash of the node, or with something behind its end."""
    path = _written(tmp_path)
    right = path.read_bytes()
    os.truncate(path, size)

    with opened(tmp_path, base()):
        assert path.read_bytes() == right


def test_a_file_that_cannot_be_read_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EIO: a bad sector."""
    path = _written(tmp_path)
    inode = path.stat().st_ino
    with path.open("rb"):  # keeps the inode from being used again
        monkeypatch.setattr(disk.os, "preadv", _fail(errno.EIO))
        with opened(tmp_path, base()):
            assert path.stat().st_ino != inode


def test_a_file_that_others_could_have_written_is_replaced(tmp_path: Path) -> None:
    """Somebody may have it open for writing."""
    path = _written(tmp_path)
    path.chmod(0o666)

    with opened(tmp_path, base()) as file:
        assert file.written_bytes == file.size_bytes
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_cut_off_after_it_was_compared_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mapping it would be the end of the process at the first read."""
    path = _written(tmp_path)
    monkeypatch.setattr(store, "difference", lambda *_: os.truncate(path, 10) or "")

    with pytest.raises(BaseFileError, match="another program cut it off while it was opened"):
        obtain(tmp_path, base())


def test_the_mode_does_not_depend_on_the_mask_of_the_process(tmp_path: Path) -> None:
    """Too strict a mask would make a file that its owner cannot open again."""
    before = os.umask(0o777)
    try:
        path = _written(tmp_path)
    finally:
        os.umask(before)

    assert path.stat().st_mode & 0o777 == 0o600


def test_threads_of_one_process_share_one_file(tmp_path: Path) -> None:
    """Each has an open file and a lock of its own; one of them writes."""
    with ThreadPoolExecutor(6) as pool:
        files = list(pool.map(lambda _: obtain(tmp_path, base()), range(6)))
    written = sorted(file.written_bytes for file in files)
    for file in files:
        file.close()

    assert written == [*[0] * 5, files[0].size_bytes]
    assert list(BaseFileStore(tmp_path).clean().removed) == [files[0].path.name]


def test_a_corrupt_file_that_somebody_uses_is_refused(tmp_path: Path) -> None:
    """With what is wrong, and it is not touched."""
    with opened(tmp_path, base()) as file:
        wrong = bytearray(file.path.read_bytes())
        wrong[-1] ^= 1
        file.path.write_bytes(wrong)
        with pytest.raises(BaseFileError) as caught:
            obtain(tmp_path, base(), grace_s=0.0)

        assert "the bytes of mask are others, and another process uses it" in caught.value.why
        assert file.path.read_bytes() == wrong


def _fail(number: int) -> object:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("call", FAULTS)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_a_failed_write_leaves_nothing(call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FB-20: an error that says what failed, no file, no descriptor; and the next attempt works."""
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with monkeypatch.context() as patched:
        patched.setattr(disk.os, call, _fail(number))
        with pytest.raises(BaseFileError) as caught:
            obtain(tmp_path, base())

    assert os.strerror(number) in caught.value.why
    assert ("bytes are needed; free some room" in caught.value.why) == (number == errno.ENOSPC)
    assert names(tmp_path) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
    with opened(tmp_path, base()) as file:
        assert file.written_bytes == file.size_bytes


def test_a_full_disk_is_known_before_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FB-20: the room is reserved first."""
    written: list[int] = []
    monkeypatch.setattr(disk.os, "posix_fallocate", _fail(errno.ENOSPC))
    monkeypatch.setattr(disk.os, "pwrite", lambda _, data, offset: written.append(offset) or len(data))
    with pytest.raises(BaseFileError):
        obtain(tmp_path, base())

    assert written == []


def test_a_file_system_that_cannot_reserve_is_written_to_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so at the write if it is full."""
    monkeypatch.setattr(disk.os, "posix_fallocate", _fail(errno.EOPNOTSUPP))

    with opened(tmp_path, base()) as file:
        assert same_bytes(file.tensor("lm_head.weight"), base()["lm_head.weight"])


def test_a_write_that_comes_in_parts_is_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system may take less than it was given."""
    write = os.pwrite
    monkeypatch.setattr(disk.os, "pwrite", lambda fd, data, offset: write(fd, data[:1000], offset))

    with opened(tmp_path, base()) as file:
        assert same_bytes(file.tensor("lm_head.weight"), base()["lm_head.weight"])


def test_an_interrupt_during_the_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on to the caller."""

    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(disk.os, "pwrite", interrupt)
    with pytest.raises(KeyboardInterrupt):
        obtain(tmp_path, base())

    assert names(tmp_path) == []


def test_a_partial_file_whose_writer_died_is_taken_over(tmp_path: Path) -> None:
    """It is not written over: it is removed, and a new one is written."""
    partial = _path(tmp_path).with_suffix(".partial")
    partial.write_bytes(b"x" * 100)
    with partial.open("rb") as left:
        with opened(tmp_path, base()):
            assert names(tmp_path) == [_path(tmp_path).name]

        assert left.read() == b"x" * 100


def test_a_start_removes_what_nobody_holds_and_leaves_what_is_held(tmp_path: Path) -> None:
    """Finished and partial ones of other contents; other files are not looked at."""
    _written(tmp_path, 1)
    (tmp_path / f"base-{'a' * 64}.partial").write_bytes(b"left")
    (tmp_path / "base-notes.safetensors").write_bytes(b"mine")
    with opened(tmp_path, base(2)) as held, opened(tmp_path, base(3)) as own:
        assert names(tmp_path) == sorted(["base-notes.safetensors", held.path.name, own.path.name])


def test_clean_says_what_it_removed_what_is_held_and_what_it_skipped(tmp_path: Path) -> None:
    """A link is not followed, and what it points to stays."""
    mine = tmp_path / "mine"
    mine.write_bytes(b"mine")
    folder = tmp_path / "files"
    removed = _written(folder, 1)
    size_bytes = removed.stat().st_size
    with opened(folder, base(2)) as held:
        obtain(tmp_path / "other", base(1)).close()
        (tmp_path / "other" / removed.name).rename(folder / removed.name)
        link = folder / f"base-{'b' * 64}.safetensors"
        link.symlink_to(mine)
        cleaned = BaseFileStore(folder).clean()

        assert cleaned.removed == {removed.name: size_bytes}
        assert cleaned.held == (held.path.name,)
        assert list(cleaned.skipped) == [link.name]
        assert "it is a link" in cleaned.skipped[link.name]
    assert mine.read_bytes() == b"mine"


@pytest.mark.parametrize("suffix", [".safetensors", ".partial"])
@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_file_of_ours_is_refused(kind: str, suffix: str, tmp_path: Path) -> None:
    """A link could lead to another user's bytes, a pipe would never answer."""
    path = _path(tmp_path).with_suffix(suffix)
    target = tmp_path / "target"
    target.write_bytes(b"mine")
    {"link": lambda: path.symlink_to(target), "folder": path.mkdir, "pipe": lambda: os.mkfifo(path)}[kind]()

    with pytest.raises(BaseFileError, match="it is a link" if kind == "link" else "it is no regular file"):
        obtain(tmp_path, base())
    assert target.read_bytes() == b"mine"


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if its bytes are right: they may not be tomorrow."""
    owner = _written(tmp_path).stat().st_uid
    monkeypatch.setattr(locks.os, "geteuid", lambda: owner + 1)

    with pytest.raises(BaseFileError, match=f"belongs to user {owner} and is not trusted"):
        obtain(tmp_path, base())
    assert names(tmp_path) == [_path(tmp_path).name]


def test_a_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    """No traceback of another kind."""
    (tmp_path / "file").write_text("")

    with pytest.raises(BaseFileError, match="the directory cannot be made"):
        BaseFileStore(tmp_path / "file" / "below")


def test_a_directory_that_is_gone_is_a_clear_error(tmp_path: Path) -> None:
    """Removed after the store was made."""
    shop = BaseFileStore(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    with pytest.raises(BaseFileError, match="No such file"):
        shop.obtain(base(), digest(base()))
    with pytest.raises(BaseFileError, match="cannot be read"):
        shop.clean()


def test_memory_in_disguise_is_no_disk(tmp_path: Path) -> None:
    """FB-20: every byte of a base file there would be memory."""
    assert BaseFileStore(tmp_path).is_real_disk() == store.is_real_disk(str(tmp_path))
    assert not store.is_real_disk("/dev/shm")  # noqa: S108 - the best-known one


def test_a_file_removed_between_open_and_lock_is_opened_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleaner takes its name away just then; the lock on it is worth nothing."""
    path = _written(tmp_path)
    lock = locks.fcntl.flock

    def late(descriptor: int, how: int) -> None:
        monkeypatch.setattr(locks.fcntl, "flock", lock)
        path.unlink()
        lock(descriptor, how)

    monkeypatch.setattr(locks.fcntl, "flock", late)
    with opened(tmp_path, base()) as file:
        assert file.written_bytes == file.size_bytes
        assert os.path.samestat(file.path.stat(), os.fstat(file._open_descriptor()))


@pytest.mark.parametrize("loss", ["removed", "locked"])
def test_a_file_lost_while_its_lock_changes_is_written_again(
    loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From exclusive to shared is not one step: a cleaner may come in between, and remove it or be about to."""
    change = store.lock
    seen: list[bool] = []

    def late(descriptor: int, *, exclusive: bool) -> None:
        seen.append(exclusive)
        if len(seen) > 1:
            return change(descriptor, exclusive=exclusive)
        _path(tmp_path).unlink()
        if loss == "locked":
            raise BlockingIOError
        return None

    monkeypatch.setattr(store, "lock", late)
    with opened(tmp_path, base()) as file:
        assert seen == [False, False]
        assert os.path.samestat(file.path.stat(), os.fstat(file._open_descriptor()))


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_writer_without_progress_is_not_waited_for_for_ever(exclusive: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """The error names the file that it holds, however it holds it."""
    partial = _path(tmp_path).with_suffix(".partial")
    descriptor = locks.claim(partial, exclusive=exclusive, create=True)
    assert descriptor is not None
    try:
        with pytest.raises(BaseFileError, match="has written nothing for") as caught:
            obtain(tmp_path, base(), wait_s=0.1)
    finally:
        os.close(descriptor)

    assert caught.value.path == str(partial)


def test_a_file_that_another_process_has_just_finished_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between looking for the file and becoming its writer."""
    claim = store.claim

    def late(path: Path, *, exclusive: bool, create: bool = False) -> int | None:
        if create:
            monkeypatch.setattr(store, "claim", claim)
            obtain(tmp_path, base()).close()
        return claim(path, exclusive=exclusive, create=create)

    monkeypatch.setattr(store, "claim", late)
    with opened(tmp_path, base()) as file:
        assert file.written_bytes == 0
        assert names(tmp_path) == [file.path.name]


def test_another_partial_file_in_place_of_ours_is_never_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody removed ours by hand, and another writer began."""
    partial = _path(tmp_path).with_suffix(".partial")
    sync, sync_folder = disk.sync, disk.sync_folder
    published: list[Path] = []

    def late(descriptor: int) -> None:
        monkeypatch.setattr(disk, "sync", sync)
        partial.unlink()
        partial.write_bytes(b"of another writer")
        sync(descriptor)

    monkeypatch.setattr(disk, "sync", late)
    monkeypatch.setattr(disk, "sync_folder", lambda folder: published.append(folder) or sync_folder(folder))
    with opened(tmp_path, base()):
        assert published == [tmp_path]


def test_who_is_only_comparing_a_corrupt_file_is_waited_for(tmp_path: Path) -> None:
    """It lets go of it soon, and then the file is replaced."""
    path = _written(tmp_path)
    path.write_bytes(b"corrupt")
    descriptor = locks.claim(path, exclusive=False)
    assert descriptor is not None
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(lambda: (time.sleep(0.2), os.close(descriptor)))
        with opened(tmp_path, base()) as file:
            assert file.written_bytes == file.size_bytes
        later.result()


def test_asking_for_a_held_file_leaves_no_descriptor(tmp_path: Path) -> None:
    """Cleaning it, or waiting for it."""
    with opened(tmp_path, base(1)):
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(3):
            assert len(BaseFileStore(tmp_path).clean().held) == 1

        assert len(list(Path("/proc/self/fd").iterdir())) == before
