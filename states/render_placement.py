"""The table of placement: where each kind of content lies, how a pause backs it up, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from states.facts import TARGETS
from states.names import FrozenBase, Strategy
from states.placement import CONTENTS, Place, place, why_not_adopted
from states.render import GENERATED, markdown_table

_INTRO = """# Where each kind of content lies

The backup kind of memory is fixed when it is allocated, so the controller decides it once, at attach. Two rules make
the table: what must survive keeps bytes that can be *read* while it is paused, and nothing is kept twice.

- `cpu`: a pause copies the region to host memory, which weight sync reads and a reconcile writes meanwhile.
- `disk`: a pause writes it to a file of the saver, which nobody can read before the next resume.
- `none`: a pause copies nothing. The base file brings the bytes back, or they need not survive.
- `unplaced`: the memory lies outside any region and is never paused.

With the offload target `disk` the frozen base always lies in its base file, whatever `frozen_base` says. A tag is
`MODEL/part`.
"""

_REFUSED = """## What is refused

Memory that a framework has allocated in a region of the saver before attach keeps the backup of that region. It is
adopted as it lies, except for these, which are refused with this reason.
"""

_Box = tuple[tuple[str | None, ...], ...]
"""The values of each setting that one line stands for."""

_ANY: Final = "any"
_KINDS: Final = ("cpu", "disk", "none")
_AXES: Final[Mapping[str, tuple[str | None, ...]]] = {
    "target": TARGETS,
    "frozen_base": tuple(FrozenBase),
    "strategy": tuple(Strategy),
}


@dataclass(frozen=True, slots=True)
class Placed:
    """One line of the table.

    Attributes:
        content: a key of :data:`states.placement.CONTENTS`.
        target: the offload targets, ``any`` where it makes no difference.
        frozen_base: what brings the frozen base back, ``any`` where it makes no difference.
        strategy: the strategies, ``any`` where it makes no difference.
        place: where the content lies.
    """

    content: str
    target: str
    frozen_base: str
    strategy: str
    place: Place


def placements() -> Iterator[Placed]:
    """Every line. Settings are put together where they make no difference, the last one first."""
    for content in CONTENTS:
        boxes: list[tuple[_Box, Place]] = [
            (tuple((value,) for value in one), _place(content, one)) for one in product(*_AXES.values())
        ]
        for axis in reversed(range(len(_AXES))):
            boxes = _joined(boxes, axis)
        for box, found in boxes:
            target, frozen_base, strategy = (_told(axis, values) for axis, values in zip(_AXES, box, strict=True))
            yield Placed(content, target, frozen_base, strategy, found)


def _place(content: str, setting: tuple[str | None, ...]) -> Place:
    target, frozen_base, strategy = setting
    return place(content, target=target, frozen_base=str(frozen_base), strategy=str(strategy))


def _joined(boxes: list[tuple[_Box, Place]], axis: int) -> list[tuple[_Box, Place]]:
    """The boxes with those put together that differ in nothing but one setting."""
    found: dict[tuple[_Box, _Box, Place], tuple[str | None, ...]] = {}
    for box, where in boxes:
        key = (box[:axis], box[axis + 1 :], where)
        found[key] = (*found.get(key, ()), *box[axis])
    return [((*before, values, *after), where) for (before, after, where), values in found.items()]


def _told(axis: str, values: tuple[str | None, ...]) -> str:
    return _ANY if len(values) == len(_AXES[axis]) else ", ".join(value or "none" for value in values)


def placement_table() -> str:
    """Every kind of content under every setting that matters to it."""
    head = ("content", "offload target", "frozen base", "strategy", "tag", "backup", "base file", "because")
    return markdown_table(
        head,
        (
            (
                one.content,
                one.target,
                one.frozen_base,
                one.strategy,
                f"`MODEL/{one.place.part}`",
                f"`{one.place.backup}`",
                "yes" if one.place.file else "",
                one.place.because,
            )
            for one in placements()
        ),
    )


def refused_table() -> str:
    """What cannot be adopted where it lies: the content, its settings, the region's backup, and the reason."""
    rows = (
        (one.content, one.target, one.frozen_base, found, because)
        for one in placements()
        for found in _KINDS
        if (because := why_not_adopted(one.content, found, one.place))
    )
    return markdown_table(("content", "offload target", "frozen base", "lies in a region with backup", "because"), rows)


def placement_page() -> str:
    """The page ``docs/placement.md``."""
    return f"{GENERATED}\n{_INTRO}\n{placement_table()}\n{_REFUSED}\n{refused_table()}"
