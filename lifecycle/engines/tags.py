"""The memory tags of the in-process engine in the saver that it shares with the trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from torch import Tensor

from lifecycle.engines.protocol import KV_CACHE, WEIGHTS
from lifecycle.errors import EngineError, SaverError
from lifecycle.saver import Backup, MemorySaver, TagInfo

TAGS: Final = (WEIGHTS, KV_CACHE)
"""The engine's tags in the order in which they are resumed; they are released the other way round."""


class EngineTags:
    """The two tags of one engine: ``NAME/weights`` (backup cpu) and ``NAME/kv_cache`` (backup none).

    Residency is read from the saver's books, never remembered.

    Args:
        engine: the engine's name.
        saver: the shared saver.
    """

    def __init__(self, engine: str, saver: MemorySaver) -> None:
        self._engine = engine
        self._saver = saver

    def place(self, weights: Mapping[str, Tensor], kv_cache: Tensor) -> None:
        """Move the engine's tensors into its tags. All or nothing.

        Raises:
            EngineError: there is no room.
        """
        try:
            self._saver.place(weights, self._full(WEIGHTS), Backup.CPU)
            self._saver.place({KV_CACHE: kv_cache}, self._full(KV_CACHE), Backup.NONE)
        except SaverError as error:
            self.forget()
            why = f"there is no room for it: {error}; release another tenant first"
            raise EngineError(self._engine, why) from error

    def forget(self) -> None:
        """Free both regions, in whatever state they are.

        A saver that ends the process when paused memory is freed gets it back first.

        Raises:
            EngineError: it had to, and the device has no room.
        """
        for tag in TAGS:
            if self._full(tag) in self._saver.tags():
                if tag in self.released() and not self._saver.frees_while_paused:
                    self._ask(self._saver.resume, "free", tag)
                self._saver.release(self._full(tag))

    def released(self) -> frozenset[str]:
        """The tags whose memory is given back."""
        return frozenset(tag for tag, info in self._infos().items() if info.paused)

    def names(self) -> tuple[str, ...]:
        """Its tags as the saver knows them."""
        return tuple(info.tag for info in self._infos().values())

    def device_bytes(self) -> dict[str, int]:
        """What each tag takes on the device when it is resident."""
        return {tag: info.size_bytes for tag, info in self._infos().items()}

    def mirror_bytes(self) -> int:
        """Host bytes that come when ``weights`` is released and go when it is resumed.

        Where the saver retains backups they stay once they are there, and nothing comes or goes any more.
        """
        info = self._infos()[WEIGHTS]
        return 0 if self._saver.retain_host_backup and info.backup_bytes else info.size_bytes

    def _infos(self) -> dict[str, TagInfo]:
        books = self._saver.tags()
        return {tag: books[self._full(tag)] for tag in TAGS if self._full(tag) in books}

    def known(self, tags: Iterable[str]) -> list[str]:
        """The tags that are meant, in order.

        Raises:
            EngineError: one of them does not exist.
        """
        asked = set(tags)
        unknown = ", ".join(sorted(asked - set(TAGS)))
        if unknown:
            raise EngineError(self._engine, f"no tag {unknown}; there are {', '.join(TAGS)}")
        return [tag for tag in TAGS if tag in asked]

    def release(self, tags: Iterable[str]) -> None:
        """Give back the memory of these tags; those already released are skipped."""
        for tag in reversed(self.known(tags)):
            if tag not in self.released():
                self._ask(self._saver.pause, "release", tag)

    def resume(self, tags: Iterable[str]) -> None:
        """Take the memory of these tags again; those that are resident are skipped."""
        for tag in self.known(tags):
            if tag in self.released():
                self._ask(self._saver.resume, "resume", tag)

    def need(self, tags: Iterable[str], what: str) -> None:
        """Refuse *what* unless these tags are resident.

        Raises:
            EngineError: one is released.
        """
        missing = [tag for tag in tags if tag in self.released()]
        if missing:
            raise EngineError(self._engine, f"cannot {what}: {', '.join(missing)} released; resume first")

    def backup(self, tensor: Tensor) -> Tensor | None:
        """The writable host backup of a tensor whose tag is released."""
        return self._saver.host_backup(tensor)

    def _full(self, tag: str) -> str:
        return f"{self._engine}/{tag}"

    def _ask(self, call: Callable[[str], None], what: str, tag: str) -> None:
        try:
            call(self._full(tag))
        except SaverError as error:
            raise EngineError(self._engine, f"cannot {what} {tag}: {error}; make room and repeat") from error
