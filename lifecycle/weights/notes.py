"""What the trainer's bytes were before a pause: digests and samples, to compare with afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from lifecycle.weights.digests import digest, sample

_NAMED = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """Bytes that are not what they were.

    Attributes:
        why: for a message.
        tensors: names of the tensors that are known to differ; a full digest alone names none.
    """

    why: str
    tensors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """What one content group was.

    Attributes:
        version: of its bytes; None for what has no version.
        seed: of the samples.
        samples: by tensor name; they also say which tensor differs.
        full: the digest of all its bytes, None where only samples were taken.
    """

    version: int | None
    seed: int
    samples: Mapping[str, str]
    full: str | None

    def difference(self, tensors: Mapping[str, Tensor]) -> Difference | None:
        """Compare, None when nothing differs.

        Args:
            tensors: readable, by the names that were noted; where they lie does not matter.
        """
        if self.full is not None and digest(tensors) == self.full:
            return None
        names = tuple(name for name, one in tensors.items() if sample({name: one}, self.seed) != self.samples.get(name))
        if not names and self.full is None:
            return None
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        which = ", ".join(names[:_NAMED]) + more if names else "some tensor of it"
        return Difference(f"{which}: these are not the bytes that were noted", names)


class Notes:
    """Notes of the pause that is under way, by content group. Copies no bytes."""

    def __init__(self) -> None:
        self._held: dict[str, Note] = {}
        self._cycle = 0
        self._full = False
        self._open = False

    @property
    def open(self) -> bool:
        """Whether a pause was noted and has not ended."""
        return self._open

    def begin(self, *, full: bool) -> None:
        """Forget the last pause and note a new one, with other samples.

        Args:
            full: take full digests of everything.
        """
        self._held, self._full, self._open = {}, full, True
        self._cycle += 1

    def take(self, group: str, version: int | None, tensors: Mapping[str, Tensor], full: str | None = None) -> None:
        """Note what a group is now.

        Args:
            group: its name.
            version: of the bytes.
            tensors: readable, all of the group.
            full: their digest, where it was computed already.
        """
        if full is None and self._full:
            full = digest(tensors)
        samples = {name: sample({name: one}, self._cycle) for name, one in tensors.items()}
        self._held[group] = Note(version, self._cycle, samples, full)

    def of(self, group: str, version: int | None) -> Note | None:
        """The note of this version of a group, None when there is none."""
        note = self._held.get(group)
        return note if note is not None and note.version == version else None

    def drop(self, group: str) -> None:
        """Forget one group: it is gone, or its bytes were replaced."""
        self._held.pop(group, None)

    def renumber(self, group: str, before: int, version: int) -> None:
        """The bytes that were noted as one version go under another id from now on."""
        note = self.of(group, before)
        if note is not None:
            self._held[group] = replace(note, version=version)

    def clear(self) -> None:
        """The pause has ended."""
        self._held, self._open = {}, False

    def save(self) -> tuple[dict[str, Note], bool, bool]:
        """The notes as they are, for :meth:`load`."""
        return dict(self._held), self._full, self._open

    def load(self, saved: tuple[dict[str, Note], bool, bool]) -> None:
        """Undo: the notes as they were."""
        self._held, self._full, self._open = dict(saved[0]), saved[1], saved[2]
