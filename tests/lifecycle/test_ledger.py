"""The ledger: what is held by place and tag, what was moved by event and kind, against the operating system too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lifecycle import HostArena, Moved, TransitionFailed
from lifecycle.places import PLACES
from states import Effect
from tests.lifecycle.faulty import faulty_saver
from tests.lifecycle.world import FakeEngine, World, make_world

MIB = 2**20
BASE = "actor/base"


def base_bytes(world: World) -> int:
    """Bytes of the region that holds the frozen base."""
    return world.arena.tags()[BASE].size_bytes


def test_a_frozen_base_is_held_once_wherever_the_trainer_is() -> None:
    """Ten cycles: on the host once while offloaded, pinned never, awake not at all (FB-17, scenarios 1 to 4)."""
    world = make_world(ballast_bytes=4 * MIB)
    base, engine = base_bytes(world), FakeEngine()
    figures = []
    for _ in range(10):
        world.train("A")
        world.trainer.sleep(offload=True)
        away = world.trainer.ledger
        engine.restart()
        outcome = world.trainer.update_weights([engine])
        assert isinstance(outcome, Moved)
        sources = {read.group: read.source for read in outcome.reads}
        sent = world.trainer.ledger
        world.trainer.wake_up()
        back = world.trainer.ledger
        assert sources["frozen-base"] == "saver-backup"
        assert sent.held == away.held
        figures.append((away.held.saver_host[BASE], away.held.device, back.held.saver_host, back.held.device[BASE]))
        assert away.held.snapshots == back.held.snapshots == {}

    assert figures == [(base, {}, {}, base)] * 10


def test_a_kept_model_and_an_actor_copy_stand_under_their_tags() -> None:
    """What two tags share counts once, for the first of them."""
    world = make_world(strategy="reference", with_ref=True)
    world.trainer.sleep(offload=True)
    world.trainer.wake_up()
    world.trainer.keep_model("ref")
    held = world.trainer.ledger.held

    assert set(held.snapshots) == {"actor"}
    assert sum(held.snapshots.values()) == world.trainer.snapshots.host_bytes()


@pytest.mark.parametrize("strategy", ["lean", "reference", "duplicate"])
def test_the_totals_are_those_of_the_books(strategy: str, tmp_path: Path) -> None:
    """Every place, in every state, disk included: the sums by tag are what saver and copies say they hold."""
    world = make_world(
        arena=HostArena(disk_dir=str(tmp_path)), offload_target="disk", strategy=strategy, trainable=True
    )
    for call in (world.trainer.sleep, world.trainer.offload, world.trainer.wake_up, world.trainer.sleep):
        call()
        ledger, usage = world.trainer.ledger, world.arena.usage()
        assert (ledger.device_bytes, ledger.disk_bytes) == (usage.device_bytes, usage.disk_bytes)
        assert ledger.host_bytes == usage.host_bytes + world.trainer.snapshots.host_bytes()
        assert ledger.file_bytes == world.trainer.held_bytes()["base_file"] > 0
        assert "(others)" not in ledger.held.saver_disk


def test_the_base_file_is_a_column_of_its_own(tmp_path: Path) -> None:
    """It is page cache that a node holds once; writing it at attach is the only time its bytes move but for wakes."""
    settings: dict[str, object] = {"frozen_base": "file", "base_dir": str(tmp_path), "ballast_bytes": MIB}
    first, second = make_world(**settings), make_world(**settings)  # type: ignore[arg-type]
    file_bytes = first.trainer.ledger.file_bytes
    first.trainer.sleep(offload=True)
    away = first.trainer.ledger
    first.trainer.wake_up()

    assert first.trainer.ledger.moved_by("attach") == {"base-file-write": file_bytes}
    assert second.trainer.ledger.moved_by("attach") == {}
    assert away.held.base_file == {"frozen-base": file_bytes}
    assert away.host_bytes < MIB < file_bytes
    assert first.trainer.ledger.moved_by("wake_up")["base-file-read"] >= MIB


def test_moved_bytes_add_up_over_the_run_by_event_and_kind() -> None:
    """What each outcome says it moved, and nothing else."""
    world, engine = make_world(), FakeEngine()
    outcomes: list[Moved] = []
    start = world.trainer.ledger
    world.trainer.subscribe(outcomes.append)
    for _ in range(3):
        world.train("A")
        world.trainer.sleep(offload=True)
        world.trainer.update_weights([engine])
        world.trainer.wake_up()
    ledger = world.trainer.ledger

    expected = dict(start.moved)
    for outcome in outcomes:
        assert sum(size for _, size in outcome.moved) == outcome.moved_bytes
        for kind, size in outcome.moved:
            key = (str(outcome.event), kind)
            expected[key] = expected.get(key, 0) + size
    assert ledger.moved == expected
    assert {("offload", "backup"), ("wake_up", "restore"), ("update_weights", "sync")} <= set(ledger.moved)
    assert ledger.moved_bytes == sum(expected.values())
    assert not ledger.moved_by("trained")


def test_a_transition_that_fails_counts_what_it_had_moved() -> None:
    """In the ledger and in its record: the copy took its time all the same."""
    world = make_world(arena=faulty_saver())  # type: ignore[arg-type]
    world.trainer.sleep()
    world.trainer._runner.effects[Effect.CHECK_FREED] = lambda parts, work: 1 / 0  # type: ignore[assignment,return-value]
    with pytest.raises(TransitionFailed):
        world.trainer.offload()
    (failed,) = world.records("failed")

    moved = world.trainer.ledger.moved_by("offload")
    assert moved["backup"] == sum(info.size_bytes for info in world.arena.tags().values() if info.backup == "cpu")
    assert failed["moved"] == moved


def test_records_carry_held_bytes_by_place_and_tag_and_moved_bytes_by_kind() -> None:
    """Beside the totals, after the last effect. Before the first one it is what the record before said."""
    world = make_world()
    world.trainer.sleep()
    outcome = world.trainer.offload()
    after = world.trainer.ledger
    began, moved = world.records("began")[-1], world.records("moved")[-1]

    assert isinstance(outcome, Moved)
    assert "held" not in began
    assert moved["held"] == after.held.by_place()
    assert moved["moved"] == dict(outcome.moved)
    assert moved["bytes"] == {**after.held.totals(), "moved": outcome.moved_bytes}


def test_the_ledger_is_a_table() -> None:
    """Rows of account, where, what and bytes, which add up to the totals."""
    world = make_world()
    world.trainer.keep_model("ref", {"up": world.model.up + 1, "down": world.model.down, "embed": world.model.embed})
    world.trainer.sleep(offload=True)
    ledger = world.trainer.ledger
    rows = ledger.as_rows()

    held = {place: sum(int(str(one["bytes"])) for one in rows if one["where"] == place) for place in PLACES}
    assert held == ledger.held.totals()
    assert held["snapshots"] > 0
    assert [one for one in rows if one["account"] == "moved"] == [
        {"account": "moved", "where": event, "what": kind, "bytes": size}
        for (event, kind), size in sorted(ledger.moved.items())
    ]
    assert ledger.moved_by("keep_model") == {"snapshot": held["snapshots"]}


def test_a_ledger_is_of_one_moment() -> None:
    """What happens later does not change it."""
    world = make_world()
    ledger = world.trainer.ledger
    rows = ledger.as_rows()
    world.trainer.sleep(offload=True)

    assert ledger.as_rows() == rows
    assert world.trainer.ledger.as_rows() != rows


SCRIPT = """
import json, sys
from pathlib import Path
import torch
from lifecycle import HostArena, LifecycleConfig
from tests.lifecycle.test_host_memory import BASE_BYTES
from tests.lifecycle.world import make_world

