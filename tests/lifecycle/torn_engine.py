"""An engine that writes in place, remembers every byte, and can fail in every call, before it, in it or after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor

from lifecycle.engines.protocol import AdapterPayload, EngineReport
from lifecycle.weights.digests import tensor_sha256
from tests.lifecycle.world import World

MODES = ("before", "in the middle", "after")
"""Where a call fails: it was not heard; it did half of its work; it did everything and its answer was lost."""


@dataclass
class TornEngine:
    """Holds copies by group and name. What is written is in place at once; versions move on commit."""

    name: str = "E0"
    instance: int = 0
    resident: set[str] = field(default_factory=lambda: {"weights", "kv_cache"})
    held: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    staged: dict[str, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    fails: dict[int, str] = field(default_factory=dict)
    raises: type[BaseException] = ConnectionError
    discarded: frozenset[str] = frozenset()
    unknown: str = ""
    restarts_at: int = -1

    def report(self) -> EngineReport:
        with self._call("report"):
            released = frozenset({"weights", "kv_cache"} - self.resident)
            return EngineReport(
                f"{self.name}-{self.instance}", frozenset(self.resident), released, dict(self.versions),
                discarded=self.discarded, unknown=self.unknown,
            )  # fmt: skip

    def begin_update(self) -> None:
        with self._call("begin"):
            self.staged = {}

    def send_base(self, group: str, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        with self._call(f"base:{group}") as mode:
            self._write(group, version, dict(tensors), mode)

    def load_adapter(self, payload: AdapterPayload) -> None:
        group = f"adapter/{payload.name}"
        with self._call(group) as mode:
            self._write(group, payload.version, payload.tensors, mode)

    def unload_adapter(self, name: str) -> None:
        with self._call(f"unload:{name}"):
            self._drop(f"adapter/{name}")

    def commit_update(self) -> None:
        with self._call("commit"):
            self.versions |= self.staged
            self.staged = {}

    def abort_update(self) -> None:
        with self._call("abort"):
            for group in self.staged:
                self._drop(group)
            self.staged = {}

    def checksums(self, group: str) -> Mapping[str, str] | None:
        with self._call(f"checksums:{group}"):
            return {name: tensor_sha256(one) for name, one in self.held.get(group, {}).items()}

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:
        self.resident -= set(tags)
        if discard:
            self.discarded, self.versions = frozenset({"weights"}), {}

    def resume(self, tags: Iterable[str]) -> None:
        self.resident |= set(tags)
        self.discarded = frozenset()

    def restart(self) -> None:
        """A new process: other bytes, no versions, nothing under way."""
        self.instance += 1
        self.held, self.versions, self.staged = {}, {}, {}

    def _write(self, group: str, version: int, tensors: Mapping[str, Tensor], mode: str) -> None:
        """The first byte that is written takes the group its version."""
        self.versions.pop(group, None)
        self.staged[group] = version
        into = self.held.setdefault(group, {})
        for name, one in tensors.items():
            into[name] = one.detach().clone()
            if mode == "in the middle":
                raise self.raises(f"{self.name} fails in the middle of {group}")

    def _drop(self, group: str) -> None:
        self.versions.pop(group, None)
        self.held.pop(group, None)

    @contextmanager
    def _call(self, what: str) -> Iterator[str]:
        assert what == "report" or "weights" in self.resident, f"process death: {what} into released memory"
        self.calls.append(what)
        mode = self.fails.get(len(self.calls), "")
        if len(self.calls) == self.restarts_at:
            self.restart()
        if mode == "before":
            raise self.raises(f"{self.name} does not hear {what}")
        yield mode
        if mode:
            raise self.raises(f"the answer of {self.name} to {what} is lost")

    def writes(self) -> list[str]:
        """The calls since they were last looked at that write, or that begin or end an update."""
        return [one for one in self.calls if one != "report" and not one.startswith("checksums")]


def holds_everything(world: World, engine: TornEngine) -> bool:
    """Whether the engine holds the trainer's versions of everything and nothing else, byte for byte."""
    wanted = {group: {} for group in world.trainer._parts.inventory.groups()}
    with world.trainer.weights("compare") as lease:
        for group, held in world.trainer._parts.inventory.groups().items():
            wanted[group] = {name: tensor_sha256(lease[name]) for name in held}
    found = {group: {name: tensor_sha256(one) for name, one in held.items()} for group, held in engine.held.items()}
    return found == wanted and engine.versions == world.trainer.versions
