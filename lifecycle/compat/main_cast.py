"""The tag ``actor`` without a copy: its weights are rebuilt from the optimizer's fp32 masters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import torch
from torch import Tensor

from lifecycle.compat.backuper import TensorBackuper
from lifecycle.compat.errors import CastMismatch
from lifecycle.compat.host_copies import HostCopies
from lifecycle.compat.names import NamedTensors, checked_saver, listed
from lifecycle.compat.reading import own_bytes
from lifecycle.errors import ConfigError, UnreadableTensor
from lifecycle.saver import MemorySaver
from lifecycle.weights.digests import tensor_sha256
from states import ACTOR

CHECKED_CYCLES: Final = 2
"""So many first backups are compared with what is rebuilt, if the context asks for it."""


@dataclass(frozen=True)
class MainCastContext:
    """How the weights of the actor are rebuilt.

    Attributes:
        cast_main_to_params: rounds this rank's masters into its part of the parameters, as the end of a step does.
        model_chunks: each has ``start_param_sync(force_sync=True)``, the collective that spreads the parts.
        extras_getter: gives the named tensors that have no masters; they are copied.
        rematerializable_ids: ``id()`` of every tensor that the two above bring back.
        check: compare the SHA-256 of every tensor for the first two backups.
    """

    cast_main_to_params: Callable[[], object]
    model_chunks: Sequence[Any]
    extras_getter: Callable[[], NamedTensors]
    rematerializable_ids: Collection[int]
    check: bool


class MainCast(TensorBackuper):
    """``actor`` from its masters, every other tag in host copies.

    Args:
        source_getter: gives all named tensors.
        context: how to rebuild; anything with the attributes of :class:`MainCastContext`.
        others: keeps the other tags.
        saver: whose books say what is paused, or None.
    """

    def __init__(
        self,
        source_getter: Callable[[], NamedTensors],
        context: MainCastContext,
        others: HostCopies,
        saver: MemorySaver | None,
    ) -> None:
        missing = [one.name for one in fields(MainCastContext) if not hasattr(context, one.name)]
        if missing:
            raise ConfigError(f"main_cast_ctx has no {', '.join(missing)}; give a MainCastContext")
        self._source = source_getter
        self._context = context
        self._others = others
        self._saver = None if saver is None else checked_saver(saver)
        self._extras = HostCopies(context.extras_getter, saver=saver)
        self._cycle = 0
        self._expected: dict[str, str] | None = None

    @property
    def backup_tags(self) -> list[str]:
        """``actor``, which always exists, and the tags that are copied."""
        return [ACTOR, *self._others.backup_tags]

    def get(self, tag: str) -> dict[str, Tensor]:
        """For ``actor`` the live parameters, not copied, and the copies of the tensors without masters.

        A live parameter shows what happens to it, and is valid as long as its memory is; while it is paused its host
        backup is given, until the next resume. For other tags see :meth:`TensorBackuper.get`.

        Raises:
            UnknownTag: see there.
            UnreadableTensor: a tensor can neither be rebuilt nor is it among the copies, or it is paused and cannot
                be read.
        """
        if tag != ACTOR:
            return self._others.get(tag)
        extras = listed(self._context.extras_getter())
        kept = self._extras.get(ACTOR) if self._cycle else {}
        copies = {id(one): kept[name] for name, one in extras.items() if name in kept}
        found = {}
        for name, tensor in listed(self._source()).items():
            if id(tensor) not in copies and id(tensor) not in self._context.rematerializable_ids:
                raise UnreadableTensor(name, "it has no master and no copy; give it among the extras, and backup")
            copy = copies.get(id(tensor))
            found[name] = own_bytes(name, tensor, self._saver) if copy is None else copy
        return found

    def backup(self, tag: str) -> int:
        """For ``actor`` copy the tensors without masters, and note the digests of all as long as they are checked.

        Returns:
            The bytes copied.
        """
        if tag != ACTOR:
            return self._others.backup(tag)
        moved = self._extras.backup(ACTOR)
        self._others.forget()  # what is told next is told of the time from here on
        self._cycle += 1
        checked = self._context.check and self._cycle <= CHECKED_CYCLES
        self._expected = self._digests() if checked else None
        return moved

    def copy(self, *, src_tag: str, dst_tag: str) -> None:
        """Between copied tags; see :meth:`TensorBackuper.copy`.

        Raises:
            ConfigError: ``actor`` is one of them, of which there is no copy.
        """
        if ACTOR in (src_tag, dst_tag):
            raise ConfigError(
                f'"{ACTOR}" is rebuilt from its masters and not copied; restore it and backup("{dst_tag}")'
            )
        self._others.copy(src_tag=src_tag, dst_tag=dst_tag)

    def restore(self, tag: str) -> int:
        """For ``actor`` cast the masters, spread the parts, and write the copies of what has no masters.

        The collective is met whatever fails on this rank before it: the others would wait for it.

        Returns:
            The bytes written from copies.

        Raises:
            UnreadableTensor: a tensor without a master was never backed up.
            CastMismatch: what was rebuilt is not what was backed up (first two cycles, if they are checked).
        """
        if tag != ACTOR:
            return self._others.restore(tag)
        self._others.forget()
        with torch.no_grad():
            try:
                self._context.cast_main_to_params()
            finally:
                for chunk in self._context.model_chunks:
                    chunk.start_param_sync(force_sync=True)
        moved = self._restore_extras()
        if self._expected is not None:
            self._compare(self._expected, self._digests())
        return moved

    def mark_dirty(self, names: Iterable[str] | None = None) -> None:
        """For the copied tags; see :meth:`TensorBackuper.mark_dirty`. What has no master is compared always."""
        self._others.mark_dirty(names)

    def _restore_extras(self) -> int:
        if self._cycle:
            return self._extras.restore(ACTOR)
        missing = next(iter(listed(self._context.extras_getter())), None)
        if missing is not None:
            raise UnreadableTensor(missing, f'it has no master and was never copied; backup("{ACTOR}") first')
        return 0

    def _digests(self) -> dict[str, str]:
        named = listed(self._source()).items()
        return {name: tensor_sha256(own_bytes(name, tensor, self._saver)) for name, tensor in named}

    def _compare(self, expected: dict[str, str], actual: dict[str, str]) -> None:
        total = len(expected)
        odd = sorted(expected.keys() ^ actual.keys())
        if odd:
            raise CastMismatch("a restore from masters has changed the tensor set", odd, total, self._cycle)
        differ = [name for name in expected if actual[name] != expected[name]]
        if differ:
            raise CastMismatch("a restore from masters is not bit-identical", differ, total, self._cycle)
