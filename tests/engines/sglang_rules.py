"""SGLang's rules, as its source (0.5.23) has them: what each request does, what it refuses, and what ends the process.

One :class:`Sglang` is one process. It computes no language model: an answer is a function of the base bytes, of the
adapter's bytes and of the prompt, so that a wrong or stale one cannot look right. What the scheduler does not catch
ends the process, as there: the caller gets no answer and nobody answers afterwards.

Rules and where they stand in the package:

- ``managers/scheduler_components/weight_updater.py``: release asserts that nothing runs, and keeps the set
  ``offload_tags``; resume removes from it (KeyError). The memory saver ends the process at a second pause of a tag.
  Weights without a backup are gone; buffers are stashed. Base weights need an open session, and names that the model
  does not have are left out in silence.
- ``managers/tokenizer_control_mixin.py``, ``lora/lora_manager.py``, ``lora/lora_registry.py``: an adapter that is
  loaded cannot be loaded again; unloading waits for its requests; one too many drops the least recently used that is
  not pinned; not all places can be pinned; each load has an id of its own, which the prefix cache is keyed by.
- ``managers/tokenizer_manager.py``: while paused, a request waits. An adapter that was loaded once and is not there is
  loaded again from its old path when a request names it.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import pickle
import random
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

TAGS = ("kv_cache", "weights", "cuda_graph")
VOCABULARY = 1000


class Died(Exception):
    """The scheduler hit what it does not catch; the process is over."""


class Refused(Exception):
    """It answers no."""

    def __init__(self, body: object, status: int = 400) -> None:
        super().__init__(str(body))
        self.body, self.status = body, status


@dataclass(frozen=True)
class Start:
    """What a server is started with: its options, by SGLang's names, and the checkpoint that it loads."""

    checkpoint: Mapping[str, Tensor] = field(default_factory=dict)
    enable_memory_saver: bool = True
    enable_weights_cpu_backup: bool = True
    enable_lora: bool = True
    max_loaded_loras: int | None = None
    max_loras_per_batch: int = 8
    max_lora_rank: int | None = 16
    tp_size: int = 1
    dp_size: int = 1
    weight_version: str = "default"
    random_seed: int | None = None
    api_key: str | None = None
    admin_api_key: str | None = None


@dataclass(frozen=True)
class Loaded:
    """One adapter that is loaded: its id, and a digest of its bytes."""

    id: str
    path: str
    pinned: bool
    digest: str


