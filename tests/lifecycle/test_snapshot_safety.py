"""Named copies: no call loses the only bytes of a version, changes what somebody reads, or copies without room."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lifecycle import EventRefused, HostArena, Moved, TrainerFaulted, TrainerState
from lifecycle.errors import ReentrantEvent, UnreadableTensor
from lifecycle.transition.parts import Parts, Undo, Work
from lifecycle.weights.stored import write_group
from states import FROZEN_BASE, TRAINABLE_BASE, Effect
from tests.lifecycle.world import WIDTH, FakeEngine, World, make_world


def another_base(world: World, by: float = 1) -> dict[str, Tensor]:
    """A model whose frozen base differs in every byte."""
    return {name: one.detach() + by for name, one in world.trainer._parts.inventory.base[FROZEN_BASE].items()}


def taught_world() -> tuple[World, Tensor]:
    """The teacher's trainable base is live, the actor's is in the copy under ref and nowhere else."""
    world = make_world(trainable=True)
    actors = world.model.p.detach().clone()
    world.trainer.keep_model("ref")
    world.trainer.keep_model("teacher", {"p": actors + 5})
    world.trainer.switch_model("teacher")
    return world, actors


def faulted_world() -> World:
    """A byte of the saver's backup was flipped while the trainer was offloaded."""
    world = make_world()
    world.trainer.sleep(offload=True)
    backup = world.arena.host_backup(world.model.lora_a[0])
    assert backup is not None
    backup.view(-1)[0] += 1
    del backup
    with pytest.raises(TrainerFaulted):
        world.trainer.wake_up()
    return world


REPLACING: dict[str, Callable[[World], object]] = {
    "keep_model": lambda world: world.trainer.keep_model("ref"),
    "keep_model with tensors": lambda world: world.trainer.keep_model("ref", {"p": torch.zeros(WIDTH)}),
    "backup": lambda world: world.trainer.snapshots.backup("ref"),
    "copy": lambda world: world.trainer.snapshots.copy(src_tag="teacher", dst_tag="ref"),
    "release": lambda world: world.trainer.snapshots.release("ref"),
}


@pytest.mark.parametrize("call", REPLACING.values(), ids=REPLACING)
def test_the_actors_only_bytes_are_neither_replaced_nor_dropped(call: Callable[[World], object]) -> None:
    """They lie under a tag of another name; whatever would overwrite that tag is refused, and the switch back works."""
    world, actors = taught_world()
    with pytest.raises(EventRefused, match="last readable copy of: trainable-base"):
        call(world)

    world.trainer.switch_model("actor")
    assert torch.equal(world.model.p, actors)
    call(world)


def test_a_backup_that_was_retained_is_no_copy_of_what_trains() -> None:
    """It holds the bytes of the last pause: right for what is frozen, and for nothing else."""
    world = make_world(arena=HostArena(retain_host_backup=True), trainable=True)
    actors = world.model.p.detach().clone()
    world.trainer.sleep(offload=True)
    world.trainer.wake_up()
    world.trainer.keep_model("ref")
    world.trainer.keep_model("teacher", {"p": actors + 5})
    world.trainer.switch_model("teacher")
    with pytest.raises(EventRefused, match="last readable copy of: trainable-base"):
        world.trainer.snapshots.release("ref")

    world.trainer.switch_model("actor")
    assert torch.equal(world.model.p, actors)


@pytest.mark.parametrize("call", ["keep_model", "backup"])
def test_a_tag_is_not_replaced_under_a_reader(call: str) -> None:
    """``keep_model`` asks like every other call."""
    world = make_world(strategy="reference", trainable=True)
    world.trainer.keep_model("ref")
    world.trainer.keep_model("teacher", {"p": world.model.p.detach() + 5})
    world.trainer.switch_model("teacher")
    replace = world.trainer.keep_model if call == "keep_model" else world.trainer.snapshots.backup
    with world.trainer.weights("exporter", groups=[TRAINABLE_BASE]) as lease:
        assert set(lease.sources) == {"snapshot:ref"}
        with pytest.raises(EventRefused, match="read by: exporter"):
            replace("ref")


