"""A run as Mermaid text: the trainer's machine with how often each edge was taken, and what was refused in notes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from states.draw_run import how_often, most_first, times, trouble_on
from states.names import TrainerState
from states.render import DrawnEdge, arrows, mermaid_id, mermaid_states
from states.run_counts import RunCounts

_NOT_A_NAME: Final = re.compile(r"[^\w./-]")
_NAME_MAX: Final = 60
_SHOWN: Final = 12


def run_mermaid(counts: RunCounts) -> str:
    """A Mermaid ``stateDiagram-v2`` of a run. Edges that were never taken are left out.

    Args:
        counts: what the records of all ranks say. Names in it that no table has may be any text; what is no name
            in Mermaid is written as ``?``.
    """
    lines = mermaid_states()
    for (source, target), edges in arrows().items():
        said = [*_said(edges, counts)]
        if said:
            lines.append(f"    {mermaid_id(source)} --> {mermaid_id(target)} : {'<br/>'.join(said)}")
    for state in TrainerState:
        lines += _refused(state, counts)
    return "\n".join(lines) + "\n"


def _said(edges: list[DrawnEdge], counts: RunCounts) -> Iterator[str]:
    for one, count in how_often(edges, counts.moves()).items():
        if count:
            yield f"{one.event} / {one.name} {times(count)}"
    wrong = trouble_on(edges, counts).words()
    if wrong:
        yield wrong


def _refused(state: TrainerState, counts: RunCounts) -> Iterator[str]:
    asked = most_first({event: count for (where, event), count in counts.refused.items() if where == state})
    if asked:
        yield f"    note right of {mermaid_id(state)}"
        for event, count in asked[:_SHOWN]:
            guards = most_first(counts.guards.get((state, event), {}))
            because = f", {_name(guards[0][0])}" if guards else ""
            yield f"        refused {_name(event)} {times(count)}{because}"
        if len(asked) > _SHOWN:
            yield f"        and {len(asked) - _SHOWN} more"
        yield "    end note"


def _name(text: str) -> str:
    return _NOT_A_NAME.sub("?", text[:_NAME_MAX])