class _Allowed(pickle.Unpickler):
    """Reads what SGLang's own unpickler would read of plain tensors."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return lambda data: torch.load(io.BytesIO(data), weights_only=True)
        if (module, name) in {("torch._utils", "_rebuild_tensor_v2"), ("collections", "OrderedDict")}:
            return super().find_class(module, name)
        raise Died(f"Blocked unsafe global ({module}.{name}) during pickle deserialization")


def read_tensors(serialized: str) -> Any:
    """The named tensors in one base64 text."""
    return _Allowed(io.BytesIO(base64.b64decode(serialized, validate=True))).load()


def digest_of(tensors: Mapping[str, Tensor], *more: object) -> str:
    """Of names, bytes and whatever else counts."""
    total = hashlib.sha256(repr(more).encode())
    for name in sorted(tensors):
        total.update(name.encode() + tensors[name].contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def adapter_digest(tensors: Mapping[str, Tensor], rank: int, alpha: float) -> str:
    """Of everything of an adapter that an answer depends on."""
    return digest_of(tensors, rank, float(alpha))


def continuation(base: str, adapter: str, prompt: list[int], count: int) -> list[int]:
    """The greedy answer to a prompt, from the digests of what answers."""
    draw = random.Random(f"{base}|{adapter}|{prompt}")  # noqa: S311 - an example
    return [draw.randrange(VOCABULARY) for _ in range(count)]


class Sglang:
    """One process.

    Args:
        start: its options.

    Attributes:
        dead: why the process is over; empty while it runs.
        busy: requests that are answered only when this is cleared stay running.
        lies: it answers without its adapters, and says nothing of it.
        stuck: adapters that one rank fails to unload; until that is tried again they cannot be loaded.
    """

    def __init__(self, start: Start) -> None:
        self.start = start
        self.dead = ""
        self.lies = False
        self.stuck: set[str] = set()
        self.half_unloaded: set[str] = set()
        self.busy = threading.Event()
        self.changed = threading.Condition(threading.RLock())
        self.took_s = {key: random.SystemRandom().random() for key in ("load_weight", "scheduler_e2e", "tokenizer_e2e")}
        self.seed = random.SystemRandom().randrange(2**30) if start.random_seed is None else start.random_seed
        self.base = {name: one.clone() for name, one in start.checkpoint.items()}
        self.weight_version = start.weight_version
        self.offload_tags: set[str] = set()
        self.unmapped: set[str] = set()
        self.session = False
        self.is_pause = False
        self.aborted = 0
        self.running: list[str | None] = []
        self.registry: OrderedDict[str, Loaded] = OrderedDict()
        self.once_loaded: dict[str, Loaded] = {}
        self.cached: dict[tuple[str | None, str], list[int]] = {}

    # memory

    def release_memory_occupation(self, body: dict[str, Any]) -> None:
        self._assert(not self.running, "release_memory_occupation should be called only when server is idle.")
        tags = body.get("tags") or TAGS
        self.offload_tags.update(tags)
        for tag in (one for one in TAGS if one in tags):
            self._saver(tag not in self.unmapped, f"pause of {tag}, which is paused already: exit(1)")
            self.unmapped.add(tag)
            if tag == "kv_cache":
                self.cached.clear()
            if tag == "weights" and not self.start.enable_weights_cpu_backup:
                self.base = {name: torch.full_like(one, float("nan")) for name, one in self.base.items()}

    def resume_memory_occupation(self, body: dict[str, Any]) -> None:
        for tag in body.get("tags") or TAGS:
            self._assert(tag in self.offload_tags, f"KeyError: {tag!r}")
            self.offload_tags.remove(tag)
            self.unmapped.discard(tag)

    # admission

    def flush_cache(self, wait_s: float) -> str:
        with self.changed:
            if not self.changed.wait_for(lambda: not self.running, wait_s):
                raise Refused("Timed out waiting for idle state." if wait_s else "Flush cache failed.\n")
        self.cached.clear()
        return "Cache flushed.\n"

    def pause_generation(self, body: dict[str, Any]) -> dict[str, str]:
        with self.changed:
            self.is_pause = True
            if body.get("mode", "abort") == "abort":
                self.aborted += 1
                self.changed.notify_all()
                self.changed.wait_for(lambda: not self.running)
        return {"message": "Generation paused successfully.", "status": "ok"}

    def continue_generation(self, _: dict[str, Any]) -> dict[str, str]:
        with self.changed:
            self.is_pause = False
            self.changed.notify_all()
        return {"message": "Generation continued successfully.", "status": "ok"}

    # base weights

    def begin_weight_update(self, _: dict[str, Any]) -> dict[str, Any]:
        if self.session:
            return _no("a weight-update session is already open; call end_weight_update() first")
        self.session = True
        return {"success": True, "message": "Success"}

    def end_weight_update(self, _: dict[str, Any]) -> dict[str, Any]:
        if not self.session:
            return _no("no weight-update session is open; call begin_weight_update() first")
        self.session = False
        return {"success": True, "message": "Success"}

    def update_weights_from_tensor(self, body: dict[str, Any]) -> dict[str, Any]:
        if not self.session:
            return _no("update_weights_from_tensor must run between begin_weight_update() and end_weight_update()")
        self._assert(len(body["serialized_named_tensors"]) == self.start.tp_size, "IndexError: list index out of range")
        self._assert("weights" not in self.unmapped, "an illegal memory access was encountered")
        for name, tensor in read_tensors(body["serialized_named_tensors"][0]):
            if name in self.base:
                self._assert(self.base[name].shape == tensor.shape, f"{name}: shape mismatch in weight_loader")
                self.base[name] = tensor
        if body.get("weight_version") is not None:
            self.weight_version = body["weight_version"]
        if body.get("flush_cache", True):
            if self.running:
                return _no("Weights were updated, but the cache was not flushed because requests are still running")
            self.cached.clear()
        return {"success": True, "message": "Success"}

    def update_weight_version(self, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("abort_all_requests", True):
            with self.changed:
                self.aborted += 1
                self.changed.notify_all()
        self.weight_version = body["new_version"]
        return {"success": True, "message": f"Weight version updated to {self.weight_version}"}

    # adapters

    def load_lora_adapter(self, body: dict[str, Any]) -> dict[str, Any]:
        name, path = body["lora_name"], Path(body["lora_path"])
        try:
            config = json.loads((path / "adapter_config.json").read_text())
            tensors = load_file(path / "adapter_model.safetensors")
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the files, it says so and goes on
            return self._lora_no(str(error))
        return self._load(name, str(path), config, tensors, pinned=body.get("pinned", False))

    def load_lora_adapter_from_tensors(self, body: dict[str, Any]) -> dict[str, Any]:
        self._assert(len(body["serialized_named_tensors"]) == self.start.tp_size, "IndexError: list index out of range")
        tensors = read_tensors(body["serialized_named_tensors"][0])
        expected = body.get("expected_checksums")
        if expected is not None:
            found = {name: hashlib.sha256(_bytes(one)).hexdigest() for name, one in tensors.items()}
            self._assert(found == expected, "[LORA-CHECK] adapter sync MISMATCH")
        return self._load(
            body["lora_name"], "__tensor__", body["config_dict"], tensors, pinned=body.get("pinned", False)
        )

    def unload_lora_adapter(self, body: dict[str, Any]) -> dict[str, Any]:
        self._need_lora()
        name = body["lora_name"]
        with self.changed:
            if name in self.half_unloaded:
                self.half_unloaded.remove(name)
                return self._lora_yes()
            gone = self.registry.pop(name, None)
            if name in self.stuck:
                self.stuck.remove(name)
                self.half_unloaded.add(name)
                return self._lora_no("a rank failed")
            if gone is None:
                return self._lora_no(f"LoRA with name {name} does not exist. Loaded LoRAs: {list(self.registry)}")
            self.changed.wait_for(lambda: gone.id not in self.running)
        return self._lora_yes()

    def _load(
        self, name: str, path: str, config: dict[str, Any], tensors: Mapping[str, Tensor], *, pinned: bool
    ) -> dict[str, Any]:
        self._need_lora()
        if name in self.half_unloaded:
            return self._lora_no(f"LoRA adapter '{name}' has an incomplete unload. Retry the unload first.")
        if name in self.registry:
            return self._lora_no(f"Failed to load LoRA adapter {name} because it is already loaded")
        rank_max = self.start.max_lora_rank
        if rank_max is not None and config["r"] > rank_max:
            return self._lora_no(f"LoRA adapter {name} with rank {config['r']} is incompatible with the memory pool")
        pins = sum(one.pinned for one in self.registry.values())
        if pinned and pins >= self.start.max_loras_per_batch - 1:
            return self._lora_no("It is not allowed to pin all slots in the LoRA memory pool")
        digest = adapter_digest(tensors, config["r"], config["lora_alpha"])
        self.registry[name] = self.once_loaded[name] = Loaded(uuid.uuid4().hex, path, pinned, digest)
        while self.start.max_loaded_loras is not None and len(self.registry) > self.start.max_loaded_loras:
            del self.registry[next(one for one, loaded in self.registry.items() if not loaded.pinned)]
        return self._lora_yes()

    def _need_lora(self) -> None:
        if not self.start.enable_lora:
            raise Refused(_lora_answer({}, "LoRA is not enabled. Please set `--enable-lora` to enable LoRA."))
        if self.start.dp_size != 1:
            raise Refused("Internal Server Error", 500)

    def _lora_yes(self) -> dict[str, Any]:
        return _lora_answer({name: one.path for name, one in self.registry.items()})

    def _lora_no(self, why: str) -> dict[str, Any]:
        raise Refused(_lora_answer({name: one.path for name, one in self.registry.items()}, why))

    # answers

    def generate(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        prompts, name = body["input_ids"], body.get("lora_path")
        with self.changed:
            self.changed.wait_for(lambda: not self.is_pause)
            adapter = None if name is None else self._acquire(name)
            aborts = self.aborted
            self.running.append(adapter.id if adapter else None)
        try:
            self._assert(not self.unmapped, f"an illegal memory access was encountered ({', '.join(self.unmapped)})")
            with self.changed:
                self.changed.wait_for(lambda: not self.busy.is_set() or self.aborted > aborts)
                if self.aborted > aborts:
                    return [self._answer([], "abort", 0) for _ in prompts]
            count = body["sampling_params"]["max_new_tokens"]
            return [self._continue(prompt, adapter, count) for prompt in prompts]
        finally:
            with self.changed:
                self.running.remove(adapter.id if adapter else None)
                self.changed.notify_all()

    def _acquire(self, name: str) -> Loaded:
        if name not in self.registry:
            if name not in self.once_loaded:
                raise Refused(_error(f"Got LoRA adapter that has never been loaded: {name}"))
            again = {"lora_name": name, "lora_path": self.once_loaded[name].path}
            try:
                self.load_lora_adapter(again)
            except Refused as error:
                raise Refused(_error(f"Failed to implicitly load LoRA adapter {name}: {error}")) from error
        self.registry.move_to_end(name)
        return self.registry[name]

    def _continue(self, prompt: list[int], adapter: Loaded | None, count: int) -> dict[str, Any]:
        key = (adapter.id if adapter else None, str(prompt))
        hit = self.cached.get(key, [])
        if len(hit) < count:
            digest = "" if adapter is None or self.lies else adapter.digest
            self.cached[key] = continuation(digest_of(self.base), digest, prompt, count)
        return self._answer(self.cached[key][:count], "length", len(prompt) if hit else 0)

    def _answer(self, tokens: list[int], finish: str, cached: int) -> dict[str, Any]:
        meta = {"finish_reason": {"type": finish}, "cached_tokens": cached, "weight_version": self.weight_version}
        return {"text": "", "output_ids": tokens, "meta_info": meta}

    # what it says of itself

    def server_info(self) -> dict[str, Any]:
        usage = {"weight": 0.5, "kvcache": 0.25, "graph": {"decode": 0.125}}
        options = {
            name: value
            for name, value in vars(self.start).items()
            if name not in {"checkpoint", "api_key", "admin_api_key"}
        }
        states = [{"memory_usage": usage}]
        return options | {
            "random_seed": self.seed, "startup_time": self.took_s, "internal_states": states, "version": "0.5.23",
        }  # fmt: skip

    def model_info(self) -> dict[str, Any]:
        return {"model_path": "/models/tiny", "weight_version": self.weight_version}

    def models(self) -> dict[str, Any]:
        base = {"id": "tiny", "root": "tiny", "parent": None}
        return {"data": [base, *({"id": n, "root": one.path, "parent": "tiny"} for n, one in self.registry.items())]}

    def loads(self) -> dict[str, Any]:
        return {"loads": [{"num_running_reqs": len(self.running), "num_waiting_reqs": 0}]}

    # the end

    def _saver(self, fine: bool, why: str) -> None:  # noqa: FBT001 - as an assert
        if self.start.enable_memory_saver:
            self._assert(fine, why)

    def _assert(self, fine: bool, why: str) -> None:  # noqa: FBT001 - as an assert
        if not fine:
            self.dead = why
            raise Died(why)


GETS: dict[str, Callable[[Sglang], Any]] = {
    "/server_info": Sglang.server_info,
    "/model_info": Sglang.model_info,
    "/v1/models": Sglang.models,
    "/v1/loads": Sglang.loads,
}
POSTS: dict[str, Callable[[Sglang, dict[str, Any]], Any]] = {
    "/release_memory_occupation": Sglang.release_memory_occupation,
    "/resume_memory_occupation": Sglang.resume_memory_occupation,
    "/pause_generation": Sglang.pause_generation,
    "/continue_generation": Sglang.continue_generation,
    "/begin_weight_update": Sglang.begin_weight_update,
    "/end_weight_update": Sglang.end_weight_update,
    "/update_weights_from_tensor": Sglang.update_weights_from_tensor,
    "/update_weight_version": Sglang.update_weight_version,
    "/load_lora_adapter": Sglang.load_lora_adapter,
    "/load_lora_adapter_from_tensors": Sglang.load_lora_adapter_from_tensors,
    "/unload_lora_adapter": Sglang.unload_lora_adapter,
    "/generate": Sglang.generate,
}


def _bytes(tensor: Tensor) -> bytes:
    return bytes(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())


def _no(why: str) -> dict[str, Any]:
    raise Refused({"success": False, "message": why})


def _lora_answer(loaded: Mapping[str, str], why: str | None = None) -> dict[str, Any]:
    return {"rid": None, "success": why is None, "error_message": why, "loaded_adapters": dict(loaded)}


def _error(why: str) -> dict[str, Any]:
    return {"error": {"message": why}}
