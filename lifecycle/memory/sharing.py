"""Memory that tensors of several content groups lie in. Pure: it reads addresses and no values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class SharedStorage:
    """Memory that tensors of several content groups lie in. It is moved as a whole, so it has one kind of backup.

    Attributes:
        groups: the content groups, in the order they were given.
        tensors: the tensors that lie in it, by group and name.
        size_bytes: the whole block, also what no tensor covers.
    """

    groups: tuple[str, ...]
    tensors: Mapping[str, Mapping[str, Tensor]]
    size_bytes: int

    def flat(self) -> dict[str, Tensor]:
        """The tensors by name alone: to be placed together, in one call."""
        return {name: one for held in self.tensors.values() for name, one in held.items()}


def groups_sharing_storage(groups: Mapping[str, Mapping[str, Tensor]]) -> tuple[SharedStorage, ...]:
    """The memory that several content groups share: one storage, or storages that overlap.

    Whoever places groups apart has to place these tensors together first, in the region of one of their groups (the
    one that changes), or refuse them where the groups are to have different backups (``refuse_mixed_backups``).

    Args:
        groups: strided tensors with bytes, by group and name.

    Returns:
        Each such block of memory, by address; blocks of one group alone are left out.
    """
    placed = [(_extent(one), group, name) for group, held in groups.items() for name, one in held.items()]
    blocks: list[tuple[int, int, list[tuple[str, str]]]] = []
    device = None
    for (where, start, end), group, name in sorted(placed, key=lambda item: item[0]):
        if blocks and where == device and start < blocks[-1][1]:
            first, last, members = blocks[-1]
            members.append((group, name))
            blocks[-1] = (first, max(last, end), members)
        else:
            blocks.append((start, end, [(group, name)]))
        device = where
    found = []
    for start, end, members in blocks:
        names = {group: {name: held[name] for g, name in members if g == group} for group, held in groups.items()}
        among = {group: held for group, held in names.items() if held}
        if len(among) > 1:
            found.append(SharedStorage(tuple(among), among, end - start))
    return tuple(found)


def _extent(tensor: Tensor) -> tuple[str, int, int]:
    storage = tensor.untyped_storage()
    return str(storage.device), storage.data_ptr(), storage.data_ptr() + storage.nbytes()
