"""The run as two tables for people: its turns, and its adapters. They fit a terminal of 80 columns."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from lifecycle.demo.report import DemoReport, TurnReport

_MIB: Final = 2**20
_SHORT: Final = {"sleeping": "sleep", "offloaded-cpu": "cpu", "offloaded-disk": "disk"}
_RECONCILING: Final = "adapter-reconciling"
_RECONCILED: Final = "*"
_EMPTY: Final = "-"
_DIGITS: Final = 16


def turn_table(report: DemoReport) -> Table:
    """One row a turn. Bytes in MiB."""
    table = _table(f"{len(report.turns)} turns in {report.seconds:.1f} s, mean reward by slot, bytes in MiB")
    table.add_column("turn", justify="right", no_wrap=True, overflow="fold")
    table.add_column("states passed", no_wrap=True, overflow="fold")
    table.add_column("adapter:reward", overflow="fold")
    for name in ("host", "moved", "diff"):
        table.add_column(name, justify="right", no_wrap=True, overflow="fold")
    slots = {one.adapter: one.slot for one in report.adapters}
    names = [_by_slot(turn, slots) for turn in report.turns]
    width = max(len(one) for turn in names for one in turn)
    for turn, shown in zip(report.turns, names, strict=True):
        memory = (f"{turn.host_bytes / _MIB:.1f}", f"{turn.moved_bytes / _MIB:.1f}")
        rewards = escape(" ".join(one.ljust(width) for one in shown).rstrip())
        table.add_row(str(turn.turn), states_passed(turn.states), rewards, *memory, _difference(turn))
    return table


def adapter_table(report: DemoReport) -> Table:
    """One row an adapter: who sat in which slot when, what it learned, and which weights came of it."""
    table = _table(f"{len(report.adapters)} adapters in {len(_slots(report))} slots, reconciled {report.reconcile}")
    table.add_column("adapter", overflow="fold")
    for name in ("id", "slot", "turns", "steps", "reward"):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("final weights (sha256)", overflow="fold")
    for one in report.adapters:
        turns = f"{one.first_turn}-{one.last_turn}"
        reward = f"{one.first_reward:.2f} to {one.last_reward:.2f}"
        ids = (str(one.registration_id), str(one.slot))
        table.add_row(escape(one.adapter), *ids, turns, str(one.steps), reward, one.weights[:_DIGITS])
    return table


def notes(report: DemoReport) -> str:
    """What the tables do not say themselves, in lines."""
    lines = (
        f"{_RECONCILED} a reconcile; host: held while the engine generates; moved: copied;",
        "diff: the largest between log-probabilities of the engine and of the trainer",
        f"all final weights: {report.weights[:_DIGITS]}, to be compared with those of another run",
        f"the trainer is {report.final_state}; every transition is on the record in {report.audit}",
    )
    if report.ranks is None:
        return "\n".join(lines)
    of_all = "host: of all ranks together; the rest is rank 0's, and so is this log"
    return "\n".join((*lines, of_all, str(report.ranks)))


def states_passed(states: tuple[str, ...]) -> str:
    """The states in order, in short. A reconcile comes back to where it began: it is shown as a star."""
    shown: list[str] = []
    for state, _ in groupby(states):
        if state == _RECONCILING:
            shown[-1] += _RECONCILED
        elif not (shown and shown[-1].rstrip(_RECONCILED) == _SHORT.get(state, state)):
            shown.append(_SHORT.get(state, state))
    return ">".join(shown)


def _table(title: str) -> Table:
    return Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True
    )


def _slots(report: DemoReport) -> set[int]:
    return {one.slot for one in report.adapters}


def _by_slot(turn: TurnReport, slots: dict[str, int]) -> list[str]:
    """Adapter and reward, slot after slot."""
    held = {slots[name]: f"{name}:{reward:.2f}" for name, reward in turn.rewards.items()}
    return [held.get(slot, _EMPTY) for slot in range(max(slots.values()) + 1)]


def _difference(turn: TurnReport) -> str:
    text = f"{turn.logprob_diff:.0e}"
    return text if turn.agrees else f"[bold red]{text}![/]"
