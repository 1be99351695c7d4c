"""What an agreement costs, beside the two bare collectives that it cannot do without.

    python -m tests.bench.agreement_cost --ranks 4 --adapters 8 100 1000 10000

Each rank is a process on gloo. In turn it takes two bare gathers of one ballot each over the same group, and one
agreement before and one after an event whose facts differ in one adapter from those of the event before. Printed are
medians over the pairs, the median of the pairs' ratios, the bytes that a rank puts into an agreement, and the work of
its own that an agreement adds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection

import torch

from lifecycle.distributed import RankAgreement, StoreServer
from lifecycle.distributed.gloo import GlooTransport
from states import ContentFacts, Decision, Facts, TrainerEvent, TrainerState, decide
from states.agreement import BALLOT_BYTES
from states.agreement_requests import Gather

Figures = tuple[float, float, float, float]
"""Seconds of the bare collectives and of the agreement, the ratio, and what the latter adds to the thread's work."""


def measure(rank: int, world: int, store: str, adapters: int, pairs: int) -> Figures:
    """The medians of one rank."""
    transport = GlooTransport(rank, world, store, run=f"adapters-{adapters}", timeout_s=60.0)
    agreement = RankAgreement(rank, world, transport, timeout_s=60.0)
    agreement.newest(0)
    contents = [ContentFacts(), *(ContentFacts(group=f"adapter/a{number}", frozen=False) for number in range(adapters))]
    taken: list[tuple[float, float, float]] = []
    for number in range(pairs):
        changed = 1 + number % max(1, adapters)
        contents[changed] = replace(contents[changed], version=number + 2, live=number + 2)
        facts = Facts(contents=tuple(contents))
        decision = decide(TrainerState.AWAKE, TrainerEvent.SLEEP, facts)

        def agree(facts: Facts = facts, decision: Decision = decision) -> None:
            agreement.decided(TrainerEvent.SLEEP, TrainerState.AWAKE, facts, decision)
            agreement.acted()

        if number % 2:  # either is the first one in every other pair
            whole_s, whole_cpu_s = _seconds(transport, agree)
        bare_s, bare_cpu_s = _seconds(transport, lambda: _bare(transport))
        if number % 2 == 0:
            whole_s, whole_cpu_s = _seconds(transport, agree)
        taken.append((bare_s, whole_s, whole_cpu_s - bare_cpu_s))
    agreement.close()
    kept = taken[pairs // 10 :]
    bare, whole, added = (statistics.median(column) for column in zip(*kept, strict=True))
    return bare, whole, statistics.median(one[1] / one[0] for one in kept), added


def _seconds(transport: GlooTransport, what: Callable[[], None]) -> tuple[float, float]:
    """How long it takes when all ranks begin together, and how much of that this thread works."""
    _bare(transport)
    started, worked = time.perf_counter(), time.thread_time()
    what()
    return time.perf_counter() - started, time.thread_time() - worked


def _bare(transport: GlooTransport) -> None:
    ballot = bytes(BALLOT_BYTES)
    for _ in range(2):
        transport._gather(Gather(ballot, 60.0))


def _rank(pipe: Connection, rank: int, world: int, store: str, adapters: Sequence[int], pairs: int) -> None:
    torch.set_num_threads(1)
    for count in adapters:
        pipe.send(measure(rank, world, store, count, pairs))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.agreement_cost", description=main.__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--adapters", type=int, nargs="+", default=[8, 100, 1000, 10_000])
    parser.add_argument("--pairs", type=int, default=300)
    given = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with StoreServer() as store:
        pipes, processes = [], []
        for rank in range(given.ranks):
            here, there = context.Pipe()
            told = (there, rank, given.ranks, store.address, given.adapters, given.pairs)
            processes.append(context.Process(target=_rank, args=told, daemon=True))
            pipes.append(here)
            processes[-1].start()
        print(f"{given.ranks} ranks on gloo, {given.pairs} pairs, {2 * BALLOT_BYTES} bytes a rank and agreement")
        print("adapters   two bare gathers   agreement   ratio   work added")
        for count in given.adapters:
            bare, whole, ratio, added = (
                statistics.median(column) for column in zip(*(one.recv() for one in pipes), strict=True)
            )
            print(
                f"{count:8}   {bare * 1e3:13.3f} ms   {whole * 1e3:6.3f} ms   {ratio:5.2f}   {added * 1e3:7.3f} ms",
                flush=True,
            )
        for process in processes:
            process.join()


if __name__ == "__main__":
    main()
