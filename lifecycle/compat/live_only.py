"""slime's kind without copies: one tag, whose bytes stay in the live tensors and are compared by digest."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor

from lifecycle.compat.backuper import TensorBackuper
from lifecycle.compat.names import NamedTensors, checked_saver, listed
from lifecycle.compat.reading import own_bytes
from lifecycle.errors import ConfigError, DigestMismatch, UnknownTag
from lifecycle.saver import MemorySaver
from lifecycle.weights.digests import tensor_sha256
from lifecycle.weights.stored import check_tag


class LiveOnly(TensorBackuper):
    """One tag and no bytes: what is asked for must be what is live.

    Args:
        source_getter: gives the named tensors.
        single_tag: the tag.
        saver: whose books say what is paused, or None.
    """

    def __init__(
        self, source_getter: Callable[[], NamedTensors], single_tag: str, saver: MemorySaver | None = None
    ) -> None:
        check_tag(single_tag)
        self._source = source_getter
        self._tag = single_tag
        self._saver = None if saver is None else checked_saver(saver)
        self._digests: dict[str, str] | None = None

    @property
    def backup_tags(self) -> list[str]:
        """The one tag, which always exists."""
        return [self._tag]

    def get(self, tag: str) -> dict[str, Tensor]:
        """The live tensors, not copied (while paused, their host backup, until the next resume).

        Raises:
            UnknownTag: it is another tag, or was never backed up.
            DigestMismatch: the tensors changed since the backup.
        """
        found = self._live(tag)
        self._compare(tag, found)
        return found

    def backup(self, tag: str) -> int:
        """Note what the tensors hold. Returns 0: nothing is copied.

        Raises:
            UnknownTag: it is another tag.
        """
        self._digests = {name: tensor_sha256(one) for name, one in self._live(tag).items()}
        return 0

    def copy(self, *, src_tag: str, dst_tag: str) -> None:
        """There is one tag.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f'"{src_tag}" cannot be copied to "{dst_tag}": single_tag keeps no copies; leave it out')

    def restore(self, tag: str) -> int:
        """Nothing to write: refuses if the tensors changed since the backup. Returns 0.

        Raises:
            UnknownTag, DigestMismatch: see :meth:`get`.
        """
        self._compare(tag, self._live(tag))
        return 0

    def mark_dirty(self, names: Iterable[str] | None = None) -> None:
        """Nothing: whatever it is, a change is found by its digest."""

    def _live(self, tag: str) -> dict[str, Tensor]:
        if tag != self._tag:
            raise UnknownTag(tag, self.backup_tags)
        return {name: own_bytes(name, one, self._saver) for name, one in listed(self._source()).items()}

    def _compare(self, tag: str, live: dict[str, Tensor]) -> None:
        if self._digests is None:
            raise UnknownTag(tag, ())
        actual = {name: tensor_sha256(one) for name, one in live.items()}
        odd = sorted(name for name in {**actual, **self._digests} if actual.get(name) != self._digests.get(name))
        if odd:
            raise DigestMismatch(", ".join(odd[:3]), f'not what was backed up as "{tag}"', (), odd)
