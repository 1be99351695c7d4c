"""The endpoints of a vLLM server, each with what its answer means. Nothing is decided and nothing remembered here.

Read from the source of vLLM 0.32 and tried on it:

- ``/is_sleeping`` is also true where scheduling is merely paused. Only "no" tells something: everything is resident.
- ``/wake_up`` of a tag that does not sleep only logs a warning, wakes none of the others that were named, and, when
  nothing sleeps at all, lets a paused server run again. It also lets it run when the last tag has woken.
- ``/sleep`` releases both tags, ``/release_kv_cache_memory`` the key/value cache alone (not on the CPU).
- A failed ``/v1/load_lora_adapter`` is answered with 500, although nothing was loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lifecycle.engines.http import NOT_FOUND, EngineHttp, said_object
from lifecycle.errors import EngineError, EngineRefused, EngineUnanswered

_YES: Final = 200
DEV_MODE: Final = "start it with VLLM_SERVER_DEV_MODE=1"
LORA_UPDATING: Final = "start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
_REQUESTS: Final = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server says of itself. Its configuration may hold secrets, so nothing else of it is kept.

    Attributes:
        instance_id: made anew at each start.
        device: ``cuda``, ``cpu`` and so on.
        adapter_slots: adapters that it keeps in memory at once.
        sleeps: its memory can be released.
    """

    instance_id: str
    device: str
    adapter_slots: int
    sleeps: bool


@dataclass(frozen=True, slots=True)
class Models:
    """What ``/v1/models`` lists.

    Attributes:
        base: the name under which the base is served.
        adapters: adapter name to the path it was loaded from, as the server was told it.
    """

    base: str
    adapters: Mapping[str, str]


