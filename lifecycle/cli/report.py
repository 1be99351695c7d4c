"""``adapter-lifecycle report``: what a run was, as a page, a trace and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Audit logs: one, or one a rank.")],
    *,
    out: Annotated[Path | None, typer.Option(help="The HTML page. Without any option: report.html.")] = None,
    trace: Annotated[Path | None, typer.Option(help="A trace, which Perfetto opens.")] = None,
    csv: Annotated[Path | None, typer.Option(metavar="DIR", help="A folder for tables as CSV.")] = None,
) -> None:
    """Write what a run was: states, bytes, copies, adapters, refusals and the slowest transitions."""
    from lifecycle.report import Outputs, write_report  # noqa: PLC0415 - brings torch, which other commands do without

    if out is None and trace is None and csv is None:
        out = Path("report.html")
    found = write_report(logs, Outputs(page=out, trace=trace, sheets=csv))
    written = ", ".join(str(path) for path in (out, trace, csv) if path is not None)
    logs_told = "1 log" if len(found.lanes) == 1 else f"{len(found.lanes)} logs"
    typer.echo(f"{found.records} records of {logs_told}: wrote {written}")
    for lane, count in found.unreadable.items():
        typer.echo(f"{lane.file}: lines that are torn or no records, and were left out: {count}", err=True)
