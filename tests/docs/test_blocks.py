"""Every block of code in the docs and the README is true: Python runs, commands exist, data can be read."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lifecycle.cli.docs import pages
from tests.docs.blocks import ALL, PAGES, ROOT, Block, blocks_of, code_of, prose_of, text_of
from tests.docs.commands import commands_in, inline_commands, problem_of
from tests.docs.parts import Place
from tests.docs.preambles import ELSEWHERE, PREAMBLES

LANGUAGES = {"python", "sh", "json", "yaml", "mermaid", "text"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """An empty directory; what a page opens is closed once a failure has been reported."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as closing:
        yield Place(closing, monkeypatch)


@pytest.mark.parametrize("page", sorted(PREAMBLES))
def test_the_python_of_a_page_runs(page: str, place: Place) -> None:
    """Block after block, with the names that its preamble gives, in an empty directory."""
    blocks = [block for block in blocks_of(page) if block.language == "python"]
    preamble = PREAMBLES[page](place)
    for block in blocks:
        exec(compile("\n" * (block.line - 1) + block.code, page, "exec"), next(preamble))  # noqa: S102 - the page's own
    left = list(preamble)

    assert blocks
    assert left == [], "its preamble prepares a block that is gone"


def test_every_page_with_python_is_run() -> None:
    """By its preamble or by a test of its own, which reads its blocks from the page."""
    pages = {block.page for block in ALL if block.language == "python"}

    assert set(PREAMBLES).isdisjoint(ELSEWHERE)
    assert pages <= {*PREAMBLES, *ELSEWHERE}
    for page, test in ELSEWHERE.items():
        assert page not in pages or page in (ROOT / test).read_text(encoding="utf-8"), test


def test_every_block_is_of_a_language_that_is_checked() -> None:
    """One without a language, or of another one, is a block that nobody runs."""
    assert [str(block) for block in ALL if block.language not in LANGUAGES] == []


@pytest.mark.parametrize("page", PAGES)
def test_code_is_in_fences(page: str) -> None:
    """A block that is merely indented would be run by nobody."""
    lines = prose_of(page).splitlines()
    found = [at for at, line in enumerate(lines, 1) if line.startswith("    ") and not lines[at - 2].strip()]

    assert found == []
    assert prose_of(page).count("```") == 0


@pytest.mark.parametrize("block", [one for one in ALL if one.language == "python"], ids=str)
def test_python_is_short_enough_to_be_read(block: Block) -> None:
    """It can be parsed, and no line is longer than in the code."""
    ast.parse(block.code)

    assert [line for line in block.code.splitlines() if len(line) > 120] == []


@pytest.mark.parametrize("block", [one for one in ALL if one.language == "sh"], ids=str)
def test_commands_of_a_page_exist_with_their_options(block: Block) -> None:
    """They are parsed by the command line itself, and not run."""
    found = list(commands_in(block.code))

    assert found
    assert {" ".join(one): problem for one in found if (problem := problem_of(one))} == {}


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_sentences_exist_with_their_options(page: str) -> None:
    """What stands between backticks and begins with a command of the project."""
    found = inline_commands(prose_of(page))

    assert {" ".join(one): problem for one in found if (problem := problem_of(one))} == {}


@pytest.mark.parametrize("block", [one for one in ALL if one.language == "json"], ids=str)
def test_json_can_be_read(block: Block) -> None:
    """One value."""
    assert json.loads(block.code)


def test_yaml_is_read_by_a_test() -> None:
    """That of the guide to checkpoints by its preamble, the rules of the guide to operating by test_names.py."""
    assert [block.page for block in ALL if block.language == "yaml"] == ["checkpoints.md", "operating.md"]


def test_no_diagram_is_drawn_by_hand() -> None:
    """The README shows one that is generated, and so do the pages that have any."""
    assert [*code_of("README.md", "mermaid")] == []
    assert "](docs/diagrams/trainer.svg)" in text_of("README.md")
    drawn = {block.page for block in ALL if block.language == "mermaid"}
    assert drawn <= pages().keys()
