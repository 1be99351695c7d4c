"""The run as a table for people."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from rich.table import Table

from lifecycle.demo.report import LOGPROB_TOLERANCE, DemoReport, TurnReport

_MIB: Final = 2**20
_SHORT: Final = {
    "awake": "awake",
    "sleeping": "sleep",
    "offloaded-cpu": "cpu",
    "offloaded-disk": "disk",
    "adapter-reconciling": "reconcile",
}


def turn_table(report: DemoReport) -> Table:
    """One row a turn, one column an adapter. Bytes in MiB."""
    names = sorted({name for turn in report.turns for name in turn.rewards})
    table = Table(title=f"{len(report.turns)} turns in {report.seconds:.1f} s", caption=_caption(report))
    table.add_column("turn", justify="right")
    table.add_column("states")
    for name in names:
        table.add_column(f"reward {name}", justify="right")
    table.add_column("host MiB", justify="right")
    table.add_column("moved MiB", justify="right")
    table.add_column("logprob diff", justify="right")
    for turn in report.turns:
        rewards = (f"{turn.rewards[name]:.2f}" if name in turn.rewards else "" for name in names)
        memory = (f"{turn.host_bytes / _MIB:.1f}", f"{turn.moved_bytes / _MIB:.1f}")
        table.add_row(str(turn.turn), _states(turn), *rewards, *memory, _difference(turn))
    return table


def _states(turn: TurnReport) -> str:
    return " > ".join(_SHORT.get(state, state) for state, _ in groupby(turn.states))


def _difference(turn: TurnReport) -> str:
    text = f"{turn.logprob_diff:.1e}"
    return text if turn.logprob_diff <= LOGPROB_TOLERANCE else f"[bold red]{text}[/]"


def _caption(report: DemoReport) -> str:
    return f"the trainer is {report.final_state}; every transition is on the record in {report.audit}"
