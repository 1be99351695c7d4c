"""Where a read goes. A pure function of residency and versions, never of a flag or a label.

A source serves a content group only if it holds exactly the version that is wanted. Among the fresh
ones the order is: live memory, then the base file, then the copy that the rule calls for (the saver's
backup where the strategy reads it, else the ``actor`` copy), then whatever else is fresh. Nothing
fresh is a refusal; there is no fall-back to bytes of another version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from states.facts import ContentFacts, Facts
from states.names import ACTOR, Source, Strategy
from states.rule import reads_saver_backup


@dataclass(frozen=True, init=False)
class Read:
    """Where the bytes of one content group are read.

    Attributes:
        group: the content group.
        source: the place, None when no fresh source exists.
        version: the version that is wanted.
        tag: the snapshot's tag when the source is a snapshot.
        because: why this source, or why none.
    """

    group: str
    source: Source | None
    version: int
    tag: str = ""
    because: str = ""

    def __init__(self, group: str, source: Source | None, version: int, tag: str = "", because: str = "") -> None:
        # The method that a frozen dataclass is given takes twice as long, and every decision makes some.
        held = self.__dict__
        held["group"] = group
        held["source"] = source
        held["version"] = version
        held["tag"] = tag
        held["because"] = because


_LIVE: Final = Source.LIVE  # a member is looked up ten times slower than a name
_SAVER: Final = Source.SAVER_BACKUP
_FILE: Final = Source.BASE_FILE
_DUPLICATE: Final = Strategy.DUPLICATE


def _prefers_saver(facts: Facts) -> bool:
    return facts.strategy != _DUPLICATE and reads_saver_backup.body(facts)[0]


def decide_read(content: ContentFacts, facts: Facts) -> Read:
    """Decide where the newest bytes of one content group are read now.

    Args:
        content: what is held where.
        facts: the rest of the record, for the order of preference.

    Returns:
        The read; its source is None when nothing fresh is readable, or a tensor has no source at all.
    """
    return _decide_read(content, prefers_saver=_prefers_saver(facts))


def _decide_read(content: ContentFacts, *, prefers_saver: bool) -> Read:
    group, version = content.group, content.version
    if content.unreadable:
        return Read(group, None, version, "", f"no copy can be read of: {', '.join(content.unreadable)}")
    if content.live == version:
        return Read(group, _LIVE, version, "", "the bytes on the device are this version")
    if content.restored_from_file():
        return Read(group, _FILE, version, "", "the base file holds this version")
    if content.saver_is_fresh() and (prefers_saver or not content.fresh_copies()):
        return Read(group, _SAVER, version, "", "the saver's host backup holds this version")
    tags = content.fresh_copies()
    if not tags:
        return Read(group, None, version, "", _nothing_fresh(content))
    tag = ACTOR if ACTOR in tags else min(tags)
    return Read(group, Source.SNAPSHOT, version, tag, f'the "{tag}" copy holds this version')


def _nothing_fresh(content: ContentFacts) -> str:
    held = [("live", content.live), ("saver backup", content.saver), ("base file", content.file), *content.copies]
    stale = ", ".join(f"{where} holds {version}" for where, version in held if version is not None)
    return f"version {content.version} is wanted, {stale or 'no readable copy exists'}"


def decide_reads(facts: Facts) -> tuple[Read, ...]:
    """One :class:`Read` for every content group, in the order of the facts."""
    return _decide_reads(facts.contents, prefers_saver=_prefers_saver(facts))


_last: dict[bool, tuple[tuple[ContentFacts, ...], tuple[Read, ...]]] = {}
"""The contents that were asked about last, and the answer, by what is preferred."""


def _decide_reads(contents: tuple[ContentFacts, ...], *, prefers_saver: bool) -> tuple[Read, ...]:
    """A read for each; it follows from its entry and the preference alone.

    One decision asks several times, and whoever replays a log shares the entries that did not change between its
    facts. The same object, frozen and compared by identity, has the same answer as before.
    """
    before, answered = _last.get(prefers_saver, ((), ()))
    if before is contents:
        return answered
    reads = tuple(
        [
            read if was is one else _decide_read(one, prefers_saver=prefers_saver)
            for one, was, read in zip(contents, before, answered, strict=True)
        ]
        if len(before) == len(contents)
        else [_decide_read(one, prefers_saver=prefers_saver) for one in contents]
    )
    _last[prefers_saver] = contents, reads
    return reads


def keeps_a_copy_when_paused(content: ContentFacts, facts: Facts) -> bool:
    """Whether a fresh, *readable* copy of the group remains once its region is paused.

    A cpu backup is written by the pause from whatever is live (it also overwrites a retained
    backup), so it is fresh if the live bytes are; only what is paused already keeps its backup. A
    disk backup of the saver comes back on resume but cannot be read while paused, and a region
    without backup loses its bytes: both need a copy elsewhere.
    """
    if content.unreadable:
        return False
    if content.fresh_copies() or content.restored_from_file():
        return True
    if facts.saver_enabled and content.backup == "cpu":
        backed_up = content.saver if content.live is None else content.live
        return backed_up == content.version
    return content.backup == "unplaced" and content.live == content.version


def comes_back(content: ContentFacts, model: str = ACTOR) -> bool:
    """Whether a resume brings the bytes back, or those of the model can be written from a copy or the base file."""
    return content.backup in {"cpu", "disk"} or content.version_of(model) in content.kept_versions()


def comes_back_as_it_is(content: ContentFacts, model: str) -> bool:
    """Whether what is live now is what is live after a pause and a resume.

    What a resume brings back without values is written from the copy of the active model, so other bytes
    than those that the model consists of would be gone.
    """
    if content.backup != "none" or content.live is None:
        return True
    return content.live == content.version_of(model) and comes_back(content, model)
