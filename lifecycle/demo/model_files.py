"""What a model directory may hold: safetensors. Other formats of weights can run code when they are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from lifecycle.errors import ConfigError
from lifecycle.wording import first_line

_ENDING: Final = ".safetensors"


def check_model_files(directory: Path) -> None:
    """Refuse a directory from which something else than its own safetensors files would be read.

    Args:
        directory: a Hugging Face model directory.

    Raises:
        ConfigError: it has no ``config.json`` or no safetensors, is an adapter, or names files of another kind.
    """
    if not (directory / "config.json").is_file():
        raise ConfigError(f"--model {directory} is no model directory: it has no config.json")
    if (directory / "adapter_config.json").exists():
        raise ConfigError(f"--model {directory} is an adapter; give its base to --model and it to --adapter")
    if not any(directory.glob(f"*{_ENDING}")):
        raise ConfigError(
            f"--model {directory} holds no *{_ENDING} file; other weights are not read, as they can run code: "
            "save the model again with save_pretrained"
        )
    for named in _named_files(directory):
        if Path(named).name != named or not named.endswith(_ENDING):
            raise ConfigError(f"--model {directory} names {named!r} for its weights; use *{_ENDING} files inside it")


def _named_files(directory: Path) -> Iterator[str]:
    """Files that the directory's own JSON sends a reader to, as the reader would not check them."""
    explicit = _object(directory / "config.json").get("transformers_weights")
    if explicit is not None:
        yield str(explicit)
    for index in directory.glob(f"*{_ENDING}.index.json"):
        parts = _object(index).get("weight_map")
        if not isinstance(parts, dict):
            raise ConfigError(f"--model {directory} has an {index.name} without a weight_map; save the model again")
        yield from map(str, parts.values())


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--model {path.parent} has an unreadable {path.name}: {first_line(error)}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"--model {path.parent} has a {path.name} that is no JSON object")
    return found
