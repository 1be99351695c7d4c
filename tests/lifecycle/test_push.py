"""Weight sync: what each engine lacks, from the decided source, acknowledged before it counts."""

from __future__ import annotations

import pytest

from lifecycle import EngineError, EventRefused, Moved, TrainerState, TransitionFailed, Unchanged
from lifecycle.distributed import RanksMissing
from lifecycle.transport import TransportBroken
from states.agreement import Missing
from tests.lifecycle.world import FakeEngine, World, content_of, make_world


def served(world: World, engine: FakeEngine) -> bool:
    """Whether the engine holds exactly the bytes of the trainer, group by group."""
    groups = world.trainer._parts.inventory.groups()
    with world.trainer.weights("compare") as lease:
        wanted = {group: content_of({name: lease[name] for name in held}) for group, held in groups.items()}
    return {group: engine.digests[group] for group in wanted} == wanted


@pytest.mark.parametrize("offloaded", [False, True])
def test_a_new_engine_gets_everything(*, offloaded: bool) -> None:
    """Source live or saver backup, the engine ends with the trainer's bytes (FB-01, scenario 3)."""
    world, engine = make_world(), FakeEngine()
    if offloaded:
        world.trainer.sleep(offload=True)
    outcome = world.trainer.update_weights([engine])

    assert isinstance(outcome, Moved)
    assert {read.source for read in outcome.reads} == {"saver-backup" if offloaded else "live"}
    assert served(world, engine)


def test_offload_without_colocation_reads_the_saver_backup() -> None:
    """The source follows from residency and versions, not from a label (FB-01)."""
    world, engine = make_world(colocate=False), FakeEngine()
    world.train("A")
    world.trainer.sleep(offload=True)
    outcome = world.trainer.update_weights([engine])

    assert isinstance(outcome, Moved)
    assert {read.source for read in outcome.reads} == {"saver-backup"}
    assert served(world, engine)


def test_a_region_paused_behind_the_controllers_back_without_backup_is_named_at_the_read() -> None:
    """No copy is an error at the moment of the read, never a fall-back to the live tensor (FB-02)."""
    world = make_world(offload_target=None, colocate=False)
    frozen = world.trainer._parts.inventory.base["frozen-base"]
    from lifecycle import Backup  # noqa: PLC0415 - only here

    world.arena.place(frozen, "framework/base", Backup.NONE)
    world.arena.pause("framework/base")
    with pytest.raises(EventRefused, match="no copy can be read of: embed"):
        world.trainer.weights()
    with world.trainer.weights("adapters", groups=["adapter/A"]) as lease:
        assert lease["lora_a.0"].isfinite().all()


def test_a_push_into_released_memory_is_refused_and_writes_nothing() -> None:
    """The engine's weights tag must be resident (FB-04)."""
    world, engine = make_world(), FakeEngine(resident={"kv_cache"})
    with pytest.raises(EventRefused, match=r"weights released: E0"):
        world.trainer.update_weights([engine])
    assert engine.calls == []

    engine.resume(["weights"])
    world.trainer.update_weights([engine])
    assert served(world, engine)


def test_two_syncs_with_nothing_trained_in_between_send_once() -> None:
    """The second is a recorded no-op."""
    world, engine = make_world(), FakeEngine()
    world.trainer.update_weights([engine])
    engine.calls.clear()

    assert isinstance(world.trainer.update_weights([engine]), Unchanged)
    assert engine.calls == []


def test_only_what_changed_is_sent() -> None:
    """A step of A sends A (and the mutable buffers), not B and not the base."""
    world, engine = make_world(), FakeEngine()
    world.trainer.update_weights([engine])
    engine.calls.clear()
    world.train("A")
    world.trainer.update_weights([engine])

    assert engine.calls == ["begin", "base:buffers", "adapter:A", "commit"]


def test_a_restarted_engine_gets_everything_again() -> None:
    """A new instance holds nothing."""
    world, engine = make_world(), FakeEngine()
    world.trainer.update_weights([engine])
    engine.restart()
    world.trainer.update_weights([engine])

    assert served(world, engine)


def test_a_retired_adapter_is_unloaded() -> None:
    """What the trainer no longer has, the engine must not serve."""
    world, engine = make_world(), FakeEngine()
    world.trainer.update_weights([engine])
    world.host.deregister("A")
    world.trainer.reconcile_adapters()
    world.trainer.update_weights([engine])

    assert "adapter/A" not in engine.versions
    assert "unload:A" in engine.calls


@pytest.mark.parametrize("where", ["begin", "base:frozen", "adapter:B", "commit"])
def test_a_failed_push_fences_the_engine_and_the_next_pass_repairs_it(where: str) -> None:
    """A push cannot be taken back; what it left is unknown and sent again."""
    world, engine = make_world(), FakeEngine(fails_at=where)
    with pytest.raises(TransitionFailed) as failed:
        world.trainer.update_weights([engine])
    assert isinstance(failed.value.cause, EngineError)
    assert engine.calls[-1] == "abort"
    assert world.trainer.state is TrainerState.AWAKE
    assert world.host.pushes == []

    engine.fails_at = ""
    world.trainer.update_weights([engine])
    assert served(world, engine)
    assert set(world.host.pushes) == {"A", "B"}


