"""Showing a run until it is interrupted: redrawn on a terminal, line by line anywhere else."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from lifecycle.report.model import Happening, Transition, Unreadable
from lifecycle.watch.attention import Concern, Notice, notices, who
from lifecycle.watch.draw import draw, fitted
from lifecycle.watch.lines import line_of, notice_line
from lifecycle.watch.picture import Picture
from lifecycle.watch.run import Happened, RunWatch

REFRESH_S: Final = 0.25
"""How often logs are looked at, and at most redrawn."""
IDLE_S: Final = 1.0
"""How often it is redrawn while nothing happens: times go on."""
INTERRUPTED: Final = 130
TERMINATED: Final = 143
_BY_ITS_EVENT: Final = frozenset({Concern.REFUSED, Concern.FAILED, Concern.TORN})
"""Told by the line of what happened."""


def show_live(run: RunWatch, console: Console, rows: int, max_age_s: float | None = None) -> None:
    """Redraw the picture until it is interrupted; then leave the last one on the terminal.

    Raises:
        AuditError: a log cannot be read, or is none.
    """
    for _ in run.poll():
        pass
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            drawn_s = float("-inf")
            while True:
                happened = sum(1 for _ in run.poll())
                if happened or time.monotonic() - drawn_s >= IDLE_S:
                    picture = run.picture()
                    live.update(fitted(picture, notices(picture, max_age_s), console, rows), refresh=True)
                    drawn_s = time.monotonic()
                time.sleep(REFRESH_S)
    finally:
        picture = run.picture()
        console.print(draw(picture, notices(picture, max_age_s), console.width, rows))


def show_lines(run: RunWatch, console: Console, rows: int, max_age_s: float | None = None) -> None:
    """Print a line for each thing that happens, until it is interrupted; of what happened before the last ones.

    Raises:
        AuditError: a log cannot be read, or is none.
    """
    before = deque(run.poll(), maxlen=rows * run.logs)
    _print(console, run.picture(), in_time(before)[-rows:])
    told: set[Notice] = set()
    while True:
        picture = run.picture()
        found = [one for one in notices(picture, max_age_s) if one.concern not in _BY_ITS_EVENT]
        for one in found:
            if one not in told:
                _write(console, notice_line(one, picture.now_s))
        told = set(found)
        time.sleep(REFRESH_S)
        happened = in_time(run.poll())
        _print(console, run.picture(), happened)


def in_time(happened: Iterable[Happened]) -> list[Happened]:
    """What several logs say, in the order of its times; what has none stays behind what it came after."""
    placed: list[tuple[float, Happened]] = []
    time_s: dict[int, float] = {}
    for one in happened:
        time_s[one.index] = _time_s(one.happening, time_s.get(one.index, float("-inf")))
        placed.append((time_s[one.index], one))
    return [one for _, one in sorted(placed, key=lambda each: each[0])]


def _time_s(happening: Happening, otherwise_s: float) -> float:
    if isinstance(happening, Unreadable):
        return otherwise_s
    return happening.ended_s if isinstance(happening, Transition) else happening.time_s


def _print(console: Console, picture: Picture, happened: Sequence[Happened]) -> None:
    ranks = {rank.whose.index: who(picture, [rank]) for rank in picture.ranks}
    for one in happened:
        line = line_of(one.happening, ranks.get(one.index, ""))
        if line is not None:
            _write(console, line)


def _write(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=True, highlight=False)


@contextmanager
def ending_as_asked() -> Iterator[None]:
    """Ctrl-C and a request to end both leave the terminal as it was.

    Raises:
        SystemExit: with 130 or 143, as a shell says of a program that was ended so.
    """

    def end(_: int, __: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, before)
