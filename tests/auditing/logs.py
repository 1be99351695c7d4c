"""A good log of a run that does a little of everything, and what is needed to spoil it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lifecycle.audit import AuditLog, read_log
from lifecycle.audit.chain import chain_hash
from lifecycle.audit.plain import compact_json
from lifecycle.auditing import Violation, audit_logs
from lifecycle.errors import EngineError, EventRefused, LifecycleError
from tests.auditing.runs import record
from tests.lifecycle.world import FakeEngine, World, make_world

Record = dict[str, Any]
Spoil = Callable[[list[Record]], int]
"""Changes the records of a log in place; the index of the one at which it is found."""


def live(world: World) -> None:
    """Steps, a turn, pushes, a reconcile, kept models, refusals, a failure and no-ops."""
    trainer, engine = world.trainer, FakeEngine()
    world.train("A")
    trainer.update_weights([engine])
    world.train("A", "B")
    trainer.sleep()
    trainer.offload()
    trainer.update_weights([engine])
    trainer.update_weights([engine])
    world.host.register("C", 2)
    trainer.reconcile_adapters()
    trainer.wake_up()
    trainer.wake_up()
    with trainer.weights("reader"), suppress(EventRefused):
        trainer.sleep()
        trainer.offload()
    trainer.wake_up()
    with suppress(EventRefused), trainer.step(["unheard of"]):
        pass
    trainer.keep_model("ref")
    trainer.switch_model("ref")
    trainer.switch_model("actor")
    engine.fails_at = "adapter"
    world.train("B")
    with suppress(EngineError, LifecycleError):
        trainer.update_weights([engine])
    with suppress(ZeroDivisionError), trainer.step(["A"]):
        raise ZeroDivisionError
    trainer.sleep()


def good_log(path: Path, **options: Any) -> Path:
    """The log of that run, at this path."""
    world = make_world(adapters=())
    with AuditLog(path, run="good", **options) as log:
        record(world, log)
        world.host.register("A", 0)
        world.host.register("B", 1)
        world.trainer.reconcile_adapters()
        live(world)
    return path


def records_of(path: Path) -> list[Record]:
    """The records of a log with all their facts, to be changed."""
    return [json.loads(json.dumps(one)) for one in read_log(path)]


def write_chained(path: Path, records: list[Record]) -> Path:
    """Write records so that each follows from the one before: only what they say can be wrong."""
    lines, previous = [], ""
    for one in records:
        if one["event"] == "lifecycle.opened":
            one["last_hash"] = previous
        told = {key: value for key, value in one.items() if key != "hash"}
        previous = chain_hash(previous, told)
        lines.append(compact_json({**told, "hash": previous}))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def found_in(*paths: Path) -> list[Violation]:
    """Everything that an audit finds."""
    return list(audit_logs(paths))


def nth(records: list[Record], event: str, trigger: str = "", n: int = 0) -> int:
    """The index of the nth record of this name, and of this event."""
    return [
        at
        for at, one in enumerate(records)
        if one["event"] == f"lifecycle.{event}" and trigger in ("", one.get("trigger"))
    ][n]


def renumber(records: list[Record]) -> None:
    """Numbers without a gap."""
    for number, one in enumerate(records, start=1):
        one["sequence"] = number
