"""Random runs of a real trainer: whatever is called and whatever fails, a log that is whole gives no finding."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from lifecycle import HostArena, TrainerState
from lifecycle.audit import AuditLog, notes, read_log
from lifecycle.auditing import Audited, audit_logs
from lifecycle.errors import LifecycleError
from tests.auditing import good
from tests.auditing.runs import BASE, Run, record
from tests.lifecycle.world import make_world

VERSION_1 = Path(__file__).parents[1] / "audit" / "version_1.jsonl"


@pytest.mark.parametrize("tens", range(8))
def test_a_good_run_gives_no_finding(tens: int, tmp_path: Path) -> None:
    """Ten seeds; ``python -m tests.auditing.good`` audits a thousand."""
    audited = Audited()
    found = {}
    for seed in range(10 * tens, 10 * tens + 10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found[seed] = good.audit_run(seed, folder, audited)

    assert {seed: one for seed, one in found.items() if one} == {}
    assert audited.records > 150


class StrayingRun(Run):
    """A run whose loop steps its optimizers outside of steps too."""

    def calls(self) -> list[Callable[[], object]]:
        """Those of every run, and the stray step."""
        return [*super().calls(), *[self.stray] * 8]

    def stray(self) -> None:
        """An optimizer steps where it can, with gradients that are anew or in their region."""
        trainer, host = self.world.trainer, self.world.host
        held = host.holds.get(self.draw.choice(["A", "B", "C"]))
        if held is not None and (trainer.state, trainer.active_model) == (TrainerState.AWAKE, "actor"):
            optimizer = self.world.optimizers[held.slot]
            optimizer.zero_grad(set_to_none=self.draw.random() < 0.5)
            self.world.backward(held.name)
            optimizer.step()


@pytest.mark.parametrize("tens", range(2))
def test_a_run_whose_optimizers_step_outside_of_steps_gives_no_finding(tens: int, tmp_path: Path) -> None:
    """Their versions are told, whatever else happens."""
    found, stepped = {}, 0
    for seed in range(10 * tens, 10 * tens + 10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        run = StrayingRun(seed, folder, max_bytes=None)
        path = run.live()
        stepped += sum(one.get("note") == notes.OUTSIDE for one in read_log(path))
        if not run.lost_records:
            found[seed] = list(audit_logs([path], Audited()))

    assert {seed: one for seed, one in found.items() if one} == {}
    assert stepped > 5


def test_a_log_of_version_1_is_audited() -> None:
    """Its reads and verdicts stand at length."""
    audited = Audited()

    assert list(audit_logs([VERSION_1], audited)) == []
    assert audited.records == 17


def test_a_log_may_have_another_name_than_the_tags_of_its_trainer(tmp_path: Path) -> None:
    """Two models share a saver, and nobody told the log of one whose it is: the other's tags are not its own."""
    arena = HostArena()
    world, other = make_world(arena=arena, model="critic"), make_world(arena=arena)
    with AuditLog(tmp_path / "audit.jsonl") as log:
        record(world, log)
        for _ in range(2):
            for trainer in (world.trainer, other.trainer):
                trainer.sleep()
                trainer.offload()
            for trainer in (world.trainer, other.trainer):
                trainer.wake_up()

    assert list(audit_logs([log.path], Audited())) == []


def test_what_was_there_before_a_log_may_end_in_its_first_record(tmp_path: Path) -> None:
    """An adapter that was loaded before: its end is told by the versions that there are, and by nothing else."""
    world = make_world()
    with AuditLog(tmp_path / "audit.jsonl") as log:
        record(world, log)
        world.host.deregister("B")
        world.trainer.reconcile_adapters()
        world.train("A")

    assert list(audit_logs([log.path], Audited())) == []


def test_bytes_that_are_lost_while_the_saver_retains_an_older_backup_are_no_finding(tmp_path: Path) -> None:
    """They were changed without an event: nothing lies live, and a backup is there though no tag is paused."""
    world = make_world(arena=HostArena(retain_host_backup=True), verify="always")
    with AuditLog(tmp_path / "audit.jsonl") as log:
        record(world, log)
        trainer = world.trainer
        trainer.sleep(offload=True)
        trainer.wake_up()
        with torch.no_grad():
            world.model.lora_a[0] += 1
        for call in (trainer.sleep, trainer.offload, trainer.recover, trainer.reconcile_adapters, trainer.sleep):
            with suppress(LifecycleError):
                call()
    last = read_log(log.path)[-1]
    lost = next(one for one in last["facts"]["shared"]["contents"] if one["group"] == "adapter/A")

    assert (last["source"], lost["live"], lost["retained"]) == ("faulted", None, True)
    assert list(audit_logs([log.path], Audited())) == []


def test_what_a_saver_retains_of_a_model_that_is_gone_is_no_finding_where_a_log_begins(tmp_path: Path) -> None:
    """It has a version above all others, and what gave it out stands in a file that was removed."""
    world = make_world(arena=HostArena(retain_host_backup=True))
    trainer, base = world.trainer, {name: torch.zeros_like(getattr(world.model, name)) for name in BASE}
    with AuditLog(tmp_path / "audit.jsonl") as log:
        record(world, log)
        trainer.keep_model("ref", base)
        trainer.switch_model("ref")
        trainer.sleep(offload=True)
        trainer.wake_up()
        trainer.switch_model()
        trainer.snapshots.release("ref")
    with AuditLog(tmp_path / "later.jsonl") as later:
        record(world, later)
        trainer.sleep()
        trainer.snapshots.backup("old_actor")
        trainer.wake_up()
    held = read_log(later.path)[1]["facts"]["shared"]["contents"][0]

    assert held["saver"] > held["version"]
    assert list(audit_logs([log.path], Audited())) == []
    assert list(audit_logs([later.path], Audited())) == []


def test_the_note_of_a_copy_tells_not_all_versions_where_a_log_begins(tmp_path: Path) -> None:
    """What was given out later than those stands in a file that was removed."""
    world = make_world()
    with AuditLog(tmp_path / "audit.jsonl") as log:
        record(world, log)
        world.train("A")
    with AuditLog(tmp_path / "later.jsonl") as later:
        record(world, later)
        world.trainer.keep_model("ref", {name: getattr(world.model, name) for name in BASE})
        world.trainer.sleep()
        world.trainer.wake_up()

    assert list(audit_logs([later.path], Audited())) == []
