"""Any order of turns, steps, faults and members driven by themselves, against a model that only remembers bytes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lifecycle import LifecycleError, TrainerState
from lifecycle.cohort import CohortFailed, CohortRefused
from states import OFFLOADED
from tests.cohort.test_faults import Breaks
from tests.cohort.world import NAMES, World, make_world, sizes_bytes

SETS = st.sets(st.sampled_from(NAMES), max_size=3).map(lambda names: tuple(sorted(names)))


class CohortMachine(RuleBasedStateMachine):
    """Three members on a device that holds one, two or all of them; the model is who is awake and their digests."""

    world: World | None = None

    @initialize(fits=st.sampled_from([1, 2, 3]))
    def start(self, *, fits: int) -> None:
        """Everybody is offloaded."""
        self.fits, self.breaks = fits, Breaks()
        self.world = make_world(fits=fits, faults=self.breaks)
        self.held, self.awake = self.world.all_bytes(), ()

    @property
    def there(self) -> World:
        """The world, which exists once the machine has begun."""
        assert self.world is not None
        return self.world

    def room(self, wanted: tuple[str, ...]) -> bool:
        """Whether the device holds these together, by a simple sum."""
        sizes = sorted(sizes_bytes().values(), reverse=True)
        return sum(sizes_bytes()[name] for name in wanted) <= sum(sizes[: self.fits])

    @rule(wanted=SETS, trains=st.booleans())
    def turn(self, wanted: tuple[str, ...], trains: bool) -> None:  # noqa: FBT001 - Hypothesis gives it by name
        """Who is wanted is awake and may train; a set that is too large is refused."""
        try:
            with self.there.cohort.turn(*wanted):
                assert set(self.there.awake) == set(wanted)
                for name in wanted if trains else ():
                    self.there.train(name)
        except CohortRefused:
            assert not self.room(wanted)
        else:
            self.awake = wanted
            self.held |= {name: self.there.bytes_of(name) for name in wanted}

    @rule()
    def sleep(self) -> None:
        """Nobody is awake."""
        self.there.cohort.sleep()
        self.awake = ()

    @rule()
    def offload(self) -> None:
        """The device is free."""
        self.there.cohort.offload()
        self.awake = ()
        assert self.there.saver.usage().device_bytes == 0

    @precondition(lambda self: self.world is not None and "critic" in self.awake)
    @rule()
    def accumulate(self) -> None:
        """Gradients grow, weights do not."""
        self.there.accumulate()

    @rule(name=st.sampled_from(NAMES), event=st.sampled_from(["sleep", "offload", "wake_up"]))
    def drive_by_itself(self, name: str, event: str) -> None:
        """Somebody does not know of the cohort; what is refused changes nothing."""
        with suppress(LifecycleError):
            getattr(self.there[name], event)()
        self.awake = self.there.awake

    @rule(wanted=SETS, nth=st.integers(1, 40), interrupts=st.booleans())
    def fail(self, wanted: tuple[str, ...], nth: int, interrupts: bool) -> None:  # noqa: FBT001 - as above
        """A native call fails: everybody is where they were, or the turn was over before."""
        self.breaks.arm(nth, error=KeyboardInterrupt if interrupts else lambda: OSError("told to fail"))
        try:
            self.there.cohort.awake(*wanted)
            self.awake = wanted
        except (CohortFailed, CohortRefused, KeyboardInterrupt):
            pass
        self.breaks.arm()

    @invariant()
    def no_byte_differs(self) -> None:
        """Of nobody, wherever they are."""
        if self.world is not None:
            assert self.world.all_bytes() == self.held

    @invariant()
    def awake_is_who_should_be(self) -> None:
        """And nobody is faulted."""
        if self.world is not None:
            assert set(self.world.awake) == set(self.awake)
            assert TrainerState.FAULTED not in self.world.cohort.states.values()

    @invariant()
    def there_is_one_set_of_books(self) -> None:
        """Members add up to the saver's own figure, and states say what is paused."""
        if self.world is None:
            return
        usage = self.world.cohort.usage()
        assert usage.total == self.world.saver.usage()
        assert usage.others.device_bytes == 0
        for name, state in self.world.cohort.states.items():
            assert (usage.members[name].device_bytes == 0) == (state in OFFLOADED)


pytestmark = pytest.mark.timeout(600)

TestCohortMachine = CohortMachine.TestCase
TestCohortMachine.settings = settings(
    max_examples=9, stateful_step_count=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
