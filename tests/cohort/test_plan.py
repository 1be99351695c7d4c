"""The plan of a turn, for all states of two and three members, all wanted sets and several budgets."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from states import TrainerEvent, TrainerState
from states.cohort import CohortLevels, CohortPlan, CohortRefusal, joint_bytes, plan_return, plan_turn
from tests.cohort.rules import (
    AWAKE,
    CPU,
    FAULTED,
    SIZES,
    SLEEPING,
    States,
    by_name,
    cases,
    check_plan,
    check_refusal,
    device,
    goals_of,
    host,
    is_reachable,
)

LINE_UPS = [*permutations(SIZES, 2), ("a", "b", "c"), ("c", "a", "b"), ("b", "c", "a")]


def levels(
    names: tuple[str, ...], states: States, device_budget: int | None = None, host_budget: int | None = None
) -> CohortLevels:
    """What is held in these states."""
    return CohortLevels(
        host_held_bytes=host(names, states),
        device_held_bytes=device(names, states),
        host_budget_bytes=host_budget,
        device_budget_bytes=device_budget,
    )


def plan_of(
    names: str, states: States, wanted: str, device_budget: int | None = None, host_budget: int | None = None
) -> CohortPlan | CohortRefusal:
    """The plan of members by one letter."""
    members = [SIZES[name].member(name, state) for name, state in zip(names, states, strict=True)]
    return plan_turn(members, frozenset(wanted), levels(tuple(names), states, device_budget, host_budget))


def steps_of(found: CohortPlan | CohortRefusal) -> list[str]:
    """The steps of a plan."""
    assert isinstance(found, CohortPlan), found
    return [str(step) for step in found.steps]


@pytest.mark.parametrize("names", LINE_UPS, ids="".join)
def test_every_plan_keeps_the_rules_and_every_refusal_is_one_that_no_order_avoids(names: tuple[str, ...]) -> None:
    """All states, wanted sets and budgets; rules and orders are said apart from the planner."""
    count = refused = 0
    for states, wanted, offloads, device_budget, host_budget in cases(names):
        limits = levels(names, states, device_budget, host_budget)
        members = [SIZES[name].member(name, state) for name, state in zip(names, states, strict=True)]
        goals = goals_of(names, states, wanted, offloads=offloads)
        found = plan_turn(members, wanted, limits, offloads=offloads)
        assert found == plan_turn(members, wanted, limits, offloads=offloads)
        assert dict(found.goals) == by_name(names, goals)
        if isinstance(found, CohortRefusal):
            check_refusal(names, states, goals, limits, found)
            refused += 1
        else:
            assert FAULTED not in states
            check_plan(names, states, goals, found)
        count += 1
    print(f"{count} cases, {refused} refused")

    assert 0 < refused < count


def test_releases_come_before_wakes_and_each_in_the_declared_order() -> None:
    """Without budgets there is one order."""
    found = plan_of("abc", (AWAKE, SLEEPING, AWAKE), "b")
    both = plan_of("cba", (SLEEPING, CPU, CPU), "ab")

    assert steps_of(found) == ["a.sleep", "a.offload", "c.sleep", "b.wake_up"]
    assert steps_of(both) == ["b.wake_up", "a.wake_up"]


def test_where_the_host_has_no_room_for_both_backups_the_other_one_wakes_first() -> None:
    """The device holds both for a moment; with room for one only no order fits."""
    states = (AWAKE, CPU)

    assert steps_of(plan_of("ab", states, "b", None, 6)) == ["a.sleep", "b.wake_up", "a.offload"]
    refused = plan_of("ab", states, "b", 7, 6)
    assert isinstance(refused, CohortRefusal)
    assert refused.failed.name == "the-turn-fits"
    assert "a.offload needs 9 bytes on the host, 5 of them its own, and the budget is 6" in refused.because
    assert "file" in refused.remedy


def test_nothing_is_planned_when_everybody_is_where_they_shall_be() -> None:
    """The plan is empty, and its peaks are what is held."""
    found = plan_of("ab", (AWAKE, CPU), "a")

    assert isinstance(found, CohortPlan)
    assert found.is_empty
    assert (found.device_peak_bytes, found.host_peak_bytes) == (7, 3)


def test_a_budget_that_is_exceeded_already_does_not_stop_a_release() -> None:
    """What gives memory back is never refused for want of it."""
    assert steps_of(plan_of("ab", (AWAKE, AWAKE), "", 1)) == ["a.sleep", "a.offload", "b.sleep", "b.offload"]


def test_a_member_in_the_middle_of_a_reconcile_is_waited_for() -> None:
    """It is no fault, and no state to leave from."""
    found = plan_of("ab", (TrainerState.ADAPTER_RECONCILING, CPU), "b")

    assert isinstance(found, CohortRefusal)
    assert found.failed.name == "every-member-can-be-driven"
    assert found.remedy == "wait until the event under way has ended"
    assert found.tried == ()


def test_a_wanted_name_that_is_no_members_is_an_error() -> None:
    """It would be a turn in which nobody is awake."""
    with pytest.raises(ValueError, match="no such member: z"):
        plan_of("ab", (AWAKE, CPU), "z")


def test_a_plan_tells_the_log_goals_steps_and_budgets() -> None:
    """In words and bytes."""
    found = plan_of("ab", (AWAKE, CPU), "b", 20, 30)
    assert isinstance(found, CohortPlan)
    told = found.told()

    assert told["goals"] == {"a": CPU, "b": AWAKE}
    assert told["budget_bytes"] == {"host": 30, "device": 20}
    assert told["steps"] == [step.told() for step in found.steps]
    assert found.steps[-1].told() == {
        "step": "b.wake_up", "host_peak_bytes": 9, "device_peak_bytes": 4, "host_bytes": 6, "device_bytes": 4,
    }  # fmt: skip


@pytest.mark.parametrize("states", list(product((AWAKE, SLEEPING, CPU), repeat=2)))
@pytest.mark.parametrize("before", list(product((AWAKE, SLEEPING, CPU), repeat=2)))
def test_a_way_back_leads_from_every_state_to_every_other(states: States, before: States) -> None:
    """Also from offloaded to sleeping, by way of awake."""
    names = ("a", "b")
    members = [SIZES[name].member(name, state) for name, state in zip(names, states, strict=True)]
    now = by_name(names, states) | {}
    for step in plan_return(members, by_name(names, before), levels(names, states)):
        assert now[step.member] is step.source
        now = {**now, step.member: step.target}

    assert now == by_name(names, before)


def test_a_way_back_undoes_in_reverse_and_leaves_who_is_faulted() -> None:
    """Who was touched last goes first; a member that only recover() may drive is not driven."""
    members = [SIZES["c"].member("c", FAULTED), SIZES["b"].member("b", AWAKE), SIZES["a"].member("a", CPU)]
    steps = plan_return(members, {"a": AWAKE, "b": CPU, "c": AWAKE}, CohortLevels())

    assert [str(step) for step in steps] == ["b.sleep", "b.offload", "a.wake_up"]


def test_a_way_back_is_planned_even_if_nothing_fits() -> None:
    """The guards of the members have the last word."""
    members = [SIZES["a"].member("a", CPU)]
    steps = plan_return(members, {"a": AWAKE}, CohortLevels(device_budget_bytes=1))

    assert [step.event for step in steps] == [TrainerEvent.WAKE_UP]


def test_to_the_engines_a_cohort_is_one_trainer() -> None:
    """All go and some come back; what stays on the device is neither given nor taken."""
    members = [SIZES[name].member(name, state) for name, state in zip("abc", (AWAKE, CPU, AWAKE), strict=True)]
    joint = joint_bytes(members, {"a", "c"})

    assert (joint.target, joint.weights_bytes, joint.scratch_bytes, joint.backup_bytes) == ("cpu", 5, 2, 5)
    assert (joint.awake_bytes, joint.kept_bytes) == (7, 1)
    assert joint_bytes(members[2:], {"c"}).target is None
    assert not is_reachable(("a",), (CPU,), (AWAKE,), CohortLevels(device_budget_bytes=6))