def test_a_restore_while_offloaded_does_not_overwrite_the_only_copy_of_the_newest_bytes() -> None:
    """The bytes at risk are those in the saver's backup: a resume brings them back."""
    world = make_world(strategy="reference")
    world.trainer.snapshots.backup("actor")
    world.train("A")
    trained = world.all_bytes()
    world.trainer.sleep(offload=True)
    with pytest.raises(EventRefused, match="overwritten without a copy: buffers, adapter/A"):
        world.trainer.snapshots.restore("actor")

    world.trainer.wake_up()
    assert world.all_bytes() == trained


def test_a_restore_does_not_change_bytes_in_the_savers_backup_under_a_reader() -> None:
    """A lease over the backup of a pause pins it like one over live weights."""
    world = make_world(strategy="reference")
    world.trainer.snapshots.backup("actor")
    world.train("A")
    world.trainer.snapshots.backup("newest")
    world.trainer.sleep(offload=True)
    with world.trainer.weights("exporter", groups=["adapter/A"]) as lease:
        assert set(lease.sources) == {"saver-backup"}
        with pytest.raises(EventRefused, match="read by: exporter"):
            world.trainer.snapshots.restore("actor")

    assert world.trainer.snapshots.restore("actor") > 0


def test_a_restore_into_memory_that_cannot_be_written_is_refused_and_loses_nothing(tmp_path: Path) -> None:
    """Paused to disk: refused before a group is marked, and the resume brings back what was there."""
    arena = HostArena(disk_dir=str(tmp_path))
    world = make_world(arena=arena, strategy="reference", offload_target="disk", trainable=True, verify="off")
    world.trainer.keep_model("t", {"p": world.model.p.detach() + 1})
    world.trainer.switch_model("t")
    live = world.model.p.detach().clone()
    world.trainer.keep_model("t", {"p": live + 1})
    world.trainer.sleep(offload=True)
    with pytest.raises(EventRefused, match="paused where nothing can be written: trainable-base"):
        world.trainer.snapshots.restore("t")

    world.trainer.wake_up()
    assert torch.equal(world.model.p, live)


@pytest.mark.parametrize("call", ["backup", "keep_model"])
def test_what_is_paused_where_nobody_can_read_it_is_not_copied(call: str, tmp_path: Path) -> None:
    """A base that comes back from its file, and a tag that shares nothing: refused by name, nothing is stored."""
    arena = HostArena(disk_dir=str(tmp_path))
    world = make_world(arena=arena, strategy="duplicate", frozen_base="file")
    world.trainer.sleep(offload=True)
    keep = world.trainer.snapshots.backup if call == "backup" else world.trainer.keep_model
    with pytest.raises(EventRefused, match="paused where nothing can be read: frozen-base"):
        keep("ref")

    assert not world.trainer.snapshots.has("ref")
    world.trainer.wake_up()
    assert keep("ref") > 0


class _HalfHidden:
    """A source of two tensors, the second of which is out of reach."""

    def __init__(self) -> None:
        self.tensor = torch.zeros(3)
        self.marks: list[int | None] = []

    def own_bytes(self, _: str, name: str) -> Tensor:
        if name == "second":
            raise UnreadableTensor(name, "it is paused with backup disk")
        return self.tensor

    def written(self, _: str, version: int | None) -> None:
        self.marks.append(version)


def test_a_group_is_marked_only_when_all_of_it_can_be_written() -> None:
    """Half a group with an unknown version would be lost for nothing."""
    source = _HalfHidden()
    with pytest.raises(UnreadableTensor):
        write_group(source, "g", 7, {"first": torch.ones(3), "second": torch.ones(3)})  # type: ignore[arg-type]

    assert source.marks == []
    assert torch.equal(source.tensor, torch.zeros(3))


