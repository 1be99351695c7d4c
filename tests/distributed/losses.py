"""A simulation in which a rank is lost, again after each event of the run in which none is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from lifecycle.distributed.simulated import Simulation

FAULTS: Final = ("kill", "stop", "cut")
"""A process ends, one hangs for a minute, or every connection breaks."""


def lost_after_each_event(
    made: Callable[[], Simulation], fault: str, rank: int, every: int = 1
) -> Iterator[tuple[int, Simulation]]:
    """After how many events the rank was lost, and the simulation when all others have come to their end.

    Args:
        made: makes the simulation anew, with no rank lost.
        fault: one of :data:`FAULTS`.
        rank: which is lost; where connections break, none is.
        every: 2 leaves out every second event.
    """
    for event in range(0, made().run(), every):
        simulation = made()
        simulation.run(events=event)
        _lose(simulation, fault, rank)
        simulation.run()
        yield event, simulation


def _lose(simulation: Simulation, fault: str, rank: int) -> None:
    if fault == "kill":
        simulation.kill(rank, simulation.now_s)
    elif fault == "stop":
        simulation.stop(rank, simulation.now_s, 60.0)
    else:
        simulation.cut(0, simulation.now_s)
