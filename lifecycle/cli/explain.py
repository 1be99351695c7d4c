"""``adapter-lifecycle explain``: which source each event of a turn would read, and why."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lifecycle.config import LifecycleConfig, Reference
from lifecycle.explain import Explained, decisions, explain_run
from states import (
    Facts,
    FrozenBase,
    Strategy,
    Verdict,
    enable_weight_backup,
    reads_saver_backup,
    weight_sync_reads_saver_backup,
)


class Target(StrEnum):
    """The offload target on the command line."""

    CPU = "cpu"
    DISK = "disk"
    NONE = "none"


def explain(
    *,
    colocate: Annotated[bool, typer.Option(help="Trainer and rollout engine share the device.")] = True,
    lora: Annotated[bool, typer.Option(help="The base is frozen and adapters train.")] = True,
    offload_target: Annotated[Target, typer.Option(help="Where device memory goes.")] = Target.CPU,
    with_ref: Annotated[bool, typer.Option("--with-ref", help="A reference model is kept.")] = False,
    ref: Annotated[Reference | None, typer.Option(help="The reference of a KL run.")] = None,
    with_teacher: Annotated[bool, typer.Option("--with-teacher", help="A teacher is kept.")] = False,
    keep_old_actor: Annotated[bool, typer.Option("--keep-old-actor", help="An older actor is kept.")] = False,
    strategy: Annotated[Strategy, typer.Option(help="When a second copy is made.")] = Strategy.LEAN,
    frozen_base: Annotated[FrozenBase, typer.Option(help="What brings the base back.")] = FrozenBase.SAVER,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print which source each event of a turn would read, and why."""
    config = LifecycleConfig(
        colocate=colocate,
        lora=lora,
        offload_target=None if offload_target is Target.NONE else offload_target.value,
        with_ref=with_ref,
        ref=ref,
        with_teacher=with_teacher,
        keep_old_actor=keep_old_actor,
        strategy=strategy.value,
        frozen_base=frozen_base.value,
    )
    if as_json:
        typer.echo(json.dumps({"decisions": decisions(config)}, indent=2))
        return
    console = Console()
    for verdict in _rules(config):
        console.print(Text(f"{verdict.name}: {'yes' if verdict.holds else 'no'} ({verdict.because})"))
    console.print(_table(explain_run(config)))


def _rules(config: LifecycleConfig) -> tuple[Verdict, ...]:
    facts = Facts(**config.facts_settings())
    rules = (weight_sync_reads_saver_backup(facts), enable_weight_backup(facts))
    return (*rules, reads_saver_backup(facts)) if config.strategy == Strategy.LEAN else rules


def _table(turn: tuple[Explained, ...]) -> Table:
    table = Table("in state", "event", "edge", "reads from", "because", title="One turn")
    for one in turn:
        edge = Text(one.edge) if one.holds else Text("refused", style="red")
        table.add_row(Text(one.state), Text(one.event), edge, Text(one.source or "-"), Text(one.because))
    return table
