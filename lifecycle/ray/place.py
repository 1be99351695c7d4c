"""Where actors are, and at which addresses they reach each other."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import ray

from lifecycle.distributed.hosting import LOOPBACK


@dataclass(frozen=True, slots=True)
class Place:
    """Where an actor runs.

    Attributes:
        node: Ray's id of the node.
        address: of that node, for other nodes.
        pid: its process there.
    """

    node: str
    address: str
    pid: int


@dataclass(frozen=True, slots=True)
class Meeting:
    """How a rank meets the others.

    Attributes:
        store: ``HOST:PORT`` of the store.
        run: name of the run in it.
        host: the address at which others reach this rank.
        timeout_s: see :class:`~lifecycle.distributed.RankAgreement`.
    """

    store: str
    run: str
    host: str
    timeout_s: float


def place_here() -> Place:
    """Where this process is."""
    context: Any = ray.get_runtime_context()
    return Place(context.get_node_id(), ray.util.get_node_ip_address(), os.getpid())


def host_of(place: Place, all_places: Collection[Place]) -> str:
    """The address that one of them listens on: loopback while all are on one node."""
    return LOOPBACK if len({one.node for one in all_places}) == 1 else place.address
