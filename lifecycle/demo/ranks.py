"""The demo on many ranks: processes that share each batch, and logs that have to say the same."""

from __future__ import annotations

import secrets
import selectors
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Final

from lifecycle.audit.projection import canonical, first_difference
from lifecycle.audit.read import Record, read_lines
from lifecycle.demo.errors import RankEnded
from lifecycle.demo.messages import Failure, Message, Start, first_cause
from lifecycle.demo.options import DemoOptions
from lifecycle.demo.rank_process import RankProcess
from lifecycle.demo.report import DemoReport, RanksReport, log_name
from lifecycle.demo.seat import Seat, backup_prefix
from lifecycle.distributed import StoreServer
from lifecycle.errors import ConfigError

TIMEOUT_S: Final = 60.0
"""How long a rank waits for the others once all are there. Ranks of one machine are slow together."""
_GRACE_S: Final = 2.0
"""How long a failure waits for others that may tell its cause."""


def run_ranks(
    options: DemoOptions,
    progress: Callable[[str, int], None],
    *,
    timeout_s: float = TIMEOUT_S,
    unlike: Mapping[int, DemoOptions] | None = None,
) -> DemoReport:
    """Run the demo with ``options.ranks`` processes, from start to end. None of them outlives the call.

    The store in which they find each other is in this process, outside of all of them.

    Args:
        options: what was asked for.
        progress: told what rank 0 is doing.
        timeout_s: how long a rank waits for the others.
        unlike: options of ranks that are to be given others.

    Returns:
        Rank 0's report, with the seconds of the whole run and what the logs have in common.

    Raises:
        ConfigError: an option that cannot work.
        RankEnded: a rank failed, died or fell silent.
    """
    started, run = time.perf_counter(), secrets.token_hex(8)
    with ExitStack() as stack:
        stack.callback(_remove_backups, options.out, run)
        store = stack.enter_context(StoreServer())
        ranks: list[RankProcess] = []
        for rank in range(options.ranks):
            seat = Seat(rank, options.ranks, store.address, run, timeout_s)
            ranks.append(RankProcess(Start((unlike or {}).get(rank, options), seat)))
            stack.callback(ranks[-1].close)
        report = _listen(ranks, progress, timeout_s)
    return replace(report, seconds=time.perf_counter() - started, ranks=compare_logs(options.out, options.ranks, run))


def _listen(ranks: Sequence[RankProcess], progress: Callable[[str, int], None], timeout_s: float) -> DemoReport:
    """Until all have ended well, or one has not and the others had their time to say why."""
    deadline, failures = inf, list[Failure]()
    with selectors.DefaultSelector() as selector:
        for rank in ranks:
            selector.register(rank, selectors.EVENT_READ, rank)
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(None if left == inf else left):
                one: RankProcess = key.data
                for message in one.hear():
                    _show(message, progress)
                if one.end is not None:
                    selector.unregister(one)
                    failures += [one.end.failure] if one.end.failure is not None else []
                    deadline = min(deadline, time.monotonic() + (_GRACE_S if failures else timeout_s))
    silent = [one.rank for one in ranks if one.end is None]
    if failures or silent:
        raise _error(failures or [Failure(silent[0], "it does not end, and others have")], silent)
    reports = [one.end.report for one in ranks if one.end is not None]
    assert reports[0] is not None  # it has not failed, so it reported
    return reports[0]


def _show(message: Message, progress: Callable[[str, int], None]) -> None:
    if message.progress is not None:
        progress(message.progress.what, message.progress.turns)


def _error(failures: Sequence[Failure], silent: Sequence[int]) -> ConfigError | RankEnded:
    first = first_cause(failures, silent)
    if first.kind == ConfigError.__name__:
        return ConfigError(first.why)
    return RankEnded(first.rank, first.why, said_by_all=first.is_joint)


def compare_logs(out: Path, count: int, run: str) -> RanksReport:
    """What the logs of a run's ranks have in common.

    Args:
        out: the folder that they are in.
        count: how many ranks there were.
        run: name of the run; what else is in the logs is not looked at.

    Raises:
        AuditError: a log cannot be read.
    """
    audits = tuple(out / log_name(rank) for rank in range(count))
    first = _records(audits[0], run)
    for rank, audit in enumerate(audits[1:], start=1):
        found = first_difference(first, _records(audit, run))
        if found is not None:
            return RanksReport(count, len(first), audits, f"of ranks 0 and {rank}: {found}")
    return RanksReport(count, len(first), audits)


def _records(path: Path, run: str) -> list[Record]:
    """The projection of one run's records."""
    return canonical(one for one in read_lines(path) if isinstance(one, dict) and one.get("run") == run)


def _remove_backups(out: Path, run: str) -> None:
    """Of ranks that could not do it themselves."""
    for folder in out.glob(f"{backup_prefix(run)}*"):
        shutil.rmtree(folder, ignore_errors=True)
