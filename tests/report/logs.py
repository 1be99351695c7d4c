"""Logs that were never written by a trainer: as long as a test asks for, at times that it knows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

MIB = 1024**2
BASE, ADAPTERS, ENGINE = 15_000 * MIB, 300 * MIB, 15_250 * MIB
AWAKE_HELD = {"device": {"actor/base": BASE, "actor/adapters": ADAPTERS, "actor/gradients": ADAPTERS}}
OFFLOADED_HELD = {"saver_host": {"actor/base": BASE, "actor/adapters": ADAPTERS}, "device": {"engine/weights": ENGINE}}
TURN = (
    ("reconcile_adapters", "reads-saver-backup", "awake", "awake", 0.4, AWAKE_HELD, {"adapters": ADAPTERS}),
    ("begin_step", "opens", "awake", "awake", 0.01, AWAKE_HELD, {}),
    ("trained", "commits", "awake", "awake", 2.5, AWAKE_HELD, {}),
    ("sleep", "quiesces", "awake", "sleeping", 0.1, AWAKE_HELD, {}),
    ("offload", "offloads-to-cpu", "sleeping", "offloaded-cpu", 1.5, OFFLOADED_HELD, {"backup": BASE + ADAPTERS}),
    ("update_weights", "sends", "offloaded-cpu", "offloaded-cpu", 0.8, OFFLOADED_HELD, {"sync": ADAPTERS}),
    ("wake_up", "resumes-from-cpu", "offloaded-cpu", "awake", 1.2, AWAKE_HELD, {"restore": BASE + ADAPTERS}),
)
"""Event, edge, source, target, seconds, what is held then and what was moved."""
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Log:
    """Records with numbers and times.

    Args:
        rank: whose they are.
    """

    def __init__(self, rank: int = 0) -> None:
        self.rank = rank
        self.now = START
        self.records: list[dict[str, Any]] = []
        self.sequence = 0
        self.transition = 0

    def add(self, event: str, after_s: float = 0.0, **keys: object) -> dict[str, Any]:
        """One more record, so many seconds after the one before."""
        self.now += timedelta(seconds=after_s)
        self.sequence += 1
        whose = {"run": "grpo-7", "rank": self.rank, "model": "actor", "time": self.now.isoformat()}
        record = {"event": f"lifecycle.{event}", "schema": 2, "sequence": self.sequence, **whose, **keys}
        self.records.append(record | {"hash": "0" * 64})
        return self.records[-1]

    def opened(self, *, restart: bool = False) -> None:
        """A session begins."""
        self.add("opened", restart=restart, last_hash="", torn_bytes=0, unfinished=[], pid=1, continues="")

    def began(self, trigger: str, edge: str, source: str, target: str) -> dict[str, Any]:
        """A transition was decided."""
        self.transition += 1
        what = {"trigger": trigger, "edge": edge, "source": source, "target": target}
        self.add("began", 0.3, transition=self.transition, **what, verdicts=[], decision={})
        return what

    def turn(self, number: int, slower: float = 1.0) -> None:
        """A reconcile, a step, a hand-over and back; a tenth of them with a refused event."""
        for trigger, edge, source, target, lasts_s, held, moved in TURN:
            what = self.began(trigger, edge, source, target)
            totals = {place: sum(tags.values()) for place, tags in held.items()} | {"moved": sum(moved.values())}
            details, versions = _details(trigger, number), _versions(trigger, number)
            ended = {"versions": versions, "bytes": totals, "held": held, "moved": moved, "details": details}
            lasted_s = lasts_s * slower
            self.add("moved", lasted_s, transition=self.transition, **what, **ended, duration_s=lasted_s)
            if trigger == "sleep" and number % 10 == 0:
                self.refused()

    def refused(self, because: str = "engine reads the live weights of adapter/a1") -> None:
        """An event that a guard did not let pass."""
        self.transition += 1
        verdict = {"name": "no-lease-over-live-weights", "holds": False, "because": because, "remedy": "close it first"}
        what = {"trigger": "offload", "edge": "offloads-to-cpu", "source": "sleeping", "target": "sleeping"}
        more = {"verdicts": [{"name": "target-is-cpu", "holds": True}, verdict], "remedy": "close it first"}
        self.add("refused", 0.2, transition=self.transition, **what, **more)

    def lines(self) -> Iterator[str]:
        """The records as the file has them; they are forgotten."""
        for record in self.records:
            yield json.dumps(record, separators=(",", ":")) + "\n"
        self.records.clear()

    def write(self, path: Path) -> Path:
        """Write the file."""
        path.write_text("".join(self.lines()))
        return path


def _details(trigger: str, number: int) -> dict[str, object]:
    if trigger == "reconcile_adapters":
        return {"loaded": [f"a{number}"], "retired": [f"a{number - 2}"] if number > 1 else []}
    if trigger == "update_weights":
        return {"engines": {"engine-0": {"committed": True, "sent": [f"adapter/a{number}", f"adapter/a{number - 1}"]}}}
    return {}


def _versions(trigger: str, number: int) -> dict[str, int | None]:
    if trigger == "reconcile_adapters":
        return {f"adapter/a{number}": 10 * number + 1} | ({f"adapter/a{number - 2}": None} if number > 1 else {})
    return {f"adapter/a{number}": 10 * number + 2} if trigger == "trained" else {}


def write_run(folder: Path, *, ranks: int, records: int) -> list[Path]:
    """A run of so many ranks and, of all of them together, about as many records."""
    paths = []
    for rank in range(ranks):
        log, number = Log(rank), 0
        log.opened()
        path = folder / f"audit.rank{rank}.jsonl"
        with path.open("w") as file:
            while log.sequence < records // ranks:
                log.turn(number, 1 + 0.05 * rank + (number % 97 == 13) * 4)
                file.writelines(log.lines())
                number += 1
        paths.append(path)
    return paths
