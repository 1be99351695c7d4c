"""Where the trainer's tensors lie. Memory is laid out once, at attach, and never again.

| content | tag | backup with target cpu | with target disk | without a target |
|---|---|---|---|---|
| base and buffers | MODEL/base | cpu | disk | not placed |
| adapter slots | MODEL/adapters | cpu | cpu | not placed |
| optimizer moments | MODEL/optimizer | cpu | cpu | not placed |
| gradients | MODEL/gradients | none | none | none |

Tensors that a framework placed itself (``saver.adopt``) stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from lifecycle.saver import Backup, MemorySaver, TagInfo

_BASE = {"cpu": Backup.CPU, "disk": Backup.DISK}
_HOST = {"cpu": Backup.CPU, "disk": Backup.CPU}


@dataclass(frozen=True, slots=True)
class TagSplit:
    """The trainer's tags: those that hold what must survive, and scratch that need not."""

    weights: tuple[TagInfo, ...]
    scratch: tuple[TagInfo, ...]


class Layout:
    """Places tensors and knows which tags are this trainer's.

    Args:
        saver: the memory saver.
        model: prefix of the tags.
        target: the offload target.
    """

    def __init__(self, saver: MemorySaver, model: str, target: str | None) -> None:
        self._saver = saver
        self._model = model
        self._target = target
        self._surviving: set[str] = set()
        self._scratch: set[str] = set()

    def place(self, part: str, tensors: Mapping[str, Tensor]) -> None:
        """Place what is not placed yet.

        Args:
            part: ``base``, ``adapters``, ``optimizer`` or ``gradients``.
            tensors: by name; tied weights may appear under several names.

        Raises:
            SaverError: there is no room.
            SaverMisuse: a tensor cannot be placed.
        """
        kinds = _BASE if part == "base" else _HOST
        backup = Backup.NONE if part == "gradients" else kinds.get(self._target or "")
        loose = {name: one for name, one in tensors.items() if self._saver.tag_of(one) is None and one.numel()}
        if backup is not None and loose:
            self._saver.place(loose, f"{self._model}/{part}", backup)
        known = self._scratch if part == "gradients" else self._surviving
        known.update(tag for tag in map(self._saver.tag_of, tensors.values()) if tag is not None)

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
