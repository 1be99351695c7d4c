"""``adapter-lifecycle watch``: a run as it goes on, in the terminal."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lifecycle.watch.run import RunWatch

NOT_WELL = 1
UNREADABLE = 2
ERROR_MAX = 1_000


def watch(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Audit logs: one, or one a rank.")],
    *,
    once: Annotated[bool, typer.Option("--once", help="Print how it stands now, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --once: print one JSON object.")] = False,
    rows: Annotated[int, typer.Option(min=1, max=100, help="Rows of a table, and lines of what was before.")] = 10,
    max_age: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Nothing written for longer is an error.")
    ] = None,
) -> None:
    """Follow audit logs while they are written: states, transitions, refusals, bytes, adapters and engines.

    Redraws a terminal until Ctrl-C, which ends with exit code 130. Into a pipe or a file it writes a line for each
    thing that happens. A log that is not there yet is waited for.

    With --once it ends with 0 when all is well, 1 when a trainer is faulted, its last transition failed, ranks are in
    different states or a log is older than --max-age, and 2 when a log cannot be read.
    """
    from lifecycle.errors import AuditError  # noqa: PLC0415 - brings torch, which other commands do without
    from lifecycle.watch.run import RunWatch  # noqa: PLC0415 - the same
    from lifecycle.watch.text import shown  # noqa: PLC0415 - the same

    if as_json and not once:
        raise typer.BadParameter("--json is for --once; without it lines are written into a pipe")
    run = RunWatch(logs)
    try:
        well = _once(run, rows, max_age, as_json=as_json) if once else _follow(run, rows, max_age)
    except AuditError as error:
        typer.echo(f"error: {shown(str(error), ERROR_MAX)}", err=True)
        raise typer.Exit(UNREADABLE) from None
    finally:
        run.close()
    if not well:
        raise typer.Exit(NOT_WELL)


def _once(run: RunWatch, rows: int, max_age_s: float | None, *, as_json: bool) -> bool:
    """Whether all is well."""
    from rich.console import Console  # noqa: PLC0415 - drawing is for this command alone

    from lifecycle.errors import AuditError  # noqa: PLC0415 - as above
    from lifecycle.watch.attention import is_well, notices  # noqa: PLC0415 - as above
    from lifecycle.watch.draw import draw  # noqa: PLC0415 - as above
    from lifecycle.watch.told import told  # noqa: PLC0415 - as above

    for _ in run.poll():
        pass
    picture = run.picture()
    for one in picture.unseen:
        raise AuditError(one.file, "there is no such file, or no record in it; without --once it is waited for")
    found = notices(picture, max_age_s)
    if as_json:
        typer.echo(json.dumps(told(picture, found), indent=2))
    else:
        console = Console(highlight=False)
        console.print(draw(picture, found, console.width, rows))
    return is_well(found)


def _follow(run: RunWatch, rows: int, max_age_s: float | None) -> bool:
    from rich.console import Console  # noqa: PLC0415 - drawing is for this command alone

    from lifecycle.watch.show import ending_as_asked, show_lines, show_live  # noqa: PLC0415 - as above

    console = Console(highlight=False)
    is_terminal = sys.stdout.isatty() and not console.is_dumb_terminal  # FORCE_COLOR makes rich take a pipe for one
    show = show_live if is_terminal else show_lines
    with ending_as_asked():
        show(run, console, rows, max_age_s)
    return True
