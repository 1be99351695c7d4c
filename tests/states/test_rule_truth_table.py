"""The reference rule, the edges and the sources against a truth table written out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest

from states import (
    ACTOR,
    ContentFacts,
    EngineFacts,
    Facts,
    Refusal,
    Source,
    Step,
    TrainerEvent,
    TrainerState,
    decide,
    enable_weight_backup,
    makes_actor_copy,
    weight_sync_reads_saver_backup,
)
from tests.states.truth_table import WRITTEN_BY_HAND


class Row(NamedTuple):
    """One row, word by word."""

    colocate: str
    lora: str
    ref: str
    teacher: str
    old_actor: str
    target: str
    active: str
    reads: str
    backup: str
    edge: str
    offloaded: str
    awake: str
    lean_edge: str
    lean_offloaded: str


ROWS: Final = [Row(*line.replace("|", " ").split()) for line in WRITTEN_BY_HAND.strip().splitlines()[2:]]
IDS: Final = ["-".join(row[:7]) for row in ROWS]
each_row = pytest.mark.parametrize("row", ROWS, ids=IDS)


def _facts(row: Row, **more: Any) -> Facts:
    return Facts(
        colocate=row.colocate == "yes",
        lora=row.lora == "yes",
        with_ref=row.ref == "yes",
        with_teacher=row.teacher == "yes",
        keep_old_actor=row.old_actor == "yes",
        offload_target=None if row.target == "none" else row.target,
        active_model=ACTOR if row.active == "actor" else "ref",
        to_load=("A",),
        engines=(EngineFacts("E0", stale=("frozen-base",)),),
        **({"strategy": "reference"} | more),
    )


def _lean(row: Row, **more: Any) -> Facts:
    """The same under strategy lean, with the base where the placement table puts it."""
    kept = ContentFacts(backup="none", file=1) if row.target == "disk" else ContentFacts()
    return _facts(row, strategy="lean", contents=(kept,), **more)


def _source(state: TrainerState, facts: Facts) -> str:
    step = decide(state, TrainerEvent.UPDATE_WEIGHTS, facts)
    if isinstance(step, Refusal):
        return "refused"
    assert isinstance(step, Step)
    read = step.reads[0]
    return f"{read.tag}-copy" if read.source is Source.SNAPSHOT else str(read.source)


def _edge(facts: Facts) -> str:
    """The edge of a whole reconcile, or why it is refused at its first move."""
    entered = decide(TrainerState.AWAKE, TrainerEvent.RECONCILE_ADAPTERS, facts)
    if isinstance(entered, Refusal):
        assert [verdict.name for verdict in entered.failed] == ["active-model-is-the-actor"]
        return "refused"
    assert isinstance(entered, Step)
    left = decide(entered.target, TrainerEvent.RECONCILED, facts)
    assert isinstance(left, Step)
    assert left.target is TrainerState.AWAKE
    return left.edge


def _sleeping(row: Row, *, has_copy: bool, **more: Any) -> Facts:
    base = ContentFacts(backup=row.target, copies=((ACTOR, 1),) if has_copy else ())
    return _facts(row, contents=(base,), **more)


def _source_offloaded(row: Row, *, has_copy: bool, **more: Any) -> str:
    """Where a sync reads after an offload to the row's target, or ``refused`` at the offload or the sync."""
    facts = _sleeping(row, has_copy=has_copy, **more)
    offload = decide(TrainerState.SLEEPING, TrainerEvent.OFFLOAD, facts)
    if isinstance(offload, Refusal):
        return "refused"
    assert isinstance(offload, Step)
    paused = replace(facts.contents[0], live=None, saver=1 if row.target == "cpu" else None)
    return _source(offload.target, replace(facts, contents=(paused,)))


def test_every_combination_stands_once_in_the_table() -> None:
    """2 x 2 x 2 x 2 x 2 switches, three targets, actor active or not."""
    assert len(ROWS) == len({row[:7] for row in ROWS}) == 192


@each_row
def test_the_rule_is_the_reference_rule(row: Row) -> None:
    """Whether sync reads the saver's backup, and whether the weight backup is enabled."""
    facts = _facts(row)

    assert weight_sync_reads_saver_backup(facts).holds == (row.reads == "yes")
    assert enable_weight_backup(facts).holds == (row.backup == "yes")


@each_row
@pytest.mark.parametrize("strategy", ["reference", "duplicate"])
def test_a_reconcile_takes_the_edge_of_its_row(row: Row, strategy: str) -> None:
    """The edge that ``reconciled`` takes; ``duplicate`` always backs the actor up; another active model is refused."""
    expected = "backs-up-actor" if strategy == "duplicate" and row.edge != "refused" else row.edge

    assert _edge(_facts(row, strategy=strategy, origin=TrainerState.AWAKE)) == expected


@each_row
def test_a_lean_reconcile_takes_the_edge_of_its_row(row: Row) -> None:
    """No kind of run makes lean copy what can be read where it lies already."""
    assert _edge(_lean(row, origin=TrainerState.AWAKE)) == row.lean_edge


@each_row
def test_a_sync_while_awake_reads_live_memory(row: Row) -> None:
    """FB-01: awake, the live bytes are the newest; no switch of the configuration sends the read elsewhere."""
    assert _source(TrainerState.AWAKE, _facts(row)) == row.awake


@each_row
def test_a_sync_while_offloaded_reads_the_copy_that_exists(row: Row) -> None:
    """FB-01, FB-02, FB-17: the saver's backup or the actor copy; with neither, the offload itself is refused."""
    if row.target == "none":
        assert isinstance(decide(TrainerState.SLEEPING, TrainerEvent.OFFLOAD, _facts(row)), Refusal)
        return

    assert _source_offloaded(row, has_copy=row.backup == "yes") == row.offloaded


@each_row
def test_a_lean_sync_while_offloaded_reads_what_is_there_already(row: Row) -> None:
    """The saver's backup for target cpu and the base file for target disk, without any second copy."""
    facts = _lean(row)
    offload = decide(TrainerState.SLEEPING, TrainerEvent.OFFLOAD, facts)
    if row.target == "none":
        assert isinstance(offload, Refusal)
        return
    assert isinstance(offload, Step)
    paused = replace(facts.contents[0], live=None, saver=1 if row.target == "cpu" else None)

    assert _source(offload.target, replace(facts, contents=(paused,))) == row.lean_offloaded


@each_row
def test_the_duplicate_strategy_reads_its_copy(row: Row) -> None:
    """With ``duplicate`` the copy is there whatever the rule says, and a sync while offloaded reads it."""
    if row.target == "none":
        assert makes_actor_copy(_facts(row, strategy="duplicate"))
        return
    expected = "refused" if row.active == "other" else "actor-copy"

    assert _source_offloaded(row, has_copy=True, strategy="duplicate") == expected
