"""Two ranks of one process, on loopback, add their numbers up."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

RANKS: Final = 2
_TIMEOUT: Final = timedelta(seconds=20)
_LOOPBACK: Final = "127.0.0.1"
_dist: Any = dist  # its type stubs leave stores and groups out


def add_up(rank: int, store: Any) -> float:
    """This rank's sum of 1 and 2."""
    options = _dist.ProcessGroupGloo._Options()  # noqa: SLF001 - the one way to say which address is used
    options._devices = [_dist.ProcessGroupGloo.create_device(hostname=_LOOPBACK)]  # noqa: SLF001
    options._timeout = _TIMEOUT  # noqa: SLF001
    group = _dist.ProcessGroupGloo(store, rank, RANKS, options)
    number = torch.tensor([rank + 1.0])
    group.allreduce([number]).wait()
    return number.item()


if __name__ == "__main__":
    started = time.perf_counter()
    shared = _dist.HashStore()
    with ThreadPoolExecutor(RANKS) as pool:
        sums = list(pool.map(add_up, range(RANKS), [shared] * RANKS))
    if sums != [3.0, 3.0]:
        raise SystemExit(f"two ranks that add 1 and 2 got {sums}")
    print(json.dumps({"seconds": time.perf_counter() - started}))  # noqa: T201 - the answer