class VllmServer:
    """One server.

    Args:
        engine: its name, for messages.
        http: how it is called.
        load_timeout_s: for calls that read or write weights.
    """

    def __init__(self, engine: str, http: EngineHttp, *, load_timeout_s: float) -> None:
        self._engine = engine
        self._http = http
        self._load_timeout_s = load_timeout_s

    # questions

    def info(self) -> ServerInfo:
        """Who answers. The first time the server looks at its surroundings, which takes some seconds.

        Raises:
            EngineError: it has no such endpoint, LoRA is off, or several API servers answer at one address, of which
                each has a list of adapters of its own.
        """
        config: Any = self._object("/server_info", {"config_format": "json"}, DEV_MODE).get("vllm_config")
        try:
            instance, device = str(config["instance_id"]), str(config["device_config"]["device"])
            lora, sleeps = config["lora_config"], bool(config["model_config"]["enable_sleep_mode"])
            servers = int(config["parallel_config"].get("_api_process_count", 1))
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            why = f"/server_info says nothing of {error}; this version of vLLM is not supported (0.32 is)"
            raise EngineError(self._engine, why) from error
        if not lora:
            raise EngineError(self._engine, f"it serves no adapters; {LORA_UPDATING}")
        if servers != 1:
            why = f"{servers} API servers answer at this address, each with adapters of its own"
            raise EngineError(self._engine, f"{why}; start it with --api-server-count 1")
        slots = int(lora.get("max_cpu_loras") or lora.get("max_loras") or 1)
        return ServerInfo(instance, device, slots, sleeps or device == "cpu")

    def models(self) -> Models:
        """The base and the adapters that requests can name."""
        listed = self._rows("/v1/models", self._object("/v1/models"), "data", id=str)
        base = next((one["id"] for one in listed if one.get("parent") is None), "")
        return Models(base, {one["id"]: str(one.get("root")) for one in listed if one.get("parent") is not None})

    def is_sleeping(self) -> bool:
        """False: every tag is resident and scheduling runs. True: one of them is not so."""
        return bool(self._object("/is_sleeping", remedy=DEV_MODE).get("is_sleeping", True))

    def requests(self) -> int | None:
        """How many requests run or wait, None where its metrics are off."""
        try:
            lines = self._http.get("/metrics").text.splitlines()
            counts = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(_REQUESTS)]
        except (EngineError, ValueError, IndexError):
            return None
        return int(sum(counts)) if counts else None

    def weight_checksums(self) -> dict[str, str]:
        """SHA-256 of each base tensor as it lies there, under vLLM's names. Adapters are not among them."""
        asked = self._http.post(
            "/weight_checker", json={"action": "checksum"}, repeatable=True, timeout_s=self._load_timeout_s
        )
        found = said_object(self._engine, "/weight_checker", asked).get("checksums")
        return {str(name): str(one) for name, one in found.items()} if isinstance(found, dict) else {}

    # admission

    def drain(self, timeout_s: float) -> None:
        """Admit no request any more and return when none runs."""
        self._done("/pause", "paused", self._http.post("/pause", params={"mode": "wait"}, timeout_s=timeout_s))

    def hold(self) -> None:
        """Admit no request any more; end at once those that run."""
        self._done("/pause", "paused", self._http.post("/pause", params={"mode": "abort"}, repeatable=True))

    def admit(self) -> None:
        """Admit requests again."""
        self._done("/resume", "resumed", self._http.post("/resume", repeatable=True))

    def reset_prefix_cache(self) -> None:
        """Forget cached prefixes.

        Raises:
            EngineRefused: it could not: something still holds them.
        """
        answer = said_object(
            self._engine, "/reset_prefix_cache", self._http.post("/reset_prefix_cache", repeatable=True)
        )
        if answer.get("success") is not True:
            why = "its prefix cache was not reset, something still uses it; abort the update and push again"
            raise EngineRefused(self._engine, why, status=_YES)

    # memory

    def sleep(self, level: int) -> None:
        """Release both tags; level 1 keeps the weights in host memory, level 2 nowhere.

        Requests that wait meanwhile are ended: they are rejected at once and do not wait for the wake.
        """
        params: dict[str, str | int] = {"level": level, "mode": "abort"}
        answer = self._http.post("/sleep", params=params, repeatable=True, timeout_s=self._load_timeout_s)
        self._done("/sleep", "sleeping", answer)

    def release_kv_cache(self) -> None:
        """Release the key/value cache alone."""
        path = "/release_kv_cache_memory"
        self._done(path, "kv_cache_released", self._http.post(path, timeout_s=self._load_timeout_s))

    def wake_up(self, tags: Iterable[str]) -> bool:
        """Take the memory of these tags again; of all that sleep when there is none in *tags*.

        Returns:
            Whether every tag is resident now. The server admits requests then.
        """
        answer = self._http.post(
            "/wake_up", params={"tags": list(tags)}, repeatable=True, timeout_s=self._load_timeout_s
        )
        return said_object(self._engine, "/wake_up", answer).get("status") == "awake"

    # adapters

    def load(self, name: str, path: str) -> None:
        """Serve the adapter that lies at *path* under a name that is not served yet."""
        body = {"lora_name": name, "lora_path": path}
        try:
            self._http.post("/v1/load_lora_adapter", json=body, timeout_s=self._load_timeout_s)
        except EngineRefused as error:
            raise self._with_remedy(error, LORA_UPDATING) from error

    def unload(self, name: str) -> None:
        """Serve this name no longer. One that is not served is no error."""
        try:
            self._http.post("/v1/unload_lora_adapter", json={"lora_name": name}, repeatable=True)
        except EngineRefused as error:
            if error.status != NOT_FOUND or "cannot be found" not in error.answer:
                raise self._with_remedy(error, LORA_UPDATING) from error

    # serving

    def complete(
        self, model: str, prompts: Sequence[Sequence[int]], max_new_tokens: int, timeout_s: float, **sampling: Any
    ) -> list[dict[str, Any]]:
        """One choice for each prompt, in their order, with ``token_ids``."""
        body = {
            "model": model,
            "prompt": [list(one) for one in prompts],
            "max_tokens": max_new_tokens,
            "return_token_ids": True,
            # A model directory may bring defaults of its own for these; they would change what is sampled.
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            **sampling,
        }
        answer = said_object(
            self._engine, "/v1/completions", self._http.post("/v1/completions", json=body, timeout_s=timeout_s)
        )
        choices = self._rows("/v1/completions", answer, "choices", index=int, token_ids=list)
        choices.sort(key=lambda one: int(one["index"]))
        if [one["index"] for one in choices] != list(range(len(prompts))):
            why = f"it gave {len(choices)} answers to {len(prompts)} prompts; vLLM 0.32 gives one each, with its index"
            raise EngineUnanswered(self._engine, why)
        return choices

    def _object(self, path: str, params: Mapping[str, str] | None = None, remedy: str = "") -> dict[str, Any]:
        try:
            return said_object(self._engine, path, self._http.get(path, params))
        except EngineRefused as error:
            raise self._with_remedy(error, remedy) from error

    def _rows(self, what: str, said: Mapping[str, Any], key: str, **fields: type) -> list[dict[str, Any]]:
        """The objects of a list that it answered, each with these fields."""
        rows = said.get(key)
        if isinstance(rows, list) and all(
            isinstance(one, dict) and all(isinstance(one.get(name), kind) for name, kind in fields.items())
            for one in rows
        ):
            return rows
        why = f"{what} answered no list {key!r} of objects with {', '.join(fields)}"
        raise EngineUnanswered(self._engine, f"{why}; this version of vLLM is not supported (0.32 is)")

    def _done(self, what: str, status: str, answer: Any) -> None:
        """It says itself what it did. A 2xx without that is of somebody in between."""
        found = said_object(self._engine, what, answer).get("status")
        if found != status:
            raise EngineUnanswered(self._engine, f"{what} answered {found!r}, not {status!r}; ask it what it holds")

    def _with_remedy(self, error: EngineRefused, remedy: str) -> EngineRefused:
        """An endpoint that is not there at all means that the server was started without it."""
        if error.status != NOT_FOUND or not remedy:
            return error
        return EngineRefused(self._engine, f"{error.why}; {remedy}", status=error.status, answer=error.answer)
