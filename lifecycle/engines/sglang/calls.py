"""Every request that is sent to SGLang, one a method, and what its answer says. Checked against SGLang 0.5.23."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from torch import Tensor

from lifecycle.engines.http import EngineHttp, said_object
from lifecycle.engines.sglang.server import Answer, SglangServer, answers, server_of
from lifecycle.engines.sglang.tensors import serialized
from lifecycle.errors import EngineRefused, EngineUnanswered
from lifecycle.weights.digests import tensor_sha256

BASE_SELECTOR: Final = "target"
"""Base weights are those of the model, not of a draft model beside it."""


class SglangCalls:
    """The requests to one server.

    Args:
        engine: the engine's name.
        http: for what needs the server's ``--api-key``.
        admin: for what needs its ``--admin-api-key``; the same where it has none.
        once: asks once and does not try again.
        tp_size: tensor-parallel ranks; tensors that are sent by value are sent once for each.
        slow_s: for calls that wait for requests, or move memory or weights.
    """

    def __init__(
        self, engine: str, http: EngineHttp, admin: EngineHttp, once: EngineHttp, *, tp_size: int, slow_s: float
    ) -> None:
        self._engine = engine
        self._http = http
        self._admin = admin
        self._once = once
        self._tp_size = tp_size
        self._slow_s = slow_s

    # what it says

    def server(self) -> SglangServer:
        """What it was started as, and which instance it is."""
        return server_of(self._engine, said_object(self._engine, "/server_info", self._http.get("/server_info")))

    def weight_version(self) -> str:
        """The one string that it keeps for us."""
        said = said_object(self._engine, "/model_info", self._http.get("/model_info"))
        return str(said.get("weight_version"))

    def adapters(self) -> dict[str, str]:
        """Names of the adapters that it has, and the paths they were loaded from."""
        said = said_object(self._engine, "/v1/models", self._http.get("/v1/models"))
        cards = [card for card in said.get("data", ()) if isinstance(card, dict) and card.get("parent") is not None]
        return {str(card.get("id")): str(card.get("root")) for card in cards}

    def is_ready(self) -> bool:
        """Whether it admits requests: it is up and not paused."""
        try:
            self._once.get("/ready")
        except (EngineRefused, EngineUnanswered) as error:
            if error.status is None:
                raise
            return False
        return True

    def busy(self) -> int:
        """How many requests run or wait."""
        said = said_object(self._engine, "/v1/loads", self._http.get("/v1/loads", {"include": "core"}))
        loads = [one for one in said.get("loads", ()) if isinstance(one, dict)]
        return sum(int(one.get(key) or 0) for one in loads for key in ("num_running_reqs", "num_waiting_reqs"))

    # admission and memory

    def flush(self, wait_s: float) -> None:
        """Drop cached prefixes, once nothing runs or waits.

        Args:
            wait_s: how long it waits for that.

        Raises:
            EngineRefused: something still runs; nothing was dropped.
        """
        self._tell("/flush_cache", None, params={"timeout": wait_s}, repeatable=True, more_s=wait_s)

    def pause(self) -> None:
        """Admit nothing, and end what runs with ``abort``. New requests wait there until :meth:`proceed`."""
        self._tell("/pause_generation", {"mode": "abort"}, repeatable=True)

    def proceed(self) -> None:
        """Admit requests again."""
        self._tell("/continue_generation", {"torch_empty_cache": False}, repeatable=True)

    def release(self, tags: Iterable[str]) -> None:
        """Give memory back. Of a tag that is released already, or while something runs, this ends its process."""
        self._tell("/release_memory_occupation", {"tags": list(tags)})

    def resume(self, tags: Iterable[str]) -> None:
        """Take memory again. Of a tag that is not released this ends its process."""
        self._tell("/resume_memory_occupation", {"tags": list(tags)})

    def write(self, weight_version: str) -> None:
        """Write down the one string."""
        body = {"new_version": weight_version, "abort_all_requests": False}
        self._tell("/update_weight_version", body, repeatable=True)

    # content

    def load_adapter(self, name: str, path: str, *, pinned: bool) -> None:
        """Load an adapter from a directory that the server can read.

        Raises:
            EngineRefused: it is loaded already, does not fit or cannot be read.
        """
        body = {"lora_name": name, "lora_path": path, "pinned": pinned}
        self._done("/load_lora_adapter", self._tell("/load_lora_adapter", body))

    def load_adapter_tensors(
        self, name: str, config: Mapping[str, Any], tensors: Mapping[str, Tensor], *, pinned: bool
    ) -> None:
        """Load an adapter by value. The server hashes what arrived, and *ends its process* where it differs.

        Raises:
            EngineRefused: it is loaded already, or does not fit.
        """
        body = {
            "lora_name": name,
            "config_dict": dict(config),
            "serialized_named_tensors": [serialized(tensors)] * self._tp_size,
            "expected_checksums": {tensor: tensor_sha256(one) for tensor, one in tensors.items()},
            "pinned": pinned,
        }
        path = "/load_lora_adapter_from_tensors"
        self._done(path, self._tell(path, body))

    def unload_adapter(self, name: str) -> None:
        """Drop an adapter. Waits until no request uses it."""
        self._done("/unload_lora_adapter", self._tell("/unload_lora_adapter", {"lora_name": name}))

    def begin_weights(self) -> None:
        """Open a weight update.

        Raises:
            EngineRefused: one is open already.
        """
        self._done("/begin_weight_update", self._tell("/begin_weight_update", {"selector": BASE_SELECTOR}))

    def send_weights(self, pairs: list[tuple[str, Tensor]]) -> None:
        """Write base weights, by value.

        Raises:
            EngineUnanswered: also when it answers no: it may have written some of them.
        """
        path = "/update_weights_from_tensor"
        body = {
            "serialized_named_tensors": [serialized(pairs)] * self._tp_size,
            "flush_cache": False,
            "selector": BASE_SELECTOR,
        }
        try:
            self._done(path, self._tell(path, body))
        except EngineRefused as error:
            why = f"{path} failed in the middle: {error.answer or error.why}; the base may be half old and half new"
            raise EngineUnanswered(self._engine, why, status=error.status) from error

    def end_weights(self) -> None:
        """Close the weight update.

        Raises:
            EngineRefused: none is open.
        """
        self._done("/end_weight_update", self._tell("/end_weight_update", {}))

    # serving

    def generate(
        self, prompts: Sequence[Sequence[int]], adapter: str | None, sampling: Mapping[str, Any]
    ) -> tuple[Answer, ...]:
        """Continue each prompt.

        Args:
            prompts: token ids.
            adapter: a name, None for the base.
            sampling: SGLang's sampling parameters.
        """
        ids = [list(one) for one in prompts]
        body = {"input_ids": ids, "sampling_params": dict(sampling), "lora_path": adapter}
        response = self._http.post("/generate", json=body, timeout_s=self._slow_s)
        return answers(self._engine, response, len(ids))

    # ways to say it

    def _tell(
        self,
        path: str,
        body: Any,
        *,
        params: Mapping[str, float] | None = None,
        repeatable: bool = False,
        more_s: float = 0.0,
    ) -> Any:
        timeout_s = self._slow_s + more_s
        return self._admin.post(path, params=params, json=body, repeatable=repeatable, timeout_s=timeout_s)

    def _done(self, path: str, response: Any) -> None:
        """It says itself whether it did it; older versions do so with 200 also when they did not."""
        said = said_object(self._engine, path, response)
        if said.get("success") is False:
            answer = str(said.get("error_message") or said.get("message") or "")
            raise EngineRefused(self._engine, f"{path} was refused: {answer}", status=200, answer=answer)
