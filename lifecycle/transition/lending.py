"""Giving up stored copies of a frozen group that the trainer keeps readable anyway."""

from __future__ import annotations

from lifecycle.transition.gather import gather
from lifecycle.transition.parts import Parts, Request
from states import FROZEN_BASE, Strategy, TrainerEvent
from states.guards_snapshots import groups_to_lend_again


def lend_again(parts: Parts) -> None:
    """Let tags borrow again what they hold twice, where :func:`states.guards_snapshots.groups_to_lend_again` says so.

    Called when something was committed. It loses no byte, and does nothing where nothing is stored of the base.
    """
    held = parts.snapshots.holders(FROZEN_BASE, parts.versions.wanted.get(FROZEN_BASE))
    if not held or parts.config.strategy != Strategy.LEAN:
        return
    for group in groups_to_lend_again(gather(parts, Request(), TrainerEvent.UPDATE_WEIGHTS)):
        parts.snapshots.borrow_again(group)
