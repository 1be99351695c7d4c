"""What the in-process engine holds: versions by content group, moved by a commit and by nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass
class _Pending:
    version: int
    names: set[str] = field(default_factory=set)


class Content:
    """Versions and coverage of the tensors of one engine instance.

    A group loses its version when the first byte of it is written and gets one again when the update
    is committed, so that bytes which are half old and half new never carry a version.

    Args:
        required: names of all tensors that must be covered before the engine may serve.
    """

    def __init__(self, required: Iterable[str]) -> None:
        self._required = frozenset(required)
        self._versions: dict[str, int] = {}
        self._names: dict[str, frozenset[str]] = {}
        self._pending: dict[str, _Pending] = {}
        self._broken = ""
        self.updating = False

    @property
    def broken(self) -> str:
        """Why the open update cannot be committed any more, empty when it can."""
        return self._broken

    def versions(self) -> dict[str, int]:
        """Committed versions by group."""
        return dict(self._versions)

    def begin(self) -> None:
        """Open an update. None is open."""
        self.updating = True

    def touch(self, group: str, version: int) -> None:
        """Bytes of *group* are about to be written. Several calls with one version add up."""
        self._versions.pop(group, None)
        self._names.pop(group, None)
        pending = self._pending.get(group)
        if pending is None or pending.version != version:
            self._pending[group] = _Pending(version)

    def wrote(self, group: str, name: str) -> None:
        """One tensor of a touched group is whole."""
        self._pending[group].names.add(name)

    def drop(self, group: str) -> None:
        """The group is gone."""
        self._versions.pop(group, None)
        self._names.pop(group, None)
        self._pending.pop(group, None)

    def break_off(self, why: str) -> None:
        """Something failed between begin and commit: the update can only be aborted."""
        if self.updating:
            self._broken = why

    def commit(self) -> None:
        """What was sent is served, under the versions it was sent with."""
        for group, pending in self._pending.items():
            self._versions[group] = pending.version
            self._names[group] = frozenset(pending.names)
        self._close()

    def abort(self) -> tuple[str, ...]:
        """Give the update up; returns the groups it had touched. They hold no version any more."""
        touched = tuple(self._pending)
        self._close()
        return touched

    def clear(self) -> None:
        """Every byte is undefined now."""
        self._versions.clear()
        self._names.clear()

    def uncovered(self, *, with_pending: bool = False) -> list[str]:
        """Required tensors that no valid group covers, sorted."""
        covered: set[str] = set().union(*self._names.values())
        if with_pending:
            covered |= set().union(*(one.names for one in self._pending.values()))
        return sorted(self._required - covered)

    def differing(self, expected: Mapping[str, int]) -> list[str]:
        """Which groups are not at the version that is expected, each with both numbers."""
        return [
            f"{group} is {self._versions.get(group, 'none')}, wanted is {version}"
            for group, version in sorted(expected.items())
            if self._versions.get(group) != version
        ]

    def _close(self) -> None:
        self._pending.clear()
        self._broken = ""
        self.updating = False
