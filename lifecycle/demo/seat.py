"""One rank's place among the others: its agreement, its group, its files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist

from lifecycle.demo.errors import PeersLost
from lifecycle.demo.share import GROUP, RankShare, Share, Whole
from lifecycle.distributed import RankAgreement
from lifecycle.distributed.hosting import parse_address
from lifecycle.process_groups import ProcessGroups
from lifecycle.transition.ranks import ALONE, Ranks
from lifecycle.wording import first_line

_dist: Any = dist  # type stubs leave out most of what is used here
_START_S: Final = 300.0
"""How long a rank waits for the others to be there at all: with few cores, some have built their model long before."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a rank finds the others.

    Attributes:
        rank: of this process.
        world: how many there are.
        store: ``HOST:PORT`` of the store outside the ranks.
        run: name of the run, in each record of the logs.
        timeout_s: how long a rank waits for the others once all are there, in seconds.
    """

    rank: int
    world: int
    store: str
    run: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Peers:
    """What a trainer and its loop need to be one of many.

    Attributes:
        share: of each batch.
        ranks: what transitions agree with.
        groups: what ``sleep`` tears down; None without other ranks.
    """

    share: Share
    ranks: Ranks
    groups: ProcessGroups | None


NOBODY = Peers(Whole(), ALONE, None)


@contextmanager
def among(seat: Seat | None) -> Iterator[Peers]:
    """Meet the other ranks; leave them on exit.

    The agreement's group is its own. The gradients have another one, which the trainer tears down when it sleeps and
    builds again when it wakes; it stands on the process's default group, which stays up.

    Args:
        seat: None when there are no other ranks.

    Raises:
        StoreLost: the store does not answer.
        PeersLost: the ranks did not come.
    """
    if seat is None:
        yield NOBODY
        return
    ranks = RankAgreement.over_gloo(seat.rank, seat.world, seat.store, run=seat.run, timeout_s=seat.timeout_s)
    try:
        groups = ProcessGroups()
        _open_default(seat)
        groups.add(GROUP, lambda: _dist.new_group(backend="gloo", timeout=timedelta(seconds=seat.timeout_s)))
        yield Peers(RankShare(seat.rank, seat.world, groups), ranks, groups)
    finally:
        ranks.close()
        if dist.is_initialized():
            dist.destroy_process_group()


def _open_default(seat: Seat) -> None:
    host, port = parse_address(seat.store)
    timeout = timedelta(seconds=max(_START_S, seat.timeout_s))
    try:
        store = _dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timeout)
        prefixed = _dist.PrefixStore(f"demo/{seat.run}", store)
        dist.init_process_group("gloo", store=prefixed, rank=seat.rank, world_size=seat.world, timeout=timeout)
    except RuntimeError as error:
        raise PeersLost("meeting the other ranks", first_line(error)) from error


def backup_prefix(run: str) -> str:
    """How the folders of a run's disk backups begin."""
    return f"backup-{run}-"


def backup_folder(out: Path, seat: Seat) -> Path:
    """Of one rank's disk backups. It is known beforehand, so that whoever outlives the rank can remove it."""
    return out / f"{backup_prefix(seat.run)}rank{seat.rank}"
