"""``adapter-lifecycle diagram``: a run as a picture of the machine that it went through."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from lifecycle.wording import printable


def diagram(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Audit logs: one, or one a rank.")],
    *,
    out: Annotated[Path | None, typer.Option(help="The file. Without: run.svg, or run.mmd for Mermaid.")] = None,
    form: Annotated[Literal["svg", "mermaid"], typer.Option("--as", help="What it is written as.")] = "svg",
) -> None:
    """Draw a run: each edge the wider the more often it was taken, and what was refused or failed marked and counted.

    The logs of all ranks are drawn as one. What was refused is listed with the guards that did not hold most often.
    """
    from lifecycle.diagram import Form, write_diagram  # noqa: PLC0415 - brings torch, which other commands do without

    as_svg = form == "svg"
    path = out or Path("run.svg" if as_svg else "run.mmd")
    found = write_diagram(logs, path, Form.SVG if as_svg else Form.MERMAID)
    refused = sum(found.counts.refused.values())
    typer.echo(f"{found.transitions:,} events, {refused:,} of them refused: wrote {printable(str(path))}")
    for log, count in found.unreadable.items():
        typer.echo(f"{printable(log.name)}: lines that are torn or no records, and were left out: {count}", err=True)
