"""``adapter.yaml``: what an adapter is registered with, from a file that a person writes."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from lifecycle.adapters.given import as_path
from lifecycle.adapters.settings import AdapterSettings, check_settings
from lifecycle.adapters.settings_yaml import parse, read_text
from lifecycle.adapters.sources import check_name
from lifecycle.errors import AdapterError, ConfigError

_INT_MAX: Final = 2**63 - 1
_TEXT_MAX: Final = 4096
_SHOWN: Final = 40
_KEY_OF_ERROR: Final = re.compile(r"`\$\.(?P<key>\w+)")
_UNKNOWN_KEY: Final = re.compile(r"unknown field `(?P<key>.*)`", re.DOTALL)

_Count = Annotated[int, msgspec.Meta(ge=1, le=_INT_MAX)]
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=_TEXT_MAX)]


class _File(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The keys of a file and their types. What is left out is None, or as it stands here."""

    path: _Text | None = None
    rank: _Count | None = None
    alpha: Annotated[float, msgspec.Meta(gt=0, le=sys.float_info.max)] | None = None
    target_modules: Annotated[list[_Text], msgspec.Meta(min_length=1)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=0, le=_INT_MAX)] | None = None
    save: _Text | None = None
    num_step: _Count | None = None
    num_epoch: _Count | None = None
    rollout_batch_size: _Count | None = None
    n_samples_per_prompt: _Count | None = None
    trainable: bool = True


_COUNT: Final = "an integer from 1 to 2**63 - 1"
_ALLOWED: Final = {
    "path": f"the name of a PEFT directory, 1 to {_TEXT_MAX} characters, relative to the file's own directory",
    "rank": f"{_COUNT}, and at most the rank of the slots",
    "alpha": "a finite number above 0",
    "target_modules": "a list of at least one module name suffix",
    "seed": "an integer from 0 to 2**63 - 1",
    "save": f"the name of a directory, 1 to {_TEXT_MAX} characters, relative to the file's own directory",
    "num_step": _COUNT,
    "num_epoch": _COUNT,
    "rollout_batch_size": _COUNT,
    "n_samples_per_prompt": _COUNT,
    "trainable": "true or false",
}
_OF_A_DIRECTORY: Final = ("rank", "alpha", "target_modules", "seed")


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """What a file says of an adapter: ``registry.register(name, **config.arguments())``.

    Attributes:
        path: a PEFT directory to start from; None for a fresh adapter.
        rank: LoRA rank, as :meth:`~lifecycle.adapters.AdapterRegistry.register` takes it.
        alpha: LoRA alpha.
        target_modules: module name suffixes.
        seed: of a fresh adapter.
        settings: where it is saved and how it is trained.
    """

    path: Path | None
    rank: int | None
    alpha: float | None
    target_modules: tuple[str, ...] | None
    seed: int
    settings: AdapterSettings

    def arguments(self) -> dict[str, Any]:
        """What :meth:`~lifecycle.adapters.AdapterRegistry.register` takes besides the name."""
        return {key: getattr(self, key) for key in self.__slots__}


def read_config(adapter: str, file: str | Path) -> AdapterConfig:
    """Read an ``adapter.yaml``. Paths in it are relative to the directory of the file.

    Keys: ``rank``, ``alpha``, ``target_modules`` and ``seed`` of a fresh adapter, or ``path`` of a PEFT directory;
    ``rollout_batch_size``, ``n_samples_per_prompt``, ``num_step`` or ``num_epoch``, ``save``, ``trainable``.

    Args:
        adapter: the name it is going to be registered under.
        file: at most 64 KiB of plain YAML: no tags, no anchors, no key twice.

    Raises:
        AdapterError: the file cannot be read, has an unknown key, or a value of a wrong type or out of range;
            the key is named with what is allowed.
        ConfigError: PyYAML is not installed.
    """
    place = as_path("file", file, check_name(adapter), kind="file")
    given = _parsed(adapter, place)
    found = _typed(adapter, place.name, given)
    _refuse_beside_path(adapter, place.name, given)
    settings = AdapterSettings(
        save=None if found.save is None else place.parent / found.save,
        num_step=found.num_step,
        num_epoch=found.num_epoch,
        rollout_batch_size=found.rollout_batch_size,
        n_samples_per_prompt=found.n_samples_per_prompt,
        trainable=found.trainable,
    )
    return AdapterConfig(
        path=None if found.path is None else place.parent / found.path,
        rank=found.rank,
        alpha=found.alpha,
        target_modules=None if found.target_modules is None else tuple(found.target_modules),
        seed=found.seed or 0,
        settings=check_settings(adapter, settings),
    )


def _parsed(adapter: str, place: Path) -> dict[str, object]:
    try:
        return parse(read_text(place))
    except ConfigError:
        raise
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise AdapterError(adapter, f"{place} cannot be used: {why}") from error


def _typed(adapter: str, name: str, given: dict[str, object]) -> _File:
    try:
        return msgspec.convert(given, _File)
    except msgspec.ValidationError as error:
        unknown = _UNKNOWN_KEY.search(str(error))
        if unknown is not None:
            key, known = repr(unknown["key"][:_SHOWN]), ", ".join(_File.__struct_fields__)
            raise AdapterError(adapter, f"{name} has the unknown key {key}; the keys are: {known}") from None
        wrong = _KEY_OF_ERROR.search(str(error))
        assert wrong is not None  # every other error is about the value of a key
        key = wrong["key"]
        shown = repr(given[key])
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
        raise AdapterError(adapter, f"{name}: {key} is {shown}; it is {_ALLOWED[key]}") from None


def _refuse_beside_path(adapter: str, name: str, given: dict[str, object]) -> None:
    beside = [key for key in _OF_A_DIRECTORY if given.get("path") is not None and given.get(key) is not None]
    if beside:
        why = f"{name}: {', '.join(beside)} beside path, where the directory says its own rank, alpha and targets"
        raise AdapterError(adapter, f"{why}. Leave {'it' if len(beside) == 1 else 'them'} out, or leave out path")
