"""The run as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from lifecycle.bench.findings import Finding
from lifecycle.bench.measure import Measured
from lifecycle.bench.options import MIB

WIDTH: Final = 160
"""Columns of the tables where the output is no terminal."""
_BYTES: Final = ("held_bytes", "file_bytes", "moved_bytes", "sent_bytes")


def rows_table(found: Sequence[Measured]) -> Table:
    """One row an event, all strategies beside each other in blocks. Bytes in MiB, times in ms."""
    first = found[0]
    case = first.case
    title = (
        f"base {first.base_bytes / MIB:,.0f} MiB in {case.tensors} tensors, {case.adapters} adapters of together "
        f"{first.trainable_bytes / MIB:,.1f} MiB, {case.ranks} rank(s), {case.kept_models} kept model(s), "
        f"offload target {case.offload_target}"
    )
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("event", no_wrap=True, min_width=len("update_weights_fresh"))
    table.add_column("strategy", no_wrap=True, min_width=len("lean+file"))
    for name in ("held\nMiB", "file\nMiB", "moved\nMiB", "sent\nMiB", "median\nms", "min\nms", "max\nms"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = [(one.case.name, {row["event"]: row for row in one.rows()}) for one in found]
    for event in rows[0][1]:
        for place, (name, by_event) in enumerate(rows):
            row = by_event[event]
            sizes = (f"{row[key] / MIB:,.1f}" for key in _BYTES)
            times = (f"{row['seconds'][key] * 1e3:,.1f}" for key in ("median", "min", "max"))
            last = place == len(rows) - 1
            table.add_row("" if place else event, name, *sizes, *times, end_section=last)
    return table


def findings_table(findings: Sequence[Finding]) -> Table:
    """One row a figure, with its limit and whether it holds."""
    table = Table(title="figures", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("figure", no_wrap=True)
    for name in ("what", "limit", "measured"):
        table.add_column(name, overflow="fold")
    table.add_column("", no_wrap=True)
    for one in findings:
        told = "[green]ok[/]" if one.ok else "[bold red]FAILED[/]"
        table.add_row(one.figure, escape(one.what), escape(one.limit), escape(one.measured), told)
    return table


def machine_line(machine: Mapping[str, Any]) -> str:
    """The machine in one line."""
    memory = machine["memory_bytes"] / (1 << 30)
    python, torch = machine["python"], machine["torch"]
    return f"{machine['cpus']} cores, {memory:.0f} GiB, Python {python}, torch {torch}, 1 thread; GPU {machine['gpu']}"
