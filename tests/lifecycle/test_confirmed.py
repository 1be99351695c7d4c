"""An engine serves once the very instance that was pushed to has confirmed the versions that it was sent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
import torch

from lifecycle import EngineUnconfirmed, EventRefused, Moved, TransitionFailed, Unchanged
from lifecycle.standing import Serves
from tests.lifecycle.torn_engine import TornEngine, holds_everything
from tests.lifecycle.world import World, make_world


def standing(world: World, engine: TornEngine) -> tuple[Serves, str]:
    """Where the engine stands, and why in one text."""
    found = world.trainer.serving([engine])[engine.name]
    assert found.is_routable == (found.serves is Serves.CURRENT)
    return found.serves, "; ".join(found.because)


def pushed() -> tuple[World, TornEngine]:
    """An engine that is current."""
    world, engine = make_world(), TornEngine()
    world.trainer.update_weights([engine])
    engine.calls.clear()
    return world, engine


def test_asking_who_may_serve_changes_nothing() -> None:
    """No record, no call but the question, the same answer again."""
    world, engine = pushed()
    world.audit.records.clear()
    first = world.trainer.serving([engine])

    assert world.trainer.serving([engine]) == first
    assert first["E0"].instance_id == "E0-0"
    assert first["E0"].versions == world.trainer.versions
    assert set(first["E0"].verified.values()) == {"checksum"}
    assert (engine.writes(), world.audit.records) == ([], [])


def test_an_engine_that_was_never_pushed_is_not_routable_whatever_it_says() -> None:
    """Its word counts from the first push that it confirmed on; that push sends only what it lacks (FB-51)."""
    world, engine = make_world(), TornEngine()
    assert standing(world, engine) == (Serves.UNKNOWN, "no push to this instance was confirmed")

    engine.versions = dict(world.trainer.versions)
    assert standing(world, engine)[0] is Serves.UNKNOWN
    assert isinstance(world.trainer.update_weights([engine]), Moved)
    assert standing(world, engine)[0] is Serves.CURRENT
    assert engine.writes() == ["begin", "commit"]


def test_a_restarted_engine_is_known_and_not_routable_until_it_was_pushed_to() -> None:
    """Requests go to the others until then (FB-51, scenario 1 and 2)."""
    world, engines = make_world(), [TornEngine("E0"), TornEngine("E1")]
    world.trainer.update_weights(engines)
    engines[1].restart()
    found = world.trainer.serving(engines)

    assert [one.serves for one in found.values()] == [Serves.CURRENT, Serves.BEHIND]
    assert "it restarted: E1-0 was confirmed, E1-1 answers" in found["E1"].because
    engines[0].calls.clear()
    world.trainer.update_weights(engines)
    assert engines[0].writes() == []
    assert holds_everything(world, engines[1])
    assert standing(world, engines[1])[0] is Serves.CURRENT


def test_a_new_instance_that_claims_to_hold_what_the_old_one_held_gets_everything_again() -> None:
    """Only the instance that took part counts (FB-51)."""
    world, engine = pushed()
    engine.restart()
    engine.versions = dict(world.trainer.versions)
    world.trainer.update_weights([engine])

    assert holds_everything(world, engine)


@pytest.mark.parametrize("call", range(2, 10))
def test_a_restart_in_any_call_of_a_push_voids_its_confirmation(call: int) -> None:
    """What the old instance has confirmed says nothing of the new one; the next pass fixes it (FB-51, scenario 3)."""
    world, engine = make_world(), TornEngine(restarts_at=call)
    with suppress(TransitionFailed):
        world.trainer.update_weights([engine])
    assert standing(world, engine)[0] is not Serves.CURRENT or holds_everything(world, engine)

    world.trainer.update_weights([engine])
    assert holds_everything(world, engine)
    assert standing(world, engine)[0] is Serves.CURRENT


def test_a_restart_in_the_commit_is_named() -> None:
    """Which instance took part, and which one answers."""
    world, engine = make_world(), TornEngine(restarts_at=8)
    with pytest.raises(TransitionFailed, match="it restarted during the push: E0-0 took part, E0-1 answers"):
        world.trainer.update_weights([engine])

    assert engine.calls[7] == "commit"
    assert standing(world, engine)[0] is Serves.FENCED


def swap(versions: dict[str, int]) -> dict[str, int]:
    """A's version under B's name, and the other way round."""
    return versions | {"adapter/A": versions["adapter/B"], "adapter/B": versions["adapter/A"]}


LIES: dict[str, tuple[Callable[[dict[str, int]], dict[str, int]], str]] = {
    "swapped": (swap, "adapter/A is .*, sent was .*; adapter/B is"),
    "lost": (lambda held: {one: at for one, at in held.items() if one != "buffers"}, "buffers is none"),
    "older": (lambda held: held | {"adapter/A": 1}, "adapter/A is 1, sent was"),
    "someone else's": (lambda held: held | {"adapter/Z": 1}, "adapter/Z is 1, sent was none"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_engine_whose_versions_are_not_those_that_were_sent_is_fenced(lie: str) -> None:
    """One writer: what an engine says after the commit is compared with what it was sent (FB-54, FB-56)."""
    change, told = LIES[lie]

    class Liar(TornEngine):
        def commit_update(self) -> None:
            super().commit_update()
            self.versions = change(self.versions)

    world, engine = make_world(), Liar()
    with pytest.raises(TransitionFailed, match=told) as raised:
        world.trainer.update_weights([engine])
    assert isinstance(raised.value.cause, EngineUnconfirmed)
    assert standing(world, engine)[0] is Serves.FENCED
    assert world.host.pushes == []

    engine.commit_update = lambda: TornEngine.commit_update(engine)  # type: ignore[method-assign]
    world.trainer.update_weights([engine])
    assert holds_everything(world, engine)


def test_an_engine_that_reloads_its_checkpoint_when_it_wakes_is_not_served_and_pushed_again() -> None:
    """A wake changes residency, never content (FB-56, scenario 1)."""
    world, engine = pushed()
    engine.versions["frozen-base"] = 1
    assert standing(world, engine) == (Serves.BEHIND, "it lacks the newest frozen-base")

    world.trainer.update_weights([engine])
    assert [one for one in engine.writes() if one.startswith(("base", "adapter"))] == ["base:frozen-base"]
    assert standing(world, engine)[0] is Serves.CURRENT


def test_a_wake_without_a_pending_push_sends_nothing_and_changes_no_version() -> None:
    """Nor do two syncs with nothing trained in between (FB-56, scenario 2 and 3)."""
    world, engine = pushed()
    before = dict(engine.versions)
    engine.release(["weights", "kv_cache"])
    engine.resume(["weights", "kv_cache"])

    assert isinstance(world.trainer.update_weights([engine]), Unchanged)
    assert isinstance(world.trainer.update_weights([engine]), Unchanged)
    assert (engine.versions, engine.writes()) == (before, [])


def test_an_engine_that_does_not_know_what_it_holds_gets_everything_again() -> None:
    """After a failure in an unknown place its word does not count."""
    world, engine = pushed()
    engine.unknown = "its last answer was lost"
    assert standing(world, engine) == (Serves.UNKNOWN, "its last answer was lost")
    with pytest.raises(TransitionFailed, match="it does not know what it holds: its last answer was lost"):
        world.trainer.update_weights([engine])

    engine.unknown = ""
    assert standing(world, engine)[0] is Serves.FENCED
    engine.calls.clear()
    world.trainer.update_weights([engine])
    assert "base:frozen-base" in engine.calls
    assert holds_everything(world, engine)


def test_an_engine_that_does_not_answer_is_not_routable_and_nothing_is_sent_to_it() -> None:
    """Whatever it raises."""
    world, engine = pushed()
    engine.fails = dict.fromkeys(range(1, 4), "before")
    serves, because = standing(world, engine)

    assert serves is Serves.UNKNOWN
    assert because == "it does not answer: ConnectionError: E0 does not hear report"
    with pytest.raises(TransitionFailed, match="E0 does not hear report"):
        world.trainer.update_weights([engine])
    assert engine.writes() == []


def test_an_engine_that_does_not_answer_keeps_nobody_else_from_being_updated() -> None:
    """Nor does one that cannot say where its weights are: its own push fails before anything is sent (FB-54)."""
    world, silent = pushed()
    other, vague = TornEngine("E1"), TornEngine("E2")
    vague.unknown, vague.resident = "its last answer was lost", set()
    silent.fails = dict.fromkeys(range(1, 4), "before")
    silent.calls.clear()
    with pytest.raises(TransitionFailed) as failed:
        world.trainer.update_weights([silent, other, vague])

    assert {name: one.committed for name, one in failed.value.engines.items()} == {"E0": False, "E1": True, "E2": False}
    assert "could not be told when the push was planned (its last answer was lost)" in failed.value.engines["E2"].error
    assert holds_everything(world, other)
    assert (silent.writes(), vague.writes()) == ([], [])


def test_an_engine_that_discarded_its_weights_gets_the_base_before_its_adapters() -> None:
    """A release that keeps them costs the adapter that changed, one that does not the base as well (FB-28, 2 and 3)."""
    world, engine = pushed()
    engine.release(["weights"])
    engine.resume(["weights"])
    world.train("A")
    world.trainer.update_weights([engine])
    assert engine.writes() == ["begin", "base:buffers", "adapter/A", "commit"]

    engine.calls.clear()
    engine.release(["weights"], discard=True)
    assert "weights was discarded" in standing(world, engine)[1]
    with pytest.raises(EventRefused, match="weights released"):
        world.trainer.update_weights([engine])
    engine.resume(["weights"])
    world.trainer.update_weights([engine])
    assert engine.writes() == ["begin", "base:frozen-base", "base:buffers", "adapter/A", "adapter/B", "commit"]


def test_what_is_reported_of_discarded_memory_does_not_count() -> None:
    """An engine that forgets to forget (FB-28)."""
    world, engine = pushed()
    engine.discarded = frozenset({"weights"})
    world.trainer.update_weights([engine])

    assert engine.writes() == ["begin", "base:frozen-base", "base:buffers", "adapter/A", "adapter/B", "commit"]


def test_adapters_that_an_engine_no_longer_reports_after_a_wake_are_pushed_again() -> None:
    """What it says it holds is what it holds (FB-29, scenario 1 and 2)."""
    world, engine = pushed()
    engine.release(["weights"])
    engine.resume(["weights"])
    engine.versions = {group: one for group, one in engine.versions.items() if not group.startswith("adapter/")}
    assert standing(world, engine)[1] == "it lacks the newest adapter/A; it lacks the newest adapter/B"
    world.trainer.update_weights([engine])

    assert engine.writes() == ["begin", "adapter/A", "adapter/B", "commit"]


def test_an_adapter_is_sent_while_the_base_lies_on_the_disk_and_the_base_is_not_touched(tmp_path: object) -> None:
    """The bytes moved are those of what changed, no region is resumed, the state is the same (FB-34)."""
    from lifecycle import HostArena  # noqa: PLC0415 - only here

    world = make_world(arena=HostArena(disk_dir=str(tmp_path)), offload_target="disk", frozen_buffers=("bias",))
    engine, resumed = TornEngine(), []
    world.trainer.update_weights([engine])
    world.train("A")
    world.trainer.sleep(offload=True)
    original = world.arena.resume
    world.arena.resume = lambda tag: (resumed.append(tag), original(tag))  # type: ignore[method-assign,assignment,func-returns-value]
    outcome = world.trainer.update_weights([engine])

    held = world.host.slot_tensors(0).values()
    assert outcome.moved_bytes == sum(one.numel() * one.element_size() for one in held)
    assert (resumed, world.trainer.state) == ([], "offloaded-disk")
    assert isinstance(world.trainer.update_weights([engine]), Unchanged)


class Flipping(TornEngine):
    """One bit of what it receives is another one when it serves."""

    where = ("adapter/A", "lora_b.0")

    def commit_update(self) -> None:
        super().commit_update()
        group, name = self.where
        if group in self.held and group in self.calls:
            self.held[group][name].view(-1).view(torch.uint8)[0] ^= 1


def test_bytes_that_are_not_the_trainers_fence_the_engine_and_name_the_tensor() -> None:
    """What arrived is hashed there and here; only that adapter is in doubt, and sent again."""
    world, engine = make_world(), Flipping()
    with pytest.raises(TransitionFailed, match=r"adapter/A: these tensors are not the trainer's: lora_b\.0") as raised:
        world.trainer.update_weights([engine])

    assert isinstance(raised.value.cause, EngineUnconfirmed)
    assert raised.value.cause.tensors == ("lora_b.0",)
    assert standing(world, engine)[0] is Serves.FENCED
    engine.where = ("", "")
    engine.calls.clear()
    world.trainer.update_weights([engine])
    assert engine.writes() == ["begin", "adapter/A", "commit"]
    assert holds_everything(world, engine)


def test_what_was_verified_of_an_instance_is_known_until_it_restarts() -> None:
    """Also of what a later push has not sent again."""
    world, engine = pushed()
    world.train("A")
    world.trainer.update_weights([engine])
    assert world.trainer.serving([engine])["E0"].verified.keys() == world.trainer.versions.keys()

    engine.restart()
    engine.fails = {len(engine.calls) + 5: "before"}
    with pytest.raises(TransitionFailed):
        world.trainer.update_weights([engine])
    assert not world.trainer.serving([engine])["E0"].is_routable


def test_without_verification_the_outcome_says_so() -> None:
    """``verify="off"`` hashes nothing, here and there."""
    world, engine = make_world(verify="off"), Flipping()
    outcome = world.trainer.update_weights([engine])

    assert set(outcome.engines["E0"].verified.values()) == {
        "unverified: checksums are off (verify='off'), and no probe is configured"
    }
    assert not any(one.startswith("checksums") for one in engine.calls)
    assert standing(world, engine)[0] is Serves.CURRENT


def test_a_cache_reset_that_fails_fails_the_update_and_the_retry_succeeds() -> None:
    """No reset, no commit: what was computed with old weights is never served for new ones (FB-32, scenario 2)."""
    world, engine = pushed()
    world.train("A")
    engine.fails = {3: "before"}
    with pytest.raises(TransitionFailed, match="E0 does not hear begin"):
        world.trainer.update_weights([engine])
    assert "commit" not in engine.calls
    assert standing(world, engine)[0] is Serves.BEHIND  # nothing was written: what it held is whole

    engine.fails = {}
    world.trainer.update_weights([engine])
    assert standing(world, engine)[0] is Serves.CURRENT
