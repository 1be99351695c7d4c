"""The process groups that sleep may tear down. They are the user's: only what is listed is touched.

Rule (a field case, FB-47): teardown is idempotent for each group, a bad group does not stop the
others, and what was really torn down is what is rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch.distributed as dist

from lifecycle.errors import ConfigError, LifecycleError


class ProcessGroupError(LifecycleError):
    """A listed process group is unknown, torn down, or could not be built.

    Attributes:
        group: its name in the list.
        why: what happened.
    """

    def __init__(self, group: str, why: str) -> None:
        super().__init__(f"process group {group}: {why}")
        self.group = group
        self.why = why


@dataclass
class _Entry:
    name: str
    build: Callable[[], dist.ProcessGroup | None]
    group: dist.ProcessGroup | None
    is_default: bool


class ProcessGroups:
    """Named process groups with the recipe to build each one again.

    Groups are rebuilt in the order they were listed, the same on every rank: building one is a
    collective. Handles that the user keeps elsewhere die with the teardown; take the new one with
    :meth:`get`.

    Args:
        include_default: whether the default (world) group may be listed. All other groups stand on
            it: it is torn down last, takes groups that are not listed with it, and is built first.
    """

    def __init__(self, *, include_default: bool = False) -> None:
        self._include_default = include_default
        self._entries: dict[str, _Entry] = {}

    def add(
        self, name: str, build: Callable[[], dist.ProcessGroup | None], group: dist.ProcessGroup | None = None
    ) -> None:
        """List one group.

        Args:
            name: how errors and the log call it.
            build: makes the group again, such as ``lambda: dist.new_group([0, 1])``; a collective.
            group: the group as it is now; built at once when None.

        Raises:
            ConfigError: the name is taken, or it is the default group and that was not allowed.
            ProcessGroupError: it could not be built.
        """
        if name in self._entries:
            raise ConfigError(f"process group {name!r} is listed already; choose another name")
        built = self._build(name, build) if group is None else group
        is_default = _is_default(built)
        if is_default and not self._include_default:
            raise ConfigError(
                f"process group {name!r} is the default group, on which all others stand; "
                "list a subgroup, or say ProcessGroups(include_default=True)"
            )
        self._entries[name] = _Entry(name, build, built, is_default)

    @property
    def names(self) -> tuple[str, ...]:
        """The listed groups, in order."""
        return tuple(self._entries)

    def get(self, name: str) -> dist.ProcessGroup:
        """The group as it is now.

        Raises:
            ProcessGroupError: it is not listed, or is torn down.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise ProcessGroupError(name, f"it is not listed (listed: {', '.join(self._entries) or 'none'})")
        if entry.group is None:
            raise ProcessGroupError(name, "it is torn down; wake_up() first, or use temporarily()")
        return entry.group

    def tear_down(self) -> dict[str, str]:
        """Tear down every listed group that is up. Never raises: a bad group does not stop the others.

        Returns:
            Group to what happened: ``down``, or why it could not be destroyed properly (somebody
            else had destroyed it). All of these are down afterwards, and :meth:`rebuild` builds
            them again. Groups that were torn down before do not appear.
        """
        return _destroy(list(self._entries.values()))

    def rebuild(self) -> tuple[str, ...]:
        """Build again exactly what was torn down, in the listed order. All or nothing.

        Returns:
            The names of the groups that were built.

        Raises:
            ProcessGroupError: one could not be built; those built before it are torn down again.
        """
        return self._rebuild([entry for entry in self._entries.values() if entry.group is None])

    @contextmanager
    def temporarily(self, *names: str) -> Iterator[None]:
        """Open groups for a collective while asleep; what was opened is torn down on exit.

        Args:
            names: the groups, all when none is named. Those that are up already stay up.

        Raises:
            ProcessGroupError: a group is not listed or could not be built.
        """
        unknown = [name for name in names if name not in self._entries]
        if unknown:
            raise ProcessGroupError(unknown[0], f"it is not listed (listed: {', '.join(self._entries) or 'none'})")
        wanted = [
            entry for name, entry in self._entries.items() if (not names or name in names) and entry.group is None
        ]
        self._rebuild(wanted)
        try:
            yield
        finally:
            _destroy(wanted)

    def _rebuild(self, entries: list[_Entry]) -> tuple[str, ...]:
        built: list[_Entry] = []
        for entry in sorted(entries, key=lambda one: not one.is_default):
            try:
                entry.group = self._build(entry.name, entry.build)
            except BaseException:
                _destroy(built)
                raise
            built.append(entry)
        return tuple(entry.name for entry in built)

    @staticmethod
    def _build(name: str, build: Callable[[], dist.ProcessGroup | None]) -> dist.ProcessGroup:
        try:
            group = build()
        except Exception as error:
            raise ProcessGroupError(name, f"it could not be built: {type(error).__name__}: {error}") from error
        if group is None:
            raise ProcessGroupError(name, "its build function returned None; return the group that it makes")
        return group


def _is_default(group: dist.ProcessGroup | None) -> bool:
    return group is not None and dist.is_initialized() and group is dist.group.WORLD


def _destroy(entries: list[_Entry]) -> dict[str, str]:
    # destroy_process_group(None) destroys every group of the process: never pass it an empty entry.
    standing = [entry for entry in entries if entry.group is not None]
    return {entry.name: _destroy_one(entry) for entry in sorted(standing, key=lambda one: one.is_default)}


def _destroy_one(entry: _Entry) -> str:
    group, entry.group = entry.group, None
    try:
        dist.destroy_process_group(group)
    except Exception as error:  # noqa: BLE001 - somebody else destroyed it, or it is broken; it is down either way
        return f"down already: {type(error).__name__}: {error}"
    return "down"
