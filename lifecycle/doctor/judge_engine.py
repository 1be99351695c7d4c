"""Who answers at an engine's URL, judged. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lifecycle.doctor.findings import Engine
from lifecycle.doctor.lines import Line, Status

CHECK: Final = "engine"

TESTED: Final = {"vLLM": "0.32", "SGLang": "0.5.23"}
"""The versions that the clients were tried against."""

_NEEDS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "vLLM": {
        "VLLM_SERVER_DEV_MODE=1": ("/server_info", "/is_sleeping", "/sleep", "/wake_up", "/pause", "/resume"),
        "--enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1": ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"),
    },
    "SGLang": {
        f"SGLang {TESTED['SGLang']}": (
            "/server_info",
            "/release_memory_occupation",
            "/resume_memory_occupation",
            "/pause_generation",
            "/continue_generation",
            "/update_weight_version",
            "/load_lora_adapter",
            "/unload_lora_adapter",
        ),
    },
}
"""What a server is started with, to the endpoints that it then has."""

ENDPOINTS: Final = {kind: tuple(one for paths in needs.values() for one in paths) for kind, needs in _NEEDS.items()}
"""Kind of engine to the endpoints that its client calls."""


def engine_line(found: Engine) -> Line:
    """It answers, is an engine, has every endpoint, and says nothing that its client refuses."""
    if not found.kind:
        todo = "start the server, or name the URL of vLLM or SGLang, http://HOST:PORT"
        return Line(CHECK, Status.BROKEN, f"{found.url}: {found.why or 'neither vLLM nor SGLang answers'}", todo)
    told = f"{found.kind} {found.version}".rstrip() + f" at {found.url}"
    if found.missing:
        starts = [how for how, paths in _NEEDS[found.kind].items() if set(paths) & set(found.missing)]
        lacks = f"{told} lacks {', '.join(found.missing)}"
        return Line(CHECK, Status.BROKEN, lacks, f"start it with {', '.join(starts)}")
    if found.why:
        return Line(CHECK, Status.BROKEN, f"{told}: {found.why}", "start it as docs/engines.md says")
    tested = TESTED[found.kind]
    if found.version and found.version != tested and not found.version.startswith(f"{tested}."):
        return Line(CHECK, Status.WARNING, told, f"the client was tried against {tested}: try this one first")
    if not found.sleeps:
        flag = {"vLLM": "--enable-sleep-mode", "SGLang": "--enable-memory-saver"}[found.kind]
        return Line(CHECK, Status.WARNING, f"{told} cannot give its memory back", f"start it with {flag} to colocate")
    return Line(CHECK, Status.OK, told)
