"""What a drawing is made of: boxes, arrows along straight lines, and texts whose size is known beforehand.

Positions are whole numbers, set by hand for each machine: its states are few, and a layout program would give other
bytes with another version or processor. Names are set in a monospaced font, so that the room of a text follows from
its length and a test can prove that nothing lies on anything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple, Self

FONT_SIZE: Final = 12
LINE_HEIGHT: Final = 15
CHARACTER_WIDTH: Final = 7.4
"""Of one character of the font. Monospaced fonts take 0.55 to 0.61 of their size."""

Point = tuple[int, int]


class Look(StrEnum):
    """What a part of the picture stands for; the writer gives each its colours."""

    STATE = "state"
    ACTIVITY = "activity"
    FAULT = "fault"
    GROUP = "group"
    START = "start"
    EVENT = "event"
    EDGE = "edge"
    COUNT = "count"
    FAILED = "failed"
    REFUSED = "refused"
    NOTE = "note"


class Anchor(StrEnum):
    """Where the given x of a text lies in it."""

    START = "start"
    MIDDLE = "middle"
    END = "end"


class Rect(NamedTuple):
    """A rectangle; coordinates grow to the right and downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Rect) -> bool:
        """Whether they have an inner point in common."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


class Part(NamedTuple):
    """Some characters of a line, all of one look."""

    text: str
    look: Look
    faint: bool = False


Line = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A state, or a group of them.

    Attributes:
        name: what stands in it.
        left: of its rectangle, like the next three.
        top: the same.
        width: the same.
        height: the same.
        look: how it is drawn.
        note: what stands beside the name of a group.
    """

    name: str
    left: int
    top: int
    width: int
    height: int
    look: Look = Look.STATE
    note: str = ""

    @classmethod
    def around(cls, name: str, centre: Point, width: int = 140, look: Look = Look.STATE) -> Self:
        """A box of a state, by its centre."""
        return cls(name, centre[0] - width // 2, centre[1] - 18, width, 36, look)

    @property
    def rect(self) -> Rect:
        """Where it is."""
        return Rect(self.left, self.top, self.left + self.width, self.top + self.height)


@dataclass(frozen=True, slots=True)
class Text:
    """Lines of text.

    Attributes:
        x: of the anchor.
        y: of the upper edge, or of the lower one if it *grows upwards*.
        anchor: what lies at x.
        grows_up: y is the lower edge.
        lines: what is written.
    """

    x: int
    y: int
    anchor: Anchor = Anchor.START
    grows_up: bool = False
    lines: tuple[Line, ...] = ()

    def saying(self, lines: Iterable[Line]) -> Self:
        """The same place with these lines."""
        return replace(self, lines=tuple(lines))

    @property
    def top(self) -> int:
        """Its upper edge."""
        return self.y - LINE_HEIGHT * len(self.lines) if self.grows_up else self.y

    @property
    def rect(self) -> Rect:
        """The room that it takes at most."""
        width = CHARACTER_WIDTH * max((sum(len(one.text) for one in line) for line in self.lines), default=0)
        left = self.x - {Anchor.START: 0.0, Anchor.MIDDLE: width / 2, Anchor.END: width}[self.anchor]
        return Rect(left, self.top, left + width, self.top + LINE_HEIGHT * len(self.lines))


@dataclass(frozen=True, slots=True)
class Route:
    """The way of an arrow, and where its label stands.

    Attributes:
        points: corners of the line, from the edge of one box to the edge of another. Each piece is upright or level.
        label: the place of the label, without lines.
    """

    points: tuple[Point, ...]
    label: Text


@dataclass(frozen=True, slots=True)
class Arrow:
    """A line with a head at its end.

    Attributes:
        points: corners of the line.
        label: what it says.
        told: the same in one sentence, for who points at it and for who cannot see it.
        width: of the stroke.
        faint: it was never taken.
        look: how it is drawn: as an edge, or as a refusal, which is dashed and ends in a cross.
    """

    points: tuple[Point, ...]
    label: Text
    told: str
    width: float = 1.5
    faint: bool = False
    look: Look = Look.EDGE


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture.

    Attributes:
        title: its name.
        description: what it shows, in sentences.
        width: in the unit of the coordinates.
        height: the same.
        boxes: groups before what lies in them.
        arrows: in the order in which they are drawn.
        texts: everything else that is written.
    """

    title: str
    description: str
    width: int
    height: int
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    texts: tuple[Text, ...] = ()
