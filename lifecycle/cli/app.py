"""The commands put together, and the one place where an error of the library becomes an exit code."""

from __future__ import annotations

import sys

import typer

from lifecycle.cli.bench import bench
from lifecycle.cli.clean import clean
from lifecycle.cli.demo import demo
from lifecycle.cli.docs import docs
from lifecycle.cli.explain import explain
from lifecycle.errors import LifecycleError

app = typer.Typer(
    name="adapter-lifecycle",
    help="An explicit state machine for the memory of a colocated RL trainer with LoRA adapters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# One line a command. Their modules import heavy packages inside the function only.
app.command()(bench)
app.command()(clean)
app.command()(demo)
app.command()(docs)
app.command()(explain)


def main() -> None:
    """Run the command line. An error of the library is printed and ends with exit code 1."""
    try:
        app()
    except LifecycleError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
