"""An engine in a process of its own, as the trainer sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from lifecycle.engines.protocol import AdapterPayload, EngineReport
from lifecycle.errors import EngineError
from lifecycle.transport.chosen import ChosenTransport, Note
from lifecycle.transport.leased import Unreadable
from lifecycle.transport.ports import TransportPort

ROOT = Path(__file__).parents[2]


class Process:
    """The child, and the two folders that it sees."""

    def __init__(self, shared: Path, files: Path, *, real_ipc: bool = False) -> None:
        self.shared, self.files = shared, files
        command = [sys.executable, "-m", "tests.transport.child", str(shared), str(files)]
        command += ["real-ipc"] if real_ipc else []
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self._child = subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._read() == "ready\n"

    def ask(self, name: str, **what: Any) -> Any:
        """One question; what the child says. Raises as a port of a real engine does."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(what) + "\n")
            self._child.stdin.flush()
            answer = self._read()
        except OSError as error:
            raise EngineError(name, f"its process is gone: {error}") from error
        if not answer:
            raise EngineError(name, "its process ended")
        found = json.loads(answer)
        if "unreadable" in found:
            raise Unreadable(found["unreadable"])
        if "failed" in found:
            raise EngineError(name, found["failed"])
        return found["said"]

    def kill(self) -> None:
        """As the operating system does it, without a word."""
        self._child.kill()
        self.end()

    def end(self) -> None:
        """Close it and wait."""
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()
        self._child.wait(20)

    def _read(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline()


class RemoteEngine:
    """A rollout engine whose bytes lie in a child process and go there by a chosen transport."""

    def __init__(self, process: Process, name: str, ports: Sequence[TransportPort]) -> None:
        self.process = process
        self.name = name
        self.probes = 0
        self.aborts = 0
        self.commits = 0
        self.instance = 0
        self.does = "take"
        self.transport = ChosenTransport(name, ports, self._probe)

    def report(self) -> EngineReport:
        versions = self._ask("report")["versions"]
        return EngineReport(f"{self.name}-{self.instance}", frozenset({"weights", "kv_cache"}), versions=versions)

    def begin_update(self) -> None:
        self._ask("begin")

    def send_base(self, group: str, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        def deliver(message: Mapping[str, Any]) -> None:
            self._ask(self.does, group=group, version=version, message=message)

        self.transport.send(f"{self.name}-{self.instance}", tensors, deliver)

    def load_adapter(self, payload: AdapterPayload) -> None:
        self.send_base(f"adapter/{payload.name}", payload.version, payload.tensors.items())

    def unload_adapter(self, name: str) -> None:
        self._ask("unload", group=f"adapter/{name}")

    def commit_update(self) -> None:
        self._ask("commit")
        self.commits += 1
        self.transport.settle()

    def abort_update(self) -> None:
        self.aborts += 1
        self.transport.settle()
        self._ask("abort")

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:
        """Its memory is no part of these tests."""

    def resume(self, tags: Iterable[str]) -> None:
        """The same."""

    def checksums(self, group: str) -> Mapping[str, str]:
        found: Mapping[str, str] = self._ask("checksums", group=group)
        return found

    def transport_notes(self) -> Sequence[Note]:
        return self.transport.transport_notes()

    def outstanding_bytes(self) -> int:
        return self.transport.outstanding_bytes()

    def _probe(self, message: Mapping[str, Any]) -> Mapping[str, str]:
        self.probes += 1
        found: Mapping[str, str] = self._ask("probe", message=message)
        return found

    def _ask(self, does: str, **what: Any) -> Any:
        return self.process.ask(self.name, do=does, engine=self.name, **what)
