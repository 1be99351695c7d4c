"""Contract suites: what every implementation of a protocol has to do, for fakes and for the real thing alike.

Subclass, give the factory methods, and let pytest collect the subclass::

    class TestHostArena(SaverContract):
        def new_saver(self, *, retain_host_backup=False, disk_dir=None):
            return HostArena(retain_host_backup=retain_host_backup, disk_dir=disk_dir)

``SaverContract.rules()`` lists the rules for a runner of one's own, for instance in a child process.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lifecycle.saver.contract import DTYPES, TAG, BytesContract, bits, random_tensor, refused
from lifecycle.saver.protocol import Backup, MemorySaver, TagInfo, Usage

__all__ = ["DTYPES", "TAG", "BytesContract", "SaverContract", "bits", "random_tensor", "refused"]


class SaverContract(BytesContract):
    """What a :class:`~lifecycle.saver.protocol.MemorySaver` does, whatever memory it manages."""

    def allocate(self, saver: MemorySaver, size_bytes: int, tag: str, backup: Backup) -> Tensor:
        """Active uint8 memory as a framework makes it in a region, in no book. Made by the subclass."""
        raise NotImplementedError

    @classmethod
    def rules(cls) -> tuple[str, ...]:
        """Names of the test methods, which take no arguments."""
        return tuple(name for name in dir(cls) if name.startswith("test_"))

    def test_placing_keeps_objects_values_and_gradients(self) -> None:
        """A placed parameter is the same object with the same bits, flags and gradient."""
        saver = self.new_saver()
        weight = torch.nn.Parameter(torch.randn(5, 3))
        gradient = torch.randn(5, 3)
        weight.grad = gradient
        before = bits(weight)
        old_address = weight.data_ptr()

        saver.place({"weight": weight}, TAG, Backup.CPU)

        assert bits(weight) == before
        assert weight.requires_grad
        assert weight.is_leaf
        assert weight.grad is gradient
        assert weight.data_ptr() != old_address
        assert saver.tag_of(weight) == TAG
        assert saver.tag_of(gradient) is None

    def test_tensors_that_share_a_storage_share_one_afterwards(self) -> None:
        """Tied weights and views are moved once, at the same offsets and strides."""
        saver = self.new_saver()
        whole = torch.randn(8, 4)
        tied, view = whole.view(8, 4), whole.t()[1:]
        other = torch.randn(3)

        saver.place({"whole": whole, "tied": tied, "view": view, "other": other}, TAG, Backup.CPU)

        assert tied.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
        assert view.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
        assert other.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr()
        assert (view.storage_offset(), view.stride()) == (1, (1, 4))
        assert saver.tags()[TAG].size_bytes < 2 * whole.nbytes + 4096
        whole[0, 1] = torch.pi
        assert torch.equal(view[0, 0], whole[0, 1])

    def test_regions_of_one_tag_move_together(self) -> None:
        """A second placement under an active tag is paused and resumed with the first."""
        saver = self.new_saver()
        first, second = torch.randn(3), torch.randn(3)
        before = bits(first) + bits(second)
        saver.place({"first": first}, TAG, Backup.CPU)
        saver.place({"second": second}, TAG, Backup.CPU)

        saver.pause(TAG)
        assert saver.host_backup(first) is not None
        assert saver.host_backup(second) is not None
        saver.resume(TAG)

        assert bits(first) + bits(second) == before

    def test_tags_are_independent(self) -> None:
        """Pausing one tag leaves another one readable, and the books tell them apart."""
        saver = self.new_saver()
        base, adapter = torch.randn(3), torch.randn(3)
        before = bits(adapter)
        saver.place({"base": base}, "actor/base", Backup.CPU)
        saver.place({"adapter": adapter}, "actor/adapter", Backup.NONE)

        saver.pause("actor/base")

        books = saver.tags()
        base_bytes, adapter_bytes = books["actor/base"].size_bytes, books["actor/adapter"].size_bytes
        assert bits(adapter) == before
        assert list(books) == ["actor/adapter", "actor/base"]
        assert books["actor/base"] == TagInfo("actor/base", Backup.CPU, True, base_bytes, base_bytes)
        assert books["actor/adapter"] == TagInfo("actor/adapter", Backup.NONE, False, adapter_bytes, 0)
        assert saver.usage() == Usage(adapter_bytes, base_bytes, 0)

    def test_misuse_is_refused_and_changes_nothing(self) -> None:
        """What ends the process with the real library raises, and leaves books and bytes alone (FB-13)."""
        saver = self.new_saver()
        active, paused, lost = torch.randn(3), torch.randn(3), torch.randn(3)
        free = torch.randn(3)
        before = bits(active) + bits(free)
        saver.place({"active": active}, "active", Backup.CPU)
        saver.place({"paused": paused}, "paused", Backup.CPU)
        saver.place({"lost": lost}, "lost", Backup.NONE)
        saver.pause("paused")
        saver.pause("lost")
        books = dict(saver.tags())

        for call in _misuses(saver, active, lost, free):
            with refused():
                call()

        assert dict(saver.tags()) == books
        assert bits(active) + bits(free) == before
        assert saver.tag_of(free) is None

    def test_what_a_pause_frees_is_seen_by_the_driver(self) -> None:
        """The figure is not the books': it falls by the region at pause and rises at resume (FB-27)."""
        saver = self.new_saver()
        saver.place({"tensor": torch.zeros(8 << 20, dtype=torch.uint8)}, TAG, Backup.CPU)
        active = saver.device_used_bytes()
        assert active is not None

        saver.pause(TAG)

        paused = saver.device_used_bytes()
        assert paused is not None
        assert active - paused >= saver.tags()[TAG].size_bytes
        saver.resume(TAG)
        resumed = saver.device_used_bytes()
        assert resumed is not None
        assert resumed - paused >= saver.tags()[TAG].size_bytes

    def test_paused_memory_can_be_freed_where_the_saver_says_so(self) -> None:
        """The last reference goes while its tag is paused, then the tag: the process lives (FB-25)."""
        saver = self.new_saver()
        if not saver.frees_while_paused:
            return
        dropped, kept = torch.randn(5), torch.randn(5)
        before = bits(kept)
        saver.place({"dropped": dropped}, "dropped", Backup.CPU)
        saver.place({"kept": kept}, "kept", Backup.CPU)
        saver.pause("dropped")
        saver.pause("kept")

        del dropped
        saver.release("dropped")
        saver.resume("kept")

        assert bits(kept) == before
        assert list(saver.tags()) == ["kept"]

    def test_adopted_memory_is_managed_where_it_lies(self) -> None:
        """Tensors that a framework made in a region are paused and read like placed ones, and not moved."""
        saver = self.new_saver()
        memory = self.allocate(saver, 4096, TAG, Backup.CPU)
        first, second = memory[:64].view(torch.float32), memory[1024:1152].view(torch.bfloat16)
        first.fill_(1.0)
        second.fill_(2.0)
        addresses = (first.data_ptr(), second.data_ptr())

        saver.adopt({"first": first, "second": second}, TAG, Backup.CPU, paused=False)
        saver.pause(TAG)

        backup = saver.host_backup(second)
        assert backup is not None
        assert backup.tolist() == [2.0] * 64
        assert saver.tags()[TAG].size_bytes == memory.nbytes
        saver.resume(TAG)
        assert (first.data_ptr(), second.data_ptr()) == addresses
        assert first.tolist() == [1.0] * 16
        with refused():
            saver.adopt({"first": first}, TAG, Backup.CPU, paused=False)
        with refused():
            saver.place({"first": first}, "other", Backup.CPU)

    def test_a_released_tag_is_forgotten_and_can_be_used_again(self) -> None:
        """After release, paused or not, the tag is unknown and free for another kind."""
        saver = self.new_saver()
        for paused, backup in ((False, Backup.NONE), (True, Backup.CPU), (True, Backup.NONE)):
            tensor = torch.randn(3)
            saver.place({"tensor": tensor}, TAG, backup)
            if paused:
                saver.pause(TAG)

            saver.release(TAG)

            assert saver.tags() == {}
            assert saver.tag_of(tensor) is None
            assert saver.usage() == Usage(0, 0, 0)
            with refused():
                saver.release(TAG)
            del tensor

    def test_unmanaged_nests_and_does_nothing_outside_a_region(self) -> None:
        """Memory made inside lies in no region, whatever is paused."""
        saver = self.new_saver()
        tensor = torch.randn(3)
        saver.place({"tensor": tensor}, TAG, Backup.CPU)
        saver.pause(TAG)

        with saver.unmanaged(), saver.unmanaged():
            scratch = torch.zeros(3)

        assert saver.tag_of(scratch) is None
        saver.resume(TAG)


