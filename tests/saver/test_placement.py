"""How tensors move onto an allocation: what shares memory goes on sharing it, what cannot move is refused."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from lifecycle.errors import SaverMisuse
from lifecycle.saver.arena import HostArena
from lifecycle.saver.placement import ALIGN_BYTES, plan
from lifecycle.saver.protocol import Backup
from lifecycle.testing import TAG, bits


def test_a_model_trains_on_after_it_was_placed_and_cycled() -> None:
    """Parameters, gradients and optimizer state stay one: a placed run ends bit-equal to a plain one."""

    def run(*, placed: bool) -> bytes:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        model[1].weight = model[0].weight
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        arena = HostArena()
        for step in range(3):
            optimizer.zero_grad(set_to_none=False)
            model(torch.randn(4, 8)).square().sum().backward()
            optimizer.step()
            if placed and step == 0:
                named = dict(model.named_parameters())
                arena.place(named, "base", Backup.CPU)
                arena.place({name: p.grad for name, p in named.items() if p.grad is not None}, "grad", Backup.CPU)
                moments = {
                    f"{name}/{key}": value
                    for name, p in named.items()
                    for key, value in optimizer.state[p].items()
                    if isinstance(value, Tensor)
                }
                arena.place(moments, "optimizer", Backup.CPU)
            for tag in arena.tags():
                arena.pause(tag)
                arena.resume(tag)
        return b"".join(bits(p) for p in model.parameters())

    assert run(placed=True) == run(placed=False)


def test_storages_that_overlap_in_memory_overlap_afterwards() -> None:
    """Two storages over one buffer (as memory-mapped files give them) are one block, moved once."""
    memory = torch.arange(64, dtype=torch.uint8)
    first = torch.empty(0, dtype=torch.uint8).set_(memory.untyped_storage()[0:40])
    second = torch.empty(0, dtype=torch.uint8).set_(memory.untyped_storage()[32:64])
    arena = HostArena()

    arena.place({"first": first, "second": second}, TAG, Backup.CPU)

    assert second.data_ptr() - first.data_ptr() == 32
    first[39] = 200
    assert second[7].item() == 200
    assert second.tolist() == [*range(32, 39), 200, *range(40, 64)]


def test_each_storage_stays_one_of_its_own() -> None:
    """Who looks for tied weights by storage must not find the whole region to be one tensor."""
    tensors = {f"t{index}": torch.randn(5) for index in range(3)}
    arena = HostArena()

    arena.place(tensors, TAG, Backup.CPU)

    storages = [tensor.untyped_storage() for tensor in tensors.values()]
    assert len({storage.data_ptr() for storage in storages}) == 3
    assert [storage.nbytes() for storage in storages] == [20, 20, 20]


def test_every_storage_is_aligned_as_torch_aligns_it() -> None:
    """Kernels that rely on alignment go on working."""
    layout = plan({f"t{index}": torch.randn(index) for index in range(5)})

    assert all(slot.offset_bytes % ALIGN_BYTES == 0 for slot in layout.slots.values())
    assert layout.size_bytes == 5 * ALIGN_BYTES


def test_a_tensor_that_is_named_twice_is_moved_once() -> None:
    """Tied parameters are often one object under two names."""
    tensor = torch.randn(3)
    arena = HostArena()

    arena.place({"embed": tensor, "head": tensor}, TAG, Backup.CPU)

    assert arena.tags()[TAG].size_bytes == ALIGN_BYTES


def test_an_empty_placement_opens_the_tag() -> None:
    """A model part without tensors (no buffers) can be paused like the others."""
    arena = HostArena()
    arena.place({}, TAG, Backup.NONE)

    arena.pause(TAG)
    arena.resume(TAG)

    assert arena.tags()[TAG].size_bytes == 0


def test_views_of_a_placed_tensor_read_the_backup_at_their_own_offset() -> None:
    """A view made after placement is found by its address."""
    tensor = torch.arange(12.0).view(3, 4)
    arena = HostArena()
    arena.place({"tensor": tensor}, TAG, Backup.CPU)
    view = tensor[1:, ::2]
    expected = view.tolist()
    arena.pause(TAG)

    backup = arena.host_backup(view)

    assert backup is not None
    assert backup.tolist() == expected
    assert backup.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr()


def test_the_tensor_that_a_view_is_of_moves_along() -> None:
    """A view keeps it alive, and with it the old memory, which would never be given back."""
    view = torch.ones(4, 4).view(16)
    old = StorageWeakRef(view.untyped_storage())

    HostArena().place({"view": view}, TAG, Backup.CPU)

    assert old.expired()
    assert view._base is not None
    assert view._base.data_ptr() == view.data_ptr()


def _warned(make: Callable[..., Tensor], *args: object) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(*args)


def _freed() -> Tensor:
    tensor = torch.ones(2)
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (torch.empty(2, device="meta"), "materialise"),
        (nn.LazyLinear(2).weight, "run one forward pass"),
        (torch.eye(2).to_sparse(), "only strided"),
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "wraps other tensors"),
        (_warned(torch.nested.nested_tensor, [torch.ones(2), torch.ones(3)]), "only strided"),
        (_warned(torch.quantize_per_tensor, torch.ones(2), 0.1, 0, torch.qint8), "plain dtypes"),
        (_freed(), "was freed"),
        (torch.ones(2, requires_grad=True) * 2, "detach"),
        (torch.ones(2, dtype=torch.complex64).conj(), "resolve_conj"),
        ("weight", "not a tensor"),
    ],
    ids=["meta", "lazy", "sparse", "jagged", "nested", "quantised", "freed", "non-leaf", "conj", "string"],
)
def test_what_cannot_move_is_refused_with_its_name_and_a_remedy(tensor: Tensor, why: str) -> None:
    """One tensor that cannot move keeps all of them where they are."""
    good = torch.ones(2)
    address = good.data_ptr()

    with pytest.raises(SaverMisuse, match=rf"bad: .*{why}"):
        HostArena().place({"good": good, "bad": tensor}, TAG, Backup.CPU)

    assert good.data_ptr() == address


def test_storages_that_overlap_half_are_not_adopted() -> None:
    """Neither region could be told from the other."""
    arena = HostArena()
    storage = arena.allocate(64, TAG, Backup.CPU).untyped_storage()
    first = torch.empty(0, dtype=torch.uint8).set_(storage[16:40])
    second = torch.empty(0, dtype=torch.uint8).set_(storage[32:64])

    with pytest.raises(SaverMisuse, match="overlap"):
        arena.adopt({"first": first, "second": second}, TAG, Backup.CPU, paused=False)
    arena.adopt({"first": first}, TAG, Backup.CPU, paused=False)
    with pytest.raises(SaverMisuse, match="overlap"):
        arena.adopt({"whole": torch.empty(0, dtype=torch.uint8).set_(storage)}, TAG, Backup.CPU, paused=False)
    assert arena.tags()[TAG].size_bytes == 24


def test_paused_memory_can_be_adopted() -> None:
    """A framework that starts up asleep hands over what it has paused."""
    arena = HostArena()
    memory = arena.allocate(64, TAG, Backup.CPU).fill_(7)
    arena.port.pause(TAG)

    arena.adopt({"memory": memory}, TAG, Backup.CPU, paused=True)

    backup = arena.host_backup(memory)
    assert backup is not None
    assert backup.tolist() == [7] * 64
    arena.resume(TAG)
    assert memory.tolist() == [7] * 64


def test_a_tensor_that_reaches_over_its_region_is_refused() -> None:
    """The library ends the process for a backup that spans allocations."""
    arena = HostArena()
    memory = arena.allocate(64, TAG, Backup.CPU)
    part = torch.empty(0, dtype=torch.uint8).set_(memory.untyped_storage()[0:32])
    arena.adopt({"part": part}, TAG, Backup.CPU, paused=False)
    arena.pause(TAG)

    with pytest.raises(SaverMisuse, match="reaches over"):
        arena.host_backup(memory)


def test_calls_from_many_threads_are_serialised() -> None:
    """Threads that cycle tags of their own end with true books."""
    arena = HostArena(capacity_bytes=1 << 24)
    tensors = [torch.full((5000,), float(index)) for index in range(4)]
    errors: list[BaseException] = []

    def work(index: int) -> None:
        try:
            arena.place({"tensor": tensors[index]}, f"tag{index}", Backup.CPU)
            for _ in range(30):
                arena.pause(f"tag{index}")
                arena.resume(f"tag{index}")
        except BaseException as error:  # noqa: BLE001  # reported by the assert
            errors.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert all(tensor.eq(index).all() for index, tensor in enumerate(tensors))
    assert not any(info.paused for info in arena.tags().values())
