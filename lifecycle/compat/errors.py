"""Errors that only these parts raise. They are also the kinds that the code of today's trainers looks for."""

from __future__ import annotations

from collections.abc import Sequence

from lifecycle.errors import LifecycleError, UnreadableTensor

_NAMED = 20


class StaleBackup(UnreadableTensor):
    """A backup that the saver retained holds the bytes of the last pause, and the tensor may have changed since."""


class FrozenChanged(LifecycleError):
    """A tensor that was said to be frozen holds other bytes than its copy.

    Attributes:
        tensor: its name.
        tags: the tags with the bytes that it had.
    """

    def __init__(self, tensor: str, tags: Sequence[str]) -> None:
        super().__init__(
            f"{tensor} is named in frozen= and is not what {', '.join(tags)} holds of it; nothing was backed up. "
            "Leave it out of frozen= if models differ in it, or put the right weights in place with restore()"
        )
        self.tensor = tensor
        self.tags = tuple(tags)


class CastMismatch(LifecycleError, RuntimeError):
    """Weights that were rebuilt from their masters are not those of the backup.

    Attributes:
        tensors: names of those that differ, or that one of the two sides lacks.
        cycle: which backup it was, counted from 1.
    """

    def __init__(self, what: str, tensors: Sequence[str], total: int, cycle: int) -> None:
        named = ", ".join(tensors[:_NAMED]) + (" ..." if len(tensors) > _NAMED else "")
        super().__init__(
            f"{what} for {len(tensors)} of {total} tensors (backup {cycle}): {named}. "
            "The masters do not round to what was trained: do not train on; keep copies instead (no main_cast_ctx)"
        )
        self.tensors = tuple(tensors)
        self.cycle = cycle
