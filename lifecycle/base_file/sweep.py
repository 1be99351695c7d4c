"""Removing base files that nobody holds: finished ones, and those whose writer died."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lifecycle.base_file.locks import claim
from lifecycle.errors import BaseFileError

_NAME: Final = re.compile(r"base-([0-9a-f]{64})\.(safetensors|partial)")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What became of the base files of a directory. Other files are not looked at.

    Attributes:
        removed: name to size in bytes.
        held: names of files that a process uses or writes.
        skipped: name to the reason why a file that nobody holds was left alone.
    """

    removed: Mapping[str, int] = field(default_factory=dict)
    held: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)


def finished_name(digest: str) -> str:
    """Name of the file with this content."""
    return f"base-{digest}.safetensors"


def partial_name(digest: str) -> str:
    """Name of the file while it is written."""
    return f"base-{digest}.partial"


def sweep(directory: Path, spare: str = "") -> Cleaned:
    """Remove what nobody holds.

    Args:
        directory: where the files are.
        spare: digest of files that are left alone.

    Raises:
        OSError: the directory cannot be read.
    """
    removed: dict[str, int] = {}
    held: list[str] = []
    skipped: dict[str, str] = {}
    for name in sorted(os.listdir(directory)):  # noqa: PTH208 - names are wanted
        found = _NAME.fullmatch(name)
        if found is None or found[1] == spare:
            continue
        try:
            size_bytes = _remove(directory / name)
        except BlockingIOError:
            held.append(name)
        except BaseFileError as error:
            skipped[name] = error.why
        except OSError as error:
            skipped[name] = error.strerror or str(error)
        else:
            if size_bytes is not None:
                removed[name] = size_bytes
    return Cleaned(removed, tuple(held), skipped)


def _remove(path: Path) -> int | None:
    """Remove the file if nobody holds it; its size, None when it was gone already."""
    descriptor = claim(path, exclusive=True)
    if descriptor is None:
        return None
    try:
        size_bytes = os.fstat(descriptor).st_size
        path.unlink()
    finally:
        os.close(descriptor)
    return size_bytes
