"""The files of a log that is put aside when it is full: ``audit.jsonl.1`` is the oldest, ``audit.jsonl`` is in use.

A file keeps its number for ever, so none is renamed over another. Whoever rotates holds the lock of the file in use,
and a crash at any moment leaves every record where :func:`log_files` finds it, once.
"""

from __future__ import annotations

import errno
import gzip
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

GZIP: Final = ".gz"
_NEW: Final = ".new"
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def log_files(path: str | os.PathLike[str]) -> list[Path]:
    """The files of a log, oldest first, the one in use last; without it where there is none.

    Args:
        path: the file in use, or one that was put aside, which stands for itself.

    Raises:
        OSError: the folder cannot be read.
    """
    here = Path(path)
    in_use = [here] if here.exists() else []
    return [*(one for _, one in sorted(rotated(here).items())), *in_use]


def rotated(path: Path) -> dict[int, Path]:
    """The files that were put aside, by number.

    One that is the file in use as well, or that lies there both plain and compressed, was left so by a crash: it
    counts once.

    Raises:
        OSError: the folder cannot be read.
    """
    found: dict[int, Path] = {}
    for number, one in _numbered(path):
        if one.suffix != GZIP or number not in found:
            found[number] = one
    return {number: one for number, one in found.items() if not _is_same(one, path)}


def aside_name(path: Path) -> Path:
    """The name that the file in use gets when it is put aside: no other file has ever had its number.

    Raises:
        OSError: the folder cannot be read.
    """
    number, newest = max(_numbered(path), default=(0, path))
    return newest if number and _is_same(newest, path) else path.with_name(f"{path.name}.{number + 1}")


def put_aside(path: Path, aside: Path) -> None:
    """Give the file in use this second name; it stays in use until another takes its place.

    Raises:
        OSError: the name cannot be made.
    """
    try:
        os.link(path, aside)
    except OSError as error:
        if error.errno in _NO_LINKS:  # a file system without them; nobody else gives numbers while the lock is held
            path.rename(aside)
        elif not _is_same(aside, path):  # else a rotation has ended here in the middle
            raise


def new_file(path: Path) -> tuple[int, Path]:
    """An empty file of ours beside the log, open for appending, and its name. Begun, it takes the log's place.

    Raises:
        OSError: it cannot be made.
    """
    name = path.with_name(f".{path.name}{_NEW}")
    name.unlink(missing_ok=True)  # of a rotation that ended in the middle
    return os.open(name, _FLAGS, 0o600), name


def tidy(path: Path, *, keep: int | None, compress: bool) -> None:
    """Compress what was put aside, and remove what is older than the newest *keep* files.

    What fails here has lost nothing and is tried again at the next rotation.
    """
    with suppress(OSError):
        aside = sorted(rotated(path).items())
        for _, one in aside[:-keep] if keep is not None else ():
            one.unlink()
            _compressed(one).unlink(missing_ok=True)
        for _, one in aside if compress else ():
            if one.exists() and one.suffix != GZIP:
                _compress(one)


def _compress(path: Path) -> None:
    """Replace a file by its compressed copy; at every moment one of both is whole."""
    whole = _compressed(path)
    if not whole.exists():
        descriptor, name = new_file(whole)
        with os.fdopen(descriptor, "wb") as raw, path.open("rb") as source:
            with gzip.GzipFile(path.name, "wb", fileobj=raw) as target:
                shutil.copyfileobj(source, target)
            raw.flush()
            os.fsync(raw.fileno())
        name.rename(whole)
    path.unlink()


def _compressed(path: Path) -> Path:
    return path if path.suffix == GZIP else path.with_name(path.name + GZIP)


def _numbered(path: Path) -> list[tuple[int, Path]]:
    pattern = re.compile(re.escape(path.name) + r"\.([1-9][0-9]*)(?:\.gz)?")
    beside = sorted(path.parent.iterdir()) if path.parent.is_dir() else []
    return [(int(match[1]), one) for one in beside if (match := pattern.fullmatch(one.name))]


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except FileNotFoundError:
        return False
