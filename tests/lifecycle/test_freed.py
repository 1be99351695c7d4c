"""Freed bytes against expected ones, and what stays behind from cycle to cycle."""

from __future__ import annotations

import pytest

from lifecycle import EventRefused, Moved, SaverError, TrainerState, TransitionFailed
from tests.lifecycle.faulty import FaultyPort, faulty_saver
from tests.lifecycle.test_refusals import everything
from tests.lifecycle.world import FakeEngine, World, make_world

MIB = 2**20


def faulty_world(**changes: object) -> tuple[World, FaultyPort]:
    """A base of 10 MiB on a saver that can be told to go wrong."""
    saver = faulty_saver()
    world = make_world(arena=saver, ballast_bytes=10 * MIB, **changes)  # type: ignore[arg-type]
    port = saver._port
    assert isinstance(port, FaultyPort)
    return world, port


def test_a_disabled_saver_refuses_the_offload_and_says_how_to_enable_it() -> None:
    """A saver that is not switched on behaves like a working one (FB-27, scenario 1)."""
    world, port = faulty_world()
    world.trainer.sleep()
    port.is_enabled = False
    with pytest.raises(EventRefused, match="configure_subprocess") as refused:
        world.trainer.offload()

    assert "saver-is-enabled" in [one.name for one in refused.value.failed]
    assert world.trainer.state is TrainerState.SLEEPING


def test_a_saver_that_frees_nothing_is_an_error_with_both_numbers() -> None:
    """The state does not become offloaded on faith; every byte is as before (FB-27, scenario 2)."""
    world, port = faulty_world()
    world.trainer.sleep()
    before, port.keeps_share = everything(world), 1.0
    expected = world.trainer.held_bytes()["device"]
    with pytest.raises(TransitionFailed) as failed:
        world.trainer.offload()

    assert isinstance(failed.value.cause, SaverError)
    assert f"{expected} bytes were to be freed, 0 were" in str(failed.value)
    assert failed.value.effect == "check-freed"
    assert everything(world) == before
    assert world.trainer.state is TrainerState.SLEEPING
    port.keeps_share = 0.0
    assert isinstance(world.trainer.offload(), Moved)


def test_no_engine_takes_memory_that_was_not_freed() -> None:
    """In a hand-over the engines are not resumed, and the trainer is awake again (FB-27, scenario 2)."""
    world, port = faulty_world()
    engine = FakeEngine(resident=set())
    port.keeps_share = 1.0
    with pytest.raises(TransitionFailed, match="were to be freed"), world.trainer.handoff([engine]):
        pytest.fail("the block must not begin")

    assert not [call for call in engine.calls if call.startswith("resume")]
    assert world.trainer.state is TrainerState.AWAKE


def test_a_saver_that_frees_everything_is_believed() -> None:
    """10 of 10 (FB-27, scenario 3)."""
    world, _ = faulty_world()

    assert isinstance(world.trainer.sleep(), Moved)
    assert isinstance(world.trainer.offload(), Moved)


def test_scratch_that_is_not_freed_fails_the_sleep() -> None:
    """Gradients are given back at sleep already, and that is measured too."""
    world, port = faulty_world()
    before, port.keeps_share = everything(world), 1.0
    with pytest.raises(TransitionFailed, match="actor/gradients"):
        world.trainer.sleep()

    assert everything(world) == before


def test_residue_that_grows_is_flagged_in_the_third_cycle() -> None:
    """1 MiB more is left behind in each cycle: in the outcome, in a record, on the controller (FB-24, scenario 3)."""
    world, port = faulty_world()
    port.leaves_bytes = MIB // 8  # at each of the resumes of a cycle
    flags = []
    for _ in range(3):
        world.trainer.sleep()
        outcome = world.trainer.offload()
        assert isinstance(outcome, Moved)
        flags.append(dict(outcome.details)["residue"]["growing"])  # type: ignore[index]
        port.leaves_bytes = MIB // 4
        world.trainer.wake_up()

    assert flags == [False, False, True]
    assert world.trainer.residue.growing
    assert "more than 2 cycles before" in world.trainer.residue.because
    notes = [one for one in world.records("noted") if "grows" in str(one["note"])]
    assert len(notes) == 1
    assert notes[0]["bytes"] == list(world.trainer.residue.readings)


def test_residue_that_stays_is_recorded_and_never_flagged() -> None:
    """The runtime of the device takes its memory once."""
    world, port = faulty_world()
    port.left = 300 * MIB
    for _ in range(6):
        world.trainer.sleep(offload=True)
        world.trainer.wake_up()
    residue = world.trainer.residue

    assert not residue.growing
    assert len(set(residue.readings)) == 1
    assert len(residue.readings) == 6
    assert 300 * MIB <= residue.readings[0] < 300 * MIB + 65536
    assert not [one for one in world.records("noted") if "grows" in str(one["note"])]


def test_an_offload_that_fails_leaves_no_reading() -> None:
    """The history is of cycles that took place."""
    world, port = faulty_world()
    world.trainer.sleep()
    port.keeps_share = 1.0
    with pytest.raises(TransitionFailed):
        world.trainer.offload()
    port.keeps_share = 0.0
    machine = world.trainer._runner.machine
    take = machine.take
    machine.take = lambda step: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(TransitionFailed, match="commit"):
        world.trainer.offload()
    machine.take = take  # type: ignore[method-assign]

    assert world.trainer.residue.readings == ()


def test_a_device_that_cannot_be_asked_is_not_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figure, no reading, no error."""
    world, port = faulty_world()
    monkeypatch.setattr(port, "device_used_bytes", lambda: None)
    world.trainer.sleep(offload=True)

    assert world.trainer.state is TrainerState.OFFLOADED_CPU
    assert world.trainer.residue.readings == ()