def _misuses(saver: MemorySaver, active: Tensor, lost: Tensor, free: Tensor) -> list[Callable[[], object]]:
    cpu, new = Backup.CPU, {"free": free}
    no_tag: str = None  # type: ignore[assignment]  # what a caller does who takes None for all tags
    result_of_an_operation = torch.ones(2, requires_grad=True) * 2
    return [
        lambda: saver.pause("paused"),
        lambda: saver.resume("active"),
        lambda: saver.pause("unknown"),
        lambda: saver.resume("unknown"),
        lambda: saver.release("unknown"),
        lambda: saver.pause(""),
        lambda: saver.pause(no_tag),
        lambda: saver.resume(no_tag),
        lambda: saver.pause("active\0"),
        lambda: saver.place(new, "", cpu),
        lambda: saver.place(new, "new\0", cpu),
        lambda: saver.place(new, no_tag, cpu),
        lambda: saver.place(new, "paused", cpu),
        lambda: saver.place(new, "active", Backup.NONE),
        lambda: saver.place(new, "active", Backup.DISK),
        lambda: saver.place(new, "new", Backup.DISK),
        lambda: saver.place(new, "new", "cpu+disk"),  # type: ignore[arg-type]
        lambda: saver.place({"active": active}, "new", cpu),
        lambda: saver.place({"free": free, "view": active[1:]}, "new", cpu),
        lambda: saver.place({"free": free, "meta": torch.empty(2, device="meta")}, "new", cpu),
        lambda: saver.place({"free": free, "sparse": torch.eye(2).to_sparse()}, "new", cpu),
        lambda: saver.place({"free": free, "result": result_of_an_operation}, "new", cpu),
        lambda: saver.adopt({"active": active}, "active", cpu, paused=False),
        lambda: saver.adopt(new, "active", cpu, paused=True),
        lambda: saver.adopt(new, "active", Backup.NONE, paused=False),
        lambda: saver.host_backup(lost),
        lambda: saver.host_backup(free),
        lambda: saver.host_backup(torch.empty(2, device="meta")),
    ]
