"""Host copies: what is shared, what is left out, what is refused, and that a half is never taken for the whole."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from lifecycle.compat import FrozenChanged, TensorBackuper
from lifecycle.compat import host_copies as module
from lifecycle.compat.host_copies import HostCopies
from lifecycle.compat.live_tensors import LiveTensors
from lifecycle.errors import ConfigError, LifecycleError, UnknownTag, UnreadableTensor
from lifecycle.saver import Backup, HostArena
from lifecycle.weights.snapshots import SnapshotStore
from tests.saver.proc import pss_bytes

MIB = 2**20
Model = dict[str, Tensor]


def model(base_bytes: int = MIB) -> Model:
    """A base and an adapter of 4 KiB, float32."""
    return {"base": torch.randn(base_bytes // 4), "lora": torch.randn(1024)}


def copies(tensors: Model, **more: object) -> HostCopies:
    """A backuper over the dict as it is at each call."""
    made = TensorBackuper.create(source_getter=tensors.items, **more)  # type: ignore[arg-type]
    assert isinstance(made, HostCopies)
    return made


@pytest.fixture
def arena() -> Iterator[HostArena]:
    """Closed afterwards."""
    found = HostArena()
    yield found
    found.close()


def same(left: Tensor, right: Tensor) -> bool:
    """Equal bytes."""
    return torch.equal(left.view(torch.uint8), right.view(torch.uint8))


def test_a_frozen_base_is_in_host_memory_once_for_actor_ref_and_teacher() -> None:
    """FB-17, measured: three tags over one base of 128 MiB take 1.0 times it, and each its own adapter."""
    tensors = model(128 * MIB)
    tensors["base"].fill_(1.0)
    backuper = copies(tensors)
    backuper.backup("actor")
    backuper.release("actor")  # what the first call loads
    gc.collect()
    before = pss_bytes()
    for tag in ("ref", "teacher", "actor"):
        tensors["lora"].normal_()
        backuper.backup(tag)
    gc.collect()

    assert pss_bytes() - before < 1.05 * 128 * MIB
    assert backuper.host_bytes() == 128 * MIB + 3 * 4096


def test_a_backup_copies_what_changed_and_nothing_else() -> None:
    """The second tag over the same bytes copies nothing, a step copies the adapter."""
    tensors = model()
    backuper = copies(tensors)

    assert backuper.backup("actor") == MIB + 4096
    assert backuper.backup("ref") == 0
    tensors["lora"].add_(1)
    assert backuper.backup("actor") == 4096


def test_a_tag_whose_bytes_come_back_shares_them_again() -> None:
    """Also when they are those of another tag than its own last ones."""
    tensors = model()
    backuper = copies(tensors)
    backuper.backup("ref")
    tensors["lora"].add_(1)
    backuper.backup("actor")
    backuper.restore("ref")

    assert backuper.backup("actor") == 0
    assert backuper.host_bytes() == MIB + 4096


def test_a_change_outside_of_every_sample_is_found() -> None:
    """Without a word from anybody all bytes are compared: one bit in the middle of a megabyte."""
    tensors = model()
    backuper = copies(tensors)
    backuper.backup("actor")
    tensors["base"].view(torch.uint8)[MIB // 2 + 12345] ^= 1

    assert backuper.backup("actor") == MIB
    assert same(backuper.get("actor")["base"], tensors["base"])


def test_what_get_gave_keeps_its_bytes() -> None:
    """In miles the next backup changes it under its reader."""
    tensors = model()
    backuper = copies(tensors)
    backuper.backup("actor")
    got, before = backuper.get("actor"), tensors["lora"].clone()
    tensors["lora"].add_(1)
    backuper.backup("actor")

    assert same(got["lora"], before)
    assert same(backuper.get("actor")["lora"], tensors["lora"])


def test_the_order_of_names_is_the_source_s_on_every_rank_alike() -> None:
    """FB-49: what is shared and what is copied may differ by rank, the order of a stream may not."""
    tensors = {name: torch.randn(3) for name in ("c", "a", "b")}
    backuper = copies(tensors)
    backuper.backup("ref")
    tensors["a"].add_(1)
    backuper.backup("actor")
    tensors["b"].add_(1)
    backuper.backup("ref")

    assert list(backuper.get("actor")) == list(backuper.get("ref")) == ["c", "a", "b"]


def test_a_tag_that_does_not_exist_is_named_and_not_made() -> None:
    """In miles ``get`` makes an empty one, which a switch then takes for a model (FB-45)."""
    backuper = copies(model())
    backuper.backup("ref")
    for call in (backuper.get, backuper.restore, backuper.release):
        with pytest.raises(UnknownTag, match='"teacher"'):
            call("teacher")
    with pytest.raises(UnknownTag):
        backuper.copy(src_tag="teacher", dst_tag="ref")

    assert backuper.backup_tags == ["ref"]


def test_a_copy_onto_a_new_tag_is_the_whole_source() -> None:
    """In miles it makes an empty tag and copies nothing."""
    tensors = model()
    backuper = copies(tensors)
    backuper.backup("rollout_actor")
    backuper.copy(src_tag="rollout_actor", dst_tag="old_actor")
    tensors["lora"].add_(1)
    before = backuper.get("old_actor")["lora"]
    backuper.backup("rollout_actor")

    assert backuper.get("old_actor")["lora"] is before
    assert backuper.backup_tags == ["rollout_actor", "old_actor"]


def test_a_copy_from_a_tag_that_lacks_a_tensor_changes_nothing() -> None:
    """There it fails after it has copied some of them."""
    tensors = model()
    backuper = copies(tensors)
    backuper.backup("whole")
    before = backuper.get("whole")
    lora = tensors.pop("lora")
    tensors["base"].add_(1)
    backuper.backup("half")
    tensors["lora"] = lora
    with pytest.raises(UnreadableTensor, match="lora"):
        backuper.copy(src_tag="half", dst_tag="whole")

    assert backuper.get("whole")["base"] is before["base"]


def test_a_restore_that_lacks_a_tensor_writes_nothing() -> None:
    """It is named, before the first byte is written."""
    tensors = model()
    backuper = copies(tensors)
    backuper.backup("ref")
    tensors["base"].add_(1)
    tensors["late"] = torch.ones(2)
    base = tensors["base"].clone()
    with pytest.raises(UnreadableTensor, match="late"):
        backuper.restore("ref")

    assert same(tensors["base"], base)


@pytest.mark.parametrize("other", [torch.zeros(512), torch.zeros(1024, dtype=torch.float64)])
def test_a_tensor_of_another_shape_or_dtype_is_not_written(other: Tensor) -> None:
    """A copy would broadcast or cast it without a word."""
    tensors = model()
    backuper = copies(tensors)
    backuper.backup("ref")
    tensors["base"].add_(1)
    tensors["lora"] = other
    base = tensors["base"].clone()
    with pytest.raises(ConfigError, match="lora"):
        backuper.restore("ref")

    assert same(tensors["base"], base)


def test_without_a_saver_every_restore_writes_everything() -> None:
    """Nobody can say whether the memory was paused in between."""
    tensors = model()
    backuper = copies(tensors, frozen=["base"])
    backuper.backup("actor")
    backuper.mark_dirty([])

    assert backuper.restore("actor") == MIB + 4096


def test_a_restore_leaves_out_what_is_proved_to_be_there(arena: HostArena) -> None:
    """Frozen, or told to be unchanged, and the saver has paused nothing."""
    tensors = model()
    arena.place(tensors, "default", Backup.CPU)
    backuper = copies(tensors, frozen=["base"], saver=arena)
    backuper.backup("actor")

    assert backuper.restore("actor") == 4096
    backuper.mark_dirty([])
    assert backuper.restore("actor") == 0


def test_a_restore_after_a_pause_writes_everything(arena: HostArena) -> None:
    """FB-24: what came back may differ, and the copy is there."""
    tensors = model()
    arena.place(tensors, "default", Backup.CPU)
    backuper = copies(tensors, frozen=["base"], saver=arena)
    backuper.backup("actor")
    arena.pause("default")
    arena.resume("default")
    tensors["base"][7] += 1
    backuper.mark_dirty([])

    assert backuper.restore("actor") == MIB + 4096
    assert same(tensors["base"], backuper.get("actor")["base"])
    assert backuper.restore("actor") == 4096


def test_a_frozen_tensor_that_was_overwritten_is_restored(arena: HostArena) -> None:
    """Another checkpoint was loaded over it: a sample shows it, whatever was said."""
    tensors = model()
    backuper = copies(tensors, frozen=["base"], saver=arena)
    backuper.backup("actor")
    before = tensors["base"].clone()
    tensors["base"].normal_()
    backuper.restore("actor")

    assert same(tensors["base"], before)


def test_a_backup_of_a_frozen_tensor_with_other_bytes_is_refused() -> None:
    """FB-45: a reference with a base of its own cannot be kept as if it had the actor's."""
    tensors = model()
    backuper = copies(tensors, frozen=["ba*"])
    backuper.backup("actor")
    tensors["base"].normal_()
    with pytest.raises(FrozenChanged) as caught:
        backuper.backup("ref")

    assert (caught.value.tensor, caught.value.tags) == ("base", ("actor",))
    assert backuper.backup_tags == ["actor"]


