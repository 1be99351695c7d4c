"""Diagram and table of one adapter registration, drawn from the table that runs."""

from __future__ import annotations

from states.adapters import ADAPTER_TABLE
from states.render import GENERATED, markdown_table

_INTRO = """# The states of an adapter

One registration runs one way, from `pending` to `completed`. A name that returns is another registration.
"""


def adapter_diagram() -> str:
    """A Mermaid ``stateDiagram-v2`` of every move; an unregistered name is the start."""
    lines = [f"    {row.source or '[*]'} --> {row.target} : {row.event}" for row in ADAPTER_TABLE]
    return "\n".join(("stateDiagram-v2", "    direction LR", *lines)) + "\n"


def adapters_page() -> str:
    """The page ``docs/adapters.md``."""
    rows = ((f"`{row.event}`", row.source or "unregistered", row.target) for row in ADAPTER_TABLE)
    table = markdown_table(("event", "from", "to"), rows)
    return f"{GENERATED}\n{_INTRO}\n```mermaid\n{adapter_diagram()}```\n\n{table}"
