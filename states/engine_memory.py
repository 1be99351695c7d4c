"""What a rollout engine holds, as far as it is known: a frozen record, and the words for it.

The record says what was *acknowledged*. A call that failed in an unknown place makes it ``lost``: nothing is
asked of the engine then but to say what it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from states.handover_needs import KV_CACHE, WEIGHTS
from states.names import ADAPTER_PREFIX, FROZEN_BASE, adapter_group

BASE_ONLY: Final = "@base"
"""Asks for the base without an adapter. No adapter can have this name."""


class EngineState(StrEnum):
    """``OPEN`` admits requests. ``PAUSED`` admits none and has drained. ``UPDATING``: an update is open.

    ``LOST``: a call failed in an unknown place, or another instance answered. It is probed before anything else.
    """

    OPEN = "open"
    PAUSED = "paused"
    UPDATING = "updating"
    LOST = "lost"


class TagState(StrEnum):
    """Where the memory of one tag is.

    ``RELEASED``: given back, a mirror in host memory keeps the bytes. ``DISCARDED``: given back, the bytes are gone.
    """

    RESIDENT = "resident"
    RELEASED = "released"
    DISCARDED = "discarded"
    UNKNOWN = "unknown"


class EngineEvent(StrEnum):
    """What can be asked of an engine, or happens to it (``lose``, ``restart``)."""

    PAUSE = "pause"
    UNPAUSE = "unpause"
    RELEASE = "release"
    DISCARD = "discard"
    RESUME = "resume"
    BEGIN_UPDATE = "begin-update"
    SEND_BASE = "send-base"
    LOAD_ADAPTER = "load-adapter"
    UNLOAD_ADAPTER = "unload-adapter"
    FLUSH = "flush"
    COMMIT_UPDATE = "commit-update"
    ABORT_UPDATE = "abort-update"
    GENERATE = "generate"
    LOSE = "lose"
    RESTART = "restart"
    PROBE = "probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSaid:
    """What an engine answered when it was probed.

    Attributes:
        instance_id: the instance that answered.
        is_open: whether it admits requests or may still be answering one. An engine that cannot say whether the last
            one is answered is open: it is paused again, and drains, before its memory is released.
        tags: the state of each tag; one that is left out is taken to be as it was known before.
        versions: content group to the version that it holds, None for a group that it does not hold.
        tells_adapters: the adapters in *versions* are all that it holds.
    """

    instance_id: str
    is_open: bool
    tags: Mapping[str, TagState]
    versions: Mapping[str, int | None]
    tells_adapters: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAsk:
    """One thing that is asked of an engine.

    Attributes:
        event: what.
        tags: the memory tags that are meant.
        group: the content group that is sent or dropped.
        version: the version that it is sent with.
        adapter: whom a request is for: an adapter, or :data:`BASE_ONLY`.
        expected: content group to the version that must answer.
        because: why it is lost.
        instance_id: the instance that answers now.
        said: the answer to a probe.
    """

    event: EngineEvent
    tags: tuple[str, ...] = ()
    group: str = ""
    version: int | None = None
    adapter: str = ""
    expected: tuple[tuple[str, int], ...] = ()
    because: str = ""
    instance_id: str = ""
    said: EngineSaid | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """What is known of one engine.

    Attributes:
        state: as a whole. A new record is lost: what an engine holds is declared by it, never assumed.
        because: why it is lost.
        instance_id: of the instance that this is known of; another one holds nothing of it.
        tags: each memory tag and its state.
        mirrored: the tags of which a release keeps a mirror in host memory.
        keeps_adapters: adapters survive a release with a mirror, and a new base under them. Where they do not, they
            are sent again.
        base_groups: the content groups of the base that must be whole before anything is served.
        versions: committed versions by content group. A group that is missing holds nothing valid.
        touched: groups that the open update has sent, with their versions; None for one that it dropped.
        flushed: no cache holds anything that was computed with weights of before.
        broken: why the open update can only be aborted; empty when it can be committed.
    """

    state: EngineState = EngineState.LOST
    because: str = "it was never asked"
    instance_id: str = ""
    tags: tuple[tuple[str, TagState], ...] = ((WEIGHTS, TagState.UNKNOWN), (KV_CACHE, TagState.UNKNOWN))
    mirrored: tuple[str, ...] = (WEIGHTS,)
    keeps_adapters: bool = False
    base_groups: tuple[str, ...] = (FROZEN_BASE,)
    versions: tuple[tuple[str, int], ...] = ()
    touched: tuple[tuple[str, int | None], ...] = ()
    flushed: bool = True
    broken: str = ""

    def tag(self, name: str) -> TagState | None:
        """The state of one tag, None when the engine has no such tag."""
        return dict(self.tags).get(name)

    def in_state(self, *states: TagState) -> tuple[str, ...]:
        """The tags in one of these states, in the order in which they are resumed."""
        return tuple(tag for tag, state in self.tags if state in states)

    def missing_base(self, *, with_pending: bool = False) -> tuple[str, ...]:
        """Groups of the base without a valid version, sorted.

        Args:
            with_pending: count what the open update has sent as valid.
        """
        held = {group for group, _ in self.versions}
        if with_pending:
            held |= {group for group, version in self.touched if version is not None}
        return tuple(sorted(set(self.base_groups) - held))

    def adapters(self) -> tuple[str, ...]:
        """Names of the adapters with a valid version, sorted."""
        return tuple(sorted(g.removeprefix(ADAPTER_PREFIX) for g, _ in self.versions if is_adapter(g)))

    def served(self, adapter: str) -> dict[str, int]:
        """Versions of everything that an answer under this adapter depends on, by content group."""
        return {
            group: held for group, held in self.versions if not is_adapter(group) or group == adapter_group(adapter)
        }


def is_adapter(group: str) -> bool:
    """Whether a content group is an adapter; the others belong to the base."""
    return group.startswith(ADAPTER_PREFIX)


def without_adapters(versions: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """The versions of the base alone."""
    return tuple((group, version) for group, version in versions if not is_adapter(group))
