"""``adapter_config.json`` of a PEFT directory: what of it is understood, and what is refused.

Anything that changes what an adapter computes and that the slots cannot do is refused by name. A key
that is not known is accepted only when it is off (null, false, zero or empty).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Final

from lifecycle.adapters.folder import CONFIG_NAME
from lifecycle.adapters.peft_kinds import why_refused
from lifecycle.adapters.sources import is_alpha
from lifecycle.errors import AdapterError

_READ: Final = frozenset({"peft_type", "r", "lora_alpha", "target_modules", "bias", "use_rslora", "init_lora_weights"})
_NARROWING: Final = ("layers_to_transform", "layers_pattern", "exclude_modules")
# These say where an adapter comes from or how it was trained, not what it computes.
_IGNORED: Final = frozenset({
    "auto_mapping", "base_model_name_or_path", "revision", "task_type", "inference_mode", "peft_version",
    "lora_dropout", "megatron_core", "qalora_group_size", "eva_config", "loftq_config", "runtime_config", *_NARROWING,
})  # fmt: skip
# Other ways to start (pissa, olora, loftq, corda) change the base, which is shared here and frozen.
_STARTS: Final = (None, True, False, "gaussian", "orthogonal", "eva")


@dataclass(frozen=True, slots=True)
class PeftConfig:
    """The part of a LoRA configuration that the slots need.

    Attributes:
        rank: LoRA rank r.
        alpha: such that the scale is alpha / rank. For rsLoRA (scale lora_alpha / sqrt(r)) it is converted.
        target_modules: suffixes of module names; None when the configuration gives a pattern instead.
        narrowed: whether it applies to some of the modules of these names only.
    """

    rank: int
    alpha: float
    target_modules: tuple[str, ...] | None
    narrowed: bool


def parse_config(adapter: str, content: bytes) -> PeftConfig:
    """Read ``adapter_config.json``.

    Args:
        adapter: for messages.
        content: the file.

    Raises:
        AdapterError: it is no LoRA configuration, or asks for something the slots cannot do.
    """
    try:
        given = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise AdapterError(adapter, f"{CONFIG_NAME} is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise AdapterError(adapter, f"{CONFIG_NAME} holds {type(given).__name__}, not an object")
    _refuse_what_is_on(adapter, given)
    rank, alpha = given.get("r"), given.get("lora_alpha")
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise AdapterError(adapter, f"{CONFIG_NAME} has r {rank!r}; a rank is an integer of at least 1")
    if not is_alpha(alpha):
        raise AdapterError(adapter, f"{CONFIG_NAME} has lora_alpha {alpha!r}; an alpha is a finite number above 0")
    converted = float(alpha) * (math.sqrt(rank) if given.get("use_rslora") else 1.0)
    if not is_alpha(converted):
        why = f"{CONFIG_NAME} has lora_alpha {alpha!r}: times sqrt({rank}), as use_rslora asks for, is not finite"
        raise AdapterError(adapter, f"{why}; give a smaller lora_alpha")
    return PeftConfig(
        rank=rank,
        alpha=converted,
        target_modules=_targets(adapter, given.get("target_modules")),
        narrowed=any(given.get(key) for key in _NARROWING) or given.get("layers_to_transform") is not None,
    )


def _refuse_what_is_on(adapter: str, given: dict[str, Any]) -> None:
    """Refuse every key that changes what an adapter computes and that no slot can do."""
    if not isinstance(given.get("use_rslora", False), bool):
        raise AdapterError(adapter, f"{CONFIG_NAME} has use_rslora {given['use_rslora']!r}; it is true or false")
    given = {"peft_type": None} | given
    on = sorted((key for key, value in given.items() if _is_on(key, value)), key=lambda key: (key != "peft_type", key))
    if on:
        more = f" (also: {', '.join(on[1:])[:200]})" if len(on) > 1 else ""
        raise AdapterError(adapter, f"{CONFIG_NAME} has {why_refused(on[0], given[on[0]])}{more}")


def _is_on(key: str, value: object) -> bool:
    if key == "peft_type":
        return value != "LORA"
    if key == "bias":
        return value != "none"
    if key == "init_lora_weights":
        return not any(value is one or (isinstance(one, str) and value == one) for one in _STARTS)
    return bool(value) and key not in _READ | _IGNORED


def _targets(adapter: str, given: object) -> tuple[str, ...] | None:
    if isinstance(given, str):
        return None
    if isinstance(given, list) and given and all(isinstance(one, str) and one for one in given):
        return tuple(sorted(set(given)))
    raise AdapterError(
        adapter, f"{CONFIG_NAME} has target_modules {str(given)[:80]!r}; it is a list of names or a pattern"
    )


def render_config(rank: int, alpha: float, target_modules: tuple[str, ...]) -> bytes:
    """The ``adapter_config.json`` of a plain LoRA adapter, as PEFT reads it.

    Args:
        rank: LoRA rank.
        alpha: LoRA alpha; the scale is alpha / rank.
        target_modules: suffixes of module names.
    """
    config = {
        "base_model_name_or_path": None,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": int(alpha) if alpha.is_integer() else alpha,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": rank,
        "target_modules": sorted(target_modules),
        "task_type": None,
        "use_dora": False,
        "use_rslora": False,
    }
    return (json.dumps(config, indent=2) + "\n").encode()
