"""What the client writes down at the server, in the one string that SGLang keeps for it: the weight version.

SGLang never says which tags it has released, and ends its process when it is asked for one that it has not. So the
client writes its books of the tags there, before and after each move, and reads them when it has lost track: also a
client that was started anew. The string is gone with the instance, stands in the ``meta_info`` of every answer, and
names the versions that answered. One that another has written is no mark: then somebody else has changed the weights,
or the server was started anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from states.engine_memory import TagState

PREFIX: Final = "adapter-lifecycle"
_FIXED: Final = 3
_VERSION: Final = "@"
_STATE: Final = "="


@dataclass(frozen=True, slots=True)
class Mark:
    """One state of the books as it is written at the server.

    Attributes:
        run: the client that wrote it. Version ids of another run mean other bytes.
        count: how many marks of this run came before it; no two are equal.
        tags: each tag's state; ``UNKNOWN`` while it is being moved.
        versions: content group to committed version.
    """

    run: str
    count: int = 0
    tags: Mapping[str, TagState] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)

    def next(self, **changes: object) -> Mark:
        """The mark that comes after this one."""
        return replace(self, count=self.count + 1, **changes)  # type: ignore[arg-type]

    def __str__(self) -> str:
        tags = (f"{tag}{_STATE}{state}" for tag, state in self.tags.items())
        versions = (f"{group}{_VERSION}{held}" for group, held in sorted(self.versions.items()))
        return " ".join((PREFIX, self.run, str(self.count), *tags, *versions))


def read_mark(text: str) -> Mark | None:
    """The mark that a weight version is, None when somebody else has written it."""
    words = text.split(" ")
    if len(words) < _FIXED or words[0] != PREFIX or not words[2].isdecimal():
        return None
    tags: dict[str, TagState] = {}
    versions: dict[str, int] = {}
    for word in words[_FIXED:]:
        group, at, number = word.rpartition(_VERSION)
        if at and number.isdecimal():
            versions[group] = int(number)
            continue
        tag, _, state = word.partition(_STATE)
        if state not in tuple(TagState):
            return None
        tags[tag] = TagState(state)
    return Mark(words[1], int(words[2]), tags, versions)
