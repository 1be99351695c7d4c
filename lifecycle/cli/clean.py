"""``adapter-lifecycle clean``: removes the base files and the arena's backup files that no process holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def clean(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The directory that holds the files.")],
) -> None:
    """Remove base files and backups of the emulated device that no process uses. Other files are not touched.

    Backup files of torch_memory_saver are named only: they do not show whether a process still needs them.
    """
    from lifecycle.base_file import BaseFileStore  # noqa: PLC0415 - brings torch, which other commands do without
    from lifecycle.saver import backup_files  # noqa: PLC0415 - the same

    directory = Path(folder)
    if not folder or not directory.is_dir():
        typer.echo(f"error: {folder!r} is no directory", err=True)
        raise typer.Exit(1)
    cleaned = BaseFileStore(directory).clean()
    removed = {**cleaned.removed, **backup_files.sweep(directory)}
    held = (*cleaned.held, *backup_files.held(directory))
    for name, size_bytes in removed.items():
        typer.echo(f"removed {name} ({size_bytes} bytes)")
    for name in held:
        typer.echo(f"held    {name} (a process uses it)")
    for name, why in cleaned.skipped.items():
        typer.echo(f"skipped {name}: {why}", err=True)
    for name in backup_files.of_the_library(directory):
        typer.echo(f"left    {name} (of torch_memory_saver: remove it when no process of that run is left)")
    typer.echo(f"{len(removed)} removed, {sum(removed.values())} bytes; {len(held)} in use")
    if cleaned.skipped:
        raise typer.Exit(1)
