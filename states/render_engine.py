"""Diagrams and tables of a rollout engine's memory, drawn from the tables that run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from states.engine_guards import EngineGuard
from states.engine_memory import EngineState
from states.engine_table import ENGINE_TABLE, REMEDIES, TAG_TABLE, EngineRow, TagRow
from states.render import GENERATED, markdown_table

_INTRO: Final = """# What a rollout engine holds

The other tenant of the device has a life of its own: it admits requests or not, gives memory back by tag, is sent
weights by version, and may start anew at any time. Of each engine one record is kept. It is asked before each call,
moves when the engine has acknowledged it, and by nothing else.

- `open`: it admits requests. `paused`: it admits none, and none is running. `updating`: an update is open.
- `lost`: a call failed in an unknown place, or another instance answers. It reports nothing, and is probed first.

A version stands for bytes that a commit confirmed. A group loses it with the first byte that is written, with the
memory (adapters also with a release that keeps a mirror, unless the engine keeps them apart), and with the instance.
"""
_MERMAID: Final = "The same in Mermaid:\n\n"
_LOST: Final = """\
After a call that failed in an unknown place, no more is known than holds whether it was done or not. A call that
the engine refused changed nothing; if it was part of an update, nothing is left to do but to abort that.
"""


def engine_diagram() -> str:
    """A Mermaid ``stateDiagram-v2`` of an engine as a whole. Events that leave it where it is stand beside it."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for row in ENGINE_TABLE:
        if not row.settled:
            arrows.setdefault((row.source, row.target), []).append(row.event)
    lines = [
        f"    {source} --> {target} : {'<br/>'.join(dict.fromkeys(events))}"
        for (source, target), events in arrows.items()
    ]
    return "\n".join(("stateDiagram-v2", "    direction LR", "    [*] --> lost", *lines)) + "\n"


def tag_diagram() -> str:
    """A Mermaid ``stateDiagram-v2`` of one memory tag."""
    lines = [f"    {row.source} --> {row.target} : {row.event}{_which(row)}" for row in TAG_TABLE]
    return "\n".join(("stateDiagram-v2", "    direction LR", *lines)) + "\n"


def _which(row: TagRow) -> str:
    return {True: " (with a mirror)", False: " (without a mirror)", None: ""}[row.mirrored]


def engine_moves() -> str:
    """Every event that reaches the engine: from, to, what selects the row, and what it needs."""
    rows = (
        (f"`{row.event}`", ", ".join(sources), target, _code(row.when), _code(row.guards))
        for row, sources, target in _grouped(row for row in ENGINE_TABLE if not row.settled)
    )
    return markdown_table(("event", "from", "to", "taken when", "guards"), rows)


def engine_settled() -> str:
    """Every event that finds what it asks for: nothing is sent."""
    rows = (
        (f"`{row.event}`", ", ".join(sources)) for row, sources, _ in _grouped(r for r in ENGINE_TABLE if r.settled)
    )
    return markdown_table(("event", "in"), rows)


def _grouped(rows: Iterable[EngineRow]) -> Iterator[tuple[EngineRow, list[str], str]]:
    """Rows that differ in nothing but where they leave from, put together."""
    found: dict[tuple[object, ...], list[EngineRow]] = {}
    for row in rows:
        found.setdefault((row.event, _target(row), row.when, row.guards), []).append(row)
    for same in found.values():
        yield same[0], [str(row.source) for row in same], _target(same[0])


def _target(row: EngineRow) -> str:
    return "(same)" if row.source is row.target else str(row.target)


def _code(guards: Iterable[EngineGuard]) -> str:
    return ", ".join(f"`{guard.name}`" for guard in guards)


def tag_moves() -> str:
    """Every move of a tag."""
    kinds = {True: "with a mirror", False: "without a mirror", None: "any"}
    rows = ((f"`{row.event}`", kinds[row.mirrored], str(row.source), str(row.target)) for row in TAG_TABLE)
    return markdown_table(("event", "tag", "from", "to"), rows)


def engine_guards() -> str:
    """Every guard and selector of the table, and its rule."""
    asked = {guard.name: guard for row in ENGINE_TABLE for guard in (*row.when, *row.guards)}
    return markdown_table(("guard", "rule"), ((f"`{name}`", asked[name].rule) for name in sorted(asked)))


def remedies() -> str:
    """What to do where an event does not leave from a state."""
    return markdown_table(("in", "remedy"), ((str(state), REMEDIES[state]) for state in EngineState))


def engine_page() -> str:
    """The page ``docs/engine-memory.md``."""
    parts = (
        f"{GENERATED}\n{_INTRO}",
        "![The states of a rollout engine](diagrams/engine.svg)\n",
        f"{_MERMAID}```mermaid\n{engine_diagram()}```\n",
        "## What may be asked of it\n",
        "An event moves the record if every guard of its row holds; else it is refused and nothing is sent.\n",
        engine_moves(),
        "These hold already, and nothing is sent. So it is with a `release`, `discard` or `resume` of tags that are so",
        "already, and with a `flush` while the key/value cache is given back.\n",
        engine_settled(),
        "Any other pair of event and state is refused:\n",
        remedies(),
        _LOST,
        "## One memory tag\n",
        "A tag is resumed only if it was given back, and given back only if it is there. `unknown` tags are probed.\n",
        "![The states of a memory tag of an engine](diagrams/engine-tag.svg)\n",
        f"{_MERMAID}```mermaid\n{tag_diagram()}```\n",
        tag_moves(),
        "## Guards\n",
        engine_guards(),
    )
    return "\n".join(parts)
