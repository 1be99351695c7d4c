"""What SGLang says of itself and answers, taken out of its JSON with nothing believed that is not there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from lifecycle.errors import EngineError, EngineUnanswered
from states.handover_needs import CUDA_GRAPH, KV_CACHE, WEIGHTS

GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class SglangServer:
    """What one instance was started as (``/server_info``).

    Attributes:
        instance_id: of this start. SGLang has no id of its own: it is a digest of how long each part of the start
            took, measured to fractions of a microsecond, and of the random seed, which it draws where none was given.
        version: of SGLang.
        has_saver: ``--enable-memory-saver``; without it a release gives nothing back.
        has_mirror: ``--enable-weights-cpu-backup``; without it a release throws the weights away.
        takes_adapters: ``--enable-lora``, and one data-parallel replica.
        adapter_slots: ``--max-loaded-loras``: one more, and it drops the one that was used least recently.
        rank_max: ``--max-lora-rank``, None where it does not say.
        tp_size: tensor-parallel ranks.
        started_as: the weight version that it was started with.
        device_bytes: device memory of each tag on one rank, from what it measured at its start.
    """

    instance_id: str
    version: str
    has_saver: bool
    has_mirror: bool
    takes_adapters: bool
    adapter_slots: int | None
    rank_max: int | None
    tp_size: int
    started_as: str = ""
    device_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The continuation of one prompt.

    Attributes:
        tokens: the new token ids.
        finish: why it ended: ``length``, ``stop`` or ``abort``.
        weight_version: the mark that the server held when it answered.
    """

    tokens: tuple[int, ...]
    finish: str
    weight_version: str


def server_of(engine: str, said: Mapping[str, Any]) -> SglangServer:
    """What ``/server_info`` says.

    Raises:
        EngineError: nothing in it tells one start from another.
    """
    starts = {key: said[key] for key in ("startup_time", "random_seed") if said.get(key) is not None}
    if not starts:
        raise EngineError(
            engine, "/server_info names neither startup_time nor random_seed: is this SGLang 0.5.23 or later?"
        )
    named = json.dumps(starts, sort_keys=True).encode()
    return SglangServer(
        instance_id=hashlib.sha256(named).hexdigest()[:16],
        version=str(said.get("version", "")),
        has_saver=said.get("enable_memory_saver") is True,
        has_mirror=said.get("enable_weights_cpu_backup") is True,
        takes_adapters=said.get("enable_lora") is True and said.get("dp_size", 1) == 1,
        adapter_slots=_count(said.get("max_loaded_loras")),
        rank_max=_count(said.get("max_lora_rank")),
        tp_size=_count(said.get("tp_size")) or 1,
        started_as=str(said.get("weight_version", "")),
        device_bytes=_device_bytes(said),
    )


def _device_bytes(said: Mapping[str, Any]) -> dict[str, int]:
    states = said.get("internal_states")
    usage = (
        states[0].get("memory_usage") if isinstance(states, list) and states and isinstance(states[0], dict) else None
    )
    if not isinstance(usage, dict):
        return {}
    graphs = usage.get("graph")
    sizes = {
        WEIGHTS: _gib(usage.get("weight")),
        KV_CACHE: _gib(usage.get("kvcache")),
        CUDA_GRAPH: sum(_gib(one) for one in graphs.values()) if isinstance(graphs, dict) else 0,
    }
    return {tag: size for tag, size in sizes.items() if size}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _gib(value: object) -> int:
    return int(value * GIB) if isinstance(value, int | float) and value > 0 else 0


def answers(engine: str, response: httpx.Response, count: int) -> tuple[Answer, ...]:
    """What ``/generate`` answered to *count* prompts, in their order.

    Raises:
        EngineUnanswered: it is something else.
    """
    try:
        said = response.json()
    except ValueError:
        said = None
    if not isinstance(said, list) or len(said) != count or not all(isinstance(one, dict) for one in said):
        raise EngineUnanswered(engine, f"/generate did not answer {count} prompt(s)", status=response.status_code)
    return tuple(_answer(engine, one) for one in said)


def _answer(engine: str, said: Mapping[str, Any]) -> Answer:
    tokens, meta = said.get("output_ids"), said.get("meta_info")
    if not isinstance(tokens, list) or not all(isinstance(one, int) for one in tokens) or not isinstance(meta, dict):
        raise EngineUnanswered(engine, "/generate answered without output_ids or meta_info")
    finish = meta.get("finish_reason")
    why = str(finish.get("type", "")) if isinstance(finish, dict) else ""
    return Answer(tuple(tokens), why, str(meta.get("weight_version", "")))
