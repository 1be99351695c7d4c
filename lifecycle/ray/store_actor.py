"""The store of a group's ranks, in an actor of its own, so that no rank's end takes it along."""

from __future__ import annotations

from lifecycle.distributed import StoreServer
from lifecycle.ray.answers import Answer, answered
from lifecycle.ray.place import Place, place_here


class StoreActor:
    """Hosts the store until its actor ends. Its methods answer and never raise."""

    def __init__(self) -> None:
        self._server: StoreServer | None = None

    def place(self) -> Answer[Place]:
        """Where it is."""
        return answered(place_here)

    def open(self, host: str) -> Answer[str]:
        """Listen on an address of its node. Gives ``HOST:PORT``."""
        return answered(lambda: self._open(host))

    def _open(self, host: str) -> str:
        self._server = StoreServer(host)
        return self._server.address
