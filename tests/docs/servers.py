"""Servers in memory that pages talk to: a vLLM whose base is the reader's model."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import httpx
import torch
from torch import nn

from lifecycle.engines.http import EngineHttp
from lifecycle.engines.sglang import SglangEngine
from lifecycle.engines.vllm import VllmEngine
from lifecycle.probes import greedy
from tests.engines.sglang_host import sglang
from tests.engines.sglang_world import CLIENT, started
from tests.engines.vllm_server import BASE, FakeVllm


class VllmOver(FakeVllm):
    """A vLLM server that was started on this model: without an adapter it gives the model's own greedy tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def v1_completions(self, body: Any, params: Any) -> httpx.Response:
        answer = json.loads(super().v1_completions(body, params).content)
        if body["model"] == BASE:
            with torch.no_grad():
                found = greedy(self.model, body["prompt"], body["max_tokens"])
            for choice in answer["choices"]:
                choice["token_ids"] = list(found[choice["index"]])
        for choice in answer["choices"]:
            choice["logprobs"] = {"token_logprobs": [-0.5] * len(choice["token_ids"])}
        return httpx.Response(200, json=answer)


def vllm_over(model: nn.Module) -> Callable[..., VllmEngine]:
    """``VllmEngine`` for a page: whatever its URL, the server is one over *model*."""

    def made(name: str, url: str, **how: Any) -> VllmEngine:
        client = httpx.Client(transport=httpx.MockTransport(VllmOver(model)))
        return VllmEngine(name, url, http=EngineHttp(name, url, client=client, pause=lambda _: None), **how)

    return made


def sglang_at(closing: ExitStack, name: str, url: str, **how: Any) -> SglangEngine:
    """``SglangEngine`` for a page: whatever its URL, the server is one that keeps SGLang's rules until *closing*."""
    return SglangEngine(name, closing.enter_context(sglang(started())).url, client=CLIENT, **how)
