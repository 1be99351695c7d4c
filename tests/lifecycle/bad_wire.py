"""A real in-process engine behind a wire that loses calls and answers, and a server that restarts when it likes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from lifecycle.engines.local import LocalEngine
from lifecycle.engines.protocol import AdapterPayload, EngineReport
from lifecycle.errors import EngineUnanswered

CALLS = (
    "report", "begin_update", "send_base", "load_adapter", "unload_adapter", "commit_update", "abort_update",
    "release", "resume", "checksums",
)  # fmt: skip
WAYS = ("is not heard", "breaks in a write", "answer is lost", "restarts before", "restarts after", "dies of it")
ERRORS: Mapping[str, Callable[[str], BaseException]] = {
    "connection": ConnectionError,
    "engine": lambda why: EngineUnanswered("wire", why),
    "bug": TypeError,
    "interrupt": KeyboardInterrupt,
}
LIES: Mapping[str, Callable[[Mapping[str, int]], dict[str, Any]]] = {
    "older": lambda held: {group: one - 1 for group, one in held.items()},
    "fewer": lambda held: dict(sorted(held.items())[1:]),
    "a stranger": lambda held: {**held, "adapter/stranger": 1},
    "nonsense": lambda held: {**held, "adapter/a": "x"},
}


class BadWire:
    """A :class:`~lifecycle.engines.protocol.RolloutEngine` that does to *real* what it is told, or fails at it.

    Attributes:
        real: the engine itself; what it is told directly always arrives.
        faults: which call fails (the n-th of its kind from now on), how, and with what.
        lie: changes the versions that it reports, None for the truth.
    """

    def __init__(self, real: LocalEngine) -> None:
        self.real, self.name = real, real.name
        self.faults: list[tuple[str, int, str, str]] = []
        self.lie: Callable[[Mapping[str, int]], dict[str, Any]] | None = None

    def calm(self) -> None:
        """Nothing fails any more."""
        self.faults, self.lie = [], None

    def report(self) -> EngineReport:
        said: EngineReport = self._call("report")
        return said if self.lie is None else replace(said, versions=self.lie(said.versions))

    def begin_update(self) -> None:
        self._call("begin_update")

    def send_base(self, group: str, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        self._call("send_base", group, version, tensors)

    def load_adapter(self, payload: AdapterPayload) -> None:
        self._call("load_adapter", payload)

    def unload_adapter(self, name: str) -> None:
        self._call("unload_adapter", name)

    def commit_update(self) -> None:
        self._call("commit_update")

    def abort_update(self) -> None:
        self._call("abort_update")

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:
        self._call("release", tags, discard=discard)

    def resume(self, tags: Iterable[str]) -> None:
        self._call("resume", tags)

    def checksums(self, group: str) -> Mapping[str, str] | None:
        said: Mapping[str, str] | None = self._call("checksums", group)
        return said

    def _call(self, what: str, *given: Any, **named: Any) -> Any:
        way, error = self._next(what)
        if way == "restarts before":
            self.real.restart()
        if way == "is not heard":
            raise ERRORS[error](f"{what} was not heard")
        if way == "breaks in a write":
            self.real.fault = lambda operation: self._break(operation, error)
        try:
            said = getattr(self.real, what)(*given, **named)
        finally:
            self.real.fault = None
        if way in ("restarts after", "dies of it"):
            self.real.restart()
        if way in ("answer is lost", "dies of it"):
            raise ERRORS[error](f"the answer to {what} is lost")
        return said

    @staticmethod
    def _break(operation: str, error: str) -> None:
        if operation == "write":
            raise ERRORS[error]("it broke in a write")

    def _next(self, what: str) -> tuple[str, str]:
        """How this call fails, and with what. Faults of other calls wait."""
        for index, (call, left, way, error) in enumerate(self.faults):
            if call == what:
                self.faults[index] = call, left - 1, way, error
                if left == 1:
                    del self.faults[index]
                    return way, error
                break
        return "", ""
