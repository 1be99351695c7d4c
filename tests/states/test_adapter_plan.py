"""The plan of a reconcile: the difference by registration, the same on every rank, empty when it is applied."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from states import ReconcilePlan, Tenancy, plan_reconcile

Held = dict[str, Tenancy]


@st.composite
def tenancies(draw: st.DrawFn) -> Held:
    """Up to four adapters in four slots, by name."""
    names = draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=4))
    slots = draw(st.permutations(range(4)))
    return {name: Tenancy(name, draw(st.integers(1, 3)), slot) for name, slot in zip(names, slots, strict=False)}


def apply(plan: ReconcilePlan, loaded: Held) -> Held:
    """What a host does: clear slots, then fill them. A slot that somebody holds is not filled."""
    after = {name: one for name, one in loaded.items() if one not in plan.retires}
    assert len(after) == len(loaded) - len(plan.retires)
    for one in plan.loads:
        assert one.slot not in {other.slot for other in after.values()}
        after[one.name] = one
    return after


@given(desired=tenancies(), loaded=tenancies())
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
def test_a_plan_that_was_applied_leaves_what_is_desired_and_nothing_to_do(desired: Held, loaded: Held) -> None:
    """From any drift: what is loaded is what is desired, and the next plan is empty."""
    plan = plan_reconcile(desired, loaded)
    after = apply(plan, loaded)

    assert after == desired
    assert plan_reconcile(desired, after) == ReconcilePlan()
    assert plan.is_empty is (desired == loaded)


@given(desired=tenancies(), loaded=tenancies(), seed=st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
def test_equal_arguments_give_equal_plans_whatever_their_order(desired: Held, loaded: Held, seed: object) -> None:
    """Ranks that learn of adapters in another order plan the same, sorted by name, with the same digest."""
    shuffled = [list(one.items()) for one in (desired, loaded)]
    for one in shuffled:
        seed.shuffle(one)  # type: ignore[attr-defined]
    plan, other = plan_reconcile(desired, loaded), plan_reconcile(*map(dict, shuffled))

    assert plan == other
    assert plan.digest == other.digest
    assert list(plan.loads) == sorted(plan.loads)
    assert list(plan.retires) == sorted(plan.retires)


def test_a_name_that_was_registered_anew_is_retired_and_loaded() -> None:
    """An adapter is its registration, not its name (FB-35)."""
    plan = plan_reconcile({"a": Tenancy("a", 2, 0)}, {"a": Tenancy("a", 1, 0)})

    assert plan == ReconcilePlan(loads=(Tenancy("a", 2, 0),), retires=(Tenancy("a", 1, 0),))


def test_an_adapter_that_was_moved_to_another_slot_is_retired_and_loaded() -> None:
    """Its bytes are in the slot that it had."""
    plan = plan_reconcile({"a": Tenancy("a", 1, 3)}, {"a": Tenancy("a", 1, 0)})

    assert plan == ReconcilePlan(loads=(Tenancy("a", 1, 3),), retires=(Tenancy("a", 1, 0),))


def test_a_slot_that_changes_hands_is_cleared_and_filled_by_one_plan() -> None:
    """A retires, B takes its slot (FB-35)."""
    plan = plan_reconcile({"b": Tenancy("b", 2, 0)}, {"a": Tenancy("a", 1, 0)})

    assert plan == ReconcilePlan(loads=(Tenancy("b", 2, 0),), retires=(Tenancy("a", 1, 0),))


def test_a_host_that_restarted_empty_is_asked_to_unload_nothing() -> None:
    """What it lost is not retired, only what is wanted is loaded (FB-42)."""
    assert plan_reconcile({"b": Tenancy("b", 2, 0)}, {}) == ReconcilePlan(loads=(Tenancy("b", 2, 0),))


def test_plans_that_differ_have_digests_that_differ_and_all_have_one_size() -> None:
    """64 hexadecimal digits, whether nothing is planned or thousands."""
    several = [Tenancy(name, identity, slot) for name, identity, slot in product("ab", (1, 2), (0, 1))]
    plans = [ReconcilePlan(), *(ReconcilePlan(loads=(one,)) for one in several)]
    plans += [ReconcilePlan(retires=(one,)) for one in several]
    plans += [ReconcilePlan(loads=tuple(Tenancy(f"a{slot}", 1, slot) for slot in range(3000)))]

    assert len({plan.digest for plan in plans}) == len(plans)
    assert {len(plan.digest) for plan in plans} == {64}


@pytest.mark.parametrize("what", ["desired", "loaded"])
def test_two_adapters_in_one_slot_are_an_error_that_names_both(what: str) -> None:
    """The plan would have one overwrite the other."""
    wrong = {"a": Tenancy("a", 1, 0), "b": Tenancy("b", 2, 0)}

    with pytest.raises(ValueError, match=f"{what}: 'a' and 'b' both have slot 0"):
        plan_reconcile(**{"desired": {}, "loaded": {}, what: wrong})


@pytest.mark.parametrize("what", ["desired", "loaded"])
def test_an_entry_under_another_name_is_an_error_that_names_both(what: str) -> None:
    """A host would load or retire another adapter than was meant."""
    with pytest.raises(ValueError, match=f"{what}: the entry under 'a' is of 'b'"):
        plan_reconcile(**{"desired": {}, "loaded": {}, what: {"a": Tenancy("b", 1, 0)}})
