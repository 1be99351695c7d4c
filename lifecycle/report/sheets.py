"""The tables of a run as CSV, written as they come."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TextIO

from lifecycle.private import make_folder
from lifecycle.report.errors import ReportError
from lifecycle.report.files import private_file
from lifecycle.report.lives import Life
from lifecycle.report.model import Happening, Lane, Outcome, Transition

_OF_A_LANE: Final = ("file", "run", "rank", "model")
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "transitions.csv": (
        *_OF_A_LANE,
        *("sequence", "transition", "outcome", "event", "edge", "source", "target", "began", "ended"),
        *("duration_s", "moved_bytes", "problem"),
    ),
    "bytes.csv": (*_OF_A_LANE, "sequence", "time", "place", "tag", "bytes"),
    "adapters.csv": (
        *_OF_A_LANE,
        *("adapter", "loaded", "ended", "end", "changes", "pushes", "engines"),
    ),
    "refusals.csv": (
        *_OF_A_LANE,
        *("sequence", "transition", "time", "event", "state", "guard", "because", "remedy"),
    ),
}
"""File to its columns."""

_FORMULA: Final = re.compile(r"(?:^|(?<=[;\t\r\n]))(?=[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])")
"""Where a spreadsheet begins to read a formula: at the beginning of a cell, also of one that it makes of a part of a
text, at a semicolon, where that is what it takes for the separator. Wide signs count as narrow ones."""


def iso(time_s: float) -> str:
    """A time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="microseconds")


class Sheets:
    """Writes rows as they come.

    Args:
        files: name of :data:`COLUMNS` to its file, from the beginning.
    """

    def __init__(self, files: Mapping[str, TextIO]) -> None:
        self._writers = {name: csv.writer(file, lineterminator="\n") for name, file in files.items()}
        for name, writer in self._writers.items():
            writer.writerow(COLUMNS[name])

    def take(self, lane: Lane, happening: Happening, ended: Iterable[Life]) -> None:
        """Add what happened, and the lives of adapters that ended with it."""
        if isinstance(happening, Transition):
            self._write("transitions.csv", lane, [_transition(happening)])
            self._write("bytes.csv", lane, _held(happening))
            self._write("refusals.csv", lane, _refusals(happening))
        self.lives(lane, ended)

    def lives(self, lane: Lane, ended: Iterable[Life]) -> None:
        """Add lives of adapters."""
        self._write("adapters.csv", lane, map(_life, ended))

    def _write(self, name: str, lane: Lane, rows: Iterable[tuple[object, ...]]) -> None:
        whose = (lane.file, lane.run, lane.rank, lane.model)
        self._writers[name].writerows([_cell(one) for one in (*whose, *row)] for row in rows)


@contextmanager
def open_sheets(folder: Path) -> Iterator[Sheets]:
    """The files of a folder, which is made where it is missing.

    Raises:
        ReportError: the folder cannot be made, or a file cannot be written.
    """
    try:
        make_folder(folder)
    except OSError as error:
        raise ReportError(str(folder), f"it cannot be made: {error}. Choose another folder") from error
    with ExitStack() as stack:
        yield Sheets({name: stack.enter_context(private_file(folder / name)) for name in COLUMNS})


def _cell(value: object) -> object:
    """Text that a spreadsheet would take for a formula gets an apostrophe before it: the log is not trusted."""
    return _FORMULA.sub("'", value) if isinstance(value, str) else value


def _transition(one: Transition) -> tuple[object, ...]:
    what = (one.sequence, one.number, str(one.outcome), one.trigger, one.edge, str(one.source), str(one.target))
    return (*what, iso(one.began_s), iso(one.ended_s), one.duration_s, sum(one.moved.values()), one.problem)


def _held(one: Transition) -> Iterator[tuple[object, ...]]:
    for place, tags in (one.held or {}).items():
        for tag, size in tags.items():
            yield one.sequence, iso(one.ended_s), place, tag, size


def _refusals(one: Transition) -> Iterator[tuple[object, ...]]:
    if one.outcome is Outcome.REFUSED:
        what = (one.sequence, one.number, iso(one.ended_s), one.trigger, str(one.source))
        for verdict in one.failed:
            yield (*what, verdict.guard, verdict.because, verdict.remedy)


def _life(one: Life) -> tuple[object, ...]:
    counted = (one.changes, one.pushes, ", ".join(one.engines))
    return (one.adapter, iso(one.loaded_s), iso(one.ended_s), one.end, *counted)