@pytest.mark.parametrize("changes", [{}, {"frozen_base": "file"}], ids=["saver", "file"])
def test_the_tag_of_the_model_in_live_memory_is_not_dropped(changes: dict[str, str], tmp_path: Path) -> None:
    """Nobody would know any more what is live, and after a cycle it would be something else."""
    world = make_world(arena=HostArena(disk_dir=str(tmp_path)), with_ref=True, **changes)
    actor = world.all_bytes()
    world.trainer.keep_model("ref", another_base(world))
    world.trainer.switch_model("ref")
    with pytest.raises(EventRefused, match=r'switch_model\("actor"\)'):
        world.trainer.snapshots.release("ref")

    world.trainer.switch_model("actor")
    world.trainer.snapshots.release("ref")
    assert world.all_bytes() == actor


IN_FAULTED: dict[str, Callable[[World], object]] = {
    "keep_model": lambda world: world.trainer.keep_model("rescue"),
    "keep_model with tensors": lambda world: world.trainer.keep_model("rescue", another_base(world)),
    "backup": lambda world: world.trainer.snapshots.backup("rescue"),
    "copy": lambda world: world.trainer.snapshots.copy(src_tag="old", dst_tag="rescue"),
    "restore": lambda world: world.trainer.snapshots.restore("actor"),
    "release": lambda world: world.trainer.snapshots.release("old"),
    "get": lambda world: world.trainer.snapshots.get("old"),
    "tensor": lambda world: world.trainer.snapshots.tensor("old", "adapter/A", "lora_a.0"),
}


@pytest.mark.parametrize("call", IN_FAULTED.values(), ids=IN_FAULTED)
def test_nothing_is_kept_read_or_dropped_while_the_trainer_is_faulted(call: Callable[[World], object]) -> None:
    """Bytes that nobody has verified would get the name of a version; ``recover()`` comes first."""
    world = faulted_world()
    books = world.trainer._parts.snapshots
    books.keep("old", "adapter/A", 1, {"lora_a.0": torch.zeros(1)})
    books.keep("actor", "adapter/A", 1, {"lora_a.0": torch.zeros(1)})
    before = books.save()
    with pytest.raises(EventRefused, match="not-faulted"):
        call(world)

    assert books.save() == before


def test_recover_takes_the_copy_that_proves_right_before_one_that_nobody_can_judge() -> None:
    """The bytes that were there have a digest; those of the newest version have none any more."""
    world = make_world(strategy="reference", trainable=True)
    parts, store = world.trainer._parts, world.trainer.snapshots
    store.backup("old")
    old = world.model.lora_a[0].detach().clone()
    parts.versions.digests[parts.versions.wanted["adapter/A"]] = _digest(world)
    world.train("A")
    store.backup("newest")
    store.copy(src_tag="old", dst_tag="actor")
    store.restore("actor")
    parts.versions.digests.pop(parts.versions.wanted["adapter/A"])
    _fault(world)
    with torch.no_grad():
        world.model.lora_a[0].data.view(-1)[0] += 1
    outcome = world.trainer.recover()

    assert isinstance(outcome, Moved)
    assert dict(outcome.details)["mended"] == ["adapter/A"]
    assert torch.equal(world.model.lora_a[0], old)


def test_what_was_mended_from_a_copy_that_nobody_can_judge_is_named_as_unverified() -> None:
    """Its bytes were lost while offloaded, and nothing is known of those that were written instead."""
    world = make_world(strategy="duplicate", trainable=True)
    world.trainer.sleep(offload=True)
    parts = world.trainer._parts
    copy = parts.snapshots.tensors("actor", TRAINABLE_BASE)["p"]
    copy += 1
    with pytest.raises(TrainerFaulted, match="read from actor"):
        world.trainer.update_weights([FakeEngine()])
    copy -= 1
    parts.notes.clear()
    parts.versions.region[TRAINABLE_BASE] = None
    outcome = world.trainer.recover()

    assert isinstance(outcome, Moved)
    details = dict(outcome.details)
    assert TRAINABLE_BASE in details["mended"]  # type: ignore[operator]
    assert TRAINABLE_BASE in details["unverified"]  # type: ignore[operator]


