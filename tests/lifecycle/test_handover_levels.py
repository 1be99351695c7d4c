"""What is held after each step of a hand-over is what was predicted, to the byte; and what stays is not asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lifecycle import EngineError, TrainerState
from lifecycle.engines.protocol import EngineReport
from lifecycle.handoff import handoff
from states.handover import HandoverPlan, HandoverStep, MemoryPeak
from tests.lifecycle.tenants import Foreign, Meter, Tenant
from tests.lifecycle.world import FakeEngine, World

CACHE = 512
Found = list[tuple[str, int, int]]


def begun(kind: str, **changes: Any) -> tuple[Meter, World, Tenant | Foreign]:
    """A meter on a trainer with an engine of the same size, released, in the trainer's saver or elsewhere."""
    meter = Meter(**changes)
    assert meter.world is not None
    base = sum(info.size_bytes for info in meter.world.trainer._parts.layout.tags().weights)
    engine = Tenant(meter.world.arena, base, CACHE) if kind == "tenant" else Foreign(base, CACHE)
    meter.begin(*([engine] if isinstance(engine, Foreign) else []))
    return meter, meter.world, engine


def walked(meter: Meter, engine: FakeEngine, **asked: Any) -> tuple[HandoverPlan, Found]:
    """The plan of one turn, and what memory itself held after each of its steps."""
    assert meter.world is not None
    trainer, found = meter.world.trainer, Found()
    plan = trainer.plan_handoff([engine], **asked)
    assert isinstance(plan, HandoverPlan), plan

    def after(step: HandoverStep) -> None:
        meter.host_bytes = meter.device_bytes = 0
        meter.look()
        found.append((str(step), meter.host_bytes, meter.device_bytes))

    with handoff(trainer, [engine], lambda: plan, after):
        pass
    return plan, found


def predicted(plan: HandoverPlan) -> Found:
    """The same as the plan has it."""
    return [(str(one), one.host_bytes, one.device_bytes) for one in plan.steps]


SETTINGS: list[dict[str, Any]] = [
    {},
    {"engine_keeps_weights": True},
    {"strategy": "reference", "with_ref": True},
    {"strategy": "duplicate"},
    {"offload_target": None},
]


@pytest.mark.parametrize("kind", ["tenant", "foreign"])
@pytest.mark.parametrize("peak", list(MemoryPeak))
@pytest.mark.parametrize("changes", SETTINGS, ids=lambda one: "-".join(map(str, one.values())) or "lean")
def test_after_each_step_exactly_the_predicted_bytes_are_held(kind: str, peak: str, changes: dict[str, Any]) -> None:
    """Over two turns with a step between them: on the host and on the device, by the pages themselves."""
    meter, world, engine = begun(kind, memory_peak=peak, **changes)
    for _ in range(2):
        plan, found = walked(meter, engine)
        assert found == predicted(plan)
        world.train("A")


@pytest.mark.parametrize("peak", list(MemoryPeak))
def test_a_base_in_a_file_is_not_on_the_host_as_predicted(peak: str, tmp_path: Path) -> None:
    """Only what trains is backed up."""
    meter, world, engine = begun("tenant", memory_peak=peak, frozen_base="file", base_dir=str(tmp_path))
    for _ in range(2):
        plan, found = walked(meter, engine)
        assert found == predicted(plan)
        assert plan.sizes.trainer.backup_bytes < plan.sizes.trainer.base_bytes
        world.train("A")


@pytest.mark.parametrize("peak", list(MemoryPeak))
def test_gradients_of_an_accumulation_come_and_go_as_predicted(peak: str) -> None:
    """They are on the host from sleep to wake."""
    meter, world, engine = begun("tenant", memory_peak=peak)
    with world.trainer.step(["A"]) as step:
        world.backward("A")
        step.accumulated()
    plan, found = walked(meter, engine)

    assert found == predicted(plan)
    assert plan.sizes.trainer.kept_bytes > 0
    assert found[-1][1] == found[0][1] - plan.sizes.trainer.kept_bytes  # nothing of them is left


