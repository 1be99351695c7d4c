"""``adapter-lifecycle audit``: replays logs and reports what does not follow from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from lifecycle.wording import printable

VIOLATIONS = 1
UNREADABLE = 2


def audit(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="One log, or the logs of one run, one a rank.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Replay audit logs through the same machine, and report each violation with its file and line.

    What was put aside of a log (LOG.1, LOG.2.gz, ...) is read before it. Ends with exit code 0 when nothing was found,
    1 when there are violations, and 2 when a log cannot be read.
    """
    from lifecycle.auditing import Audited, audit_logs  # noqa: PLC0415 - brings torch, which other commands do without
    from lifecycle.errors import AuditError  # noqa: PLC0415 - the same

    audited, count = Audited(), 0
    try:
        if as_json:
            found = [one.told() for one in audit_logs(logs, audited)]
            count = len(found)
            typer.echo(json.dumps({"records": audited.records, "violations": found}, indent=2))
        else:
            for count, one in enumerate(audit_logs(logs, audited), start=1):  # noqa: B007 - how many there were
                typer.echo(printable(f"{one.file}:{one.line}: {one.kind.value}: {one.message}"))
    except AuditError as error:
        typer.echo(f"error: {printable(str(error))}", err=True)
        raise typer.Exit(UNREADABLE) from None
    for file, line in audited.cut_off.items():
        typer.echo(f"{printable(file)}:{line}: the last line is cut off; everything before it was read", err=True)
    if not as_json:
        typer.echo(f"{audited.records} records, {count} violation{'s' if count != 1 else ''}")
    if count:
        raise typer.Exit(VIOLATIONS)
