"""``MainCastContext``: the actor's weights from their fp32 masters, and the check of its first cycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from lifecycle.compat import CastMismatch, MainCastContext, TensorBackuper
from lifecycle.errors import ConfigError, UnreadableTensor
from lifecycle.saver import Backup, HostArena


@dataclass
class Sharded:
    """Parameters of bfloat16 whose masters lie on two ranks, half each; this is rank 0. A buffer has no master."""

    check: bool = True
    fails: str = ""
    calls: list[str] = field(default_factory=list)
    hosts: HostArena | None = None

    def __post_init__(self) -> None:
        self.masters = {name: torch.randn(2, 8) for name in ("p", "q")}
        self.parameters = {name: one.to(torch.bfloat16) for name, one in self.masters.items()}
        self.buffer = torch.randn(4)
        self.parts = {name: torch.zeros(2, 8, dtype=torch.bfloat16) for name in self.masters}
        context = MainCastContext(
            cast_main_to_params=self.cast,
            model_chunks=[self],
            extras_getter={"extra": self.buffer}.items,
            rematerializable_ids={id(one) for one in self.parameters.values()},
            check=self.check,
        )
        self.backuper = TensorBackuper.create(self.source, main_cast_ctx=context, saver=self.hosts)

    def source(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.parameters.items()
        yield "bias", self.buffer

    def cast(self) -> None:
        self.calls.append("cast")
        if self.fails == "cast":
            raise RuntimeError("the masters are on the disk")
        for name, one in self.masters.items():
            self.parts[name][0].copy_(one[0])

    def start_param_sync(self, *, force_sync: bool) -> None:
        assert force_sync
        self.calls.append("sync")
        for name, one in self.masters.items():
            self.parts[name][1].copy_(one[1])  # the other rank's
            self.parameters[name].copy_(self.parts[name])

    def spoil(self) -> None:
        for one in (*self.parameters.values(), self.buffer):
            one.fill_(float("nan"))

    def values(self) -> dict[str, Tensor]:
        return {name: one.clone() for name, one in self.source()}


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    """Equal names and bytes."""
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_a_restore_rebuilds_every_byte() -> None:
    """Masters, the other rank's part, and the copy of what has no master."""
    world = Sharded()
    before = world.values()
    moved = world.backuper.backup("actor")
    world.spoil()
    world.backuper.restore("actor")

    assert same(world.values(), before)
    assert moved == world.buffer.nbytes
    assert world.calls == ["cast", "sync"]


def test_weights_that_are_not_their_masters_raise() -> None:
    """The bit-identity check: the error is the kind that trainers there look for, and names the tensor."""
    world = Sharded()
    world.backuper.backup("actor")
    world.masters["q"][0, 3] += 1
    with pytest.raises(RuntimeError, match="not bit-identical") as caught:
        world.backuper.restore("actor")

    assert isinstance(caught.value, CastMismatch)
    assert (caught.value.tensors, caught.value.cycle) == (("q",), 1)


def test_a_sign_of_zero_is_a_difference() -> None:
    """Bits are compared, not values."""
    world = Sharded()
    world.parameters["p"][0, 0] = -0.0
    world.masters["p"][0, 0] = 0.0
    world.backuper.backup("actor")
    with pytest.raises(CastMismatch):
        world.backuper.restore("actor")


def test_the_first_two_backups_are_checked_and_later_ones_are_not() -> None:
    """It costs a pass over every byte; a wrong kind of cast shows at once."""
    world = Sharded()
    for _ in range(2):
        world.backuper.backup("actor")
        world.backuper.restore("actor")
    world.backuper.backup("actor")
    world.masters["p"][0, 0] += 1

    world.backuper.restore("actor")


def test_the_second_backup_is_still_checked() -> None:
    """Two, not one."""
    world = Sharded()
    world.backuper.backup("actor")
    world.backuper.backup("actor")
    world.masters["p"][0, 0] += 1
    with pytest.raises(CastMismatch):
        world.backuper.restore("actor")


def test_without_the_check_nothing_is_compared() -> None:
    """As it was asked for."""
    world = Sharded(check=False)
    world.backuper.backup("actor")
    world.masters["p"][0, 0] += 1

    world.backuper.restore("actor")


def test_another_set_of_tensors_raises() -> None:
    """One that came, and one that went."""
    world = Sharded()
    world.backuper.backup("actor")
    world.parameters["late"] = world.parameters.pop("q")
    world.masters["late"] = world.masters.pop("q")
    world.parts["late"] = world.parts.pop("q")
    with pytest.raises(CastMismatch) as caught:
        world.backuper.restore("actor")

    assert caught.value.tensors == ("late", "q")


