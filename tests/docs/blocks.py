"""The code blocks of the pages and of the README: where they stand, in which language, and what they say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = {path.name: path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
_BLOCK: Final = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block: the file's name, the number of its first line, the language, the code."""

    page: str
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def text_of(page: str) -> str:
    """The page as it is committed."""
    return PAGES[page].read_text(encoding="utf-8")


def prose_of(page: str) -> str:
    """The page without its blocks, which leave their lines empty."""
    return _BLOCK.sub(lambda found: "\n" * found[0].count("\n"), text_of(page))


def blocks_of(page: str) -> Iterator[Block]:
    """All blocks of a page, in order."""
    text = text_of(page)
    for found in _BLOCK.finditer(text):
        yield Block(page, text.count("\n", 0, found.start("code")) + 1, found["language"], found["code"])


def code_of(page: str, language: str = "python") -> list[str]:
    """What the blocks of one language say."""
    return [block.code for block in blocks_of(page) if block.language == language]


ALL: Final = tuple(block for page in PAGES for block in blocks_of(page))