@pytest.mark.parametrize("peak", list(MemoryPeak))
def test_the_books_say_after_each_step_what_was_predicted(peak: str) -> None:
    """The ledger of a saver that both sides share, on the record of the turn."""
    _, world, engine = begun("tenant", memory_peak=peak)
    ledger: Found = []
    engine.resume = _then(engine.resume, ledger, world)  # type: ignore[method-assign]
    with world.trainer.handoff([engine]):
        pass
    (record,) = [one for one in world.records("noted") if one["note"] == "a hand-over has gone"]
    steps = record["steps"]

    assert isinstance(steps, list)
    assert [(one["held_host_bytes"], one["held_device_bytes"]) for one in steps] == [
        (one["host_bytes"], one["device_bytes"]) for one in steps
    ]
    after_resume = [(one["host_bytes"], one["device_bytes"]) for one in steps if ".resume(" in one["step"]]
    assert [one[1:] for one in ledger] == after_resume
    assert steps[-1]["step"] == ("wake_up" if peak == "host" else "E0.release(weights)")


def _then(call: Any, ledger: Found, world: World) -> Any:
    def looks(tags: Iterable[str]) -> None:
        call(tags)
        held = world.trainer.ledger
        ledger.append((",".join(tags), held.host_bytes, held.device_bytes))

    return looks


def test_with_the_peak_on_the_device_the_host_holds_the_larger_of_both_copies_and_not_their_sum() -> None:
    """Measured within every native call of two whole turns, for engines smaller and larger than the trainer."""
    for share in (0.5, 2.0):
        found = {}
        for peak in MemoryPeak:
            meter = Meter(memory_peak=peak, engine_keeps_weights=False)
            assert meter.world is not None
            base = sum(info.size_bytes for info in meter.world.trainer._parts.layout.tags().weights)
            mirror = int(share * base) // 4096 * 4096
            engine = Tenant(meter.world.arena, mirror, CACHE)
            meter.begin()
            for _ in range(2):
                with meter.world.trainer.handoff([engine]):
                    pass
            found[peak] = meter.host_bytes, mirror, base
        host, mirror, base = found[MemoryPeak.HOST]

        assert host == mirror + base
        assert found[MemoryPeak.DEVICE][0] == max(mirror, base)


def test_with_lora_an_engine_that_fits_beside_the_trainer_keeps_its_weights() -> None:
    """The second turn neither resumes nor releases them, no mirror is made, and only the adapter is sent (FB-28)."""
    meter, world, engine = begun("tenant", device_budget_bytes=1 << 30, frozen_buffers=("bias",))
    with world.trainer.handoff([engine]):
        pass
    world.train("A")
    engine.calls.clear()
    meter.begin()
    with world.trainer.handoff([engine]):
        meter.look()

    assert engine.calls == ["begin", "adapter:A", "commit", "resume:kv_cache", "release:kv_cache"]
    assert engine.resident == {"weights"}
    assert ("pause", "E0/weights") not in meter.calls
    assert meter.host_bytes == sum(info.size_bytes for info in world.trainer._parts.layout.tags().weights)


def test_kept_weights_are_released_where_the_trainer_finds_no_room() -> None:
    """It was promised and somebody else took it; the trainer wakes all the same."""
    _, world, engine = begun("tenant", engine_keeps_weights=True)
    trainer, refusals = world.trainer, list[str]()
    wake = trainer.wake_up

    def crowded() -> object:
        if "weights" in engine.resident:
            refusals.append("no room")
            raise EngineError("device", "no room")
        return wake()

    trainer.wake_up = crowded  # type: ignore[method-assign,assignment]
    with trainer.handoff([engine]):
        pass

    assert refusals == ["no room"]
    assert trainer.state is TrainerState.AWAKE
    assert engine.resident == set()


