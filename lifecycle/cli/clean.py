"""``adapter-lifecycle clean``: removes the base files that no process holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def clean(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory that holds the base files.")],
) -> None:
    """Remove the files behind frozen bases that no process uses. Other files are not touched."""
    from lifecycle.base_file import BaseFileStore  # noqa: PLC0415 - brings torch, which other commands do without

    if not directory.is_dir():
        typer.echo(f"error: {directory} is no directory", err=True)
        raise typer.Exit(1)
    cleaned = BaseFileStore(directory).clean()
    for name, size_bytes in cleaned.removed.items():
        typer.echo(f"removed {name} ({size_bytes} bytes)")
    for name in cleaned.held:
        typer.echo(f"held    {name} (a process uses it)")
    for name, why in cleaned.skipped.items():
        typer.echo(f"skipped {name}: {why}", err=True)
    typer.echo(f"{len(cleaned.removed)} removed, {sum(cleaned.removed.values())} bytes; {len(cleaned.held)} in use")
    if cleaned.skipped:
        raise typer.Exit(1)
