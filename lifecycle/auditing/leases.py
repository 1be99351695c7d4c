"""Leases: whoever reads weights stops before the memory goes, and before the run ends."""

from __future__ import annotations

from lifecycle.auditing.kinds import DECIDED, Found, Kind, Seen
from states import OFFLOADED, LeaseFacts, Source


class Leases:
    """Looks at the leases that facts name. Opening and closing one is no record."""

    events = DECIDED | {"opened"}

    def __init__(self) -> None:
        self._open: tuple[LeaseFacts, ...] = ()

    def see(self, seen: Seen) -> Found:
        """The leases that are open."""
        if seen.event == "opened" and not seen.record.get("continues"):
            yield from self.end()
        if seen.facts is None:
            return
        self._open = seen.facts.leases
        gone = seen.record["source"] in OFFLOADED and not seen.facts.active_tags
        unplaced = {one.group for one in seen.facts.contents if one.backup == "unplaced"} if gone else set()
        for one in self._open if gone else ():
            if one.source == Source.LIVE and not set(one.groups) <= unplaced:
                yield Kind.LEASE, f"{one.describe()} still reads device memory that was given back"

    def end(self) -> Found:
        """What is still open."""
        for one in self._open:
            yield Kind.LEASE, f"the lease of {one.describe()} over {one.source} is open in the last facts"
        self._open = ()

    def forget(self) -> None:
        """Which leases there are is not known."""
        self._open = ()
