"""What an engine is sent: the difference of two sets of versions, in an order in which it can be applied."""

from __future__ import annotations

import time
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from states import PushPlan, ahead_of, plan_push

BASE = ("frozen-base", "trainable-base", "buffers")
ADAPTERS = ("adapter/A", "adapter/B", "adapter/b.2")
GROUPS = st.sampled_from((*BASE, *ADAPTERS))
VERSIONS = st.dictionaries(GROUPS, st.integers(1, 4))


def applied(plan: PushPlan, held: dict[str, int]) -> dict[str, int]:
    """What an engine holds after it has done exactly what the plan says."""
    gone = {f"adapter/{name}" for name in plan.unload}
    return {group: one for group, one in held.items() if group not in gone} | dict(plan.send)


@given(VERSIONS, VERSIONS, st.none() | st.frozensets(GROUPS))
def test_what_is_desired_is_held_once_a_plan_is_applied_and_the_next_plan_is_empty(
    desired: dict[str, int], held: dict[str, int], doubtful: frozenset[str] | None
) -> None:
    """Idempotent; an adapter that is gone is held no more."""
    after = applied(plan_push(desired, held, doubtful=doubtful), held)

    assert {group: after.get(group) for group in desired} == desired
    assert [group for group in after if group in ADAPTERS and group not in desired] == []
    assert plan_push(desired, after).is_empty


@given(VERSIONS, VERSIONS, st.none() | st.frozensets(GROUPS))
def test_what_is_held_and_in_no_doubt_is_never_sent(
    desired: dict[str, int], held: dict[str, int], doubtful: frozenset[str] | None
) -> None:
    """The cost of a push grows with what changed (FB-34); what is in doubt counts as not held."""
    plan = plan_push(desired, held, doubtful=doubtful)
    believed = {} if doubtful is None else {one: at for one, at in held.items() if one not in doubtful}

    assert set(plan.groups) == {group for group, at in desired.items() if believed.get(group) != at}


@given(VERSIONS, VERSIONS)
def test_the_base_goes_before_the_adapters_that_lie_on_it_and_those_go_by_name(
    desired: dict[str, int], held: dict[str, int]
) -> None:
    """Parameters, then buffers, then adapters (FB-28)."""
    groups = plan_push(desired, held).groups
    order = {group: number for number, group in enumerate((*BASE, *sorted(ADAPTERS)))}

    assert list(groups) == sorted(groups, key=order.__getitem__)


def test_every_small_case_by_hand() -> None:
    """A new engine gets the base and then A; one that has it, A; one that has lost it, the base and A (FB-28)."""
    wanted = {"adapter/A": 7, "frozen-base": 1, "buffers": 5}

    assert plan_push(wanted, {}).groups == ("frozen-base", "buffers", "adapter/A")
    assert plan_push(wanted, {"frozen-base": 1, "buffers": 5, "adapter/A": 6}).send == (("adapter/A", 7),)
    assert plan_push(wanted, {"adapter/A": 7}).groups == ("frozen-base", "buffers")
    assert plan_push(wanted, wanted, doubtful=None).groups == ("frozen-base", "buffers", "adapter/A")
    assert plan_push({}, {"adapter/Z": 3}) == PushPlan(unload=("Z",))


def test_an_adapter_in_doubt_that_is_wanted_no_more_is_unloaded_also_if_it_is_not_reported() -> None:
    """Its half may lie in a slot."""
    assert plan_push({}, {}, doubtful=("adapter/Z",)).unload == ("Z",)
    assert plan_push({}, {}, doubtful=("frozen-base",)).is_empty


def test_equal_plans_have_equal_digests_and_others_have_not() -> None:
    """Over all cases of three groups and three versions."""
    seen: dict[str, PushPlan] = {}
    for first, second, third in product((None, 1, 2), repeat=3):
        given_versions = zip(("frozen-base", "adapter/A", "adapter/B"), (first, second, third), strict=True)
        plan = plan_push({group: one for group, one in given_versions if one is not None}, {"adapter/A": 1})
        assert seen.setdefault(plan.digest, plan) == plan

    assert len(set(map(repr, seen.values()))) == len(seen) > 8


@pytest.mark.parametrize("wrong", [None, "1", 1.0, True])
def test_a_version_that_is_none_is_an_error_that_names_its_group(wrong: object) -> None:
    """Reports come from other programs."""
    with pytest.raises(ValueError, match=r"the version of adapter/A is .*; a version is a whole number"):
        plan_push({"adapter/A": 2}, {"adapter/A": wrong})  # type: ignore[dict-item]


def test_a_plan_for_a_thousand_adapters_takes_milliseconds() -> None:
    """Nothing to do, and everything to do."""
    wanted = {f"adapter/{number}": number for number in range(1000)}
    started = time.perf_counter()
    for _ in range(10):
        assert plan_push(wanted, wanted).is_empty
        assert len(plan_push(wanted, {}).send) == 1000

    assert (time.perf_counter() - started) / 10 < 0.05


def test_an_engine_is_ahead_where_it_holds_an_id_that_was_never_given_out() -> None:
    """Equal to the newest is not ahead (FB-52)."""
    assert ahead_of(57, {"frozen-base": 57, "adapter/B": 58, "adapter/A": 99}) == (
        "adapter/A in version 99", "adapter/B in version 58",
    )  # fmt: skip