def test_each_backup_looks_at_another_sample_of_what_is_frozen() -> None:
    """A change that one of them misses is found by a later one."""
    tensors = model()
    backuper = copies(tensors, frozen=["base"])
    backuper.backup("actor")
    tensors["base"][131_072] += 1  # the samples of the first 39 looks miss it

    def back_up_often() -> None:
        for _ in range(400):
            backuper.backup("actor")

    with pytest.raises(FrozenChanged):
        back_up_often()


def test_of_a_small_frozen_tensor_every_byte_is_looked_at() -> None:
    """It is no larger than a sample."""
    tensors = model()
    backuper = copies(tensors, frozen=["lora"])
    backuper.backup("actor")
    tensors["lora"][517] += 1
    with pytest.raises(FrozenChanged, match="lora"):
        backuper.backup("actor")


def test_a_frozen_tensor_of_which_no_copy_is_left_is_copied_again() -> None:
    """Its last tag was released: there is nothing to compare it with."""
    tensors = model()
    backuper = copies(tensors, frozen=["base"])
    backuper.backup("actor")
    backuper.release("actor")

    assert backuper.backup("actor") == MIB + 4096


def test_what_the_source_left_out_meanwhile_is_not_known() -> None:
    """What was told since says nothing of the time before: it is compared."""
    tensors = model()
    backuper = copies(tensors)
    backuper.backup("actor")
    lora = tensors.pop("lora")
    backuper.backup("actor")
    lora.add_(1)
    backuper.backup("actor")
    tensors["lora"] = lora
    backuper.mark_dirty([])

    assert backuper.backup("actor") == 4096


