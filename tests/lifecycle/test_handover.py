"""The hand-over follows a plan: predicted before the first step, measured against the prediction (FB-19)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lifecycle import ConfigError, EngineError, EventRefused, HostArena, TrainerState
from lifecycle.engines.protocol import EngineReport
from states.handover import HandoverPlan, HandoverRefusal, MemoryPeak
from tests.lifecycle.tenants import Foreign, Meter, Tenant
from tests.lifecycle.world import FakeEngine, make_world
from tests.saver.proc import run_child
from tests.saver.stub import build_stub

CACHE = 512
Turn = tuple[Meter, Tenant | Foreign, int]


def turn(kind: str, **changes: object) -> Turn:
    """A trainer, an engine whose weights take as much as the trainer's, and how much that is."""
    meter = Meter(**{"engine_keeps_weights": False, **changes})
    assert meter.world is not None
    arena, trainer = meter.world.arena, meter.world.trainer
    base = sum(info.size_bytes for info in trainer._parts.layout.tags().weights)
    engine = Tenant(arena, base, CACHE) if kind == "tenant" else Foreign(base, CACHE)
    meter.begin(*([engine] if isinstance(engine, Foreign) else []))
    return meter, engine, base


@pytest.fixture(params=["tenant", "foreign"])
def budgeted(request: pytest.FixtureRequest) -> Callable[[float, float], Turn]:
    """The same with budgets in multiples of the base, for an engine in the same saver and for one elsewhere."""

    def build(host: float, device: float) -> Turn:
        _, _, base = turn(request.param)
        budgets = {"host_budget_bytes": int(host * base), "device_budget_bytes": int(device * base)}
        return turn(request.param, **budgets)

    return build


def run_turn(meter: Meter, engine: FakeEngine, *, memory_peak: str | None = None) -> None:
    """One whole turn."""
    assert meter.world is not None
    with meter.world.trainer.handoff([engine], memory_peak=memory_peak):
        meter.look()


def test_the_peak_on_the_host_is_refused_where_the_host_has_room_for_one_copy(
    budgeted: Callable[[float, float], Turn],
) -> None:
    """Backup and mirror would be twice the base; the refusal says so before the first step (FB-19, scenario 1)."""
    meter, engine, base = budgeted(1.2, 3)
    assert meter.world is not None
    with pytest.raises(EventRefused, match="the-hand-over-fits") as refused:
        run_turn(meter, engine, memory_peak="host")

    assert f"({2 * base} bytes) on the host, the budget is" in str(refused.value)
    assert f"({int(1.2 * base)} bytes)" in str(refused.value)
    assert meter.world.trainer.state is TrainerState.AWAKE
    assert meter.calls == []


def test_the_peak_on_the_device_is_taken_and_keeps_within_the_host_budget(
    budgeted: Callable[[float, float], Turn],
) -> None:
    """Scratch is paused, the engine resumes, then the trainer offloads; both ways are measured (FB-19, scenario 2)."""
    meter, engine, base = budgeted(1.2, 3)
    assert meter.world is not None
    before = meter.world.all_bytes()
    plan = meter.world.trainer.plan_handoff([engine])
    run_turn(meter, engine)

    assert isinstance(plan, HandoverPlan)
    assert (plan.there.memory_peak, plan.back.memory_peak) == (MemoryPeak.DEVICE, MemoryPeak.DEVICE)
    assert base <= meter.host_bytes <= plan.host_peak_bytes <= 1.2 * base
    assert 2 * base <= meter.device_bytes <= plan.device_peak_bytes <= 3 * base
    paused = [tag for operation, tag in meter.calls if operation == "pause"]
    assert paused[0] == "actor/gradients"
    assert meter.world.all_bytes() == before


def test_the_engine_takes_its_weights_between_the_two_pauses_of_the_trainer() -> None:
    """The order of the steps themselves, as the native calls show it (FB-19, scenario 2)."""
    meter, engine, _ = turn("tenant")
    run_turn(meter, engine, memory_peak="device")
    calls = [call for call in meter.calls if call[0] in {"pause", "resume"}]

    scratch, mine, backup = (
        calls.index(one) for one in [("pause", "actor/gradients"), ("resume", "E0/weights"), ("pause", "actor/base")]
    )
    assert scratch < mine < backup