def test_a_turn_that_fails_on_the_way_puts_back_what_it_took_and_nothing_else() -> None:
    """The weights were resident before it and stay; the cache was never taken (FB-16)."""
    _, world, engine = begun("foreign")
    engine.resume(("weights",))
    engine.fails_at = "adapter:A"
    engine.calls.clear()
    with pytest.raises(Exception, match="told to fail"), world.trainer.handoff([engine]):
        pytest.fail("the block must not run")

    assert not any(call.startswith(("release", "resume")) for call in engine.calls)
    assert engine.resident == {"weights"}
    assert world.trainer.state is TrainerState.AWAKE


class Discarding(Foreign):
    """An engine that keeps nothing of its weights when it releases them, as a sleep at level 2 does."""

    discarded = False

    def report(self) -> EngineReport:
        gone = frozenset({"weights"} if self.discarded else ())
        return replace(super().report(), mirror_bytes=0, discards=True, discarded=gone)

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:
        wanted = tuple(tags)
        self.calls.append(f"discard:{discard}")
        super().release(wanted)
        if "weights" in wanted:
            assert discard
            self.mirror, self.discarded, self.versions = None, True, {}

    def resume(self, tags: Iterable[str]) -> None:
        wanted = tuple(tags)
        super().resume(wanted)
        self.discarded = self.discarded and "weights" not in wanted


def test_an_engine_that_discards_is_told_to_and_gets_the_base_in_each_turn() -> None:
    """Its release leaves no mirror, and the plan says how many bytes are sent again (FB-12, FB-13)."""
    meter, world, _ = begun("tenant")
    engine = Discarding(4096, CACHE)
    engine.mirror = None
    meter.begin(engine)
    with world.trainer.handoff([engine]):
        pass
    engine.calls.clear()
    plan, found = walked(meter, engine)
    (sends,) = [step.sends_bytes for step in plan.steps if step.does == "update_weights"]
    base = plan.sizes.trainer.base_bytes

    assert found == predicted(plan)
    assert sends >= base > 0
    assert [call for call in engine.calls if call.startswith(("resume:w", "base", "adapter", "discard"))] == [
        "resume:weights", "base:frozen-base", "base:buffers", "adapter:A", "discard:True",
    ]  # fmt: skip


def test_what_a_sync_sends_is_what_the_plan_said() -> None:
    """A fresh engine gets everything, one that is current nothing."""
    _, world, engine = begun("tenant", engine_keeps_weights=True)
    said = []
    for _ in range(2):
        plan = world.trainer.plan_handoff([engine])
        assert isinstance(plan, HandoverPlan)
        before = sum(world.trainer.ledger.moved_by("update_weights").values())
        with world.trainer.handoff([engine]):
            pass
        moved = sum(world.trainer.ledger.moved_by("update_weights").values()) - before
        said.append((moved, sum(step.sends_bytes for step in plan.steps)))

    assert said[0][0] == said[0][1] > 0
    assert said[1] == (0, 0)


class Graphs(FakeEngine):
    """An engine with captured graphs, that ends on a resume of what it holds or a release of what it does not."""

    def __init__(self) -> None:
        super().__init__("E2", resident=set())

    def report(self) -> EngineReport:
        every = frozenset({"weights", "kv_cache", "cuda_graph"})
        return replace(super().report(), resident=frozenset(self.resident), released=every - self.resident)

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:
        assert set(tags) <= self.resident, "process death"
        super().release(tags)

    def resume(self, tags: Iterable[str]) -> None:
        assert not set(tags) & self.resident, "process death"
        super().resume(tags)


def test_graphs_come_after_the_cache_and_go_before_it() -> None:
    """An engine that has the tag is asked for it, whatever was kept in the turn before (FB-08)."""
    _, world, _ = begun("tenant", engine_keeps_weights=True)
    engine = Graphs()
    for _ in range(2):
        with world.trainer.handoff([engine]):
            assert engine.resident == {"weights", "kv_cache", "cuda_graph"}
    memory = [call for call in engine.calls if call.startswith(("resume", "release"))]

    assert memory == [
        "resume:weights", "resume:kv_cache,cuda_graph", "release:cuda_graph,kv_cache",
        "resume:kv_cache,cuda_graph", "release:cuda_graph,kv_cache",
    ]  # fmt: skip
