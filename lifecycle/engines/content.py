"""Which tensors of the base hold values: by name, below the content groups that versions are of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class _Pending:
    version: int
    names: set[str] = field(default_factory=set)


class Coverage:
    """The tensors of the base that each group has brought. What a group is, is the sender's choice.

    Args:
        required: names of all tensors that must be covered before the engine may serve.
    """

    def __init__(self, required: Iterable[str]) -> None:
        self._required = frozenset(required)
        self._names: dict[str, frozenset[str]] = {}
        self._pending: dict[str, _Pending] = {}

    def touch(self, group: str, version: int) -> bool:
        """Bytes of *group* are about to be written. Several calls with one version add up.

        Returns:
            Whether this is the first one.
        """
        self._names.pop(group, None)
        pending = self._pending.get(group)
        if pending is not None and pending.version == version:
            return False
        self._pending[group] = _Pending(version)
        return True

    def wrote(self, group: str, name: str) -> None:
        """One tensor of a touched group is whole."""
        self._pending[group].names.add(name)

    def commit(self) -> None:
        """What was sent is valid."""
        self._names |= {group: frozenset(pending.names) for group, pending in self._pending.items()}
        self._pending.clear()

    def abort(self) -> None:
        """What was sent is not."""
        self._pending.clear()

    def clear(self) -> None:
        """Every byte is undefined now."""
        self._names.clear()

    def missing(self, *, with_pending: bool = False) -> list[str]:
        """Required tensors that no valid group covers, sorted.

        Args:
            with_pending: count what the open update has sent as valid.
        """
        covered: set[str] = set().union(*self._names.values())
        if with_pending:
            covered |= set().union(*(one.names for one in self._pending.values()))
        return sorted(self._required - covered)
