"""Files and folders that are their owner's alone: weights and records of a run are nobody else's to read or write."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Make a folder and those above it where they are missing, each 0700. What exists stays as it is.

    Raises:
        OSError: one cannot be made, or is no folder.
    """
    for one in (*reversed(folder.absolute().parents), folder.absolute()):
        if not one.is_dir():
            one.mkdir(mode=0o700, exist_ok=True)


def take(descriptor: int) -> str:
    """Make an open file of ours 0600. Returns why another's cannot be trusted, empty when it can.

    Raises:
        OSError: the mode cannot be set.
    """
    found = os.fstat(descriptor)
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid == os.geteuid():
        if mode != 0o600:  # noqa: PLR2004 - a mode reads best as its digits
            os.fchmod(descriptor, 0o600)
        return ""
    return f"it is another user's and others may write it (mode {mode:04o})" if mode & 0o022 else ""
