"""Files of a report: their owner's alone, and there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from lifecycle.report.errors import ReportError


@contextmanager
def private_file(path: Path) -> Iterator[TextIO]:
    """A new file, 0600, which takes the place of an old one once it is whole.

    Yields:
        The file, UTF-8, whose line ends are written as they are given.

    Raises:
        ReportError: it cannot be written. What was there stays, and nothing else is left.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _cannot(path, error) from error
    try:
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:  # noqa: PTH123
            yield file
        temporary.replace(path)
    except OSError as error:
        raise _cannot(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def real(path: Path) -> str:
    """Which file it is, whatever links lead there. Links that lead in a circle are no error: opening it says so."""
    return os.path.realpath(path)


def _cannot(path: Path, error: OSError) -> ReportError:
    return ReportError(str(path), f"it cannot be written: {error}. Choose another path")
