"""Errors of the definition. ``TableError`` means that the table itself is wrong, never a caller."""

from __future__ import annotations


class TableError(Exception):
    """The transition table breaks one of its own rules.

    Attributes:
        row: the row, or the state or event, that breaks it.
        why: which rule.
    """

    def __init__(self, row: str, why: str) -> None:
        super().__init__(f"{row}: {why}")
        self.row = row
        self.why = why
