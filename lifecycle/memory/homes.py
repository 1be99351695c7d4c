"""In which tags the tensors of each content group lie. Asked in every event, and changed by hardly any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

Home = Mapping[str | None, tuple[str, ...]]
"""Tag to the names of the tensors that lie in it, None for those outside any region; what has no bytes is left out."""


class Finds(Protocol):
    """What :class:`Homes` asks of a saver."""

    @property
    def generation(self) -> int:
        """See :class:`~lifecycle.saver.MemorySaver`."""

    def tag_of(self, tensor: Tensor) -> str | None:
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

    def forget(self) -> None:
        """Look anew when asked next."""
        self._known = {}

    def _look(self, tensors: Mapping[str, Tensor]) -> Home:
        found: dict[str | None, list[str]] = {}
        for name, one in tensors.items():
            if one.numel():
                found.setdefault(self._saver.tag_of(one), []).append(name)
        return {tag: tuple(names) for tag, names in found.items()}
