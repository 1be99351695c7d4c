"""Logs are read once, each record goes to everything that is written of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from lifecycle.audit.expand import Record
from lifecycle.audit.read import Torn, log_files, placed_lines
from lifecycle.report.errors import ReportError
from lifecycle.report.fields import NotOfARecordError
from lifecycle.report.files import private_file, real
from lifecycle.report.model import Lane, Unreadable, happenings, lane_of
from lifecycle.report.page import page
from lifecycle.report.sheets import COLUMNS, Sheets, open_sheets
from lifecycle.report.summary import Report, Summary
from lifecycle.report.trace import Trace


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where to write what; None is not written.

    Attributes:
        page: the HTML file.
        trace: the file for Perfetto.
        sheets: the folder of the CSV files.
    """

    page: Path | None = None
    trace: Path | None = None
    sheets: Path | None = None


def write_report(logs: Sequence[Path], outputs: Outputs) -> Report:
    """Read the logs and write what is asked for. Files are 0600, and there whole or not at all.

    Args:
        logs: one a rank, or one; files that were put aside of a log are read with it. Given twice, it counts once.
        outputs: what to write.

    Returns:
        What the page shows.

    Raises:
        AuditError: a log cannot be read.
        ReportError: a log holds no record, or a file cannot be written, or is one of the logs.
    """
    distinct = list({real(one): one for one in logs}.values())
    _overwrites_none(distinct, outputs)
    with ExitStack() as stack:
        trace = Trace(stack.enter_context(private_file(outputs.trace))) if outputs.trace else None
        sheets = stack.enter_context(open_sheets(outputs.sheets)) if outputs.sheets else None
        file = stack.enter_context(private_file(outputs.page)) if outputs.page else None
        summary = Summary(len(distinct))
        for index, log in enumerate(distinct):
            _read(index, log, summary, trace, sheets)
        if trace is not None:
            trace.close()
        report = summary.report()
        if file is not None:
            file.write(page(report))
    return report


def _overwrites_none(logs: Sequence[Path], outputs: Outputs) -> None:
    read = {real(file) for log in logs for file in log_files(log)}
    sheets = [outputs.sheets / name for name in COLUMNS] if outputs.sheets is not None else []
    for path in (outputs.page, outputs.trace, *sheets):
        if path is not None and real(path) in read:
            raise ReportError(str(path), "it is a log that is read; choose another path")


class _Lines:
    """The lines of a log, counted."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.records = 0

    def __iter__(self) -> Iterator[Record | Torn]:
        for _, _, line in placed_lines(self._log):
            self.records += not isinstance(line, Torn)
            yield line


def _read(index: int, log: Path, summary: Summary, trace: Trace | None, sheets: Sheets | None) -> None:
    lines = _Lines(log)
    lane, torn, rest = _beginning(index, log, iter(lines))
    summary.begin(lane)
    if trace is not None:
        trace.begin(lane)
    for happening in chain([Unreadable()] * torn, happenings(rest)):
        ended = summary.take(lane, happening)
        if trace is not None:
            trace.take(lane, happening)
        if sheets is not None:
            sheets.take(lane, happening, ended)
    left = summary.end(lane, lines.records)
    if sheets is not None:
        sheets.lives(lane, left)


def _beginning(index: int, log: Path, lines: Iterator[Record | Torn]) -> tuple[Lane, int, Iterator[Record | Torn]]:
    """Whose log it is, how many lines before its first record are none, and the lines from that one on."""
    for torn, line in enumerate(lines):
        with suppress(NotOfARecordError):
            if not isinstance(line, Torn):
                return lane_of(index, log.name, line), torn, chain([line], lines)
    raise ReportError(str(log), "it holds no record of an audit log; give the file that AuditLog writes")
