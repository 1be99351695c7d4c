"""Diagram and table of one adapter registration, drawn from the table that runs."""

from __future__ import annotations

from states.adapters import ADAPTER_TABLE, AdapterRow
from states.render import GENERATED, markdown_table

_INTRO = """# The states of an adapter

One registration runs one way, from `pending` to `completed`. A name that returns is another registration.
"""
_PICTURE = """![The states of an adapter's registration](diagrams/adapters.svg)

The same in Mermaid:
"""
_MORE = """Any other pair of state and event is refused with a reason and a remedy, and changes nothing. What needs a
trainable registration is refused for a frozen one (`trainable=False`), which is served all the same.
How the registry uses this table: [registry](registry.md).
"""


def adapter_diagram() -> str:
    """A Mermaid ``stateDiagram-v2`` of every move; an unregistered name is the start."""
    lines = [f"    {row.source or '[*]'} --> {row.target} : {row.event}" for row in ADAPTER_TABLE]
    return "\n".join(("stateDiagram-v2", "    direction LR", *lines)) + "\n"


def adapters_page() -> str:
    """The page ``docs/adapters.md``."""
    table = markdown_table(("event", "from", "to", "needs"), map(_line, ADAPTER_TABLE))
    return f"{GENERATED}\n{_INTRO}\n{_PICTURE}\n```mermaid\n{adapter_diagram()}```\n\n{table}\n{_MORE}"


def _line(row: AdapterRow) -> tuple[str, ...]:
    return f"`{row.event}`", row.source or "unregistered", row.target, "trainable" if row.needs_trainable else "any"