settings, folder = json.loads(sys.argv[1]), sys.argv[2]

def used():
    found = dict(line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return sum(int(found[key].split()[0]) * 1024 for key in ("Pss_Anon", "Pss_Shmem"))

class Engine:
    name = "E0"
    def __init__(self):
        self.versions = {}
    def report(self):
        from lifecycle.engines.protocol import EngineReport
        return EngineReport("E0-" + str(id(self)), frozenset({"weights"}), versions=self.versions)
    def begin_update(self): pass
    def send_base(self, group, version, tensors):
        self.versions[group] = version
        for _, one in tensors:
            one.reshape(-1)[::4096].sum()
    def load_adapter(self, payload):
        self.versions["adapter/" + payload.name] = payload.version
    def unload_adapter(self, name): pass
    def commit_update(self): pass
    def abort_update(self): pass
    def release(self, tags): pass
    def resume(self, tags): pass

keep_ref = settings.pop("keep_ref", False)
world = make_world(arena=HostArena(disk_dir=folder), ballast_bytes=BASE_BYTES, base_dir=folder, **settings)
trainer = world.trainer
if keep_ref:
    base = trainer._parts.inventory.base["frozen-base"]
    trainer.keep_model("ref", {name: one + 1 for name, one in base.items()})
start, booked = used(), trainer.ledger

def figures(state):
    ledger = trainer.ledger
    books = ledger.host_bytes + ledger.device_bytes
    return state, used() - start, books - booked.host_bytes - booked.device_bytes, books, ledger.file_bytes

rows = []
for _ in range(2):
    world.train("A")
    rows.append(figures("awake"))
    trainer.sleep()
    rows.append(figures("sleeping"))
    trainer.offload()
    rows.append(figures("offloaded"))
    trainer.update_weights([Engine()])
    rows.append(figures("sent"))
    trainer.wake_up()
rows.append(figures("awake"))
print(json.dumps(rows))
"""


@pytest.mark.parametrize(
    ("settings", "copies_offloaded"),
    [
        ({}, 1),
        ({"frozen_base": "file"}, 0),
        ({"strategy": "reference", "with_ref": True}, 2),
        ({"strategy": "duplicate", "keep_ref": True}, 3),
    ],
    ids=["lean", "lean-file", "reference-with-a-copy", "duplicate-with-ref"],
)
def test_the_ledger_agrees_with_the_operating_system_in_every_state(
    settings: dict[str, object], copies_offloaded: int, tmp_path: Path
) -> None:
    """Pss_Anon + Pss_Shmem change as the books do, within 5 % or 32 MiB; the arena's device is host memory too."""
    command = [sys.executable, "-c", SCRIPT, json.dumps(settings), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    base = 256 * MIB

    assert len(rows) == 9
    for state, measured, booked, held, _ in rows:
        assert abs(measured - booked) <= max(0.05 * abs(booked), 32 * MIB), (state, measured, booked)
        if state in {"offloaded", "sent"}:
            assert abs(held - copies_offloaded * base) <= 8 * MIB
    assert (rows[0][4] > base) is ("frozen_base" in settings)
