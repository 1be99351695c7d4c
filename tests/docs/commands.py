"""The commands that pages show: taken apart, and held against the command line, the Makefile and the extras."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from typing import Final

import typer.main
from typer.core import TyperGroup
from typer.exceptions import TyperException

from lifecycle.cli.app import app
from tests.docs.blocks import ROOT

OTHERS: Final = frozenset({"vllm", ".venv-vllm/bin/python"})
"""Programs of others, whose options are not ours to check."""


def commands_in(code: str) -> Iterator[list[str]]:
    """The commands of a shell block, without comments and settings of the environment."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words:
            yield words


def inline_commands(prose: str) -> list[list[str]]:
    """Commands of the project that stand between backticks in sentences."""
    spans = re.findall(r"`((?:adapter-lifecycle|make) [a-z-][^`]*)`", prose)
    return [shlex.split(" ".join(span.split()), comments=True) for span in spans]


def problem_of(words: list[str]) -> str | None:
    """What is wrong with a command, None where nothing is."""
    program, *rest = words
    if program in OTHERS:
        return None
    check = _CHECKS.get(program.removeprefix(".venv/bin/"))
    return "a program that no test knows" if check is None else check(rest)


def _ours(rest: list[str]) -> str | None:
    try:
        group = typer.main.get_command(app)
        assert isinstance(group, TyperGroup)
        if rest and rest[0] not in group.commands:
            return f"there is no command {rest[0]}"
        if rest and rest[1:] not in ([], ["--help"]):
            group.commands[rest[0]].make_context(rest[0], rest[1:])
    except TyperException as error:
        return str(error.format_message())
    return None


def _make(rest: list[str]) -> str | None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    for word in rest:
        name, is_variable, _ = word.partition("=")
        known = rf"^{name} \??=" if is_variable else rf"^{re.escape(name)}:"
        if not re.search(known, text, re.MULTILINE) and not name.startswith(".venv-vllm/"):
            return f"the Makefile has no {name}"
    return None


def _pip(rest: list[str]) -> str | None:
    found = re.fullmatch(r"install -e \.\[([a-z,]+)\]", " ".join(rest))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    return None if found and set(found[1].split(",")) <= extras.keys() else "no extras of the project"


def _python(rest: list[str]) -> str | None:
    is_module = len(rest) > 1 and rest[0] == "-m" and importlib.util.find_spec(rest[1]) is not None
    return None if is_module else "no module that can be run"


_CHECKS: Final[dict[str, Callable[[list[str]], str | None]]] = {
    "adapter-lifecycle": _ours,
    "make": _make,
    "pip": _pip,
    "python": _python,
}
