"""In which tags the tensors of each content group lie. Asked in every event, and changed by hardly any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from lifecycle.saver import Backup, TagInfo

Home = Mapping[str | None, tuple[str, ...]]
"""Tag to the names of the tensors that lie in it, None for those outside any region; what has no bytes is left out."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What the books say of the memory of a whole content group.

    Attributes:
        is_live: no tensor of it is paused.
        is_readable: it is paused as a whole, with host backups.
        is_retained: no tensor is paused, and each has a host backup: the saver kept those of the last pause.
        backup: what happens to the weakest of its tensors in a pause: ``none``, ``disk``, ``cpu`` or ``unplaced``.
        lost: names of the tensors that are paused without a host backup.
    """

    is_live: bool
    is_readable: bool
    is_retained: bool
    backup: str
    lost: tuple[str, ...]


class Finds(Protocol):
    """What :class:`Homes` asks of a saver."""

    @property
    def generation(self) -> int:
        """See :class:`~lifecycle.saver.MemorySaver`."""

    @property
    def revision(self) -> int:
        """See :class:`~lifecycle.saver.MemorySaver`."""

    def tag_of(self, tensor: Tensor) -> str | None:
        """See :class:`~lifecycle.saver.MemorySaver`."""

    def tags(self) -> Mapping[str, TagInfo]:
        """See :class:`~lifecycle.saver.MemorySaver`."""


class Homes:
    """Remembers where content groups lie for as long as no region comes or goes.

    Memory is laid out once, so that this holds from attach on. A tensor that user code points at other memory
    is seen when :meth:`forget` was called before; whoever is about to give memory back does.

    Args:
        saver: asked once for each tensor, not once for each tensor and event.
    """

    def __init__(self, saver: Finds) -> None:
        self._saver = saver
        self._generation = -1
        self._known: dict[str, tuple[Mapping[str, Tensor], Home]] = {}
        self._revision = -1
        self._standings: dict[str, tuple[Home, Standing]] = {}

    def of(self, group: str, tensors: Mapping[str, Tensor]) -> Home:
        """Where the tensors of a group lie.

        Args:
            group: the content group.
            tensors: its tensors by name. They are taken to be the same as before if the mapping is the same object.
        """
        if self._generation != self._saver.generation:
            self._known, self._generation = {}, self._saver.generation
        known = self._known.get(group)
        if known is not None and known[0] is tensors:
            return known[1]
        home = self._look(tensors)
        self._known[group] = tensors, home
        return home

    def standing(self, group: str, tensors: Mapping[str, Tensor]) -> Standing:
        """What the books say of the group's memory, worked out anew only when they have changed; see :meth:`of`."""
        home = self.of(group, tensors)
        if self._revision != self._saver.revision:
            self._standings, self._revision = {}, self._saver.revision
        known = self._standings.get(group)
        if known is None or known[0] is not home:
            self._standings[group] = known = home, _standing(home, self._saver.tags())
        return known[1]

    def forget(self) -> None:
        """Look anew when asked next."""
        self._known = {}

    def _look(self, tensors: Mapping[str, Tensor]) -> Home:
        found: dict[str | None, list[str]] = {}
        for name, one in tensors.items():
            if one.numel():
                found.setdefault(self._saver.tag_of(one), []).append(name)
        return {tag: tuple(names) for tag, names in found.items()}


def _standing(home: Home, tags: Mapping[str, TagInfo]) -> Standing:
    infos = [None if tag is None else tags[tag] for tag in home]
    paused = [info for info in infos if info is not None and info.paused]
    in_host = all(info is not None and info.backup is Backup.CPU and info.backup_bytes for info in infos)
    kinds = {"unplaced" if info is None else str(info.backup) for info in infos}
    return Standing(
        is_live=not paused,
        is_readable=len(paused) == len(infos) and all(info.backup is Backup.CPU for info in paused),
        is_retained=bool(infos) and not paused and in_host,
        backup=next((kind for kind in ("none", "disk", "cpu") if kind in kinds), "unplaced"),
        lost=tuple(name for info in paused if info.backup is not Backup.CPU for name in home[info.tag]),
    )
