"""Draws a run of its audit logs, which are read once, a line at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from lifecycle.audit.read import log_files, placed_lines
from lifecycle.diagram.counting import RunCounter
from lifecycle.report.errors import ReportError
from lifecycle.report.files import private_file, real
from lifecycle.report.model import Transition, Unreadable, happenings
from states.draw_run import run_svg
from states.render_run import run_mermaid
from states.run_counts import RunCounts


class Form(StrEnum):
    """How a picture is written."""

    SVG = "svg"
    MERMAID = "mermaid"


@dataclass(frozen=True, slots=True)
class Counted:
    """What was read of the logs of a run.

    Attributes:
        counts: what was taken and what was not, of all ranks.
        transitions: how many things were asked, of all ranks.
        unreadable: log to how many of its lines are torn or no records.
    """

    counts: RunCounts
    transitions: int
    unreadable: dict[Path, int]


def count_run(logs: Sequence[Path]) -> Counted:
    """Read the logs of a run and count.

    Args:
        logs: one a rank, or one; files that were put aside of a log are read with it. Given twice, it counts once.

    Raises:
        AuditError: a log cannot be read.
        ReportError: a log holds no record.
    """
    counter, unreadable = RunCounter(), dict[Path, int]()
    for log in {real(one): one for one in logs}.values():
        records = torn = 0
        for one in happenings(line for _, _, line in placed_lines(log)):
            if isinstance(one, Unreadable):
                torn += 1
                continue
            records += 1
            if isinstance(one, Transition):
                counter.see(one)
        if not records:
            raise ReportError(str(log), "it holds no record of an audit log; give the file that AuditLog writes")
        unreadable |= {log: torn} if torn else {}
    return Counted(counter.counts(), counter.seen, unreadable)


def write_diagram(logs: Sequence[Path], out: Path, form: Form = Form.SVG) -> Counted:
    """Draw a run into a file, 0600, which is there whole or not at all.

    Raises:
        AuditError: a log cannot be read.
        ReportError: a log holds no record, or the file cannot be written, or is one of the logs.
    """
    if real(out) in {real(file) for log in logs for file in log_files(log)}:
        raise ReportError(str(out), "it is a log that is read; choose another path")
    counted = count_run(logs)
    with private_file(out) as file:
        file.write(diagram_of(counted, form))
    return counted


def diagram_of(counted: Counted, form: Form = Form.SVG) -> str:
    """The picture as text."""
    return run_svg(counted.counts, standalone=True) if form is Form.SVG else run_mermaid(counted.counts)
