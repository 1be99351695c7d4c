"""The run as a table for people."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from lifecycle.demo.report import LOGPROB_TOLERANCE, DemoReport, TurnReport

_MIB: Final = 2**20
_SHORT: Final = {"sleeping": "sleep", "offloaded-cpu": "cpu", "offloaded-disk": "disk"}
_RECONCILING: Final = "adapter-reconciling"


def turn_table(report: DemoReport) -> Table:
    """One row a turn, one column an adapter. Bytes in MiB."""
    names = sorted({name for turn in report.turns for name in turn.rewards})
    title = f"{len(report.turns)} turns in {report.seconds:.1f} s, rewards by adapter, bytes in MiB"
    table = Table(title=title, caption=_caption(report), box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("turn", justify="right")
    table.add_column("states passed", overflow="fold", min_width=len("awake>sleep>disk>awake"))
    for name in (*names, "host", "moved", "logprob\ndiff"):
        table.add_column(name, justify="right", no_wrap=True)
    for turn in report.turns:
        rewards = (f"{turn.rewards[name]:.2f}" if name in turn.rewards else "" for name in names)
        memory = (f"{turn.host_bytes / _MIB:.1f}", f"{turn.moved_bytes / _MIB:.1f}")
        table.add_row(str(turn.turn), states_passed(turn.states), *rewards, *memory, _difference(turn))
    return table


def states_passed(states: tuple[str, ...]) -> str:
    """The states in order, in short. A reconcile comes back to where it began: it is shown as an excursion."""
    shown: list[str] = []
    for state, _ in groupby(states):
        if state == _RECONCILING:
            shown[-1] += "(reconcile)"
        elif not (shown and shown[-1].endswith(")") and shown[-1].startswith(_SHORT.get(state, state))):
            shown.append(_SHORT.get(state, state))
    return ">".join(shown)


def _difference(turn: TurnReport) -> str:
    text = f"{turn.logprob_diff:.1e}"
    return text if turn.logprob_diff <= LOGPROB_TOLERANCE else f"[bold red]{text}[/]"


def _caption(report: DemoReport) -> str:
    return f"the trainer is {report.final_state}; every transition is on the record in {escape(str(report.audit))}"
