"""All faults of one event in one configuration, one after the other, with everything checked after each."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from lifecycle import Moved, TrainerState
from lifecycle.errors import AuditError
from tests.lifecycle.faulted_events import CONFIGURATIONS, EVENTS, Case, home, state_of
from tests.lifecycle.injector import Injector, kinds_of
from tests.saver.proc import descriptors, mappings

SURVIVED = ("os.open", "audit")
"""Points that an event may do without: leftovers that cannot be opened are left alone, a note is not worth a stop."""

NEVER_STUCK = ("commit",)
"""The machine is memory: it may be interrupted, but is not broken for good."""


@dataclass
class Campaign:
    """Injects and checks.

    A world that is as before serves the next fault too, so that what one fault leaves behind meets the next one.

    Attributes:
        event: of :data:`EVENTS`.
        configuration: of :data:`CONFIGURATIONS`.
        folder: for the worlds' files.
        sticky: what fails goes on failing until it is mended, also for the undo.
        counts: how the faults ended.
    """

    event: str
    configuration: str
    folder: Path
    sticky: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    injector: Injector = field(default_factory=Injector)
    made: int = 0

    def run(self) -> Counter[str]:
        """Every kind of fault at every point.

        Returns:
            How often faults ended in which way.
        """
        gc.collect()
        gc.freeze()  # what there is now need not be looked at again and again
        try:
            self._run()
        finally:
            gc.unfreeze()
        return self.counts

    def _run(self) -> None:
        self.stays = home(self.fresh().world)
        case = self.fresh()
        assert self.send(case) is None
        points, self.goes = list(self.injector.seen), home(case.world)
        case = self.fresh()
        leaks = self.measure(case)
        for nth, point in enumerate(points, 1):
            for kind in kinds_of(point):
                if self.sticky and (kind == "interrupt" or point in NEVER_STUCK):
                    continue
                if not self.inject(case, nth, kind):
                    self.check_leaks(case, leaks)
                    case = self.fresh()
                    leaks = self.measure(case)
        self.check_leaks(case, leaks)
        assert self.send(case) is None, "mended, the event goes through"
        assert home(case.world) == self.goes

    def fresh(self) -> Case:
        """A world in which the event may be sent."""
        folder = self.folder / str(self.made)
        folder.mkdir()
        self.made += 1
        case = EVENTS[self.event](CONFIGURATIONS[self.configuration], folder)
        case.before = state_of(case.world, folder)
        return case

    def send(self, case: Case, nth: int = 0, kind: str = "") -> BaseException | None:
        """Send the event with a fault at a point, and give back what it raised."""
        self.injector.arm(nth, kind, sticky=self.sticky)
        try:
            with self.injector.on(case.world, case.engines):
                case.send()
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - what is raised is looked at
            return error.with_traceback(None)
        return None

    def inject(self, case: Case, nth: int, kind: str) -> bool:
        """One fault. Whether the world is as it was before."""
        error = self.send(case, nth, kind)
        what = f"{self.configuration}, {self.event}, point {nth}: {self.injector.fired[:1]} -> {error}"
        assert self.injector.fired, what
        if error is None or (isinstance(error, AuditError) and error.outcome is not None):
            assert self.injector.fired[0].startswith(SURVIVED), what
            assert home(case.world) == self.goes, what
            self.counts["went through"] += 1
            return False
        check_records(case, what)
        if case.world.trainer.state is TrainerState.FAULTED:
            assert isinstance(case.world.trainer.recover(), Moved), what
            assert home(case.world) == self.stays, what
            self.counts["faulted and recovered"] += 1
            return False
        now = state_of(case.world, case.folder)
        assert {key: one for key, one in now.items() if one != case.before[key]} == {}, what
        self.counts["as before"] += 1
        return not any(engine.versions for engine in case.engines)  # what an engine has committed, it keeps

    def measure(self, case: Case) -> tuple[int, int, int]:
        """Descriptors and mappings of this process, and the faults so far.

        The lock of a backup file counts no more than the file, which stays for the next pause.
        """
        gc.collect()
        locks = sum(block.lock is not None for block in case.world.arena.port._estate.blocks.values())
        return descriptors() - locks, mappings(), self.counts.total()

    def check_leaks(self, case: Case, before: tuple[int, int, int]) -> None:
        """Nothing has grown with the number of faults in this world."""
        open_files, mapped, injected = self.measure(case)
        assert open_files <= before[0], self.event
        assert mapped - before[1] <= max(4, (injected - before[2]) // 8), (self.event, mapped, before, injected)


def check_records(case: Case, what: str) -> None:
    """Each began has its one end, unless the log itself has failed."""
    names = [str(one["event"]) for one in case.world.records()]
    ends = sum(name in ("lifecycle.moved", "lifecycle.failed") for name in names)
    assert names.count("lifecycle.began") == ends, what
