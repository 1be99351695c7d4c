"""Words that are not the library's own: of errors, and of what was read from somewhere."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """What an error says without what stands below, such as frames of another process; its kind if it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def printable(text: str) -> str:
    """The text with every character that a terminal would act on, or cannot show, in its escaped form."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def printable_lines(text: str) -> str:
    """The same of a text of several lines, which stay lines."""
    return "\n".join(map(printable, text.split("\n")))