@pytest.mark.parametrize("peak", list(MemoryPeak))
def test_each_order_really_peaks_where_it_is_predicted(budgeted: Callable[[float, float], Turn], peak: str) -> None:
    """The prediction is an upper bound, and exact but for what a scratch region adds."""
    meter, engine, base = budgeted(9, 9)
    assert meter.world is not None
    plan = meter.world.trainer.plan_handoff([engine], memory_peak=peak)
    run_turn(meter, engine, memory_peak=peak)

    assert isinstance(plan, HandoverPlan)
    assert meter.host_bytes == plan.host_peak_bytes == (2 * base if peak == "host" else base)
    assert plan.device_peak_bytes - base <= meter.device_bytes <= plan.device_peak_bytes
    assert (meter.device_bytes >= 2 * base) == (peak == "device")


def test_scratch_that_the_hand_over_has_paused_is_not_paused_again(budgeted: Callable[[float, float], Turn]) -> None:
    """The following sleep and offload leave it alone (FB-19, scenario 3; FB-13)."""
    meter, engine, _ = budgeted(1.2, 3)
    assert meter.world is not None
    trainer = meter.world.trainer
    with trainer.handoff([engine]):
        trainer.sleep()
        trainer.offload()
        assert meter.calls.count(("pause", "actor/gradients")) == 1
    run_turn(meter, engine)

    assert meter.calls.count(("pause", "actor/gradients")) == 2
    assert meter.calls.count(("resume", "actor/gradients")) == 2


def test_with_both_budgets_too_small_nothing_is_begun(budgeted: Callable[[float, float], Turn]) -> None:
    """Refused before the first step, not in the middle (FB-19, scenario 4)."""
    meter, engine, _ = budgeted(1.2, 1.5)
    assert meter.world is not None
    engine.calls.clear()
    with pytest.raises(EventRefused) as refused:
        run_turn(meter, engine)

    assert refused.value.event == "handoff"
    assert "with the peak on the host" in str(refused.value)
    assert "with the peak on the device" in str(refused.value)
    assert "raise a budget" in refused.value.remedy
    assert (meter.calls, engine.calls) == ([], [])
    assert meter.world.trainer.state is TrainerState.AWAKE
    assert meter.world.records("refused")[-1]["trigger"] == "handoff"


def test_the_plan_can_be_asked_for_right_after_construction_and_changes_nothing(
    budgeted: Callable[[float, float], Turn],
) -> None:
    """A run whose hand-over cannot fit need not start (FB-19, rule: at initialisation too)."""
    meter, engine, _ = budgeted(1.2, 1.5)
    assert meter.world is not None
    records = len(meter.world.audit.records)

    assert isinstance(meter.world.trainer.plan_handoff([engine]), HandoverRefusal)
    assert meter.calls == []
    assert len(meter.world.audit.records) == records


def test_the_plan_and_its_predicted_peaks_are_on_the_record() -> None:
    """Before the first step, with the budgets."""
    meter, engine, base = turn("tenant")
    assert meter.world is not None
    meter.world.audit.records.clear()
    run_turn(meter, engine)
    first = meter.world.records()[0]

    assert (first["event"], first["note"]) == ("lifecycle.noted", "a hand-over was planned")
    there = first["there"]
    assert isinstance(there, dict)
    assert (there["memory_peak"], there["host_peak_bytes"]) == ("host", 2 * base)
    assert json.dumps(first["budget_bytes"])


def test_a_budget_that_not_even_the_trainers_own_backup_fits_is_noted_at_construction() -> None:
    """Building is not refused: a run may never hand over. The first hand-over is."""
    meter = Meter(host_budget_bytes=1024)
    assert meter.world is not None
    world = meter.world
    assert isinstance(world.trainer.plan_handoff([]), HandoverRefusal)
    notes: list[object] = []
    world.trainer._runner.recorder.noted = lambda what, **_: notes.append(what)  # type: ignore[method-assign,assignment]
    world.trainer._start_planning()

    assert notes == ["no hand-over fits the budgets"]


def test_a_trainer_that_cannot_wake_first_wakes_once_the_engines_have_released() -> None:
    """With the peak on the device, on the way back: the room was promised and somebody else took it."""
    meter, engine, _ = turn("tenant")
    assert meter.world is not None
    trainer, refusals = meter.world.trainer, list[str]()
    wake = trainer.wake_up

    def crowded() -> object:
        if "weights" in engine.resident:
            refusals.append("no room")
            raise EngineError("device", "no room")
        return wake()

    trainer.wake_up = crowded  # type: ignore[method-assign,assignment]
    run_turn(meter, engine, memory_peak="device")

    assert refusals == ["no room"]
    assert trainer.state is TrainerState.AWAKE
    assert engine.resident == set()


