"""The colours of drawings, by role: in a file that is read in light or in dark, and on a page that has its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Colour(NamedTuple):
    """One role.

    Attributes:
        light: in a file of its own.
        dark: the same for who likes it dark.
        page: in an HTML page; legible on light and on dark ground if the page sets no variable.
    """

    light: str
    dark: str
    page: str


COLOURS: Final[Mapping[str, Colour]] = {
    "ground": Colour("#ffffff", "#0d1117", "none"),
    "ink": Colour("#1f2328", "#e6edf3", "currentColor"),
    "quiet": Colour("#59636e", "#a0a8b2", "var(--diagram-quiet, currentColor)"),
    "line": Colour("#57606a", "#9198a1", "var(--diagram-line, currentColor)"),
    "node": Colour("#f6f8fa", "#1a212b", "none"),
    "group": Colour("#fafbfc", "#12171f", "none"),
    "rim": Colour("#c4ccd4", "#3d444d", "var(--diagram-rim, #8b949e)"),
    "activity": Colour("#8250df", "#b48cf9", "var(--diagram-activity, #9a6ee8)"),
    "activity-node": Colour("#f6f0ff", "#231a35", "none"),
    "fault": Colour("#cf222e", "#ff7b72", "var(--diagram-fault, #e5484d)"),
    "fault-node": Colour("#fff1f0", "#321a1c", "none"),
    "count": Colour("#0757ba", "#6cb0ff", "var(--diagram-count, #2f81f7)"),
    "failed": Colour("#8a5a00", "#e0a83a", "var(--diagram-failed, #b7791f)"),
    "refused": Colour("#cf222e", "#ff7b72", "var(--diagram-refused, #e5484d)"),
}


def paint(what: str, role: str, *, standalone: bool) -> dict[str, str]:
    """Attributes that fill or stroke something.

    Args:
        what: ``fill`` or ``stroke``.
        role: a key of :data:`COLOURS`.
        standalone: of a file of its own, whose style sheet has the dark colours.
    """
    colour = COLOURS[role]
    return {"class": f"{what}-{role}", what: colour.light} if standalone else {what: colour.page}


def dark_rules() -> str:
    """The style sheet of a file of its own. Attributes have the light colours, for programs that know no rules."""
    rules = (f".{what}-{role}{{{what}:{one.dark}}}" for role, one in COLOURS.items() for what in ("fill", "stroke"))
    return f"@media (prefers-color-scheme: dark) {{{' '.join(rules)}}}"
