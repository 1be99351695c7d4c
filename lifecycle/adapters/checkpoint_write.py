"""Writing a checkpoint: whole under its name, or not at all, wherever the writer dies.

Everything is written under a temporary name in the same directory, synced, and renamed to ``step_N``. A rename
onto a directory that is not empty fails, so a step is never overwritten, not even for the moment between removing
one and naming the other: what a step's directory holds never changes. The same checkpoint written once more is
found to be there; another one under the same step is refused; a damaged one is set aside under another name, and
its bytes are kept. Whoever writes holds a lock on the directory, so the temporary directories that it finds there
are those of writers that died, and it removes them.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lifecycle.adapters.checkpoint import FILES, MANIFEST_NAME, step_name
from lifecycle.adapters.checkpoint_manifest import Manifest
from lifecycle.adapters.checkpoint_read import cannot_tell, check_checkpoint, read_manifest, steps_in
from lifecycle.adapters.files import write_synced
from lifecycle.adapters.folder import Folder
from lifecycle.base_file.disk import sync_folder
from lifecycle.base_file.locks import claim
from lifecycle.errors import AdapterError, BaseFileError
from lifecycle.private import make_folder

_LOCK: Final = ".lock"
_PREFIX: Final = ".step-"
_SUFFIX: Final = ".tmp"
_TEMPORARY: Final = re.compile(r"\.step-.*\.tmp")
_ASIDE: Final = ".damaged"


def write_checkpoint(directory: Path, manifest: Manifest, contents: Mapping[str, bytes]) -> Path:
    """Write ``directory/step_N``; a directory of mode 0700 with files of mode 0600.

    Args:
        directory: made where it is missing, 0700.
        manifest: its files are those of *contents*.
        contents: the four files.

    Returns:
        ``directory/step_N``. When that holds the same checkpoint already, nothing is written.

    Raises:
        AdapterError: the step holds another checkpoint or none of ours, the directory is of another adapter,
            somebody else writes there, or the operating system says no. What was there is as it was.
    """
    adapter = manifest.adapter
    try:
        _make(directory)
        with _locked(adapter, directory):
            _remove_leftovers(directory)
            _refuse_another_adapter(adapter, directory)
            target = directory / step_name(manifest.step)
            if os.path.lexists(target) and _is_there(adapter, target, manifest):
                sync_folder(directory)  # who wrote it may have died before it was on the disk under its name
                return target
            _write(directory, target, {**contents, MANIFEST_NAME: manifest.encode()})
            return target
    except (OSError, ValueError) as error:
        if isinstance(error, AdapterError):
            raise
        why = getattr(error, "strerror", None) or str(error)
        raise AdapterError(adapter, f"a checkpoint cannot be written to {directory}: {why}") from error


def _make(directory: Path) -> None:
    """Make the directory, and wait until the names of what was made are on the disk."""
    whole = directory.absolute()
    missing = [one for one in (whole, *whole.parents) if not one.is_dir()]
    make_folder(directory)
    for one in reversed(missing):
        sync_folder(one.parent)


@contextmanager
def _locked(adapter: str, directory: Path) -> Iterator[None]:
    """Nobody else writes here, in this process or another; the lock goes with the process."""
    try:
        descriptor = claim(directory / _LOCK, exclusive=True, create=True)
    except BlockingIOError:
        why = f"another checkpoint is being written to {directory}; each adapter has a directory of its own"
        raise AdapterError(adapter, why) from None
    except BaseFileError as error:
        raise AdapterError(adapter, f"{error.path}: {error.why}") from error
    assert descriptor is not None  # it was to be created
    try:
        yield
    finally:
        os.close(descriptor)


def _remove_leftovers(directory: Path) -> None:
    """Temporary directories of writers that died: nobody who lives has one while we hold the lock."""
    for name in os.listdir(directory):  # noqa: PTH208 - names are wanted
        if _TEMPORARY.fullmatch(name):
            shutil.rmtree(directory / name, ignore_errors=True)


def _refuse_another_adapter(adapter: str, directory: Path) -> None:
    """The newest checkpoint here that says whose it is is ours: a resume would take the newest, whosever it is."""
    for step in steps_in(directory):
        try:
            other = read_manifest(adapter, directory / step_name(step)).adapter
        except AdapterError:
            continue
        if other != adapter:
            raise AdapterError(adapter, f"{directory} holds checkpoints of {other!r}; save to a directory of its own")
        return


def _is_there(adapter: str, target: Path, manifest: Manifest) -> bool:
    """Whether this step holds the same checkpoint. A damaged one of ours is set aside, and then it does not.

    Raises:
        AdapterError: it holds another one, or something that is none of ours.
    """
    try:
        found = check_checkpoint(adapter, target)[1]
    except AdapterError as damage:
        if cannot_tell(damage):
            raise
        if not _is_ours(adapter, target):
            raise AdapterError(adapter, f"{target} exists and is no checkpoint; nothing is overwritten") from damage
        _set_aside(target)
        return False
    if found.content == manifest.content:
        return True
    why = f"{target} holds another checkpoint of this step; nothing is overwritten"
    remedy = "Count its steps (mark_batch_trained or set_step), save to another directory, or move that one away"
    raise AdapterError(adapter, f"{why}. {remedy}")


def _is_ours(adapter: str, target: Path) -> bool:
    if target.is_symlink() or not target.is_dir():
        return False
    with Folder(adapter, target) as folder:
        return folder.has(MANIFEST_NAME)


def _set_aside(target: Path) -> None:
    number = 0
    while os.path.lexists(aside := target.with_name(f"{target.name}{_ASIDE}-{number}")):
        number += 1
    target.rename(aside)


def _write(directory: Path, target: Path, contents: Mapping[str, bytes]) -> None:
    place = Path(tempfile.mkdtemp(prefix=_PREFIX, suffix=_SUFFIX, dir=directory))
    try:
        for name in (*FILES, MANIFEST_NAME):
            write_synced(place / name, contents[name])
        sync_folder(place)
        place.rename(target)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    sync_folder(directory)  # if this fails the checkpoint is whole and stays; only a power cut may take its name