def _digest(world: World) -> str:
    from lifecycle.weights.digests import digest  # noqa: PLC0415 - beside the one use

    return digest(world.trainer._parts.own_bytes("adapter/A"))


def _fault(world: World) -> None:
    """An effect fails, and so does the undo of the one before it."""
    effects = world.trainer._runner.effects
    quiesce, pause = effects[Effect.TEAR_DOWN_GROUPS], effects[Effect.CLEAR_CACHES]

    def no_way_back(_: Parts, __: Work) -> Undo:
        def undo() -> None:
            raise OSError("its undo fails")

        return undo

    def fails(_: Parts, __: Work) -> Undo:
        raise OSError("it fails")

    effects[Effect.TEAR_DOWN_GROUPS], effects[Effect.CLEAR_CACHES] = no_way_back, fails
    with pytest.raises(TrainerFaulted):
        world.trainer.sleep()
    effects[Effect.TEAR_DOWN_GROUPS], effects[Effect.CLEAR_CACHES] = quiesce, pause
    assert world.trainer.state is TrainerState.FAULTED


# --- the turn ------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["get", "tensor"])
def test_borrowed_bytes_are_not_handed_out_while_a_transition_takes_them_away(call: str) -> None:
    """They alias the saver's backup, which the wake frees: the look waits until the wake is over."""
    world = make_world(with_ref=True)
    world.trainer.keep_model("ref")
    world.trainer.sleep(offload=True)
    effects, asked, found = world.trainer._runner.effects, threading.Event(), []
    resume = effects[Effect.RESUME_WEIGHTS]
    store = world.trainer.snapshots

    def look() -> None:
        asked.set()
        found.append(store.get("ref")["up"] if call == "get" else store.tensor("ref", FROZEN_BASE, "up"))

    reader = threading.Thread(target=look)

    def while_somebody_looks(parts: Parts, work: Work) -> Undo:
        reader.start()
        asked.wait()
        reader.join(0.2)
        assert found == []
        return resume(parts, work)

    effects[Effect.RESUME_WEIGHTS] = while_somebody_looks
    world.trainer.wake_up()
    reader.join()

    assert found[0].data_ptr() == world.model.up.data_ptr()


def test_a_call_from_inside_an_event_is_refused_and_a_look_is_not() -> None:
    """A subscriber runs inside the event whose outcome it gets: what it changed would be part of no decision."""
    world = make_world(with_ref=True)
    world.trainer.keep_model("ref")
    seen: list[object] = []

    def subscriber(_: Moved) -> None:
        seen.append(sorted(world.trainer.snapshots.get("ref")))
        world.trainer.snapshots.backup("from a subscriber")

    world.trainer.subscribe(subscriber)
    world.trainer.sleep()

    assert seen
    assert [type(one) for one in world.trainer.callback_errors] == [ReentrantEvent]
    assert not world.trainer.snapshots.has("from a subscriber")


# --- room and ledger -----------------------------------------------------------------------------


def _holds_now(world: World) -> int:
    held = world.trainer.held_bytes()
    return held["saver_host"] + held["snapshots"]


def _budget(world: World, spare: int) -> None:
    """From now on the host has *spare* bytes for copies."""
    object.__setattr__(world.trainer._parts.config, "host_budget_bytes", _holds_now(world) + spare)


def _load(world: World) -> None:
    with world.trainer.loading_checkpoint():
        pass


