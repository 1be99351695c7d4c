"""``ManagedSaver``: books and guards over a native port. Calls that would end the process are refused."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager

import torch
from torch import Tensor, UntypedStorage

from lifecycle.errors import SaverError, SaverMisuse
from lifecycle.saver.books import Books, Region, TagBook
from lifecycle.saver.guards import check_new, check_opening, check_tag, find_region, storages_as_regions
from lifecycle.saver.native import NativePort
from lifecycle.saver.placement import move, plan
from lifecycle.saver.protocol import Backup, TagInfo, Usage, Window
from lifecycle.saver.turning import turning
from lifecycle.saver.views import bytes_at, first_address, host_view, span_bytes


class ManagedSaver:
    """A :class:`~lifecycle.saver.protocol.MemorySaver` over a :class:`~lifecycle.saver.native.NativePort`.

    All native calls of a process have to go through one object, because the native library has no query:
    its books are the only record of what is paused. They are written after each single native call.

    Args:
        port: the native library. Owned by this object from now on.
        retain_host_backup: whether host backups outlive a resume.
        disk_dir: where the port writes disk backups; None refuses them.
    """

    def __init__(self, port: NativePort, *, retain_host_backup: bool = False, disk_dir: str | None = None) -> None:
        self._port = port
        self._retain = retain_host_backup
        self._disk_dir = disk_dir
        self._books = Books()
        self._lock = threading.RLock()
        port.set_retain(retain=retain_host_backup)

    @property
    def enabled(self) -> bool:
        """Whether a pause really gives memory back."""
        return self._port.enabled()

    @property
    def retain_host_backup(self) -> bool:
        """Whether host backups outlive a resume. They then hold the bytes of the last pause."""
        return self._retain

    @property
    def frees_while_paused(self) -> bool:
        """Whether freeing memory or clearing torch's cache is safe while something is paused."""
        return self._port.frees_while_paused()

    @property
    def disk_dir(self) -> str | None:
        """Where disk backups are written; None when none is set."""
        return self._disk_dir

    @property
    def generation(self) -> int:
        """Grows whenever a region comes or goes: while it is the same, :meth:`tag_of` an address is the same."""
        return self._books.generation

    @property
    def revision(self) -> int:
        """Grows whenever anything in the books changes: regions, pauses, resumes."""
        return self._books.revision

    def place(self, tensors: Mapping[str, Tensor], tag: str, backup: Backup) -> None:
        """Move tensors into a new region of *tag*; the same tensor objects, same values, new storage.

        One native allocation a call. Tensors that share a storage share one afterwards too, at the same
        offsets and strides, and are moved once. Gradients and ``requires_grad`` stay. All or nothing.

        Raises:
            SaverMisuse: the tag is paused, has another backup kind, or a tensor is already placed,
                on the meta device, not strided, or an autograd non-leaf.
            SaverError: there is no room.
        """
        call = f"place({tag})"
        with self._lock, torch.no_grad():
            backup = check_opening(self._books, call, tag, backup, self._disk_dir, paused=False)
            check_new(self._books, call, tensors)
            layout = plan(tensors)
            if layout.size_bytes == 0:
                self._books.open(tag, backup, paused=False)
                return
            allocation = self._port.allocate(layout.size_bytes, self._books.native_tag(tag), backup)
            try:
                move(layout, allocation)
            except BaseException:
                self._port.free(allocation)
                raise
            region = Region(allocation.data_ptr(), allocation.nbytes, allocation)
            self._books.add(self._books.open(tag, backup, paused=False), region)

    def adopt(self, tensors: Mapping[str, Tensor], tag: str, backup: Backup, *, paused: bool) -> None:
        """Take tensors into the books that a framework has already allocated in a region of *tag*.

        Nothing moves. The framework goes on owning the memory: :meth:`release` forgets it. That the memory
        really lies in such a region is the caller's word, which the real library cannot confirm.

        Args:
            tensors: by name; tensors of one storage are one region.
            tag: the tag the framework gave, literally.
            backup: the kind it was allocated with.
            paused: whether it is paused now.

        Raises:
            SaverMisuse: the tag is known with another state or backup kind, or a tensor is already known.
        """
        call = f"adopt({tag})"
        with self._lock:
            backup = check_opening(self._books, call, tag, backup, self._disk_dir, paused=paused)
            check_new(self._books, call, tensors)
            if self._books.native_tag(tag) != tag:
                raise SaverMisuse(call, "the tag was released while paused; allocate under another tag")
            regions = storages_as_regions(self._books, call, tensors)
            for region in regions:
                self._check_adoptable(call, region, tag, backup, paused=paused)
            for region in regions:
                region.kept_bytes = self._kept_bytes(region, backup, paused=paused)
            book = self._books.open(tag, backup, paused=paused)
            for region in regions:
                self._books.add(book, region)

    def tag_of(self, tensor: Tensor) -> str | None:
        """The tag of the region that holds the tensor's storage, None when no region does."""
        with self._lock:
            found = find_region(self._books, tensor)
            return found[0].tag if found else None

    def tags(self) -> Mapping[str, TagInfo]:
        """The books: one entry a tag, sorted. Cheap to ask again while nothing has changed."""
        with self._lock:
            return self._books.infos()

    def window(self, tensor: Tensor) -> Window:
        """What the books say of the memory around a tensor's storage, until :attr:`revision` changes.

        One look answers for every tensor of the same region. A tensor without storage gets an empty window.
        """
        with self._lock:
            revision = self._books.revision
            if tensor.is_meta or tensor.layout is not torch.strided:
                return Window(revision, 0, 0, None, live=True, host=None)
            start, end, found = self._books.around(tensor.untyped_storage().data_ptr())
            if found is None:
                return Window(revision, start, end, None, live=True, host=None)
            book, region = found
            host = self._whole_backup(region) if book.backup is Backup.CPU and region.kept_bytes else None
            return Window(revision, start, end, book.tag, live=not book.paused, host=host)

    def pause(self, tag: str) -> None:
        """Write the backup, give the device memory back. Waits for the device first.

        Raises:
            SaverMisuse: the tag is unknown or already paused.
            SaverError: no room for the backup, a disk error. The tag is then active and unharmed.
        """
        call = f"pause({tag})"
        with self._lock:
            book = self._known(call, tag)
            if book.paused:
                raise SaverMisuse(call, "the tag is paused already; resume it first")
            self._check_backup_room(book)
            self._port.synchronize()
            with turning(self._books):
                self._port.pause(book.native_tag)
                book.paused = True
                book.set_kept(kept=book.backup is not Backup.NONE)

    def resume(self, tag: str) -> None:
        """Take device memory again at the same addresses, read the backup back, free it unless retained.

        A region without backup comes back with storage and without values.

        Raises:
            SaverMisuse: the tag is unknown or not paused.
            SaverError: the device has no room. The tag is then paused and its backup unharmed.
        """
        call = f"resume({tag})"
        with self._lock:
            book = self._known(call, tag)
            if not book.paused:
                raise SaverMisuse(call, "the tag is not paused; pause it first")
            self._check_device_room(book)
            with turning(self._books):
                self._port.resume(book.native_tag)
                book.paused = False
                if book.backup is Backup.CPU and not self._retain:
                    book.set_kept(kept=False)

    def host_backup(self, tensor: Tensor) -> Tensor | None:
        """The tensor's bytes in the saver's host backup, zero-copy, or None when there is none to read.

        Returns:
            A CPU tensor of the same shape, dtype and strides on a storage of its own that aliases the
            backup. It is writable: what is written while the tag is paused is on the device after resume.
            The memory belongs to the saver and is valid until the next resume of the tag (until the next
            pause overwrites it, or the tag is released, when backups are retained). None for a disk backup,
            and for an active tag without a retained backup.

        Raises:
            SaverMisuse: the tensor lies in no region, in a paused one without backup, or reaches
                over the end of its region.
        """
        call = "host_backup"
        with self._lock:
            found = find_region(self._books, tensor)
            if found is None:
                raise SaverMisuse(call, f"a tensor of shape {list(tensor.shape)} lies in no region; place it first")
            book, region = found
            if book.paused and book.backup is Backup.NONE:
                raise SaverMisuse(call, f"tag {book.tag} is paused and has no backup; resume it, its values are lost")
            address, size_bytes = first_address(tensor), span_bytes(tensor)
            if address < region.address or address + size_bytes > region.address + region.size_bytes:
                raise SaverMisuse(call, f"the tensor reaches over the end of its region in tag {book.tag}")
            if size_bytes == 0:  # the end of an allocation is an address of the next one: ask for its first byte
                address, size_bytes = region.address, 1
            pointer = self._port.backup_pointer(address, size_bytes)
            return None if pointer is None else host_view(tensor, pointer)

    def unmanaged(self) -> AbstractContextManager[None]:
        """Allocations inside do not land in the saver's memory. Does nothing outside a region; nests."""
        return self._port.unmanaged()

    def release(self, tag: str) -> None:
        """Forget the tag and free its region, paused or not. Its tensors must not be used any more.

        Memory that was adopted is forgotten only; the framework that allocated it frees it.

        Raises:
            SaverMisuse: the tag is unknown.
            SaverError: memory could not be freed; what was freed is out of the books, call again.
        """
        with self._lock, turning(self._books):
            book = self._known(f"release({tag})", tag)
            for region in tuple(book.regions):
                if region.allocation is not None:
                    self._port.free(region.allocation)
                self._books.remove(book, region)
            self._books.close(book)

    def usage(self) -> Usage:
        """Bytes held now."""
        with self._lock:
            return self._books.usage()

    def device_free_bytes(self) -> int | None:
        """Device bytes still to be had, None when the device has no limit that is known."""
        return self._port.device_free_bytes()

    def device_used_bytes(self) -> int | None:
        """Device bytes in use as the driver says, not as the books say; None when it cannot be asked."""
        return self._port.device_used_bytes()

    def _check_adoptable(self, call: str, region: Region, tag: str, backup: Backup, *, paused: bool) -> None:
        """A port that can tell whether the memory is what the caller says overrides this."""

    def _check_backup_room(self, book: TagBook) -> None:
        """A port that ends the process when a backup finds no room overrides this."""

    def _check_device_room(self, book: TagBook) -> None:
        free = self._port.device_free_bytes()
        if free is not None and free < book.size_bytes:
            why = f"resume needs {book.size_bytes} bytes on the device and {free} are free; free device memory first"
            raise SaverError(book.tag, why)

    def _whole_backup(self, region: Region) -> UntypedStorage | None:
        pointer = self._port.backup_pointer(region.address, region.size_bytes)
        return None if pointer is None else bytes_at(pointer, region.size_bytes).untyped_storage()

    def _forget_all(self) -> None:
        self._books = Books(after=self._books)

    def _known(self, call: str, tag: str) -> TagBook:
        check_tag(call, tag)
        book = self._books.get(tag)
        if book is None:
            known = ", ".join(self._books.infos()) or "none"
            raise SaverMisuse(call, f"the tag is unknown (known: {known}); place or adopt tensors under it first")
        return book

    def _kept_bytes(self, region: Region, backup: Backup, *, paused: bool) -> int:
        if paused:
            return 0 if backup is Backup.NONE else region.size_bytes
        retained = self._retain and backup is Backup.CPU
        return region.size_bytes if retained and self._port.backup_pointer(region.address, 1) is not None else 0
