"""``adapter-lifecycle doctor``: what is installed and usable here, and what to do about the rest."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from lifecycle.wording import printable

if TYPE_CHECKING:
    from lifecycle.doctor import Line

_COLOURS = {"ok": "green", "warning": "yellow", "missing": "cyan", "broken": "red"}


def doctor(
    *,
    engine_url: Annotated[
        str | None,
        typer.Option(help="An engine's http://HOST:PORT; a token is read from ADAPTER_LIFECYCLE_ENGINE_TOKEN."),
    ] = None,
    disk_dir: Annotated[str | None, typer.Option(metavar="DIR", help="A directory for backups and base files.")] = None,
    audit_dir: Annotated[str | None, typer.Option(metavar="DIR", help="A directory for audit logs.")] = None,
    require: Annotated[str, typer.Option(help="Checks that must be usable, with commas between them.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """Say what is installed and usable here, and what to do about the rest.

    Ends with exit code 1 when a check that is required cannot be used, or the engine or directory that was named.
    """
    from lifecycle.doctor import Asked, examine  # noqa: PLC0415 - brings torch, which other commands do without
    from lifecycle.doctor.lines import wanting  # noqa: PLC0415 - the same

    token = os.environ.get("ADAPTER_LIFECYCLE_ENGINE_TOKEN")
    lines = examine(Asked(engine_url, token, disk_dir, audit_dir))
    named = {"engine": engine_url, "disk_dir": disk_dir, "audit_dir": audit_dir}
    required = [name for name, given in named.items() if given is not None]
    required += [name.strip() for name in require.split(",") if name.strip()]
    if as_json:
        typer.echo(json.dumps([line.told() for line in lines], indent=2))
    else:
        Console().print(_table(lines))
    if wanting(lines, required):
        raise typer.Exit(1)


def _table(lines: list[Line]) -> Table:
    whole = [Column(name, overflow="fold") for name in ("check", "status", "found", "what to do")]  # nothing is cut off
    table = Table(*whole, title="What is usable here")
    for line in lines:
        status = Text(line.status.value, style=_COLOURS[line.status.value])
        # What a server, a package or a path says is no command to the terminal.
        check, found, todo = (Text(printable(one)) for one in (line.check, line.found, line.todo or "-"))
        table.add_row(check, status, found, todo)
    return table
