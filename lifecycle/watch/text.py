"""Texts of a log, made harmless: a terminal gets characters that it prints, and no commands."""

from __future__ import annotations

from typing import Final

from lifecycle.wording import printable

SHOWN_MAX: Final = 200
"""Characters of one text that are shown."""


def shown(text: str, most: int = SHOWN_MAX) -> str:
    r"""A text in which everything that is not printed is written as an escape, such as ``\x1b`` or ``\u202e``.

    Control characters, line ends, marks that turn the direction of writing, halves of surrogates and what Unicode
    does not know are not printed.

    Args:
        text: what a log, or the name of a file, says.
        most: characters of the answer; what is longer is cut off, and ends in an ellipsis.
    """
    plain = printable(text[: most + 1])
    return plain if len(plain) <= most else plain[: most - 1] + "…"
