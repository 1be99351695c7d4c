"""Those who see every event of a trainer: when it is sent, and how it ended."""

from __future__ import annotations

from collections.abc import Callable

from lifecycle.outcome import Outcome
from states import TrainerEvent, TrainerState

Ended = Callable[[Outcome | BaseException], None]
"""Told once how the event ended: with what its method returns, or with the error that it raises."""

Watcher = Callable[[TrainerEvent, TrainerState], Ended]
"""Told, with the state, that an event begins; answers with who is to be told how it ended. Both in its thread."""


class Watchers:
    """The watchers of one trainer. What they raise changes no outcome.

    Args:
        raised: told what a watcher raised.
    """

    def __init__(self, raised: Callable[[Exception], None]) -> None:
        self._raised = raised
        self._watchers: list[Watcher] = []

    def add(self, watcher: Watcher) -> None:
        """From the next event on."""
        self._watchers.append(watcher)

    def watched(self, event: TrainerEvent, state: TrainerState, run: Callable[[], Outcome]) -> Outcome:
        """Run an event under their eyes. Whoever began last is told first how it ended."""
        if not self._watchers:
            return run()
        told: list[Ended] = []
        try:
            for watcher in self._watchers:
                ended = self._begin(watcher, event, state)
                told += [ended] if ended is not None else []
            outcome = run()
        except BaseException as error:
            self._end(told, error)
            raise
        self._end(told, outcome)
        return outcome

    def _begin(self, watcher: Watcher, event: TrainerEvent, state: TrainerState) -> Ended | None:
        try:
            return watcher(event, state)
        except Exception as error:  # noqa: BLE001 - a watcher must not change an event's outcome
            self._raised(error)
            return None

    def _end(self, told: list[Ended], how: Outcome | BaseException) -> None:
        """Everybody is told, also after an interrupt in the midst of it, which then goes on."""
        while told:
            ended = told.pop()
            try:
                ended(how)
            except Exception as error:  # noqa: BLE001 - as above
                self._raised(error)
            except BaseException:
                self._end(told, how)
                raise
