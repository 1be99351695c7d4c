"""How one adapter is trained: where it is saved, how long it runs, how large its batches are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeGuard

from lifecycle.adapters.given import as_path
from lifecycle.errors import AdapterError

COUNT_MAX: Final = 2**63 - 1
"""The largest number that a saved registry holds."""

_COUNTS: Final = ("num_step", "num_epoch", "rollout_batch_size", "n_samples_per_prompt")


@dataclass(frozen=True, slots=True)
class AdapterSettings:
    """What a registration carries beside its first tensors. None means not given.

    Attributes:
        save: directory of its checkpoints. Of those that hold a slot, none has another's, nor one inside it.
        num_step: optimizer steps after which it is deregistered, counted from the step it started with.
        num_epoch: the same in passes over its data; ``resolve_num_step`` turns it into steps.
        rollout_batch_size: prompt groups in one optimizer step.
        n_samples_per_prompt: samples in one prompt group.
        trainable: a frozen adapter is served and never trained.
    """

    save: Path | None = None
    num_step: int | None = None
    num_epoch: int | None = None
    rollout_batch_size: int | None = None
    n_samples_per_prompt: int | None = None
    trainable: bool = True


NO_SETTINGS: Final = AdapterSettings()


def check_settings(name: str, settings: AdapterSettings) -> AdapterSettings:
    """Check what somebody has given, and resolve the save directory.

    Returns:
        The settings, with *save* absolute and every link and ``..`` in it followed, so that it has one spelling.

    Raises:
        AdapterError: naming the setting and what is wrong with it.
    """
    if not isinstance(settings, AdapterSettings):
        raise AdapterError(name, f"settings is {type(settings).__name__}; give AdapterSettings(...)")
    for key in _COUNTS:
        value = getattr(settings, key)
        if value is not None and not is_count(value, 1):
            raise AdapterError(name, f"{key} is {value!r}; give an integer of at least 1, or leave it out")
    if settings.num_step is not None and settings.num_epoch is not None:
        raise AdapterError(name, "num_step and num_epoch are both given; give one of them")
    if not isinstance(settings.trainable, bool):
        raise AdapterError(name, f"trainable is {settings.trainable!r}; give True or False")
    return AdapterSettings(
        save=None if settings.save is None else resolved(name, "save", settings.save),
        num_step=settings.num_step,
        num_epoch=settings.num_epoch,
        rollout_batch_size=settings.rollout_batch_size,
        n_samples_per_prompt=settings.n_samples_per_prompt,
        trainable=settings.trainable,
    )


def is_count(value: object, least: int) -> TypeGuard[int]:
    """Whether a value is an integer of at least *least*, no bool, that can be saved."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= COUNT_MAX


def resolved(name: str, what: str, directory: object) -> Path:
    """A directory of an adapter in its one spelling: absolute, and every link and ``..`` in it followed.

    Raises:
        AdapterError: it is no path, or one that leads nowhere; *what* names the argument.
    """
    place = as_path(what, directory, name)
    try:
        try:
            return place.resolve(strict=True)
        except FileNotFoundError:  # it may be made later; that its links lead in a circle is said by strict alone
            return place.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a circle of links, a null character
        why = f"{what} is {str(directory)!r}, which cannot be resolved: {error}; give a directory that can be made"
        raise AdapterError(name, why) from error