def test_accumulated_gradients_and_a_copy_that_is_due_are_predicted() -> None:
    """What sleep takes on the host counts from there on."""
    meter, engine, _ = turn("tenant", strategy="duplicate")
    assert meter.world is not None
    with meter.world.trainer.step(["A"]) as step:
        meter.world.backward("A")
        step.accumulated()
    meter.begin()
    plan = meter.world.trainer.plan_handoff([engine])
    run_turn(meter, engine)

    assert isinstance(plan, HandoverPlan)
    assert plan.sizes.trainer.kept_bytes > 2 * 4 * 32 * 4
    assert meter.host_bytes == plan.host_peak_bytes


def test_retained_backups_stay_and_are_not_predicted_to_go() -> None:
    """With retention the second turn finds both copies on the host, and every order keeps them there (FB-17)."""
    saver = HostArena(retain_host_backup=True)
    world = make_world(arena=saver)
    engine = Tenant(saver, 4096, CACHE)
    with world.trainer.handoff([engine]):
        held = world.trainer.held_bytes()["saver_host"]
    plan = world.trainer.plan_handoff([engine])

    assert isinstance(plan, HandoverPlan)
    assert plan.sizes.trainer.returned_bytes == plan.sizes.trainer.backup_bytes == 0
    assert plan.host_peak_bytes >= held


def test_engines_of_their_own_device_do_not_count() -> None:
    """Without colocation nobody has to make room, whatever they hold."""
    world = make_world(colocate=False, device_budget_bytes=1 << 20)
    plan = world.trainer.plan_handoff([Foreign(1 << 30, 1 << 30)])

    assert isinstance(plan, HandoverPlan)
    assert plan.device_peak_bytes < 1 << 20
    assert not any(step.engine for step in plan.steps)


def test_an_engine_that_does_not_answer_counts_as_nothing_and_is_named() -> None:
    """The plan does not hide it, and the first step will say why."""
    world, engine = make_world(), FakeEngine()
    engine.report = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    plan = world.trainer.plan_handoff([engine])

    assert isinstance(plan, HandoverPlan)
    assert plan.unsized == ("E0",)


@pytest.mark.parametrize("sizes", [{"weights": -1}, {"kv_cache": 0.5}, {"weights": None}])
def test_sizes_that_are_no_numbers_of_bytes_are_the_engines_error(sizes: dict[str, int]) -> None:
    """No prediction is made from them."""
    world, engine = make_world(), FakeEngine()

    def report() -> EngineReport:
        return replace(FakeEngine().report(), device_bytes=sizes)

    engine.report = report  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="engine E0: it reports sizes"):
        world.trainer.plan_handoff([engine])


def test_a_memory_that_does_not_exist_is_refused() -> None:
    """With the names of those that do, here and in the configuration."""
    with pytest.raises(ConfigError, match="memory_peak is 'disk'; use one of host, device, or None"):
        make_world().trainer.plan_handoff([], memory_peak="disk")
    with pytest.raises(ConfigError, match="memory_peak is 'disk'"):
        make_world(memory_peak="disk")


CHILD = """
import sys, pathlib
import tests.lifecycle.world as world
world.WIDTH = 3072
from tests.lifecycle.real_handover import main
main(pathlib.Path(sys.argv[1]))
"""


def test_the_peak_that_the_operating_system_sees_is_within_the_prediction(tmp_path: Path) -> None:
    """The compiled saver in a process of its own: backups are anonymous, the device is shared memory (FB-19)."""
    build_stub(tmp_path)
    child = run_child(CHILD, str(tmp_path))
    assert child.returncode == 0, child.stdout + child.stderr
    found = json.loads(child.stdout.splitlines()[-1])
    slack = max(32 << 20, found["base"] // 20)

    assert found["memory_peak"] == "device"
    assert found["predicted_host"] <= 1.2 * found["base"]
    assert found["host"] <= found["predicted_host"] + slack
    assert found["device"] <= found["predicted_device"] + slack
    assert found["device"] >= 2 * found["base"] - slack
    assert found["host_peak_order_host"] >= 2 * found["base"] - slack


def test_a_plan_asks_each_engine_once() -> None:
    """To a server a report is several requests."""
    asked: list[str] = []

    class Counting(FakeEngine):
        def report(self) -> EngineReport:
            asked.append(self.name)
            return super().report()

    make_world().trainer.plan_handoff([Counting("E0"), Counting("E1")])

    assert asked == ["E0", "E1"]
