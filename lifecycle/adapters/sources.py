"""What an adapter is registered with: a valid name, and where its first tensors come from."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeGuard

from torch import Tensor

from lifecycle.adapters.checkpoint import CheckpointSource
from lifecycle.adapters.folder import FileIdentity, identify
from lifecycle.adapters.given import as_name, as_path
from lifecycle.errors import AdapterError

NAME_LENGTH_MAX: Final = 128

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_SEED_MAX: Final = 2**63 - 1
_NOTHING: Final = (None,) * 5


@dataclass(frozen=True, slots=True)
class AdapterSource:
    """Where the first tensors come from: a PEFT directory, tensors, or (neither given) fresh random ones.

    Attributes:
        path: a PEFT adapter directory; rank and alpha then stand in its configuration.
        tensors: under PEFT names, ``[r, in]`` and ``[out, r]``. Kept by reference until the adapter is
            cleaned up: whoever registers them does not change them.
        rank: LoRA rank; None means that of the slots (fresh) or that of the directory (path).
        alpha: LoRA alpha; None means equal to the rank, a scale of 1.
        target_modules: which modules a fresh adapter has, as suffixes; None means all that have slots.
        seed: of a fresh adapter. Equal seeds give equal tensors, whatever the slot.
        identity: what the directory was when it was registered; nothing else is ever loaded from it.
        checkpoint: the checkpoint to resume from; *path* is its directory.
    """

    path: Path | None = None
    tensors: Mapping[str, Tensor] | None = field(default=None, repr=False, compare=False)
    rank: int | None = None
    alpha: float | None = None
    target_modules: tuple[str, ...] | None = None
    seed: int = 0
    identity: FileIdentity | None = None
    checkpoint: CheckpointSource | None = None


def check_name(name: object) -> str:
    """Return *name* if adapters may be called so. A name becomes a file name and part of a log line.

    Raises:
        AdapterError: it is no string, too long, or has other characters than letters, digits, dot,
            underscore and dash, or is ``.`` or ``..``.
    """
    name = as_name(name)
    if not name or len(name) > NAME_LENGTH_MAX:
        raise AdapterError(
            name[:NAME_LENGTH_MAX], f"a name has 1 to {NAME_LENGTH_MAX} characters, this has {len(name)}"
        )
    if name in {".", ".."}:
        raise AdapterError(name, "this name means a directory; use letters, digits, dots, underscores and dashes")
    if not _NAME.fullmatch(name):
        bad = "".join(sorted(set(_NAME.sub("", name))))
        raise AdapterError(name, f"the name has {bad!r} in it; use letters, digits, dots, underscores and dashes")
    return name


def make_source(
    name: str,
    path: str | Path | None,
    tensors: Mapping[str, Tensor] | None,
    rank: int | None,
    alpha: float | None,
    target_modules: Sequence[str] | None,
    seed: int,
    resume: str | Path | None = None,
) -> AdapterSource:
    """Check what an adapter is registered with.

    Raises:
        AdapterError: the arguments contradict each other or are out of range, or the directory cannot be read.
    """
    if resume is not None:
        return _resume_source(name, resume, alone=not seed and (path, tensors, rank, alpha, target_modules) == _NOTHING)
    place = None if path is None else as_path("path", path, name)
    if path is not None and any(one is not None for one in (tensors, rank, alpha, target_modules)):
        raise AdapterError(name, "a directory says its own rank, alpha and targets; give path alone")
    if tensors is not None:
        _check_tensors(name, tensors, rank, target_modules)
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or rank < 1):
        raise AdapterError(name, f"rank is {rank!r}; a rank is an integer of at least 1")
    if alpha is not None and not is_alpha(alpha):
        raise AdapterError(name, f"alpha is {alpha!r}; an alpha is a finite number above 0")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _SEED_MAX:
        raise AdapterError(name, f"seed is {seed!r}; a seed is an integer from 0 to 2**63 - 1")
    return AdapterSource(
        path=place,
        tensors=tensors,
        rank=rank,
        alpha=alpha,
        target_modules=_targets(name, target_modules),
        seed=seed,
        identity=None if place is None else identify(name, place),
    )


def _resume_source(name: str, directory: object, *, alone: bool) -> AdapterSource:
    """The newest whole checkpoint in a directory, or the ``step_N`` that it is, every byte of it checked."""
    from lifecycle.adapters.checkpoint_read import find_checkpoint  # noqa: PLC0415 - needs msgspec

    if not alone:
        raise AdapterError(name, "a checkpoint says its own tensors, rank, alpha and targets; give resume alone")
    found = find_checkpoint(name, as_path("resume", directory, name))
    return AdapterSource(path=found.path, identity=found.identity, checkpoint=found)


def is_alpha(value: object) -> TypeGuard[float]:
    """Whether a value can be a LoRA alpha: a finite number above 0, and no bool."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value)) and value > 0
    except OverflowError:
        return False


def _check_tensors(
    name: str, tensors: Mapping[str, Tensor], rank: int | None, target_modules: Sequence[str] | None
) -> None:
    if not isinstance(tensors, Mapping) or not tensors:
        raise AdapterError(name, "tensors is not a mapping of PEFT names to tensors, or is empty")
    wrong = [str(key) for key, one in tensors.items() if not isinstance(key, str) or not isinstance(one, Tensor)]
    if wrong:
        raise AdapterError(name, f"tensors maps names to tensors, which these are not: {', '.join(wrong[:3])}")
    if rank is None:
        raise AdapterError(name, "tensors were given without their rank; give rank=, and alpha= if it is another")
    if target_modules is not None:
        raise AdapterError(name, "given tensors name their own modules; leave target_modules out")


def _targets(name: str, target_modules: Sequence[str] | None) -> tuple[str, ...] | None:
    if target_modules is None:
        return None
    if isinstance(target_modules, str) or not target_modules or not all(isinstance(one, str) for one in target_modules):
        raise AdapterError(name, f"target_modules is {target_modules!r}; give a sequence of module name suffixes")
    return tuple(sorted(set(target_modules)))
