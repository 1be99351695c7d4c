"""A training step as a block: it is in flight inside, and committed or aborted when the block ends."""

from __future__ import annotations

from collections.abc import Iterable

from lifecycle.adapters.custody import note_changed
from lifecycle.adapters.given import as_names
from lifecycle.errors import LifecycleError
from lifecycle.transition.lending import lend_again
from lifecycle.transition.parts import Parts
from lifecycle.weights.digests import digest
from states import ACTOR, ADAPTER_PREFIX, BUFFERS, FROZEN_BASE, TRAINABLE_BASE, Strategy, Verify


def adapter_names(given: Iterable[str]) -> tuple[str, ...]:
    """The adapters of a step; see :func:`~lifecycle.adapters.given.as_names`."""
    return as_names("adapters", given)


class TrainingStep:
    """What ``with lifecycle.step(adapters) as step`` gives.

    Say :meth:`stepped` after ``optimizer.step()`` or :meth:`accumulated` after a backward pass that
    only adds to gradients. A block that says neither counts as stepped: that takes new version ids,
    which at worst sends unchanged bytes once more.
    """

    def __init__(self, adapters: tuple[str, ...]) -> None:
        self.adapters = adapters
        self.kind = ""

    def stepped(self) -> None:
        """The optimizer has changed the weights."""
        self._say("stepped")

    def accumulated(self) -> None:
        """Gradients were added to; no weight has changed."""
        self._say("accumulated")

    def _say(self, kind: str) -> None:
        if self.kind not in ("", kind):
            raise LifecycleError(f"this step was said to be {self.kind} already and cannot be {kind} too; open another")
        self.kind = kind


def close_accumulation(parts: Parts) -> None:
    """The open step only added to gradients: remember whose, and that forward passes may change buffers."""
    groups = parts.touched(parts.runtime.step or ())
    parts.gradients.lead_home(parts.parameter_names(groups), keep=True)
    parts.runtime.accumulated |= set(groups) - {BUFFERS, FROZEN_BASE}
    if BUFFERS in groups:
        parts.versions.renew(BUFFERS)
    parts.runtime.step = None


def abort_step(parts: Parts) -> None:
    """The open step failed somewhere: whatever it may have changed takes new version ids."""
    groups = parts.touched(parts.runtime.step or ())
    held = parts.inventory.groups()
    renew(parts, tuple(group for group in groups if group in held))
    keep = bool(parts.runtime.accumulated & set(groups))
    parts.gradients.lead_home(parts.parameter_names(groups), keep=keep)
    parts.runtime.step, parts.runtime.loads = None, False
    forget_old(parts)


def forget_old(parts: Parts) -> None:
    """Under ``lean`` a copy of the actor is made when it is needed; one of older bytes serves nobody."""
    if parts.config.strategy == Strategy.LEAN:
        parts.snapshots.forget_stale(ACTOR, parts.versions.wanted)
        lend_again(parts)
    parts.forget_digests()


def renew(parts: Parts, groups: tuple[str, ...]) -> tuple[str, ...]:
    """New ids for groups whose bytes may have changed in place.

    The frozen base, which only a loaded checkpoint can change, is compared: if its bytes are the same, so is
    its id. What an adapter's bytes are is remembered, so that a push can be compared, unless nothing is verified.

    Returns:
        The groups that took a new id.
    """
    renewed, versions = [], parts.versions
    before = {group: _digest_of(parts, group) for group in groups}
    unread = {TRAINABLE_BASE, BUFFERS}
    if parts.config.verify == Verify.OFF:
        unread |= set(groups) - {FROZEN_BASE}
    for group in groups:
        if group in unread:
            versions.renew(group)
        elif not _renew_if_changed(parts, group, compare=group == FROZEN_BASE):
            continue
        renewed.append(group)
    changed = (group for group in renewed if before[group] is None or before[group] != _digest_of(parts, group))
    adapters = [group.removeprefix(ADAPTER_PREFIX) for group in changed if group.startswith(ADAPTER_PREFIX)]
    note_changed(parts.adapters, adapters)
    return tuple(renewed)


def _digest_of(parts: Parts, group: str) -> str | None:
    return parts.versions.digests.get(parts.versions.wanted[group])


def _renew_if_changed(parts: Parts, group: str, *, compare: bool) -> bool:
    found, versions = digest(parts.own_bytes(group)), parts.versions
    if compare and versions.digests.get(versions.wanted[group]) == found:
        return False
    versions.digests[versions.renew(group)] = found
    return True
