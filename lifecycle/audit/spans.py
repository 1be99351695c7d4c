"""Positions in a list as short text: ``2-9,12``. Most lists of thousands are a few runs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain


def spans_of(positions: Iterable[int]) -> str:
    """The text of these positions.

    Args:
        positions: from 0, ascending, each once.
    """
    runs: list[list[int]] = []
    for one in positions:
        if runs and one == runs[-1][1] + 1:
            runs[-1][1] = one
        else:
            runs.append([one, one])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def positions_in(text: str) -> Iterable[int]:
    """The positions that a text names.

    Raises:
        ValueError: it is no such text.
    """
    if text.isdecimal():  # most texts are one position
        return (int(text),)
    runs = [part.partition("-") for part in text.split(",")] if text else []
    return chain.from_iterable([range(int(first), int(last or first) + 1) for first, _, last in runs])
