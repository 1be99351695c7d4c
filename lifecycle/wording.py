"""Words of errors that are not the library's own."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """What an error says without what stands below, such as frames of another process; its kind if it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
