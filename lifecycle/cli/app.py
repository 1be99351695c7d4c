"""The commands put together, and the one place where an error of the library becomes an exit code."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from lifecycle.cli.audit import audit
from lifecycle.cli.bench import bench
from lifecycle.cli.clean import clean
from lifecycle.cli.demo import demo
from lifecycle.cli.diagram import diagram
from lifecycle.cli.docs import docs
from lifecycle.cli.doctor import doctor
from lifecycle.cli.explain import explain
from lifecycle.cli.report import report
from lifecycle.cli.start import end, end_of_the_system
from lifecycle.cli.watch import watch
from lifecycle.errors import LifecycleError

app = typer.Typer(
    name="adapter-lifecycle",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:  # noqa: FBT001 - typer's callback
    if asked:
        typer.echo(version("adapter-lifecycle"))
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,  # noqa: FBT002
) -> None:
    """An explicit state machine for the memory of a colocated RL trainer with LoRA adapters."""


# One line a command. Their modules import heavy packages inside the function only.
app.command()(audit)
app.command()(bench)
app.command()(clean)
app.command()(demo)
app.command()(diagram)
app.command()(docs)
app.command()(doctor)
app.command()(explain)
app.command()(report)
app.command()(watch)


def main() -> None:
    """Run the command line. An error of the library is printed and ends with exit code 1, one of the system with 2."""
    try:
        app()
    except LifecycleError as error:
        end(error, 1)
    except OSError as error:
        end_of_the_system(error)
