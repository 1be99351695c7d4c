"""How many versions a sample is behind the trainer. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from states.errors import Portable


class StalenessError(Portable, ValueError):
    """A sample is stamped with a version that the trainer has not given out: nothing can be said of its age.

    Attributes:
        group: the content group.
        version: the version of the sample.
        newest: the trainer's newest version of that group, None when it has no such group.
    """

    def __init__(self, group: str, version: int, newest: int | None, why: str) -> None:
        super().__init__(
            f"{group}: the sample is of version {version}, the trainer's newest is {newest}: {why}. "
            "What to do: drop the sample, and see whether two trainers serve one engine or a counter went backwards"
        )
        self.group = group
        self.version = version
        self.newest = newest


def staleness(sample: Mapping[str, int], known: Mapping[str, Sequence[int]]) -> int:
    """By how many versions a sample is behind, in the group where it is furthest behind.

    Args:
        sample: content group to the version that the sample was generated with.
        known: content group to the ids that the trainer has given it, oldest first. The list may begin late: a
            version older than all of it counts as behind by as many as there are.

    Returns:
        0 when everything the sample depends on is the newest.

    Raises:
        StalenessError: a version is newer than the trainer's newest, or was never the group's, or there is no
            such group.
    """
    return max((_behind(group, version, known.get(group, ())) for group, version in sample.items()), default=0)


def _behind(group: str, version: int, ids: Sequence[int]) -> int:
    if not ids:
        raise StalenessError(group, version, None, "the trainer has no such group")
    if version > ids[-1]:
        raise StalenessError(group, version, ids[-1], "a sample cannot be newer than the trainer")
    if version in ids:
        return len(ids) - 1 - ids.index(version)
    if version > ids[0]:
        raise StalenessError(group, version, ids[-1], "the group never had that version")
    return len(ids)
