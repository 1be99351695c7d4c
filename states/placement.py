"""Where each kind of content lies, and what a pause does with it. Data, and the questions asked of it.

The backup kind of memory is fixed when it is allocated, so this is decided once, at attach. Two rules make
the table: what must survive keeps bytes that can be *read* while it is paused, and nothing is kept twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from states.names import FrozenBase, Strategy


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one kind of content.

    Attributes:
        part: the tag is ``MODEL/part``.
        backup: ``cpu``, ``disk``, ``none``, or ``unplaced`` for memory that is never paused.
        file: a base file brings the bytes back, and is read meanwhile.
        because: why so.
    """

    part: str
    backup: str
    because: str
    file: bool = False


CONTENTS: Final = {
    "frozen-base": "base",
    "trainable-base": "trainable",
    "buffers": "buffers",
    "adapters": "adapters",
    "adapter-moments": "optimizer",
    "base-moments": "base-optimizer",
    "adapter-main-copies": "main",
    "base-main-copies": "base-main",
    "gradients": "gradients",
}
"""The kinds of content, and the part of the tag under which each lies."""

_OF_THE_BASE: Final = frozenset({"base-moments", "base-main-copies"})
"""What the optimizer alone looks at, and no reconcile writes."""

_IN_FILE: Final = "the base file brings it back: sleep copies nothing of it, and a node holds it once, as page cache"
_READ_BY_SYNC: Final = "weight sync reads it from the saver's host backup while it is paused"
_WRITTEN_ASLEEP: Final = "a reconcile writes it in the saver's host backup while it is paused"
_HAS_COPY: Final = 'its "actor" copy is read while it is paused, so its backup may lie where nobody can read it'
_UNREAD: Final = "nobody reads it while it is paused"
_SCRATCH: Final = "it need not survive; what is accumulated is copied before"
_NEVER_PAUSED: Final = "without an offload target it is never paused"


def is_in_file(target: str | None, frozen_base: str) -> bool:
    """Whether the frozen base is backed by a file: where it is asked for, and always with the disk target."""
    return target == "disk" or (target is not None and frozen_base == FrozenBase.FILE)


def place(content: str, *, target: str | None, frozen_base: str, strategy: str) -> Place:
    """The place of one kind of content.

    Args:
        content: a key of :data:`CONTENTS`.
        target: the offload target.
        frozen_base: what brings the frozen base back (:class:`states.FrozenBase`).
        strategy: when a second copy is made (:class:`states.Strategy`).
    """
    part = CONTENTS[content]
    if content == "gradients":
        return Place(part, "none", _SCRATCH)
    if target is None:
        return Place(part, "unplaced", _NEVER_PAUSED)
    if content == "frozen-base" and is_in_file(target, frozen_base):
        return Place(part, "none", _IN_FILE, file=True)
    if content in {"adapters", "adapter-moments", "adapter-main-copies"}:
        return Place(part, "cpu", _WRITTEN_ASLEEP)
    if target == "disk" and content in _OF_THE_BASE:
        return Place(part, "disk", _UNREAD)
    if target == "disk" and strategy != Strategy.LEAN:
        return Place(part, "disk", _HAS_COPY)
    return Place(part, "cpu", _UNREAD if content in _OF_THE_BASE else _READ_BY_SYNC)


def why_not_adopted(content: str, found: str, wanted: Place) -> str:
    """Why memory that a framework has allocated with backup *found* cannot serve, empty when it can.

    Args:
        content: a key of :data:`CONTENTS`.
        found: the backup kind of the region in which it lies already.
        wanted: its place by the table.
    """
    if wanted.file and found != "none":
        return (
            f"{content} lies in a region with backup {found}, which is fixed when memory is allocated: a pause would "
            "copy it although the base file brings it back; allocate it in a region without backup, or "
            'set frozen_base="saver" with the offload target cpu'
        )
    return ""
