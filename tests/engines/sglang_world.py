"""A base, adapters by seed, an engine at a server that keeps SGLang's rules, and the answers that are right."""

from __future__ import annotations

from typing import Any

import httpx
import torch
from torch import Tensor

from lifecycle.engines import AdapterPayload
from lifecycle.engines.sglang import SglangEngine
from states import FROZEN_BASE
from tests.engines.sglang_host import SglangHost
from tests.engines.sglang_rules import Start, adapter_digest, continuation, digest_of

PROMPT = [3, 1, 4]
WIDTH, RANK = 8, 2
CLIENT = httpx.Client(trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))
"""Made once: the certificates that it reads take longer than a test."""


def base(seed: int) -> dict[str, Tensor]:
    """Two matrices, one of them bfloat16."""
    draw = torch.Generator().manual_seed(seed)
    up, down = torch.randn(WIDTH, WIDTH, generator=draw), torch.randn(WIDTH, WIDTH, generator=draw)
    return {"model.up.weight": up, "model.down.weight": down.bfloat16()}


def adapter(name: str, version: int, rank: int = RANK) -> AdapterPayload:
    """An adapter whose bytes follow from its version."""
    draw = torch.Generator().manual_seed(version)
    prefix = "base_model.model.model.up"
    tensors = {
        f"{prefix}.lora_A.weight": torch.randn(rank, WIDTH, generator=draw),
        f"{prefix}.lora_B.weight": torch.randn(WIDTH, rank, generator=draw),
    }
    return AdapterPayload(name, version, rank, 4.0, ("up",), tensors)


def right(seed: int, payload: AdapterPayload | None = None, count: int = 4) -> tuple[int, ...]:
    """The greedy answer of the base of *seed* under this adapter."""
    digest = "" if payload is None else adapter_digest(payload.tensors, payload.rank, payload.alpha)
    return tuple(continuation(digest_of(base(seed)), digest, PROMPT, count))


def engine_at(host: SglangHost, **how: Any) -> SglangEngine:
    """A client that does not wait long."""
    settings: dict[str, Any] = {
        "timeout_s": 20.0,
        "slow_s": 20.0,
        "drain_s": 0.1,
        "at_start": {FROZEN_BASE: 1},
        "client": CLIENT,
    }
    return SglangEngine("E0", host.url, **(settings | how))


def started(**options: Any) -> Start:
    """With the base of seed 0 as its checkpoint."""
    return Start(checkpoint=base(0), **options)


def push(engine: SglangEngine, *payloads: AdapterPayload, base_version: int | None = None, seed: int = 0) -> None:
    """One whole update."""
    engine.begin_update()
    if base_version is not None:
        engine.send_base(FROZEN_BASE, base_version, base(seed).items())
    for payload in payloads:
        engine.load_adapter(payload)
    engine.commit_update()


def answer(engine: SglangEngine, name: str) -> tuple[int, ...]:
    """Its greedy answer."""
    return engine.greedy(name, [PROMPT], 4)[0]
