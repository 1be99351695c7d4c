"""The backing of the frozen base by a file: where it lies, and what is written when a trainer is attached."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from lifecycle.config import LifecycleConfig
from lifecycle.errors import ConfigError
from lifecycle.memory import host
from lifecycle.saver import MemorySaver
from lifecycle.transition.parts import Parts
from lifecycle.weights.digests import digest
from states import FROZEN_BASE, Place


def base_dir(config: LifecycleConfig, saver: MemorySaver, places: Sequence[Place]) -> str | None:
    """Where the base file lies, None when the frozen base is not backed by one.

    Args:
        config: the configuration.
        saver: its disk directory serves when the configuration names no folder.
        places: of the base groups that exist.

    Raises:
        ConfigError: content goes to disk and there is no folder for it, or none that lies on a disk.
    """
    if any(one.backup == "disk" for one in places) and saver.disk_dir is None:
        raise ConfigError("the offload target is disk but the saver has no disk directory; give it one")
    if not any(one.file for one in places):
        return None
    directory = config.base_dir if config.base_dir is not None else saver.disk_dir
    if directory is None:
        raise ConfigError(
            "the frozen base is backed by a file but there is no folder for it; set base_dir, or give the saver a "
            "disk directory"
        )
    if not host.is_real_disk(directory):
        raise ConfigError(f"{directory} lies in memory (tmpfs or ramfs), a base file there saves nothing; use a disk")
    return directory


def files_of_others(parts: Parts) -> tuple[str, ...]:
    """Names of backup and base files in this trainer's folders that are not its own."""
    own = parts.file.held()[0]
    found = host.backup_files(parts.saver.disk_dir, parts.file.directory)
    return tuple(name for name in found if own is None or name != own.path.name)


def write_base_file(parts: Parts) -> str:
    """Find or write the base file before anything is placed.

    Returns:
        The digest of the frozen base, empty when the run has no base file.

    Raises:
        ConfigError: the frozen base is paused and cannot be read.
        BaseFileError: the file cannot be written.
    """
    held = parts.inventory.base.get(FROZEN_BASE)
    if not parts.file.wanted or held is None:
        return ""
    if not readable(parts, FROZEN_BASE):
        raise ConfigError("the frozen base is paused without a backup and cannot be written to its file; attach awake")
    expanded = [name for name, one in held.items() if 0 in one.stride() and one.untyped_storage().nbytes() < _size(one)]
    if expanded:
        raise ConfigError(
            f"several elements of {', '.join(expanded[:3])} share memory (stride 0), a base file cannot be read into "
            'them; make them contiguous, or set frozen_base="saver" with the offload target cpu'
        )
    content_digest = digest(parts.own_bytes(FROZEN_BASE))
    parts.file.write(parts.own_bytes(FROZEN_BASE), content_digest, 0)
    return content_digest


def readable(parts: Parts, group: str) -> bool:
    """Whether the trainer's own memory of a group can be read now."""
    held = parts.inventory.groups()[group].values()
    return all(parts.door.is_live(one) or parts.door.has_backup(one) for one in held)


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
