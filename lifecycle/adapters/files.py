"""Adapters on disk: a PEFT directory is read with safetensors alone, and written whole or not at all.

Nothing in a directory is trusted. Pickles are never opened, links do not lead out of it, sizes are
bounded before memory is taken. Files are read, not mapped: a file that another process truncates
while it is mapped ends this process with SIGBUS.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from torch import Tensor

from lifecycle.adapters.peft_config import CONFIG_BYTES_MAX, CONFIG_NAME, PeftConfig, parse_config, render_config
from lifecycle.engines.protocol import AdapterPayload
from lifecycle.errors import AdapterError

WEIGHTS_NAME: Final = "adapter_model.safetensors"
WEIGHTS_BYTES_MAX: Final = 2**34

_PICKLES: Final = ("adapter_model.bin", "adapter_model.pt", "adapter_model.pth")


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """A PEFT directory as it was read. Names, shapes and values are not checked yet (see :mod:`.fit`).

    Attributes:
        config: its configuration.
        tensors: name to tensor, CPU. Owned by this object.
    """

    config: PeftConfig
    tensors: Mapping[str, Tensor] = field(repr=False)


def read_adapter(adapter: str, directory: Path, *, bytes_max: int = WEIGHTS_BYTES_MAX) -> AdapterFiles:
    """Read a PEFT adapter directory.

    Args:
        adapter: for messages.
        directory: holds ``adapter_config.json`` and ``adapter_model.safetensors``.
        bytes_max: largest weights file that is read.

    Raises:
        AdapterError: naming the file and what is wrong with it.
    """
    if not os.path.isdir(directory):  # noqa: PTH112 - Path.is_dir raises where it may not look, and for long names
        raise AdapterError(adapter, f"{directory} is no directory")
    config = parse_config(adapter, _read_file(adapter, directory, CONFIG_NAME, CONFIG_BYTES_MAX))
    if not os.path.lexists(directory / WEIGHTS_NAME):
        pickles = [name for name in _PICKLES if os.path.lexists(directory / name)]
        if pickles:
            raise AdapterError(
                adapter,
                f"{pickles[0]} is a pickle, which can run code when it is read; it was not opened. "
                f"Save the adapter as {WEIGHTS_NAME}",
            )
    content = _read_file(adapter, directory, WEIGHTS_NAME, bytes_max)
    return AdapterFiles(config, _parse_weights(adapter, content))


def _read_file(adapter: str, directory: Path, name: str, bytes_max: int) -> bytes:
    """The content of a regular file whose real place is inside the directory."""
    try:
        real = (directory / name).resolve(strict=True)
        if not real.is_relative_to(directory.resolve(strict=True)):
            raise AdapterError(adapter, f"{name} is a link that leads out of {directory}; put the file itself there")
        # Not following links any more, and not waiting for a writer of a pipe.
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of an open descriptor
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise AdapterError(adapter, f"{directory / name} is no regular file")
            if status.st_size > bytes_max:
                raise AdapterError(adapter, f"{name} has {status.st_size} bytes, at most {bytes_max} can be right")
            return file.read(status.st_size)
    except FileNotFoundError:
        raise AdapterError(adapter, f"{directory} has no {name}") from None
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead in a circle
        raise AdapterError(adapter, f"{directory / name} cannot be read: {error}") from error


def _parse_weights(adapter: str, content: bytes) -> dict[str, Tensor]:
    from safetensors import SafetensorError  # noqa: PLC0415 - an extra, needed only where a file is read
    from safetensors.torch import load  # noqa: PLC0415

    try:
        tensors: dict[str, Tensor] = load(content)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError, OverflowError) as error:
        raise AdapterError(adapter, f"{WEIGHTS_NAME} is truncated or malformed: {error}") from error
    if not tensors:
        raise AdapterError(adapter, f"{WEIGHTS_NAME} holds no tensor")
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
    target = Path(directory)
    if os.path.lexists(target):
        raise AdapterError(payload.name, f"{target} exists; an adapter is written to a directory of its own")
    contents = {
        CONFIG_NAME: render_config(payload.rank, payload.alpha, payload.target_modules),
        WEIGHTS_NAME: _render_weights(payload),
    }
    try:
        place = Path(tempfile.mkdtemp(prefix=".adapter-", suffix=".tmp", dir=target.parent))
        try:
            for name, content in contents.items():
                _write_synced(place / name, content)
            _sync_directory(place)
            place = place.rename(target)
            _sync_directory(target.parent)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise AdapterError(payload.name, f"cannot be written to {target}: {_plain(error)}") from error
    return target


def _plain(error: Exception) -> str:
    """What went wrong, without the temporary name."""
    return getattr(error, "strerror", None) or str(error)


def _render_weights(payload: AdapterPayload) -> bytes:
    from safetensors.torch import save  # noqa: PLC0415 - an extra, needed only where a file is written

    # Copies of their own: the tensors are views into slots, and the format takes neither views nor shared storages.
    own = {name: one.detach().to("cpu", copy=True).contiguous() for name, one in payload.tensors.items()}
    content: bytes = save(own, metadata={"format": "pt"})
    return content


def _write_synced(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - of an open descriptor
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
