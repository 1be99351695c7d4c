"""What is misuse of a memory saver, asked before a native call is made. Reads the books and writes none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from lifecycle.errors import ConfigError, SaverMisuse
from lifecycle.private import make_folder
from lifecycle.saver.books import Books, Region, TagBook
from lifecycle.saver.placement import why_not_placeable
from lifecycle.saver.protocol import Backup


def check_tag(call: str, tag: object) -> None:
    """Refuse a tag that the native library takes for another one, or for all of them.

    Raises:
        SaverMisuse: the tag is no string, is empty, or has characters that do not print.
    """
    if not isinstance(tag, str) or not tag:
        raise SaverMisuse(call, "the tag is empty or no string, which means every tag of every tenant; name one")
    if not tag.isprintable():
        raise SaverMisuse(call, "the tag has control characters, at which the native library may cut it; drop them")


def check_opening(books: Books, call: str, tag: str, backup: object, disk_dir: str | None, *, paused: bool) -> Backup:
    """Check that memory of this kind and state may come under the tag. Returns the kind.

    Raises:
        SaverMisuse: the tag is malformed, in the other state or of another kind, or the kind cannot be had.
    """
    check_tag(call, tag)
    if not isinstance(backup, str) or backup not in tuple(Backup):
        raise SaverMisuse(call, f"backup is one of {', '.join(Backup)}, not {backup!r}")
    if backup == Backup.DISK and disk_dir is None:
        raise SaverMisuse(call, "a disk backup needs a folder; give the saver a disk_dir")
    book = books.get(tag)
    if book is not None and book.backup != backup:
        raise SaverMisuse(call, f"the tag has backup kind {book.backup}, not {backup}; use another tag")
    if book is not None and book.paused != paused:
        state, remedy = ("paused", "resume it first") if book.paused else ("active", "pause it first")
        raise SaverMisuse(call, f"the tag is {state}; {remedy}, or use another tag")
    return Backup(backup)


def check_folder(disk_dir: str | None) -> None:
    """Make the folder of disk backups (0700) when it is missing, and check that it can be written. None is no folder.

    Raises:
        ConfigError: it cannot be made or written.
    """
    if disk_dir is None:
        return
    try:
        make_folder(Path(disk_dir))
    except OSError as error:
        raise ConfigError(f"disk_dir {disk_dir} cannot be made: {error}; name a folder that can be written") from error
    if not os.access(disk_dir, os.W_OK | os.X_OK):
        raise ConfigError(f"disk_dir {disk_dir} cannot be written; name a folder that can")


def check_new(books: Books, call: str, tensors: Mapping[str, Tensor]) -> None:
    """Check that every tensor can be placed and lies in no region yet.

    Raises:
        SaverMisuse: naming the first tensor that is not.
    """
    for name, tensor in tensors.items():
        why = why_not_placeable(tensor)
        if why is not None:
            raise SaverMisuse(call, f"{name}: {why}")
        found = find_region(books, tensor)
        if found is not None:
            raise SaverMisuse(call, f"{name}: it lies in tag {found[0].tag} already; release that first")


def find_region(books: Books, tensor: Tensor) -> tuple[TagBook, Region] | None:
    """The region that holds the tensor's storage."""
    if tensor.is_meta or tensor.layout is not torch.strided:
        return None
    return books.find(tensor.untyped_storage().data_ptr())


def storages_as_regions(books: Books, call: str, tensors: Mapping[str, Tensor]) -> list[Region]:
    """One region for each distinct storage of the tensors; a storage inside another one is part of it.

    Raises:
        SaverMisuse: a storage overlaps a known region, or two of them overlap half.
    """
    regions: dict[int, Region] = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        address, size_bytes = storage.data_ptr(), storage.nbytes()
        if size_bytes == 0:
            continue
        if books.overlaps(address, size_bytes):
            raise SaverMisuse(call, f"{name}: its storage overlaps a region that is known already; release that first")
        if address not in regions or regions[address].size_bytes < size_bytes:
            regions[address] = Region(address, size_bytes, None)
    return _without_nested(call, [regions[address] for address in sorted(regions)])


def _without_nested(call: str, ordered: list[Region]) -> list[Region]:
    outer: list[Region] = []
    end = 0
    for region in ordered:
        region_end = region.address + region.size_bytes
        if region.address >= end:
            outer.append(region)
        elif region_end > end:
            raise SaverMisuse(call, "two storages overlap half; adopt the memory that both lie in")
        end = max(end, region_end)
    return outer
