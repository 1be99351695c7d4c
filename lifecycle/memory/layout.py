"""Where the trainer's tensors lie. Memory is laid out once, at attach, and never again.

:mod:`states.placement` says what lies where; docs/placement.md prints it. Tensors that a framework placed
itself (``saver.adopt``) stay where they are, if they can serve there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from lifecycle.config import LifecycleConfig
from lifecycle.errors import ConfigError
from lifecycle.memory.homes import Homes
from lifecycle.saver import Backup, MemorySaver, TagInfo
from states import Place, place, why_not_adopted

_SCRATCH = "gradients"


@dataclass(frozen=True, slots=True)
class TagSplit:
    """The trainer's tags: those that hold what must survive, and scratch that need not."""

    weights: tuple[TagInfo, ...]
    scratch: tuple[TagInfo, ...]


class Layout:
    """Places tensors and knows which tags are this trainer's.

    Args:
        saver: the memory saver.
        config: says what lies where.

    Attributes:
        homes: in which tags the content groups lie.
    """

    def __init__(self, saver: MemorySaver, config: LifecycleConfig) -> None:
        self.homes = Homes(saver)
        self._saver = saver
        self._config = config
        self._model = config.model
        self._surviving: set[str] = set()
        self._scratch: set[str] = set()
        self._placed: set[str] = set()

    def place_of(self, content: str) -> Place:
        """The place of one kind of content by the table; see :data:`states.CONTENTS`."""
        config = self._config
        return place(content, target=config.offload_target, frozen_base=config.frozen_base, strategy=config.strategy)

    def refuse_unfit(self, content: str, tensors: Mapping[str, Tensor]) -> None:
        """Refuse memory that a framework has allocated where this content cannot be.

        Raises:
            ConfigError: naming the tag and the reason. Nothing was moved.
        """
        wanted, tags = self.place_of(content), self._saver.tags()
        for tag in sorted({tag for one in tensors.values() if (tag := self._saver.tag_of(one)) is not None}):
            why = why_not_adopted(content, str(tags[tag].backup), wanted)
            if why:
                raise ConfigError(f"tag {tag}: {why}")

    def place(self, content: str, tensors: Mapping[str, Tensor]) -> None:
        """Place what is not placed yet.

        Args:
            content: a key of :data:`states.CONTENTS`.
            tensors: by name; tied weights may appear under several names.

        Raises:
            SaverError: there is no room.
            SaverMisuse: a tensor cannot be placed.
        """
        wanted = self.place_of(content)
        loose = {name: one for name, one in tensors.items() if self._saver.tag_of(one) is None and one.numel()}
        if wanted.backup != "unplaced" and loose:
            self._saver.place(loose, f"{self._model}/{wanted.part}", Backup(wanted.backup))
        if wanted.backup != "unplaced" and content != _SCRATCH:
            self._placed |= {name for name, one in tensors.items() if one.numel()}
        known = self._scratch if content == _SCRATCH else self._surviving
        known.update(tag for tag in map(self._saver.tag_of, tensors.values()) if tag is not None)

    def moved(self, tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Those of the tensors that were placed and lie in no region any more: somebody gave them other memory."""
        return tuple(name for name, one in tensors.items() if name in self._placed and self._saver.tag_of(one) is None)

    def tags(self) -> TagSplit:
        """The trainer's tags by what they hold, sorted by tag.

        A tag of this model that holds neither weights nor moments counts as scratch if it has no backup.
        """
        weights, scratch = [], []
        for tag, info in self._saver.tags().items():
            if tag in self._surviving:
                weights.append(info)
            elif tag in self._scratch or (tag.startswith(f"{self._model}/") and info.backup is Backup.NONE):
                scratch.append(info)
            elif tag.startswith(f"{self._model}/"):
                weights.append(info)
        return TagSplit(tuple(weights), tuple(scratch))
