"""``TensorBackuper``: named host copies of a model, with the calls that miles and slime have.

What they keep once a tag is kept once for all tags that hold the same bytes. Where a call there goes on with half of
what is needed, or with an empty tag, it is an error here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from torch import Tensor

from lifecycle.compat.names import NamedTensors
from lifecycle.errors import ConfigError
from lifecycle.saver import MemorySaver

if TYPE_CHECKING:
    from lifecycle.compat.main_cast import MainCastContext


class TensorBackuper(ABC):
    """Named host copies of a model's tensors. Build it with :meth:`create`."""

    @staticmethod
    def create(
        source_getter: Callable[[], NamedTensors],
        main_cast_ctx: MainCastContext | None = None,
        *,
        single_tag: str | None = None,
        frozen: Iterable[str] = (),
        saver: MemorySaver | None = None,
    ) -> TensorBackuper:
        """A backuper over the tensors that a function gives.

        Args:
            source_getter: gives (name, tensor) pairs; called at each backup and restore, and by some kinds at a get.
            main_cast_ctx: rebuild the tag ``actor`` from the optimizer's fp32 masters instead of copying it.
            single_tag: slime's kind without copies: only this tag, whose bytes stay in the live tensors.
            frozen: names, or glob patterns of names, of tensors that never change. They are stored once and not
                compared any more, but for a sample of 72 KiB each time.
            saver: whose books say what is paused. With it paused tensors are read and written in their host backup,
                and a restore leaves out what surely is there already; without it every restore writes everything.

        Raises:
            ConfigError: arguments that do not fit together, or are none.
        """
        from lifecycle.compat.host_copies import HostCopies  # noqa: PLC0415 - the kinds are subclasses of this class
        from lifecycle.compat.live_only import LiveOnly  # noqa: PLC0415
        from lifecycle.compat.main_cast import MainCast  # noqa: PLC0415

        if not callable(source_getter):
            raise ConfigError(f"source_getter is {type(source_getter).__name__}; give a function of no arguments")
        if main_cast_ctx is not None and single_tag is not None:
            raise ConfigError("single_tag keeps nothing and main_cast_ctx rebuilds what is not kept; give one of them")
        if single_tag is not None:
            return LiveOnly(source_getter, single_tag, saver)
        copies = HostCopies(source_getter, frozen=frozen, saver=saver)
        return copies if main_cast_ctx is None else MainCast(source_getter, main_cast_ctx, copies, saver)

    @property
    @abstractmethod
    def backup_tags(self) -> list[str]:
        """The tags that exist, in the order in which they were made."""

    @abstractmethod
    def get(self, tag: str) -> dict[str, Tensor]:
        """The tensors of a tag by name, in the order of the source at the first backup.

        The mapping is the caller's, the tensors are the backuper's and not to be written to. Those on the host never
        change, also when the tag is backed up again: whoever still has one has the bytes of the time of the call.
        Tags with equal bytes give the same tensors.

        Raises:
            UnknownTag: the tag does not exist.
        """

    @abstractmethod
    def backup(self, tag: str) -> int:
        """Keep the present bytes of the source's tensors under a tag. Returns the bytes that were copied."""

    @abstractmethod
    def copy(self, *, src_tag: str, dst_tag: str) -> None:
        """Give a tag the bytes that another one has of its tensors; a tag that does not exist gets all of them.

        Raises:
            UnknownTag: the source does not exist.
        """

    @abstractmethod
    def restore(self, tag: str) -> int:
        """Put a tag's bytes into the source's tensors. Returns the bytes that were written."""

    @abstractmethod
    def mark_dirty(self, names: Iterable[str] | None = None) -> None:
        """Say that since the last backup or restore these tensors changed and no others; all of them when None.

        The next backup copies them without comparing, and takes the others as they were; the next restore leaves out
        what is there already. Names of several calls add up, and whoever has said something has to go on until the
        next backup or restore, which uses it up. Not saying anything means that everything is compared.
        """