def test_what_is_told_is_not_compared() -> None:
    """The named are copied as they are, the others are taken for what they were, until the next backup."""
    tensors = model()
    backuper = copies(tensors)
    backuper.backup("actor")
    before = tensors["base"].clone()
    tensors["base"].add_(1)  # a lie, to see that nobody looks
    backuper.mark_dirty(["lora"])

    assert backuper.backup("actor") == 4096
    assert same(backuper.get("actor")["base"], before)
    assert backuper.backup("actor") == MIB
    backuper.mark_dirty()
    assert backuper.backup("actor") == MIB + 4096


def test_what_was_told_does_not_outweigh_a_pause_that_loses_bytes(arena: HostArena) -> None:
    """A region without backup came back without values: it is compared, and what is there is what is kept."""
    tensors = model()
    arena.place(tensors, "default", Backup.NONE)
    backuper = copies(tensors, saver=arena)
    backuper.backup("actor")
    arena.pause("default")
    arena.resume("default")
    backuper.mark_dirty([])

    assert backuper.backup("broken") == MIB + 4096


def test_what_was_told_holds_over_a_pause_that_brings_bytes_back(arena: HostArena) -> None:
    """A turn sleeps and wakes, trains its adapter, and copies that alone."""
    tensors = model()
    arena.place(tensors, "default", Backup.CPU)
    backuper = copies(tensors, saver=arena)
    backuper.backup("actor")
    arena.pause("default")
    arena.resume("default")
    tensors["lora"].add_(1)
    backuper.mark_dirty(["lora"])

    assert backuper.backup("actor") == 4096


