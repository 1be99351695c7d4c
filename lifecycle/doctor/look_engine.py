"""Asks who answers at an engine's URL. Nothing is told to do anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lifecycle.doctor.findings import Engine
from lifecycle.doctor.judge_engine import ENDPOINTS
from lifecycle.errors import ConfigError, EngineError, EngineRefused

if TYPE_CHECKING:
    from lifecycle.engines.http import EngineHttp

CALL_S: Final = 10.0
_NOTHING: Final = "/adapter-lifecycle/nothing-is-here"
_WANTS_A_TOKEN: Final = (401, 403)
_REDIRECTS: Final = range(300, 400)
_TELLS_SGLANG: Final = "/release_memory_occupation"
_TELLS_VLLM: Final = "/version"


def engine(url: str, token: str | None) -> Engine:
    """Which engine it is, in which version, which endpoints its client would miss, and what the client says of it.

    Args:
        url: may hold credentials; they are in no finding.
        token: bearer token, None for none.
    """
    try:
        from lifecycle.engines.http import EngineHttp  # noqa: PLC0415 - needs the extra

        with EngineHttp("engine", url, token=token, timeout_s=CALL_S, retries=0) as http:
            return _asked(http)
    except ConfigError as error:
        return Engine("the URL that was given", why=str(error))


def _asked(http: EngineHttp) -> Engine:
    try:
        why = _answers_anything(http)
        if why:
            return Engine(http.url, why=why)
        kind = "SGLang" if http.has(_TELLS_SGLANG) else "vLLM" if http.has(_TELLS_VLLM) else ""
        if not kind:
            return Engine(http.url)
        missing = tuple(path for path in ENDPOINTS[kind] if not http.has(path))
    except EngineError as error:
        return Engine(http.url, why=error.why)
    return (_sglang if kind == "SGLang" else _vllm)(http, missing)


def _answers_anything(http: EngineHttp) -> str:
    """Why nothing follows from what there is: asked for what no server has, it does not say that it has it not."""
    try:
        http.get(_NOTHING)
    except EngineRefused as error:
        if error.status in _WANTS_A_TOKEN:
            return f"it wants a token ({error.status}); set ADAPTER_LIFECYCLE_ENGINE_TOKEN"
        if error.status in _REDIRECTS:
            return f"it answers {error.status}, look elsewhere; name the URL of the server itself"
        return ""
    return "it answers whatever it is asked, and so is neither vLLM nor SGLang"


def _vllm(http: EngineHttp, missing: tuple[str, ...]) -> Engine:
    from lifecycle.engines.vllm.server import VllmServer  # noqa: PLC0415 - needs the extra

    version = ""
    try:
        version = str(_object(http, "/version").get("version", ""))
        if missing:
            return Engine(http.url, "vLLM", version, missing)
        server = VllmServer("engine", http, load_timeout_s=CALL_S)
        info, _ = server.info(), server.models()
    except EngineError as error:
        return Engine(http.url, "vLLM", version, missing, error.why)
    return Engine(http.url, "vLLM", version, sleeps=info.sleeps)


def _sglang(http: EngineHttp, missing: tuple[str, ...]) -> Engine:
    from lifecycle.engines.sglang.server import server_of  # noqa: PLC0415 - needs the extra

    if "/server_info" in missing:
        return Engine(http.url, "SGLang", "", missing)
    try:
        server = server_of("engine", _object(http, "/server_info"))
    except EngineError as error:
        return Engine(http.url, "SGLang", "", missing, error.why)
    why = "" if server.takes_adapters else "it takes no adapters, or has several replicas; --enable-lora, --dp-size 1"
    return Engine(http.url, "SGLang", server.version, missing, why, server.has_saver)


def _object(http: EngineHttp, path: str) -> dict[str, Any]:
    from lifecycle.engines.http import said_object  # noqa: PLC0415 - needs the extra

    return said_object("engine", path, http.get(path))
