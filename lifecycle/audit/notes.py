"""Notes that a reader of the log must know, as they tell what no event does: the writer's words and the reader's."""

from __future__ import annotations

from typing import Final

from states.guards_snapshots import SnapshotCall

NOTED: Final = "lifecycle.noted"
"""The event of a note's record."""
JOINED: Final = "ranks joined"
"""Every version is told anew, and what was known of bytes, copies and tags is over."""
ABORTED: Final = "a step was aborted"
OUTSIDE: Final = "an optimizer stepped outside of a step"
"""Tells versions as an aborted step does; no step was open."""
ACCUMULATED: Final = "gradients were accumulated"
PLACED: Final = "gradients and moments were placed"
ADOPTED: Final = "versions of engines were adopted"
"""Every version is told anew."""
COPIED: Final = frozenset(map(str, SnapshotCall))
"""Calls on named copies: a note of each has its name."""