def test_a_tensor_in_other_memory_is_not_known(arena: HostArena) -> None:
    """What was told of the old one says nothing of the new one."""
    tensors = model()
    backuper = copies(tensors, saver=arena)
    backuper.backup("actor")
    tensors["base"] = tensors["base"] + 1
    backuper.mark_dirty([])

    assert backuper.backup("actor") == MIB


def test_paused_tensors_are_backed_up_and_restored_in_the_saver_s_backup(arena: HostArena) -> None:
    """FB-06: the bytes of the backup, and what is written there is on the device after the resume."""
    tensors = model()
    arena.place(tensors, "default", Backup.CPU)
    backuper = copies(tensors, saver=arena)
    before = tensors["lora"].clone()
    arena.pause("default")
    backuper.backup("actor")
    arena.resume("default")
    tensors["lora"].add_(1)
    arena.pause("default")
    backuper.restore("actor")
    arena.resume("default")

    assert same(tensors["lora"], before)
    assert same(backuper.get("actor")["lora"], before)


def test_paused_memory_without_a_backup_is_neither_read_nor_written(arena: HostArena) -> None:
    """FB-02: an error that names the tensor; the tag and the readable tensors are as before."""
    tensors = model()
    backuper = copies(tensors, saver=arena)
    backuper.backup("actor")
    arena.place({"lora": tensors["lora"]}, "scratch", Backup.NONE)
    arena.pause("scratch")
    tensors["base"].add_(1)
    base = tensors["base"].clone()
    for call in (backuper.backup, backuper.restore):
        with pytest.raises(UnreadableTensor, match="lora"):
            call("actor")

    assert same(tensors["base"], base)
    assert not same(backuper.get("actor")["base"], base)


def test_a_backup_that_fails_half_way_is_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old and new bytes under one tag are refused to readers until a backup succeeds."""
    tensors = model()
    backuper = copies(tensors)
    backuper.backup("actor")
    backuper.backup("ref")
    tensors["base"].add_(1)
    tensors["lora"].add_(1)
    monkeypatch.setattr(module, "BATCH_BYTES", 1)
    size_bytes = LiveTensors.size_bytes

    def full(self: LiveTensors, group: str) -> int:
        if group == "lora":
            raise MemoryError
        return size_bytes(self, group)

    with monkeypatch.context() as patch:
        patch.setattr(LiveTensors, "size_bytes", full)
        for tag in ("actor", "new"):
            with pytest.raises(MemoryError):
                backuper.backup(tag)
    for tag in ("actor", "new"):
        for call in (backuper.get, backuper.restore, lambda tag: backuper.copy(src_tag="ref", dst_tag=tag)):
            with pytest.raises(LifecycleError, match="interrupted"):
                call(tag)

    backuper.backup("actor")
    backuper.backup("new")
    assert same(backuper.get("actor")["lora"], tensors["lora"])
    assert same(backuper.get("new")["base"], tensors["base"])


def test_a_backup_that_fails_at_the_start_leaves_the_tag_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """No byte of it is another one, and a tag that did not exist still does not."""
    tensors = model()
    backuper = copies(tensors)
    backuper.backup("actor")
    before = tensors["lora"].clone()
    tensors["lora"].add_(1)

    def fail(*_: object) -> int:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(SnapshotStore, "take", fail)
        for tag in ("actor", "new"):
            with pytest.raises(MemoryError):
                backuper.backup(tag)

    assert same(backuper.get("actor")["lora"], before)
    assert backuper.backup_tags == ["actor"]


def test_who_writes_into_what_get_gave_is_told_so() -> None:
    """The copy is that of all tags with these bytes: none of them is served with it."""
    tensors = model()
    backuper = copies(tensors)
    backuper.backup("actor")
    backuper.backup("ref")
    backuper.get("actor")["lora"].zero_()
    for call in (backuper.get, backuper.restore):
        with pytest.raises(LifecycleError, match="written into the copy of lora"):
            call("ref")
    backuper.backup("ref")

    assert same(backuper.get("ref")["lora"], tensors["lora"])


def test_calls_in_inference_mode_are_like_any_others() -> None:
    """Rollout code is often in it; the copies are not tensors of that mode."""
    tensors = model()
    backuper = copies(tensors)
    with torch.inference_mode():
        backuper.backup("actor")
        got = backuper.get("actor")
    tensors["lora"].add_(1)
    backuper.restore("actor")

    assert same(tensors["lora"], got["lora"])
    assert not got["lora"].is_inference()


def test_parameters_that_need_gradients_are_written_in_place() -> None:
    """The same objects, still leaves."""
    layer = torch.nn.Linear(3, 2)
    backuper = TensorBackuper.create(layer.named_parameters)
    backuper.backup("actor")
    before = layer.weight.detach().clone()
    torch.nn.init.zeros_(layer.weight)
    backuper.restore("actor")

    assert torch.equal(layer.weight, before)
    assert layer.weight.requires_grad
    assert not backuper.get("actor")["weight"].requires_grad


def test_a_released_tag_gives_back_what_it_alone_held() -> None:
    """The shared base stays for the others."""
    tensors = model()
    backuper = copies(tensors)
    backuper.backup("ref")
    tensors["lora"].add_(1)
    backuper.backup("actor")
    backuper.release("ref")

    assert backuper.host_bytes() == MIB + 4096
    assert backuper.backup_tags == ["actor"]


def test_copies_are_pinned_where_cuda_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host memory that the device copies from and to at full speed."""
    asked: list[bool] = []
    empty = torch.empty

    def noted(*size: object, pin_memory: bool = False, **more: object) -> Tensor:
        asked.append(pin_memory)
        return empty(*size, **more)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", noted)
    copies({"x": torch.ones(2)}).backup("actor")

    assert asked == [True]


