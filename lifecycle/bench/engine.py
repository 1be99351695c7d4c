"""A rollout engine that takes what it is sent by reading one element of each page, and keeps nothing."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from lifecycle.engines.protocol import WEIGHTS, AdapterPayload, EngineReport

_PAGE_BYTES = 4096


class ReadingEngine:
    """An engine in the trainer's own process; a new one holds nothing.

    Args:
        name: unique among the engines of a run.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._staged: dict[str, int] = {}
        self._versions: dict[str, int] = {}
        self.seen = 0.0

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    def report(self) -> EngineReport:
        """Its weights are resident always."""
        return EngineReport(f"{self._name}-0", frozenset({WEIGHTS}), frozenset(), dict(self._versions))

    def begin_update(self) -> None:
        """Nothing is served that had to be drained."""
        self._staged = {}

    def send_base(self, group: str, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Read one base group."""
        for _, one in tensors:
            self._read(one)
        self._staged[group] = version

    def load_adapter(self, payload: AdapterPayload) -> None:
        """Read one adapter."""
        for one in payload.tensors.values():
            self._read(one)
        self._staged[f"adapter/{payload.name}"] = payload.version

    def unload_adapter(self, name: str) -> None:
        """Forget one adapter."""
        self._versions.pop(f"adapter/{name}", None)

    def commit_update(self) -> None:
        """Remember the versions."""
        self._versions |= self._staged

    def abort_update(self) -> None:
        """Nothing that was touched counts as held."""
        for group in self._staged:
            self._versions.pop(group, None)

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:
        """It has no memory of its own."""

    def resume(self, tags: Iterable[str]) -> None:
        """It has no memory of its own."""

    def _read(self, tensor: Tensor) -> None:
        step = max(1, _PAGE_BYTES // tensor.element_size())
        self.seen += float(tensor.detach().reshape(-1)[::step].float().sum())