def test_the_collective_is_met_although_the_cast_fails() -> None:
    """FB-50: the other ranks are in it already and would wait for this one; the cause is raised after it."""
    world = Sharded(fails="cast")
    world.backuper.backup("actor")
    with pytest.raises(RuntimeError, match="on the disk"):
        world.backuper.restore("actor")

    assert world.calls == ["cast", "sync"]


def test_the_collective_is_met_although_nothing_was_backed_up() -> None:
    """FB-49, FB-50: what only this rank lacks is found out afterwards."""
    world = Sharded()
    with pytest.raises(UnreadableTensor, match="extra"):
        world.backuper.restore("actor")

    assert world.calls == ["cast", "sync"]


def test_a_model_of_masters_alone_is_rebuilt_without_any_backup() -> None:
    """Nothing has to be copied, so nothing is missing."""
    world = Sharded()
    context = MainCastContext(world.cast, [world], dict, {id(one) for one in world.parameters.values()}, check=True)
    backuper = TensorBackuper.create(world.parameters.items, main_cast_ctx=context)
    before = {name: one.clone() for name, one in world.parameters.items()}
    world.spoil()

    assert backuper.restore("actor") == 0
    assert same(world.parameters, before)


def test_get_gives_copies_of_the_extras_and_the_live_parameters() -> None:
    """Extras are paused while weights are sent, parameters are not."""
    world = Sharded()
    world.backuper.backup("actor")
    got = world.backuper.get("actor")

    assert list(got) == ["p", "q", "bias"]
    assert got["p"].data_ptr() == world.parameters["p"].data_ptr()
    assert got["bias"].data_ptr() != world.buffer.data_ptr()
    assert torch.equal(got["bias"], world.buffer)


def test_get_refuses_what_would_come_back_as_garbage() -> None:
    """A tensor with neither master nor copy, and an extra that was never backed up."""
    world = Sharded()
    with pytest.raises(UnreadableTensor, match="bias"):
        world.backuper.get("actor")
    world.backuper.backup("actor")
    world.parameters["stray"] = torch.ones(1)
    with pytest.raises(UnreadableTensor, match="stray"):
        world.backuper.get("actor")


@pytest.mark.parametrize("backup", ["cpu", "none"])
def test_paused_parameters_are_read_in_their_backup_or_not_at_all(backup: str) -> None:
    """FB-02: with a saver the paused device memory is never what is given."""
    arena = HostArena()
    world = Sharded(hosts=arena)
    world.backuper.backup("actor")
    before = world.parameters["p"].clone()
    arena.place({"p": world.parameters["p"]}, "param_buffer", Backup(backup))
    arena.pause("param_buffer")
    if backup == "none":
        with pytest.raises(UnreadableTensor, match="p"):
            world.backuper.get("actor")
    else:
        assert torch.equal(world.backuper.get("actor")["p"], before)
    arena.close()


def test_other_tags_are_whole_copies_and_the_actor_wins_its_weights_back() -> None:
    """Reference and teacher have no masters."""
    world = Sharded()
    before = world.values()
    world.backuper.backup("actor")
    for one in (*world.parameters.values(), world.buffer):
        one.fill_(7)
    world.backuper.backup("ref")
    world.backuper.copy(src_tag="ref", dst_tag="teacher")
    world.backuper.restore("actor")
    assert same(world.values(), before)
    world.backuper.restore("teacher")

    assert float(world.parameters["p"].min()) == 7
    assert world.backuper.backup_tags == ["actor", "ref", "teacher"]
    assert float(world.backuper.get("ref")["bias"].max()) == 7


def test_what_a_rebuilt_actor_overwrote_is_not_taken_for_the_reference() -> None:
    """The switch back to ref writes it, although nobody said that anything changed since."""
    arena = HostArena()
    world = Sharded(hosts=arena)
    world.backuper.backup("actor")
    world.parameters["p"].fill_(7)
    world.backuper.backup("ref")
    world.backuper.restore("actor")
    world.backuper.mark_dirty([])
    world.backuper.restore("ref")

    assert float(world.parameters["p"].min()) == 7
    arena.close()


def test_the_actor_is_not_copied_by_name() -> None:
    """There is no copy of it, and what is live may be another model."""
    world = Sharded()
    world.backuper.backup("actor")
    for call in ({"src_tag": "actor", "dst_tag": "old_actor"}, {"src_tag": "ref", "dst_tag": "actor"}):
        with pytest.raises(ConfigError, match="rebuilt"):
            world.backuper.copy(**call)
