"""Where ``adapter-lifecycle`` begins. ``doctor`` begins alone: what other commands import may be broken, or hang."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from traceback import walk_tb
from typing import NoReturn

import typer

from lifecycle.wording import printable_lines

DOCTOR = "doctor"
INTERRUPTED = 130


def main() -> None:
    """Run the command line. Ctrl-C while packages are imported ends it as it does later: exit code 130."""
    try:
        _begin()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _begin() -> None:
    """What cannot be imported is said, and ``doctor`` says more of it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal may know ASCII alone
            stream.reconfigure(errors="backslashreplace")
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

        _tell(redact(f"a package cannot be imported: {type(error).__name__}: {error}"))
        typer.echo("adapter-lifecycle doctor says which, and why", err=True)
        sys.exit(1)


def is_of_an_import(error: Exception) -> bool:
    """Whether it was raised while a module was imported: by a command too, as those import what they need."""
    codes = (frame.f_code.co_name for frame, _ in walk_tb(error.__traceback__))
    return isinstance(error, ImportError) or "<module>" in codes


def end(error: Exception, code: int) -> NoReturn:
    """Say an error, and end with this exit code. Parts of an error may be of a log, a server or a file's name."""
    _tell(str(error))
    sys.exit(code)


def end_of_the_system(error: OSError) -> NoReturn:
    """Say an error of the system, such as a full disk, and end with exit code 2."""
    if is_of_an_import(error):  # a library that cannot be loaded; no file of the user's
        raise error
    with suppress(OSError):  # what could not be written is not tried again when the process ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    end(error, 2)


def _tell(error: str) -> None:
    typer.echo(f"error: {printable_lines(error)}", err=True)


def _doctor() -> None:
    from lifecycle.cli.doctor import doctor  # noqa: PLC0415 - no other command needs it

    app = typer.Typer(name="adapter-lifecycle", add_completion=False, pretty_exceptions_enable=False)
    app.callback()(lambda: None)  # a command that is the only one would have no name
    app.command(DOCTOR)(doctor)
    try:
        app()
    except ValueError as wrong:  # a check that there is not; its class may be of what is broken
        end(wrong, 1)
    except OSError as error:
        end_of_the_system(error)
