"""The names that pages write between backticks, and those that the code has: classes, attributes, functions, arguments.

Read from the source without importing it, so that what needs an extra is known too.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from tests.docs.blocks import ROOT, prose_of

_SPAN: Final = re.compile(r"`([^`\n]+)`")
_CLASS: Final = re.compile(r"(?<![\w./])([A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+)(?:\.([a-z_]\w*))?")
_CALL: Final = re.compile(r"(?<![\w/-])(\w+)\(([^()]*)\)")
_DOTTED: Final = re.compile(r"(?<![\w./-])((?:lifecycle|states|tests)(?:\.\w+)+)")
_KEYWORD: Final = re.compile(r"(?:^|[(,]\s*)(\w+)=")


@dataclass
class Known:
    """What the source defines.

    Attributes:
        members: class to its methods, fields and attributes, those of the classes above it too.
        arguments: function or class to the names of arguments that one of this name takes; ``**`` for any.
    """

    members: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    arguments: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _bases: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def read(self, source: str) -> None:
        """Add the definitions of one file."""
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.arguments[node.name] |= _arguments(node.args)
            elif isinstance(node, ast.ClassDef):
                self._class(node)

    def inherit(self) -> None:
        """Give each class what the classes above it have, once all files are read."""
        for name in list(self._bases):
            for above in self._above(name):
                self.members[name] |= self.members.get(above, set())
                self.arguments[name] |= self.arguments.get(above, set())

    def _above(self, name: str) -> Iterator[str]:
        for base in self._bases.get(name, ()):
            yield base
            yield from self._above(base)

    def _class(self, node: ast.ClassDef) -> None:
        members, arguments = self.members[node.name], self.arguments[node.name]
        self._bases[node.name] |= {ast.unparse(one).split("[")[0].split(".")[-1] for one in node.bases}
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                members.add(one.target.id)
                arguments.add(one.target.id)
            elif isinstance(one, ast.Assign):
                members |= {target.id for target in one.targets if isinstance(target, ast.Name)}
            elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                members.add(one.name)
                members |= set(re.findall(r"\bself\.(\w+)\b(?:: [^=\n]+)? =", ast.unparse(one)))
                arguments |= _arguments(one.args) if one.name == "__init__" else set()


def _arguments(args: ast.arguments) -> set[str]:
    named = {one.arg for one in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
    return named | ({"**"} if args.kwarg else set())


@cache
def known() -> Known:
    """Of ``states`` and ``lifecycle``."""
    found = Known()
    for folder in ("states", "lifecycle"):
        for path in (ROOT / folder).rglob("*.py"):
            found.read(path.read_text(encoding="utf-8"))
    found.inherit()
    return found


def spans_of(page: str) -> list[str]:
    """What stands between backticks in the sentences and tables of a page."""
    return _SPAN.findall(prose_of(page))


def classes_in(page: str) -> Iterator[tuple[str, str]]:
    """(class, attribute or nothing) for each name of a class."""
    for span in spans_of(page):
        yield from _CLASS.findall(span)


def calls_in(page: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(function, keywords) for each call."""
    for span in spans_of(page):
        for name, given in _CALL.findall(span):
            yield name, tuple(_KEYWORD.findall(given))


def dotted_in(page: str) -> Iterator[str]:
    """Names below the project's own packages."""
    for span in spans_of(page):
        yield from _DOTTED.findall(span)


def unknown_keywords(name: str, keywords: tuple[str, ...], arguments: Mapping[str, set[str]]) -> list[str]:
    """The keywords that nothing of this name takes."""
    taken = arguments[name]
    return [] if "**" in taken else [one for one in keywords if one not in taken]
