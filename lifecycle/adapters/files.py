"""Adapters on disk: a PEFT directory is read with safetensors alone, and written whole or not at all.

Nothing in a directory is trusted. Pickles are never opened, links do not lead out of it, sizes are
bounded before memory is taken. Files are read, not mapped: a file that another process truncates
while it is mapped ends this process with SIGBUS. What was read is what is checked: also that it is
still what it was when the adapter was registered.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from lifecycle.adapters.folder import (
    CONFIG_BYTES_MAX,
    CONFIG_NAME,
    WEIGHTS_BYTES_MAX,
    WEIGHTS_NAME,
    FileIdentity,
    Folder,
    sha256_of,
)
from lifecycle.adapters.given import as_path
from lifecycle.adapters.peft_config import PeftConfig, parse_config, render_config
from lifecycle.base_file.disk import sync_folder
from lifecycle.engines.protocol import AdapterPayload
from lifecycle.errors import AdapterError


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """A PEFT directory as it was read. Names, shapes and values are not checked yet (see :mod:`.fit`).

    Attributes:
        config: its configuration.
        tensors: name to tensor, CPU. Owned by this object.
    """

    config: PeftConfig
    tensors: Mapping[str, Tensor] = field(repr=False)


def read_adapter(
    adapter: str, directory: Path, *, bytes_max: int = WEIGHTS_BYTES_MAX, identity: FileIdentity | None = None
) -> AdapterFiles:
    """Read a PEFT adapter directory, each file once.

    Args:
        adapter: for messages.
        directory: holds ``adapter_config.json`` and ``adapter_model.safetensors``.
        bytes_max: largest weights file that is read.
        identity: what it was when it was registered; compared with the bytes that were read. None: anything goes.

    Raises:
        AdapterError: naming the file and what is wrong with it, or that it is another one by now.
    """
    with Folder(adapter, directory) as folder:
        if identity is not None and folder.place != identity.place:
            why = f"{directory} leads to {folder.place} now, and led to {identity.place} when it was registered"
            raise AdapterError(adapter, f"{why}; deregister the adapter and register it anew")
        config_content = folder.read(CONFIG_NAME, CONFIG_BYTES_MAX)
        folder.refuse_pickles()
        content = folder.read(WEIGHTS_NAME, bytes_max)
    if identity is not None:
        _refuse_another(adapter, CONFIG_NAME, config_content, identity.config_sha256)
        _refuse_another(adapter, WEIGHTS_NAME, content, identity.weights_sha256)
    return AdapterFiles(parse_config(adapter, config_content), parse_weights(adapter, WEIGHTS_NAME, content))


def _refuse_another(adapter: str, name: str, content: bytes, registered: str) -> None:
    found = sha256_of(content)
    if found != registered:
        raise AdapterError(
            adapter,
            f"{name} has changed since it was registered (SHA-256 {registered[:12]} then, {found[:12]} now); "
            "deregister the adapter and register it anew, under the files as they are to be loaded",
        )


def parse_weights(adapter: str, name: str, content: bytes, *, empty_ok: bool = False) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU; at least one, unless *empty_ok*.

    Raises:
        AdapterError: the content is no such file.
    """
    from safetensors import SafetensorError  # noqa: PLC0415 - an extra, needed only where a file is read
    from safetensors.torch import load  # noqa: PLC0415

    try:
        tensors: dict[str, Tensor] = load(content)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError, OverflowError) as error:
        raise AdapterError(adapter, f"{name} is truncated or malformed: {error}") from error
    if not tensors and not empty_ok:
        raise AdapterError(adapter, f"{name} holds no tensor")
    return tensors


def save_adapter(directory: str | Path, payload: AdapterPayload) -> Path:
    """Write an adapter as a PEFT directory, which ``peft.PeftModel.from_pretrained`` reads.

    The directory appears under its name when it is complete: it is written under a temporary name
    beside it, synced, and renamed. The directory has mode 0700, its files 0600.

    Args:
        directory: must not exist; its parent must.
        payload: the adapter; its tensors are only read.

    Returns:
        The directory.

    Raises:
        AdapterError: the directory exists, or cannot be written. Nothing is left behind.
    """
    target = as_path("directory", directory, payload.name)
    if os.path.lexists(target):
        raise AdapterError(payload.name, f"{target} exists; an adapter is written to a directory of its own")
    contents = {
        CONFIG_NAME: render_config(payload.rank, payload.alpha, payload.target_modules),
        WEIGHTS_NAME: render_tensors(payload.tensors),
    }
    try:
        place = Path(tempfile.mkdtemp(prefix=".adapter-", suffix=".tmp", dir=target.parent))
        try:
            for name, content in contents.items():
                write_synced(place / name, content)
            sync_folder(place)
            place = place.rename(target)
            sync_folder(target.parent)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise AdapterError(payload.name, f"cannot be written to {target}: {_plain(error)}") from error
    return target


def _plain(error: Exception) -> str:
    """What went wrong, without the temporary name."""
    return getattr(error, "strerror", None) or str(error)


def render_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """The content of a safetensors file; the tensors are only read.

    They may be views of one storage, live or in a backup.
    """
    from safetensors.torch import save  # noqa: PLC0415 - an extra, needed only where a file is written

    # Copies of their own: the tensors are views into slots, and the format takes neither views nor shared storages.
    own = {name: one.detach().to("cpu", copy=True).contiguous() for name, one in tensors.items()}
    content: bytes = save(own, metadata={"format": "pt"})
    return content


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file, 0600, and wait until it is on the disk.

    Raises:
        OSError: it exists, or the operating system says no.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - of an open descriptor
        file.write(content)
        file.flush()
        os.fsync(descriptor)
