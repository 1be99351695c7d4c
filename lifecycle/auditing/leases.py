"""Leases: whoever reads weights stops before the memory goes, and before the run ends."""

from __future__ import annotations

from lifecycle.auditing.kinds import Check, Found, Kind, Seen
from states import OFFLOADED, Facts, LeaseFacts, Source


class Leases(Check):
    """Looks at the leases that facts name. Opening and closing one is no record."""

    def __init__(self) -> None:
        self._open: tuple[LeaseFacts, ...] = ()

    def begin(self, seen: Seen, found: Found) -> None:
        """Leases of the session before it are open no more."""
        self.end(found)

    def facts(self, seen: Seen, facts: Facts, found: Found) -> None:
        """The leases that are open."""
        self._open = facts.leases
        if not facts.leases or facts.active_tags or seen.record["source"] not in OFFLOADED:
            return
        unplaced = {one.group for one in facts.contents if one.backup == "unplaced"}
        for one in facts.leases:
            if one.source == Source.LIVE and not set(one.groups) <= unplaced:
                found.say(Kind.LEASE, f"{one.describe()} still reads device memory that was given back")

    def end(self, found: Found) -> None:
        """Say what is still open."""
        for one in self._open:
            found.say(Kind.LEASE, f"the lease of {one.describe()} over {one.source} is open in the last facts")
        self._open = ()

    def forget(self) -> None:
        """Which leases there are is not known."""
        self._open = ()