ROOM: dict[str, tuple[dict[str, object], Callable[[World], object], Callable[[World], object]]] = {
    "quiesces-and-backs-up-actor": (
        {"strategy": "reference", "with_ref": True},
        lambda w: w.trainer.snapshots.release("actor"),
        lambda w: w.trainer.sleep(),
    ),
    "commits-and-backs-up-actor": (
        {"strategy": "reference", "with_ref": True},
        lambda w: (w.trainer.snapshots.backup("actor"), w.trainer.begin_step(["A"])),
        lambda w: w.trainer.trained(),
    ),
    "keeps-and-switches": (
        {"with_ref": True},
        lambda w: w.trainer.keep_model("ref", another_base(w)),
        lambda w: w.trainer.switch_model("ref"),
    ),
    "opens": ({"with_ref": True}, lambda w: w.trainer.keep_model("ref"), _load),
    "keep_model": ({}, lambda _: None, lambda w: w.trainer.keep_model("ref", another_base(w))),
    "keep_model of what is live": ({}, lambda _: None, lambda w: w.trainer.keep_model("ref")),
    "backup": ({"strategy": "reference"}, lambda _: None, lambda w: w.trainer.snapshots.backup("ref")),
    "copy": (
        {"strategy": "duplicate"},
        lambda w: w.trainer.snapshots.backup("a"),
        lambda w: w.trainer.snapshots.copy(src_tag="a", dst_tag="b"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "before", "call"), ROOM.values(), ids=ROOM)
def test_a_host_copy_is_not_made_without_room_for_it(
    changes: dict[str, object], before: Callable[[World], object], call: Callable[[World], object]
) -> None:
    """Refused with both numbers before a byte is copied; with exactly the room that was asked for it is made."""
    world = make_world(**changes)
    before(world)
    held, bytes_before = _holds_now(world), world.all_bytes()
    _budget(world, 0)
    with pytest.raises(EventRefused, match=r"host: \d+ bytes are needed, 0 bytes are free") as refused:
        call(world)
    assert (_holds_now(world), world.all_bytes()) == (held, bytes_before)
    (failed,) = refused.value.failed
    needed = int(failed.because.split()[1])

    _budget(world, needed - 1)
    with pytest.raises(EventRefused, match="host-has-room-for-copies"):
        call(world)
    _budget(world, needed)
    call(world)
    peak = _holds_now(world) - held
    assert peak <= needed


def test_an_event_that_copies_nothing_needs_no_room() -> None:
    """Neither does a backup of versions that some tag holds already."""
    world = make_world(with_ref=True)
    world.trainer.snapshots.backup("actor")
    _budget(world, 0)
    world.trainer.snapshots.backup("old_actor")
    world.trainer.keep_model("ref")
    world.trainer.sleep()
    world.trainer.wake_up()
    world.trainer.switch_model("ref")

    assert world.trainer.active_model == "ref"


def test_the_users_own_copies_count_among_the_moved_bytes() -> None:
    """By call, as ``keep_model`` does; what shares or drops bytes moves none."""
    world = make_world(strategy="reference")
    store = world.trainer.snapshots
    copied = store.backup("actor")
    store.copy(src_tag="actor", dst_tag="old")
    world.train("A")
    store.backup("newest")
    restored = store.restore("actor")
    store.release("old")
    moved = world.trainer.ledger.moved_by

    assert copied > 0
    assert moved("snapshots.backup")["snapshot"] > copied
    assert moved("snapshots.restore") == {"snapshot": restored}
    assert moved("snapshots.copy") == moved("snapshots.release") == {}


def test_a_copy_between_tags_that_share_nothing_counts_what_it_copied_and_copies_only_what_differs() -> None:
    """Strategy ``duplicate``: each tag has bytes of its own."""
    world = make_world(strategy="duplicate")
    store = world.trainer.snapshots
    store.backup("a")
    copied = store.copy(src_tag="a", dst_tag="b")
    assert store.copy(src_tag="a", dst_tag="b") == 0
    world.train("A")
    store.backup("a")

    assert 0 < store.copy(src_tag="a", dst_tag="b") < copied
    assert world.trainer.ledger.moved_by("snapshots.copy")["snapshot"] > copied
    assert store.get("b").keys() == store.get("a").keys()
