"""Starts, kills and restarts a vLLM server on a free loopback port."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx
import psutil

START_S = 240
SEGMENTS = "/dev/shm/psm_"  # noqa: S108 - vLLM's own
_ENVIRONMENT = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TORCH_COMPILE_DISABLE": "1",  # a sampler's first use would compile for half a minute
}
_OPTIONS = (
    "--skip-tokenizer-init", "--enforce-eager", "--enable-lora", "--max-loras", "4", "--max-lora-rank", "16",
    "--max-model-len", "256", "--dtype", "float32", "--host", "127.0.0.1",
)  # fmt: skip
_PR_SET_PDEATHSIG = 1


class RunningServer:
    """One server at a time, always at the same address.

    Args:
        python: of an environment with vLLM.
        model: a model directory.
        log: what it prints.
    """

    def __init__(self, python: Path, model: Path, log: Path) -> None:
        self.python, self.model, self.log = python, model, log
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it serves."""
        command = [str(self.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(self.model)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *_OPTIONS, "--port", str(self.port)],
                env=os.environ | _ENVIRONMENT,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_the_tests,  # noqa: PLW1509 - no other thread runs yet
            )
        deadline_s = time.monotonic() + START_S
        while not self._is_up():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                raise AssertionError(f"vLLM does not serve; its log ends so:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.2)
        httpx.get(f"{self.url}/server_info", timeout=START_S)  # the first time it looks at its surroundings for seconds

    def _is_up(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=5).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        """End it and all of its processes at once."""
        if self._process is not None:
            segments = _shared_memory_of(self._process.pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            for segment in segments:  # hundreds of MB each, which a killed server leaves behind
                segment.unlink(missing_ok=True)


def _shared_memory_of(pid: int) -> set[Path]:
    """The shared memory segments that a server and its processes have mapped."""
    found: set[Path] = set()
    with contextlib.suppress(psutil.Error):
        server = psutil.Process(pid)
        for one in (server, *server.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                found |= {Path(region.path) for region in one.memory_maps() if region.path.startswith(SEGMENTS)}
    return found


def _die_with_the_tests() -> None:
    """The server goes also when the test run is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
