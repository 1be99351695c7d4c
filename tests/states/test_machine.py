"""The machine carries the state and takes decided steps, nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import states
from states import TABLE, Row, RowKind, Step, TrainerEvent, TrainerMachine, TrainerState
from states.machine import trigger_name

MOVES = [row for row in TABLE if row.kind is RowKind.MOVE]
every_move = pytest.mark.parametrize("row", MOVES, ids=lambda row: row.name)


def _step(row: Row) -> Step:
    return Step(row.source, row.event, row.edge, row.target, row.effects, (), ())


@every_move
def test_every_move_can_be_taken(row: Row) -> None:
    """From the source of each row of the table the machine arrives at its target."""
    machine = TrainerMachine(row.source)

    machine.take(_step(row))

    assert machine.state is row.target


@every_move
def test_a_step_of_another_state_changes_nothing(row: Row) -> None:
    """A decision that is out of date is an error, and the state is as before."""
    for state in TrainerState:
        if state is row.source:
            continue
        machine = TrainerMachine(state)

        with pytest.raises(ValueError, match=f"the step leaves {row.source}, the trainer is {state}; decide again"):
            machine.take(_step(row))
        assert machine.state is state


@pytest.mark.parametrize(
    ("event", "edge", "target"),
    [
        (TrainerEvent.OFFLOAD, "jumps", TrainerState.OFFLOADED_CPU),
        (TrainerEvent.OFFLOAD, "offloads-to-cpu", TrainerState.OFFLOADED_CPU),
        (TrainerEvent.WAKE_UP, "already", TrainerState.AWAKE),
    ],
)
def test_a_step_on_no_edge_of_the_table_changes_nothing(event: TrainerEvent, edge: str, target: TrainerState) -> None:
    """A step that was made up, that leaves elsewhere, or that is no move is an error."""
    machine = TrainerMachine(TrainerState.AWAKE)

    with pytest.raises(ValueError, match=f"{event}/{edge} to {target} is no edge from awake"):
        machine.take(Step(TrainerState.AWAKE, event, edge, target, (), (), ()))

    assert machine.state is TrainerState.AWAKE


@pytest.mark.parametrize("state", TrainerState)
def test_the_initial_state_is_the_declared_one(state: TrainerState) -> None:
    """FB-16: the state at the start is what the caller says; there is no default."""
    assert TrainerMachine(state).state is state
    with pytest.raises(TypeError):
        TrainerMachine()  # type: ignore[call-arg]


def test_no_method_walks_past_the_guards() -> None:
    """``transitions`` adds no ``to_*`` method, and its only triggers are the edges of the table."""
    machine = TrainerMachine(TrainerState.AWAKE)
    triggers = {name for name in dir(machine) if name.startswith("take_")}

    assert [name for name in dir(machine) if name.startswith(("to_", "may_to_"))] == []
    assert triggers == {trigger_name(row.event, row.edge, row.target) for row in MOVES}


def test_each_edge_has_a_trigger_of_its_own() -> None:
    """From one state no trigger stands for two edges, so that ``transitions`` never has a choice."""
    names = [(row.source, trigger_name(row.event, row.edge, row.target)) for row in MOVES]

    assert len(names) == len(set(names))


def test_transitions_runs_no_callback() -> None:
    """FB-59: effects never run inside the library's callback chain, where a failure leaves the state moved."""
    machine = TrainerMachine(TrainerState.AWAKE)._machine
    hooks = ("before_state_change", "after_state_change", "prepare_event", "finalize_event", "on_exception")
    moves = [one for event in machine.events.values() for rows in event.transitions.values() for one in rows]

    assert [hook for hook in hooks if getattr(machine, hook)] == []
    assert all(not (one.before or one.after or one.prepare or one.conditions) for one in moves)
    assert all(not (state.on_enter or state.on_exit) for state in machine.states.values())


def test_the_state_is_assigned_in_one_place() -> None:
    """No code of the package assigns ``state``; only ``take`` lets the library do it."""
    assigned = []
    for path in Path(states.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else []
            assigned += [path.name for one in targets if isinstance(one, ast.Attribute) and one.attr == "state"]

    assert assigned == []
