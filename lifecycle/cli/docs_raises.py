"""What docstrings say of errors, and links to the errors' own sections."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, Final

from lifecycle.cli.docs_errors import error_classes, plain_markup

_RAISES: Final = re.compile(r"^Raises:\n((?:[ \n].*\n?)*)", re.MULTILINE)
_ENTRY: Final = re.compile(r"^    (\w+): (.*(?:\n      .*)*)", re.MULTILINE)


def first_paragraph(of: Callable[..., Any]) -> str:
    """The beginning of a docstring, as Markdown."""
    return plain_markup(" ".join((inspect.getdoc(of) or "").partition("\n\n")[0].split()))


def raised_by(of: Callable[..., Any]) -> dict[str, str]:
    """Error to when it is raised, by the docstring."""
    found = _RAISES.search((inspect.getdoc(of) or "") + "\n")
    entries = _ENTRY.findall(found.group(1)) if found else ()
    return {name: plain_markup(" ".join(when.split())) for name, when in entries}


@cache
def _known() -> frozenset[str]:
    return frozenset(error_classes())


def linked(name: str) -> str:
    """The error, with a link to its section where it has one."""
    return f"[`{name}`](errors.md#{name.lower()})" if name in _known() else f"`{name}`"


def error_lines(calls: Iterable[tuple[str, Callable[..., Any]]]) -> Iterator[tuple[str, str, str]]:
    """A row for each error: the link, who raises it, and when. Equal ones are put together.

    Args:
        calls: name and function of everything that may raise.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for who, function in calls:
        for name, when in raised_by(function).items():
            found.setdefault((name, when), []).append(who)
    for (name, when), everyone in found.items():
        yield linked(name), ", ".join(f"`{who}`" for who in everyone), when
