"""What the books say of a stretch of memory, looked up once and used for every tensor that lies in it."""

from __future__ import annotations

from threading import Lock
from typing import Final, Protocol

from torch import Tensor

from lifecycle.saver.books import Ranges
from lifecycle.saver.protocol import Window

NOWHERE: Final = Window(-1, 0, 0, None, live=True, host=None)
"""Covers nothing."""


class Looks(Protocol):
    """What :class:`Windows` asks of a saver."""

    @property
    def revision(self) -> int:
        """See :class:`~lifecycle.saver.protocol.MemorySaver`."""

    def window(self, tensor: Tensor) -> Window:
        """See :class:`~lifecycle.saver.protocol.MemorySaver`."""


class Windows:
    """Remembers the windows of a saver for as long as its books do not change.

    Args:
        saver: asked once for each region, however many tensors lie in it.
    """

    def __init__(self, saver: Looks) -> None:
        self._saver = saver
        self._last = NOWHERE
        self._known: Ranges[Window] = Ranges()
        self._revision = -1
        self._lock = Lock()

    def of(self, tensor: Tensor) -> Window:
        """The window that the first byte of the tensor's storage lies in."""
        try:
            address, last = tensor.untyped_storage().data_ptr(), self._last
        except (NotImplementedError, RuntimeError):  # a sparse tensor and one on the meta device have none
            return self._saver.window(tensor)
        if last.start <= address < last.end and last.revision == self._saver.revision:
            return last
        return self._look(tensor, address)

    def _look(self, tensor: Tensor, address: int) -> Window:
        with self._lock:
            if self._revision != self._saver.revision:
                self._known, self._revision = Ranges(), self._saver.revision
            found = self._known.find(address)
            if found is None:
                found = self._saver.window(tensor)
                if found.revision == self._revision:
                    self._known.add(found.start, found.end - found.start, found)
            self._last = found
            return found
