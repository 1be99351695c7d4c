"""Finding and reading checkpoints: the newest whole one, and every byte compared with its manifest."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from lifecycle.adapters.checkpoint import (
    FILES,
    MANIFEST_NAME,
    STATE_NAME,
    VALUES_NAME,
    CheckpointSource,
    Skipped,
    SlotRecord,
    step_name,
    step_of,
)
from lifecycle.adapters.checkpoint_manifest import MANIFEST_BYTES_MAX, Manifest, decode_manifest
from lifecycle.adapters.checkpoint_values import unpack
from lifecycle.adapters.files import parse_weights
from lifecycle.adapters.folder import CONFIG_NAME, WEIGHTS_NAME, FileIdentity, Folder, sha256_of
from lifecycle.errors import AdapterError


def steps_in(directory: Path) -> list[int]:
    """The steps that have a directory, whole or not, newest first.

    Raises:
        OSError: the directory cannot be read.
    """
    found = (step_of(name) for name in os.listdir(directory))  # noqa: PTH208 - names are wanted
    return sorted((step for step in found if step is not None), reverse=True)


def find_checkpoint(adapter: str, directory: str | Path) -> CheckpointSource:
    """The checkpoint to resume from: the newest whole one in a directory, or the directory itself.

    Every file of it is read and compared with the manifest. A newer one that is damaged is passed over and named.

    Args:
        adapter: the name it is going to be registered under.
        directory: that of :meth:`~lifecycle.TrainerLifecycle.save_checkpoint`, or one ``step_N`` in it.

    Raises:
        AdapterError: there is none, the ``step_N`` that was asked for is damaged, or one cannot be read: who may not
            read the newest is not given an older one.
    """
    given = Path(directory)
    if step_of(given.name) is not None:
        return check_checkpoint(adapter, given)[0]
    try:
        steps = steps_in(given)
    except (OSError, ValueError) as error:
        raise AdapterError(adapter, f"{given} cannot be read: {error}") from error
    skipped: list[Skipped] = []
    for step in steps:
        try:
            found, _ = check_checkpoint(adapter, given / step_name(step))
        except AdapterError as error:
            if cannot_tell(error):
                raise
            skipped.append(Skipped(step_name(step), error.why))
        else:
            return replace(found, skipped=tuple(skipped))
    told = "; ".join(f"{one.name}: {one.why}" for one in skipped) or "it has no directory step_N"
    raise AdapterError(adapter, f"{given} holds no whole checkpoint: {told}")


def check_checkpoint(adapter: str, path: Path) -> tuple[CheckpointSource, Manifest]:
    """Read one checkpoint's manifest, and compare every file with it.

    Raises:
        AdapterError: something is missing, damaged, or no checkpoint at all.
    """
    with Folder(adapter, path) as folder:
        manifest, digest = _manifest(adapter, path, folder)
        for name in FILES:
            entry = manifest.files[name]
            if folder.digest(name, entry.size_bytes) != entry.sha256:
                raise AdapterError(adapter, f"{path / name} is damaged: it has another SHA-256 than the manifest says")
        identity = FileIdentity(folder.place, manifest.files[CONFIG_NAME].sha256, manifest.files[WEIGHTS_NAME].sha256)
        return CheckpointSource(path, manifest.origin, digest, identity), manifest


def cannot_tell(error: AdapterError) -> bool:
    """Whether a checkpoint could not be read, which says nothing of what it holds: a disk that fails, a permission."""
    return isinstance(error.__cause__, OSError)


def read_manifest(adapter: str, path: Path) -> Manifest:
    """What a directory ``step_N`` says of itself. Its other files are not looked at.

    Raises:
        AdapterError: it says nothing, or nothing that can be right.
    """
    with Folder(adapter, path) as folder:
        return _manifest(adapter, path, folder)[0]


def _manifest(adapter: str, path: Path, folder: Folder) -> tuple[Manifest, str]:
    content = folder.read(MANIFEST_NAME, MANIFEST_BYTES_MAX)
    try:
        found = decode_manifest(content)
    except ValueError as error:
        raise AdapterError(adapter, f"{path / MANIFEST_NAME} cannot be used: {error}") from error
    if step_name(found.step) != Path(folder.place).name:
        raise AdapterError(adapter, f"{path} says that it is {step_name(found.step)}; it was renamed or copied")
    return found, sha256_of(content)


def read_record(adapter: str, source: CheckpointSource) -> SlotRecord:
    """The optimizer's part of the checkpoint that was registered.

    Raises:
        AdapterError: its files are other ones by now.
    """
    contents = {}
    with Folder(adapter, source.path) as folder:
        manifest, digest = _manifest(adapter, source.path, folder)
        if digest != source.manifest_sha256:  # it has the digests of all files, wherever they are
            _refuse_another(adapter, source.path / MANIFEST_NAME)
        for name in (VALUES_NAME, STATE_NAME):
            entry = manifest.files[name]
            contents[name] = folder.read(name, entry.size_bytes)
            if sha256_of(contents[name]) != entry.sha256:
                _refuse_another(adapter, source.path / name)
    tensors = parse_weights(adapter, STATE_NAME, contents[STATE_NAME], empty_ok=True)
    try:
        values = json.loads(contents[VALUES_NAME])
        return SlotRecord({key: unpack(one, tensors) for key, one in values.items()}, tensors, source.told())
    except (ValueError, AttributeError, RecursionError) as error:
        raise AdapterError(adapter, f"{source.path / VALUES_NAME} cannot be used: {error}") from error


def _refuse_another(adapter: str, path: Path) -> NoReturn:
    why = f"{path} has changed since it was registered"
    raise AdapterError(adapter, f"{why}; deregister the adapter and register it anew")
