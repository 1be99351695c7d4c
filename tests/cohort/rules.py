"""What a turn of a cohort has to be, said without the planner: levels follow from states, orders are all tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from states import OFFLOADED, TrainerEvent, TrainerState
from states.cohort import CohortLevels, CohortPlan, CohortRefusal, Member
from states.handover_needs import TrainerBytes

AWAKE, SLEEPING, CPU, FAULTED = (
    TrainerState.AWAKE,
    TrainerState.SLEEPING,
    TrainerState.OFFLOADED_CPU,
    TrainerState.FAULTED,
)
States = tuple[TrainerState, ...]
_RELEASES = (TrainerEvent.SLEEP, TrainerEvent.OFFLOAD)


@dataclass(frozen=True)
class Size:
    """What one member holds by state, in bytes. Without a target its weights never leave the device."""

    weights: int
    scratch: int
    kept: int
    backup: int
    target: str | None = "cpu"

    def device(self, state: TrainerState) -> int:
        if state is AWAKE:
            return self.weights + self.scratch
        return 0 if state in OFFLOADED else self.weights

    def host(self, state: TrainerState) -> int:
        if state is AWAKE:
            return 0
        return self.kept + (self.backup if state in OFFLOADED else 0)

    def away(self) -> TrainerState:
        return SLEEPING if self.target is None else CPU

    def member(self, name: str, state: TrainerState) -> Member:
        return Member(
            name=name,
            state=state,
            held=TrainerBytes(
                target=self.target,
                weights_bytes=0 if state in OFFLOADED else self.weights,
                scratch_bytes=self.scratch if state is AWAKE else 0,
                awake_bytes=self.weights + self.scratch,
                kept_bytes=self.kept if state is AWAKE else 0,
                backup_bytes=0 if state in OFFLOADED else self.backup,
                returned_bytes=self.host(state),
            ),
        )


SIZES = {"a": Size(5, 2, 1, 5), "b": Size(3, 1, 0, 3), "c": Size(4, 0, 0, 0, target=None)}
EVENTS = {
    (AWAKE, TrainerEvent.SLEEP): SLEEPING,
    (SLEEPING, TrainerEvent.OFFLOAD): CPU,
    (SLEEPING, TrainerEvent.WAKE_UP): AWAKE,
    (CPU, TrainerEvent.WAKE_UP): AWAKE,
}


def goals_of(names: tuple[str, ...], states: States, wanted: frozenset[str], *, offloads: bool) -> States:
    """Where each member is to be."""
    return tuple(
        AWAKE if name in wanted else SIZES[name].away() if offloads or state in OFFLOADED else SLEEPING
        for name, state in zip(names, states, strict=True)
    )


def device(names: tuple[str, ...], states: States) -> int:
    """What all hold on the device."""
    return sum(SIZES[name].device(state) for name, state in zip(names, states, strict=True))


def host(names: tuple[str, ...], states: States) -> int:
    """What all hold on the host."""
    return sum(SIZES[name].host(state) for name, state in zip(names, states, strict=True))


def cases(names: tuple[str, ...]) -> Iterator[tuple[States, frozenset[str], bool, int | None, int | None]]:
    """All states, wanted sets, kinds of rest, and budgets of the device and of the host."""
    able = [
        (AWAKE, SLEEPING, FAULTED) if SIZES[name].target is None else (AWAKE, SLEEPING, CPU, FAULTED) for name in names
    ]
    sets = [
        frozenset(name for name, bit in zip(names, bits, strict=True) if bit)
        for bits in product((0, 1), repeat=len(names))
    ]
    return product(product(*able), sets, (True, False), (None, 6, 9, 12), (None, 4, 7))  # type: ignore[return-value]


def is_reachable(names: tuple[str, ...], states: States, goals: States, limits: CohortLevels) -> bool:
    """Whether some order of the least events leads there within the budgets: every one is tried."""
    reached, front = {states}, [states]
    while front:
        here = front.pop()
        for index, name in enumerate(names):
            for (source, event), target in EVENTS.items():
                if source is not here[index] or here[index] is goals[index] or not _leads(event, goals[index]):
                    continue
                there = (*here[:index], target, *here[index + 1 :])
                if there not in reached and not _exceeds(names, here, there, name, index, limits):
                    reached.add(there)
                    front.append(there)
    return goals in reached


def _leads(event: TrainerEvent, goal: TrainerState) -> bool:
    return (event is TrainerEvent.WAKE_UP) == (goal is AWAKE)


def _exceeds(names: tuple[str, ...], here: States, there: States, name: str, index: int, limits: CohortLevels) -> bool:
    """Who takes nothing of a memory cannot exceed its budget, whatever the others hold."""
    takes_device = SIZES[name].device(there[index]) > SIZES[name].device(here[index])
    takes_host = SIZES[name].host(there[index]) > SIZES[name].host(here[index])
    over_device = limits.device_budget_bytes is not None and device(names, there) > limits.device_budget_bytes
    over_host = limits.host_budget_bytes is not None and host(names, there) > limits.host_budget_bytes
    return (takes_device and over_device) or (takes_host and over_host)


def check_plan(names: tuple[str, ...], states: States, goals: States, plan: CohortPlan) -> None:
    """Every step is legal, predicted as it comes, within the budgets and needed; the end is what was asked."""
    here, limits = states, plan.levels
    for step in plan.steps:
        index = names.index(step.member)
        assert states[index] is not goals[index], f"{step} of a member that is where it shall be"
        assert (step.source, step.target) == (here[index], EVENTS[here[index], step.event])
        there = (*here[:index], step.target, *here[index + 1 :])
        assert not _exceeds(names, here, there, step.member, index, limits)
        assert (step.device_bytes, step.host_bytes) == (device(names, there), host(names, there))
        assert step.device_peak_bytes == max(device(names, here), device(names, there))
        assert step.host_peak_bytes == max(host(names, here), host(names, there))
        here = there
    assert here == goals
    _check_order(names, states, goals, plan)
    assert len(plan.steps) == sum(_distance(*pair) for pair in zip(states, goals, strict=True))


def _check_order(names: tuple[str, ...], states: States, goals: States, plan: CohortPlan) -> None:
    """All releases in the declared order and then all wakes in it, if that keeps within the budgets."""
    going = [(name, goal) for name, state, goal in zip(names, states, goals, strict=True) if state is not goal]
    order = [(name, event) for name, goal in going if goal is not AWAKE for event in _RELEASES]
    order += [(name, TrainerEvent.WAKE_UP) for name, goal in going if goal is AWAKE]
    here = states
    taken: list[tuple[str, TrainerEvent]] = []
    for name, event in order:
        index = names.index(name)
        if here[index] is goals[index] or (here[index], event) not in EVENTS:
            continue
        there = (*here[:index], EVENTS[here[index], event], *here[index + 1 :])
        if _exceeds(names, here, there, name, index, plan.levels):
            return
        taken.append((name, event))
        here = there
    assert [(step.member, step.event) for step in plan.steps] == taken


def _distance(state: TrainerState, goal: TrainerState) -> int:
    """The least number of events."""
    return 0 if state is goal else 2 if (state, goal) == (AWAKE, CPU) else 1


def check_refusal(
    names: tuple[str, ...], states: States, goals: States, limits: CohortLevels, refusal: CohortRefusal
) -> None:
    """It names every member that is faulted, or no order fits and the numbers say so."""
    faulted = [name for name, state in zip(names, states, strict=True) if state is FAULTED]
    if faulted:
        assert all(
            f"{name} is faulted" in refusal.because and f"{name}.recover()" in refusal.remedy for name in faulted
        )
        return
    assert not is_reachable(names, states, goals, limits)
    over = [step for step in refusal.tried if step.excess]
    assert over
    assert all(f"{step} needs {step.excess}" in refusal.because for step in over)


def by_name(names: tuple[str, ...], states: States) -> Mapping[str, TrainerState]:
    """Member to state."""
    return dict(zip(names, states, strict=True))
