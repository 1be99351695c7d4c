"""A vLLM server in memory: its endpoints and its rules, as read from vLLM 0.32, and every fault on request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import torch

from lifecycle.adapters.folder import WEIGHTS_NAME
from lifecycle.engines.http import EngineHttp
from lifecycle.engines.protocol import AdapterPayload
from lifecycle.engines.vllm import HeldBase, VllmEngine

BASE = "the-model"
GROUPS = {"frozen-base": 11, "buffers": 12}
PROMPTS = ((1, 2, 3), (4, 5))


def tokens(base: str, adapter: bytes, prompt: list[int], count: int) -> list[int]:
    """Other weights or another prompt give other tokens."""
    seed = hashlib.sha256(base.encode() + adapter + json.dumps(list(prompt)).encode()).digest()
    return [byte % 100 for byte in seed[:count]]


class FakeVllm:
    """One server at one address, which can restart.

    Attributes:
        calls: method, path and query of each call, in order.
        hook: called before each call is served; raises what the call fails with.
        after: called when it was served.
        refuses: whether an adapter that lies there cannot be loaded.
    """

    def __init__(self, device: str = "cuda", **config: Any) -> None:
        self.device, self.config = device, config
        self.base = "weights-1"
        self.calls: list[str] = []
        self.hook: Callable[[str], None] = lambda _: None
        self.after: Callable[[str], None] = lambda _: None
        self.refuses: Callable[[Path], bool] = lambda _: False
        self.starts = 0
        self.resets = True
        self.busy = 0
        self.restart()

    def restart(self) -> None:
        """Another instance: everything resident, no adapter."""
        self.starts += 1
        self.instance = f"instance-{self.starts}"
        self.asleep: set[str] = set()
        self.is_paused = False
        self.adapters: dict[str, str] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Serve one call."""
        path = request.url.path
        query = str(request.url.query, "ascii")
        self.calls.append(f"{request.method} {path}" + (f"?{query}" if query else ""))
        self.hook(path)
        known = getattr(self, path.strip("/").replace("/", "_"), None)
        body = json.loads(request.content) if request.content else {}
        answer = httpx.Response(404, json={"detail": "Not Found"}) if known is None else known(body, request.url.params)
        self.after(path)
        return answer

    def took(self) -> list[str]:
        """The calls that change something, since this was last asked."""
        found = [one.removeprefix("POST ") for one in self.calls if one.startswith("POST")]
        self.calls.clear()
        return found

    def server_info(self, _: Any, __: Any) -> httpx.Response:
        config = {
            "instance_id": self.instance,
            "device_config": {"device": self.device},
            "lora_config": {"max_loras": 4, "max_cpu_loras": 6},
            "model_config": {"enable_sleep_mode": self.device != "cpu", "hf_token": "hf_secret"},
            "parallel_config": {"_api_process_count": 1},
        }
        return httpx.Response(200, json={"vllm_config": config | self.config})

    def v1_models(self, _: Any, __: Any) -> httpx.Response:
        cards = [{"id": BASE, "root": "/models", "parent": None}]
        cards += [{"id": name, "root": path, "parent": BASE} for name, path in self.adapters.items()]
        return httpx.Response(200, json={"data": cards})

    def is_sleeping(self, _: Any, __: Any) -> httpx.Response:
        return httpx.Response(200, json={"is_sleeping": bool(self.asleep) or self.is_paused})

    def metrics(self, _: Any, __: Any) -> httpx.Response:
        return httpx.Response(200, text=f'vllm:num_requests_running{{engine="0"}} {float(self.busy)}\n')

    def pause(self, _: Any, params: httpx.QueryParams) -> httpx.Response:
        self.is_paused = True
        if self.busy and params["mode"] == "wait":
            raise httpx.ReadTimeout("requests run")
        self.busy = 0
        return httpx.Response(200, json={"status": "paused"})

    def resume(self, _: Any, __: Any) -> httpx.Response:
        self.is_paused = False
        return httpx.Response(200, json={"status": "resumed"})

    def sleep(self, _: Any, params: httpx.QueryParams) -> httpx.Response:
        self.is_paused = True
        if "weights" not in self.asleep:
            self.asleep = {"weights", "kv_cache"}
            self.base = "nothing" if params["level"] == "2" else self.base
        return httpx.Response(200, json={"status": "sleeping"})

    def release_kv_cache_memory(self, _: Any, __: Any) -> httpx.Response:
        if self.asleep or not self.is_paused or self.device == "cpu":
            return _error(500, "not so")
        self.asleep = {"kv_cache"}
        return httpx.Response(200, json={"status": "kv_cache_released"})

    def wake_up(self, _: Any, params: httpx.QueryParams) -> httpx.Response:
        tags = params.get_list("tags") or sorted(self.asleep)
        if all(tag in self.asleep for tag in tags):
            self.asleep -= set(tags)
        self.is_paused = self.is_paused and bool(self.asleep)
        return httpx.Response(200, json={"status": "sleeping" if self.asleep else "awake"})

    def reset_prefix_cache(self, _: Any, __: Any) -> httpx.Response:
        return httpx.Response(200, json={"success": self.resets})

    def v1_load_lora_adapter(self, body: Any, _: Any) -> httpx.Response:
        assert "load_inplace" not in body
        if body["lora_name"] in self.adapters:
            return _error(400, "has already been loaded")
        if self.refuses(Path(body["lora_path"])):
            return _error(500, "Call to add_lora method failed: incomplete metadata")
        self.adapters[body["lora_name"]] = body["lora_path"]
        return httpx.Response(200, text="Success")

    def v1_unload_lora_adapter(self, body: Any, _: Any) -> httpx.Response:
        if self.adapters.pop(body["lora_name"], None) is None:
            return _error(404, f"The lora adapter '{body['lora_name']}' cannot be found.")
        return httpx.Response(200, text="Success")

    def weight_checker(self, _: Any, __: Any) -> httpx.Response:
        return httpx.Response(200, json={"checksums": self.config.get("checksums", {})})

    def v1_completions(self, body: Any, _: Any) -> httpx.Response:
        assert not self.asleep, "a server that sleeps computes with unmapped memory"
        if self.is_paused:
            raise httpx.ReadTimeout("it is paused, so this request waits")
        if body["model"] != BASE and body["model"] not in self.adapters:
            return _error(404, "The model does not exist.")
        path = self.adapters.get(body["model"])
        adapter = (Path(path) / WEIGHTS_NAME).read_bytes() if path else b""
        choices = [
            {
                "index": at,
                "token_ids": tokens(self.base, adapter, prompt, body["max_tokens"]),
                "finish_reason": "length",
            }
            for at, prompt in enumerate(body["prompt"])
        ]
        return httpx.Response(200, json={"choices": choices[::-1]})