def test_an_engine_that_was_updated_before_another_failed_is_not_sent_to_again() -> None:
    """A fleet in two minds is repaired where it is behind, and only there."""
    world, good, bad = make_world(), FakeEngine("E0"), FakeEngine("E1", fails_at="commit")
    with pytest.raises(TransitionFailed):
        world.trainer.update_weights([good, bad])
    good.calls.clear()
    bad.fails_at = ""
    world.trainer.update_weights([good, bad])

    assert good.calls == []
    assert served(world, bad)


def test_an_engine_that_keeps_a_tensor_is_named_when_the_trainer_wakes() -> None:
    """The receiver copied nothing and still holds the backup: waking would pull it away."""
    world, engine = make_world(), FakeEngine(hoards=True)
    world.trainer.sleep(offload=True)
    world.trainer.update_weights([engine])
    with pytest.raises(EventRefused, match="update_weights to E0"):
        world.trainer.wake_up()

    engine.keeps.clear()
    world.trainer.wake_up()


def test_handoff_runs_the_whole_turn_in_order() -> None:
    """Trainer gives, engine takes weights, gets them, takes its cache; and back."""
    world, engine = make_world(), FakeEngine(resident=set())
    with world.trainer.handoff([engine]):
        engine.calls.append(f"generate while {world.trainer.state}")

    assert engine.calls[0] == "resume:weights"
    assert engine.calls[-3:] == ["resume:kv_cache", "generate while offloaded-cpu", "release:kv_cache,weights"]
    assert world.trainer.state is TrainerState.AWAKE


def test_handoff_raises_the_error_of_its_body_and_leaves_nobody_asleep() -> None:
    """The engines release, the trainer wakes, the first error wins."""
    world, engine = make_world(), FakeEngine(resident=set())
    with pytest.raises(ZeroDivisionError), world.trainer.handoff([engine]):
        raise ZeroDivisionError

    assert engine.resident == set()
    assert world.trainer.state is TrainerState.AWAKE


def test_handoff_that_cannot_push_wakes_the_trainer() -> None:
    """A failure on the way to the engines ends as one inside the block does."""
    world, engine = make_world(), FakeEngine(resident=set(), fails_at="adapter:A")
    with pytest.raises(TransitionFailed), world.trainer.handoff([engine]):
        pytest.fail("the block must not run")

    assert world.trainer.state is TrainerState.AWAKE


def test_engines_of_their_own_device_keep_their_memory_in_a_handoff() -> None:
    """Without colocation nobody has to make room."""
    world, engine = make_world(colocate=False), FakeEngine()
    with world.trainer.handoff([engine]):
        pass

    assert not any(call.startswith(("release", "resume")) for call in engine.calls)


def test_an_engine_that_cannot_release_does_not_keep_the_others_or_the_trainer() -> None:
    """Every engine is released and the trainer wakes; then the error is raised."""
    world, bad, good = make_world(), FakeEngine("E0", resident=set()), FakeEngine("E1", resident=set())

    def stuck(tags: object) -> None:
        raise EngineError("E0", "stuck")

    bad.release = stuck  # type: ignore[method-assign,assignment]
    with pytest.raises(EngineError, match="stuck"), world.trainer.handoff([bad, good]):
        pass

    assert good.resident == set()
    assert world.trainer.state is TrainerState.AWAKE


def test_a_handoff_that_is_refused_at_once_touches_no_engine() -> None:
    """A step is open: the engines keep what they have."""
    world, engine = make_world(), FakeEngine()
    with world.trainer.step(["A"]), pytest.raises(EventRefused), world.trainer.handoff([engine]):
        pytest.fail("the block must not run")

    assert engine.calls == []


def test_an_adapter_that_one_engine_has_committed_is_active_though_another_engine_failed() -> None:
    """It is served; the other engine is repaired by the next pass."""
    world, good, bad = make_world(), FakeEngine("E0"), FakeEngine("E1", fails_at="commit")
    with pytest.raises(TransitionFailed):
        world.trainer.update_weights([good, bad])

    assert set(world.host.pushes) == {"A", "B"}


def test_an_adapter_is_exported_once_although_the_transport_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An export may be a collective of all ranks, and the transport of one rank's engine breaks on that rank alone."""
    world, exported = make_world(), list[str]()
    real = world.host.export

    class Breaking(FakeEngine):
        def _call(self, what: str) -> None:
            super()._call(what)
            if what == "adapter:A" and "abort" not in self.calls:
                raise TransportBroken(self.name, "ipc", "gone", another=True)

    monkeypatch.setattr(world.host, "export", lambda name, read: (exported.append(name), real(name, read))[1])
    engine = Breaking()
    world.trainer.update_weights([engine])

    assert engine.calls.count("begin") == 2
    assert exported == ["A", "B"]
    assert served(world, engine)


def test_no_engine_is_sent_to_once_the_ranks_have_come_apart() -> None:
    """All of them go back: what another engine would be sent meanwhile keeps them waiting."""
    world, next_one = make_world(), FakeEngine("E1")

    class Shared(FakeEngine):
        def begin_update(self) -> None:
            raise RanksMissing(Missing((1,), 0, 1.0))

    with pytest.raises(TransitionFailed, match="rank 1 did not come in time"):
        world.trainer.update_weights([Shared(), next_one])

    assert next_one.calls == []
