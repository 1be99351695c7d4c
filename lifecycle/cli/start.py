"""Where ``adapter-lifecycle`` begins. ``doctor`` begins alone: what other commands import may be broken, or hang."""

from __future__ import annotations

import sys
from traceback import walk_tb

import typer

DOCTOR = "doctor"


def main() -> None:
    """Run the command line. What cannot be imported is said, and ``doctor`` says more of it."""
    if sys.argv[1:2] == [DOCTOR]:
        _doctor()
        return
    try:
        from lifecycle.cli.app import main as run  # noqa: PLC0415 - what fails here is told

        run()
    except Exception as error:
        if not is_of_an_import(error):
            raise
        from lifecycle.redaction import redact  # noqa: PLC0415 - needed here alone

        why = redact(f"{type(error).__name__}: {error}")
        typer.echo(f"error: a package cannot be imported: {why}", err=True)
        typer.echo("adapter-lifecycle doctor says which, and why", err=True)
        sys.exit(1)


def is_of_an_import(error: Exception) -> bool:
    """Whether it was raised while a module was imported: by a command too, as those import what they need."""
    codes = (frame.f_code.co_name for frame, _ in walk_tb(error.__traceback__))
    return isinstance(error, ImportError) or "<module>" in codes


def _doctor() -> None:
    from lifecycle.cli.doctor import doctor  # noqa: PLC0415 - no other command needs it

    app = typer.Typer(name="adapter-lifecycle", add_completion=False, pretty_exceptions_enable=False)
    app.callback()(lambda: None)  # a command that is the only one would have no name
    app.command(DOCTOR)(doctor)
    try:
        app()
    except ValueError as wrong:  # a check that there is not; its class may be of what is broken
        typer.echo(f"error: {wrong}", err=True)
        sys.exit(1)
