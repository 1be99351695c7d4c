"""Figures on time: ratios to a bare operation, or to a smaller base, of medians in the same run."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import Any, Final

from lifecycle.bench.findings import LIMITS, Finding, Session
from lifecycle.bench.measure import check_room
from lifecycle.bench.model import slot_tensors
from lifecycle.bench.options import Case
from lifecycle.bench.ranks import Rank, new_folder, ranks_of
from states import Verify

_SMALLER: Final = 4
_LARGER: Final = 4
_PAIRS: Final = 15
_SIZE_PAIRS: Final = 60
"""Of short operations, so that a moment of other work on the machine does not decide."""
_VIEWED_TENSORS: Final = 2000
_NAMES: Final = {"step": "trained"}


def base_size(session: Session) -> list[Finding]:
    """A small and a large base of equally many tensors: a step, a reconcile and a reading cost the same."""
    lean = replace(session.options.case("lean", kept_models=0, ranks=1), offload_target="cpu")
    small = replace(lean, base_bytes=lean.base_bytes // _SMALLER)
    large = replace(lean, base_bytes=lean.base_bytes * _LARGER)
    check_room(small.peak_bytes() + large.peak_bytes(), "base-size")
    with ExitStack() as stack:
        pair = [stack.enter_context(ranks_of(one, session.options.work_dir))[0] for one in (small, large)]
        session.say("base-size: attaching a small and a large base")
        for rank in pair:
            for event in ("attach", "first_reconcile"):
                rank.do(event)
        samples = _paired(session, pair, "awake", ("step", "reconcile_adapters"))
        for rank in pair:
            for event in ("sleep", "offload"):
                rank.do(event)
        samples |= _paired(session, pair, "offloaded-cpu", ("reconcile_adapters", "weights"))
    sizes = f"{small.base_bytes >> 20} MiB and {large.base_bytes >> 20} MiB"
    return [_same(what, sizes, found) for what, found in samples.items()]


_Pairs = list[tuple[dict[str, Any], dict[str, Any]]]


def _paired(session: Session, pair: list[Rank], state: str, events: tuple[str, ...]) -> dict[str, _Pairs]:
    """Each event in both, again and again, the other one first every second time; the first time is not counted."""
    found: dict[str, _Pairs] = {}
    for turn in range(_SIZE_PAIRS + 1):
        session.say(f"base-size: {state}, pair {turn} of {_SIZE_PAIRS}")
        for event in events:
            if turn % 2:
                one, other = (rank.do(event) for rank in pair)
            else:
                other, one = (rank.do(event) for rank in reversed(pair))
            for row in one if turn else ():
                found.setdefault(f"{_NAMES.get(row, row)} while {state}", []).append((one[row], other[row]))
    return found


def _same(what: str, sizes: str, samples: _Pairs) -> Finding:
    small, large = (median(one[side]["seconds"] for one in samples) for side in (0, 1))
    moved = sorted({one[side]["moved_bytes"] for one in samples for side in (0, 1)})
    ratio, limit = median(two["seconds"] / one["seconds"] for one, two in samples), LIMITS["base-size"]
    told = f"{' and '.join(f'{one:,}' for one in moved)} bytes; {small * 1e3:.2f} and {large * 1e3:.2f} ms: {ratio:.2f}"
    return Finding(
        "base-size",
        f"lean, {what}, bases of {sizes}",
        f"equal bytes, time ≤ {limit:.2f}",
        told,
        len(moved) == 1 and ratio <= limit,
    )


def weights_2000(session: Session) -> list[Finding]:
    """``weights()`` over 2,000 tensors of an offloaded trainer."""
    lean = replace(session.options.case("lean", kept_models=0, ranks=1), offload_target="cpu")
    size_bytes = max(lean.base_bytes // _SMALLER, 4096 * _VIEWED_TENSORS)
    frozen = max(1, _VIEWED_TENSORS - slot_tensors(lean))
    found = probe(session, "views", replace(lean, tensors=frozen, base_bytes=size_bytes))
    opening, ratio = found["open_seconds"] * 1e3, found["ratio"]
    limit_ms, limit = LIMITS["weights-open-ms"], LIMITS["weights-views"]
    name, views = "weights-2000", f"{found['views_seconds'] * 1e3:.1f} and {found['bare_seconds'] * 1e3:.1f} ms"
    of = f"{found['tensors']:,} tensors"
    copied = found["copied_tensors"]
    return [
        Finding(name, f"opening weights() over {of}", f"≤ {limit_ms:.2f} ms", f"{opening:.2f} ms", opening <= limit_ms),
        Finding(name, f"all {of} against bare views", f"≤ {limit:.2f}", f"{ratio:.2f} ({views})", ratio <= limit),
        Finding(name, f"of {of}, views that do not alias the backup", "0", str(copied), copied == 0),
    ]


def arena(session: Session) -> list[Finding]:
    """Pause and resume of the arena against a bare copy into fresh pages."""
    found = probe(session, "arena", replace(session.options.case("lean", kept_models=0, ranks=1)))
    limit, bare = LIMITS["arena"], found["bare_seconds"]
    speeds = [
        Finding(
            "arena",
            f"{call} of {found['base_bytes'] >> 20} MiB: speed against a bare copy into fresh pages",
            f"≥ {limit:.2f}",
            f"{found[f'{call}_ratio']:.2f} ({found[f'{call}_seconds'] * 1e3:.0f} and {bare * 1e3:.0f} ms)",
            found[f"{call}_ratio"] >= limit,
        )
        for call in ("pause", "resume")
    ]
    kept = found["kept_after_resume_bytes"]
    return [*speeds, Finding("arena", "host copy left after a resume", "0 bytes", f"{kept} bytes", kept == 0)]


def overhead(session: Session) -> list[Finding]:
    """What the controller takes for an event when there is nothing to move, with its log on a disk.

    Judged against the records that the event writes, in the same run: one where nothing is to be done, two of a
    transition. Comparing digests reads the bytes of every tensor: it is told beside it.
    """
    lean = replace(session.options.case("lean", kept_models=0, ranks=1), base_bytes=1)
    found = probe(session, "overhead", replace(lean, verify=Verify.OFF.value))
    verified = probe(session, "overhead", replace(lean, verify=Verify.SAMPLED.value))
    return [
        _against_its_records(found, verified, "settled", "an event that has nothing to do: against its one record"),
        _against_its_records(found, verified, "moves", "a transition of next to no bytes: against its two records"),
    ]


def _against_its_records(found: dict[str, Any], verified: dict[str, Any], kind: str, what: str) -> Finding:
    taken, log, limit = found[kind], found[f"{kind}_log"], LIMITS["overhead"]
    ratio = taken["all"] / log["all"]
    told = f"{ratio:.2f}: {_microseconds(taken)} µs, of which in the log {_microseconds(log)}"
    sampled = _microseconds(verified[kind])
    return Finding(
        "overhead", f"controller, {what}", f"≤ {limit:.2f}", f"{told} (verify=sampled: {sampled})", ratio <= limit
    )


def _microseconds(found: dict[str, float]) -> str:
    return ", ".join(f"{event} {took * 1e6:.0f}" for event, took in found.items())


def probe(session: Session, name: str, case: Case, repetitions: int | None = None) -> dict[str, Any]:
    """What a measuring process finds of one thing; without *repetitions*, enough of them for a median of times."""
    session.say(f"{name}: measuring")
    check_room(4 * case.base_bytes, name)
    repetitions = repetitions or max(_PAIRS, session.options.repetitions)
    with new_folder(session.options.work_dir) as folder, Rank(name, case, folder, repetitions=repetitions) as rank:
        return rank.first
