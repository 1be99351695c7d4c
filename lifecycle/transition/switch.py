"""Switching models: what the switch overwrites is kept, then the target's copy is written."""

from __future__ import annotations

from collections.abc import Mapping

from lifecycle.memory import regions
from lifecycle.transition.lending import lend_again
from lifecycle.transition.parts import Parts, Undo, Work, undone_by
from states import groups_to_keep, keeper_of


def keep_outgoing(parts: Parts, work: Work) -> Undo:
    """Copy what the switch is about to overwrite and nothing else holds, under the tag that it belongs to."""
    saved, due = parts.snapshots.save(), groups_to_keep(work.facts)
    with undone_by(lambda: parts.snapshots.load(saved)):
        for content in work.facts.contents:
            if content.group in due:
                tag = keeper_of(content, parts.runtime.active_model)
                work.count("snapshot", parts.snapshots.keep_own(tag, (content.group,)))
    return lambda: parts.snapshots.load(saved)


def restore_model(parts: Parts, work: Work) -> Undo:
    """Write what the target consists of into live memory, group by group, where the versions differ."""
    before, active = dict(parts.versions.region), parts.runtime.active_model

    def undo() -> None:
        _switch_back(parts, before, active)

    with undone_by(undo):
        for content in work.facts.contents:
            if content.live != content.version_of(work.request.target):
                work.count(*regions.restore_group(parts, content.group, work.request.target))
        parts.runtime.active_model = work.request.target
    work.on_commit.append(lambda: lend_again(parts))
    return undo


def _switch_back(parts: Parts, before: Mapping[str, int | None], active: str) -> None:
    for group, version in before.items():
        if parts.versions.region.get(group) != version:
            regions.write_version(parts, group, version)
    parts.runtime.active_model = active
