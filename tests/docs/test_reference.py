"""The references of errors and of commands: nothing that a user meets is missing in them."""

from __future__ import annotations

from typing import Annotated

import typer

from lifecycle import errors
from lifecycle.cli.app import app
from lifecycle.cli.docs_cli import cli_page
from lifecycle.cli.docs_errors import error_classes, errors_page
from lifecycle.cli.docs_remedies import REMEDIES
from lifecycle.distributed import RanksMissing
from tests.docs.commands import problem_of


def test_every_public_error_has_its_section_and_a_remedy() -> None:
    """Those of `lifecycle.errors`, and those of parts that are imported from elsewhere."""
    page = errors_page()

    assert {*errors.__all__, RanksMissing.__name__} <= error_classes().keys()
    for name, one in error_classes().items():
        assert f"## {name}\n" in page
        assert one.what, name
        assert f"| `{name}` | " in page


def test_every_remedy_is_that_of_an_error() -> None:
    """A class that is renamed leaves none behind."""
    assert REMEDIES.keys() - error_classes().keys() == set()


def test_attributes_stand_with_all_of_their_lines() -> None:
    """Also those whose meaning goes on in the next line."""
    told = error_classes()["TransitionFailed"].attributes

    assert list(told) == ["event", "state", "effect", "cause", "adapter", "engines"]
    assert told["engines"].endswith("empty where no engine was sent anything.")


def test_an_error_without_a_remedy_has_that_of_the_one_above() -> None:
    """A kind of ``RanksError``, say, that was added without one."""
    page = errors_page()

    assert f"| `StaleBackup` | {REMEDIES['StaleBackup']} |" in page


def test_every_command_has_its_section_with_its_options() -> None:
    """As the command line has them."""
    page = cli_page(app)

    for command in app.registered_commands:
        assert command.callback is not None
        assert f"## {command.callback.__name__}\n" in page
    assert "| `--turns` | " in page
    assert "| `--out` | `docs` | The directory to write to. |" in page
    assert "| `FOLDER` | (needed) | The directory that holds the files. |" in page


def test_a_command_without_options_has_no_table() -> None:
    """And a default that is a list stands as it is typed."""
    small = typer.Typer()

    @small.command()
    def alone() -> None:
        """Do nothing."""

    @small.command()
    def listing(names: Annotated[tuple[str, str], typer.Option(help="Some.")] = ("a", "b")) -> None:
        """Name things."""

    page = cli_page(small)
    assert "## alone\n\nDo nothing.\n\n## listing" in page
    assert "| `--names` | `a b` | Some. |" in page


def test_a_command_that_is_no_command_is_found() -> None:
    """What holds pages against the command line says what is wrong."""
    assert problem_of(["adapter-lifecycle", "demo", "--turns", "4"]) is None
    assert problem_of(["adapter-lifecycle", "dream"]) == "there is no command dream"
    assert "No such option" in str(problem_of(["adapter-lifecycle", "demo", "--dream"]))
    assert problem_of(["make", "dream"]) == "the Makefile has no dream"
    assert problem_of(["pip", "install", "-e", ".[dream]"]) == "no extras of the project"
    assert problem_of(["python", "-m", "dream"]) == "no module that can be run"
    assert problem_of(["dream"]) == "a program that no test knows"
