"""The table of decisions: for every kind of run, whether a second copy is made and where weight sync reads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from states.decision import Step, decide
from states.facts import TARGETS, ContentFacts, Facts
from states.names import FROZEN_BASE, FrozenBase, Strategy, TrainerEvent, TrainerState
from states.placement import place
from states.render import GENERATED, markdown_table
from states.rule import enable_weight_backup, weight_sync_reads_saver_backup

_INTRO = """# Which copy is made, by kind of run

The rule: weight sync reads the memory saver's own host backup if and only if the run is colocated, LoRA is on, the
offload target is `cpu`, and no ref, teacher or old actor is kept. Weight backup is enabled if that does not hold and
the run is colocated or keeps one of those models. That is strategy `reference`; `duplicate` always makes a copy, and
`lean` makes one only of bytes that a pause would hide: of none, with tensors placed as [placement.md](placement.md)
says. The last columns name the edge that a reconcile takes, by strategy. All of it is the same with the frozen base in
a file (`frozen_base="file"`).

This says whether a *copy is made*. *Where a read goes* follows from residency and versions at that moment:
`adapter-lifecycle explain` shows it.
"""


def kinds_of_run() -> Iterator[Facts]:
    """Facts of every combination of colocate, lora, offload target, ref, teacher and old actor."""
    both = (True, False)
    for colocate, lora, target, ref, teacher, old_actor in product(both, both, TARGETS, both, both, both):
        yield Facts(
            colocate=colocate,
            lora=lora,
            offload_target=target,
            with_ref=ref,
            with_teacher=teacher,
            keep_old_actor=old_actor,
        )


def reconcile_edge(facts: Facts, strategy: Strategy, frozen_base: FrozenBase = FrozenBase.SAVER) -> str:
    """The edge on which a reconcile of this kind of run leaves ``adapter-reconciling``."""
    placed = place(FROZEN_BASE, target=facts.offload_target, frozen_base=frozen_base, strategy=strategy)
    base = ContentFacts(backup=placed.backup, file=1 if placed.file else None)
    given = {"strategy": strategy.value, "frozen_base": frozen_base.value, "contents": (base,)}
    given |= {"origin": TrainerState.AWAKE}
    asked = Facts(**{**facts.shared(), **facts.local(), **given})
    step = decide(TrainerState.ADAPTER_RECONCILING, TrainerEvent.RECONCILED, asked)
    assert isinstance(step, Step)  # without a lease nothing stands against leaving
    return step.edge


def decision_table() -> str:
    """One line for every kind of run."""
    flags = ("colocate", "lora", "offload target", "ref", "teacher", "old actor")
    edges = tuple(f"edge ({strategy})" for strategy in Strategy)
    return markdown_table((*flags, "reads saver backup", "weight backup", *edges), map(_line, kinds_of_run()))


def _line(facts: Facts) -> tuple[str, ...]:
    flags = (facts.with_ref, facts.with_teacher, facts.keep_old_actor)
    return (
        _yes(facts.colocate),
        _yes(facts.lora),
        facts.offload_target or "none",
        *map(_yes, flags),
        _yes(bool(weight_sync_reads_saver_backup(facts))),
        _yes(bool(enable_weight_backup(facts))),
        *(f"`{reconcile_edge(facts, strategy)}`" for strategy in Strategy),
    )


def _yes(holds: bool) -> str:  # noqa: FBT001 - the one thing it says
    return "yes" if holds else ""


def decisions_page() -> str:
    """The page ``docs/decisions.md``."""
    return f"{GENERATED}\n{_INTRO}\n{decision_table()}"