def test_the_device_is_done_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers there rely on it: what other streams wrote is in the copy, and the copy may be used at once."""
    done: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: done.append(1))
    backuper = copies(model())
    backuper.backup("actor")
    backuper.restore("actor")

    assert len(done) == 4


BAD_SOURCES = {
    "pair": [torch.ones(1)],
    "names and tensors": [(1, torch.ones(1))],
    "meta": [("x", torch.ones(1, device="meta"))],
    "two tensors": [("x", torch.ones(1)), ("x", torch.ones(1))],
}


@pytest.mark.parametrize("says", BAD_SOURCES)
def test_a_source_of_something_else_is_refused(says: str) -> None:
    """Before a tag is made."""
    backuper = TensorBackuper.create(lambda: BAD_SOURCES[says])  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match=says):
        backuper.backup("actor")

    assert backuper.backup_tags == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"frozen": "base"},
        {"frozen": 3},
        {"frozen": [1]},
        {"saver": object()},
        {"source_getter": [("x", torch.ones(1))]},
        {"main_cast_ctx": object()},
        {"main_cast_ctx": object(), "single_tag": "actor"},
        {"single_tag": ""},
    ],
)
def test_arguments_that_are_none_are_refused(wrong: dict[str, object]) -> None:
    """A string would be taken for its letters, a saver without books for one that pauses nothing."""
    with pytest.raises(ConfigError):
        TensorBackuper.create(**({"source_getter": dict} | wrong))  # type: ignore[arg-type]


def test_names_that_are_none_are_refused() -> None:
    """What is frozen or dirty is one of the source's tensors, and not both."""
    with pytest.raises(ConfigError, match="bas"):
        copies(model(), frozen=["bas", "x*"]).backup("actor")
    for name in ("bas", "base"):
        backuper = copies(model(), frozen=["base"])
        backuper.mark_dirty([name])
        with pytest.raises(ConfigError, match=name):
            backuper.backup("actor")
    with pytest.raises(ConfigError, match="list"):
        copies(model()).mark_dirty("base")
    with pytest.raises(ConfigError, match="tag"):
        copies(model()).backup("")


def test_nothing_is_lent() -> None:
    """To be frozen is what a user says; the bytes are copied all the same."""
    live = LiveTensors(dict, (), None, SnapshotStore())
    with pytest.raises(UnreadableTensor):
        live.lent("somebody", "base", 1)

    assert not live.lends("base", 1)