def _error(status: int, message: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"message": message, "code": status}})


def proven(**changes: Any) -> HeldBase:
    """The proof for the base of a new server."""
    asked = {"versions": GROUPS, "prompts": PROMPTS, "tokens": [tokens("weights-1", b"", one, 4) for one in PROMPTS]}
    return HeldBase(**(asked | changes))


def engine_on(server: FakeVllm, **how: Any) -> VllmEngine:
    """A client of it, which waits for nothing."""
    http = EngineHttp(
        "e0",
        "http://vllm.test",
        client=httpx.Client(transport=httpx.MockTransport(server)),
        retries=1,
        pause=lambda _: None,
    )
    return VllmEngine("e0", "http://vllm.test", **({"held_base": proven(), "http": http} | how))


def payload(name: str = "a", version: int = 20, value: float = 0.5, **changes: Any) -> AdapterPayload:
    """A small adapter whose bytes follow from *value*."""
    stem = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {f"{stem}.lora_A.weight": torch.full((2, 8), value), f"{stem}.lora_B.weight": torch.full((8, 2), value)}
    made = {
        "name": name,
        "version": version,
        "rank": 2,
        "alpha": 4.0,
        "target_modules": ("q_proj",),
        "tensors": tensors,
    }
    return AdapterPayload(**(made | changes))


def push(engine: VllmEngine, *payloads: AdapterPayload, unload: tuple[str, ...] = ()) -> None:
    """One whole update."""
    engine.begin_update()
    for name in unload:
        engine.unload_adapter(name)
    for one in payloads:
        engine.load_adapter(one)
    engine.commit_update()
