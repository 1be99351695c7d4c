"""The process of an engine that keeps what it receives. A program: JSON lines in, JSON lines out."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from lifecycle.transport.ipc import CudaIpc, DeviceIpc
from lifecycle.transport.layout import Piece
from lifecycle.transport.receiving import Receiver, Unreadable
from lifecycle.weights.chunks import as_bytes, buffer_of
from tests.transport.fake_ipc import FakeIpc


class Store:
    """One engine's content: staged by group, and moved by commit."""

    def __init__(self) -> None:
        self.staged: dict[str, dict[str, torch.Tensor]] = {}
        self.staged_versions: dict[str, int] = {}
        self.tensors: dict[str, dict[str, torch.Tensor]] = {}
        self.versions: dict[str, int] = {}
        self.bytes_taken = 0

    def take(self, group: str, version: int, piece: Piece) -> None:
        held = self.staged.setdefault(group, {})
        whole = held.setdefault(piece.name, torch.empty(piece.shape, dtype=piece.dtype))
        piece.write_into(whole)
        self.staged_versions[group] = version
        self.bytes_taken += piece.content.nbytes

    def begin(self) -> None:
        self.staged, self.staged_versions = {}, {}

    def commit(self) -> None:
        self.tensors |= self.staged
        self.versions |= self.staged_versions
        self.begin()

    def abort(self) -> None:
        for group in self.staged:
            self.unload(group)
        self.begin()

    def unload(self, group: str) -> None:
        self.tensors.pop(group, None)
        self.versions.pop(group, None)

    def checksums(self, group: str) -> dict[str, str]:
        held = self.tensors[group]
        return {name: hashlib.sha256(buffer_of(as_bytes(one))).hexdigest() for name, one in held.items()}


class Child:
    """Answers one line after the other."""

    def __init__(self, shared: Path, files: Path, ipc: DeviceIpc) -> None:
        self.receiver = Receiver(shared=shared, files=files, ipc=ipc)
        self.stores: dict[str, Store] = {}
        self.kept: list[Piece] = []

    def answer(self, asked: dict[str, Any]) -> object:
        does, store = asked["do"], self.stores.setdefault(asked.get("engine", ""), Store())
        if does == "probe":
            return self.receiver.digests(asked["message"])
        if does == "take":
            self.receiver.receive(asked["message"], lambda one: store.take(asked["group"], asked["version"], one))
        elif does == "keep":
            self.receiver.receive(asked["message"], self.kept.append)
        elif does == "forget":
            self.kept.clear()
            return self.receiver.let_go()
        elif does == "die":
            self.receiver.receive(asked["message"], lambda one: os.kill(os.getpid(), signal.SIGKILL))
        elif does == "report":
            return {"versions": store.versions, "taken": store.bytes_taken, "pid": os.getpid()}
        elif does in ("unload", "checksums"):
            return getattr(store, does)(asked["group"])
        else:
            getattr(store, does)()
        return None

    def line(self, text: str) -> str:
        try:
            return json.dumps({"said": self.answer(json.loads(text))})
        except Unreadable as error:
            return json.dumps({"unreadable": str(error)})
        except Exception as error:  # noqa: BLE001 - told to who asked
            return json.dumps({"failed": f"{type(error).__name__}: {error}"})


def main() -> None:
    """Until the input ends."""
    shared = Path(sys.argv[1])
    child = Child(shared, Path(sys.argv[2]), CudaIpc() if "real-ipc" in sys.argv else FakeIpc(shared))
    print("ready", flush=True)
    for text in sys.stdin:
        print(child.line(text), flush=True)


if __name__ == "__main__":
    main()
