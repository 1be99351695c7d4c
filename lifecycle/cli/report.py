"""``adapter-lifecycle report``: what a run was, as a page, a trace and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from lifecycle.wording import printable

TOLD_MAX: Final = 1000
"""Characters of a sentence about the run, parts of which are of the log."""


def report(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Audit logs: one, or one a rank.")],
    *,
    out: Annotated[Path | None, typer.Option(help="The HTML page. Without any option: report.html.")] = None,
    trace: Annotated[Path | None, typer.Option(help="A trace, which Perfetto opens.")] = None,
    csv: Annotated[Path | None, typer.Option(metavar="DIR", help="A folder for tables as CSV.")] = None,
) -> None:
    """Write what a run was: what went wrong, states, bytes, copies, adapters, refusals, the slowest transitions.

    What went wrong is also printed, to standard error; the exit code does not tell of it, that of audit does.
    """
    # Brings torch, which other commands do without.
    from lifecycle.report import Level, Outputs, findings, write_report  # noqa: PLC0415
    from lifecycle.watch.text import shown  # noqa: PLC0415

    if out is None and trace is None and csv is None:
        out = Path("report.html")
    found = write_report(logs, Outputs(page=out, trace=trace, sheets=csv))
    written = ", ".join(printable(str(path)) for path in (out, trace, csv) if path is not None)
    logs_told = "1 log" if len(found.lanes) == 1 else f"{len(found.lanes)} logs"
    typer.echo(f"{found.records} records of {logs_told}: wrote {written}")
    for one in findings(found):
        if one.level in {Level.BAD, Level.WARN}:
            typer.echo(shown(one.text, TOLD_MAX), err=True)
