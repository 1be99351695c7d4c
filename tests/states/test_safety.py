"""The table against the oracle where facts are mixed at random, and what ranks may differ in."""

from __future__ import annotations

from dataclasses import fields
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from states import TABLE, Facts, TrainerEvent, TrainerState
from states.verdict import Guard
from tests.states.agreement import answer, disagreement, malformed
from tests.strategies import LOCAL_DEVIATIONS, SHARED_DEVIATIONS, any_facts, bases

pytestmark = [pytest.mark.timeout(400), pytest.mark.no_cover]
"""Every line that so many facts run through has a test of its own."""


@pytest.mark.parametrize("state", TrainerState)
@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data(), event=st.sampled_from(TrainerEvent))
def test_they_agree_on_any_mixture_of_facts(state: TrainerState, event: TrainerEvent, data: st.DataObject) -> None:
    """As the enumeration, outside of its blocks: up to six deviations at once, any configuration and placement."""
    case = (state, event, data.draw(any_facts(state)))
    decision = answer(case)

    assert disagreement(case, decision) == ""
    assert malformed(case, decision) == ""


GUARDS = sorted({guard for row in TABLE for guard in (*row.when, *row.guards)}, key=lambda guard: guard.name)


@cache
def _ranks() -> list[tuple[Facts, Facts]]:
    """Facts of two ranks that share what is shared: one is well, the other has one trouble of its own."""
    shared = [
        deviate(base) for state in TrainerState for base in bases(state) for deviate in SHARED_DEVIATIONS.values()
    ]
    return [(facts, deviate(facts)) for facts in shared[::7] for deviate in LOCAL_DEVIATIONS.values()]


@pytest.mark.parametrize("guard", [one for one in GUARDS if one.scope == "shared"], ids=repr)
def test_a_shared_guard_looks_at_shared_facts_alone(guard: Guard) -> None:
    """Ranks with the same shared facts get the same answer of it, whatever their own memory looks like."""
    assert [guard(well).holds for well, _ in _ranks()] == [guard(troubled).holds for _, troubled in _ranks()]


def test_the_two_ranks_differ_in_local_facts_alone() -> None:
    """The control: shared facts are equal, so the test above compares what it says."""
    assert all(well.shared() == troubled.shared() for well, troubled in _ranks())
    assert all(well.local() != troubled.local() for well, troubled in _ranks()[:50])


def test_every_rank_takes_the_same_edge() -> None:
    """Rows are selected by shared facts; only recover looks at the tags of its own rank."""
    local = {(row.event, guard.scope) for row in TABLE for guard in row.when if guard.scope == "local"}

    assert local == {(TrainerEvent.RECOVER, "local")}


def test_every_fact_is_shared_or_local() -> None:
    """Each fact belongs to one scope: shared facts are compared over the ranks, local verdicts are joined."""
    facts = Facts()

    assert not facts.shared().keys() & facts.local().keys()
    assert {*facts.shared(), *facts.local()} == {field.name for field in fields(Facts)}
