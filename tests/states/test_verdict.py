"""Guards explain, never raise, and outcomes are matched, not tested for truth."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace
from inspect import signature
from typing import Any, cast

import pytest

from states import (
    TABLE,
    ContentFacts,
    Facts,
    NoChange,
    Read,
    Refusal,
    RowKind,
    Step,
    TrainerEvent,
    TrainerState,
    Verdict,
    decide,
    guard,
)
from states.verdict import Answer, Guard
from tests.strategies import healthy

EVERY_GUARD = sorted({one for row in TABLE for one in (*row.when, *row.guards)}, key=lambda one: one.name)


@guard(scope="local")
def the_moon_is_full(facts: Facts) -> Answer:
    """The moon is full."""
    return facts.step_open, "it is not night", "wait"


def test_a_verdict_is_truthy_when_it_holds() -> None:
    """Its truth is ``holds``, nothing else."""
    assert Verdict("a", holds=True, because="x")
    assert not Verdict("a", holds=False, because="x", remedy="y")


def test_a_guard_is_named_after_its_function_and_ruled_by_its_docstring() -> None:
    """Name, scope and rule go into log and docs; they come from the definition itself."""
    found = (the_moon_is_full.name, the_moon_is_full.scope, the_moon_is_full.rule, repr(the_moon_is_full))

    assert found == ("the-moon-is-full", "local", "The moon is full.", "Guard(the-moon-is-full)")


def test_a_remedy_is_given_only_when_the_guard_fails() -> None:
    """What holds needs no remedy."""
    assert the_moon_is_full(Facts(step_open=True)) == Verdict("the-moon-is-full", True, "it is not night")
    assert the_moon_is_full(Facts()).remedy == "wait"


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), KeyError("x"), RuntimeError()])
def test_a_guard_that_raises_does_not_hold_and_says_so(error: Exception) -> None:
    """FB-59: asking "may I?" does not raise; what could not be evaluated counts as "no"."""

    def body(_: Facts) -> Answer:
        raise error

    verdict = Guard(body, name="broken", scope="shared")(Facts())

    assert not verdict
    assert type(error).__name__ in verdict.because
    assert "report it" in verdict.remedy


@pytest.mark.parametrize("name", ["strays", "leases", "transport_holders"])
def test_facts_that_lack_a_list_are_no_permission(name: str) -> None:
    """None is not an empty list: whoever needs it cannot be evaluated, and does not hold."""
    decision = decide(TrainerState.SLEEPING, TrainerEvent.OFFLOAD, replace(Facts(), **{name: None}))

    assert isinstance(decision, Refusal)
    assert all("could not be evaluated" in one.because for one in decision.failed)


def test_what_was_said_before_is_said_again_by_the_same_verdict() -> None:
    """Of what holds and of what does not, each: a guard that is asked in turns makes no new one."""
    held, failed = the_moon_is_full(Facts(step_open=True)), the_moon_is_full(Facts())

    assert the_moon_is_full.ask(Facts(step_open=True)) is held
    assert the_moon_is_full.ask(Facts()) is failed


def test_a_verdict_holds_or_does_not_whatever_truth_the_guard_answers() -> None:
    """A verdict is given again: one that was told another truth than True or False would come back."""
    told: list[Any] = [None, False, 0, 1, True, "yes"]
    answers = iter(told)
    asked = Guard(lambda _: (next(answers), "as it is", "do it"), name="asked", scope="shared")

    assert [asked(Facts()).holds for _ in told] == [False, False, False, True, True, True]


def test_an_outcome_is_made_of_all_of_its_fields() -> None:
    """Those that write their own fields name each of them, in their order."""
    for kind in (Step, Read):
        assert [*signature(kind).parameters] == [one.name for one in fields(kind)]


def test_outcomes_are_frozen_and_compared_by_what_they_hold() -> None:
    """Also those that write their fields themselves."""
    first, second = (decide(TrainerState.AWAKE, TrainerEvent.SLEEP, Facts(backup_need_bytes=n)) for n in (1, 2))

    assert isinstance(first, Step)
    assert isinstance(second, Step)
    assert (first, hash(first), repr(first)) == (second, hash(second), repr(second))
    assert first != replace(first, edge="another")
    assert first.reads[0] == replace(first.reads[0]) != replace(first.reads[0], version=9)
    for one in (first, first.reads[0], first.verdicts[0]):
        with pytest.raises(FrozenInstanceError):
            one.because = "another"  # type: ignore[union-attr, misc]


@pytest.mark.parametrize("state", TrainerState)
@pytest.mark.parametrize("event", TrainerEvent)
def test_decide_does_not_raise_on_facts_that_are_broken(state: TrainerState, event: TrainerEvent) -> None:
    """FB-59: even facts of the wrong types end in an answer that can be logged."""
    broken = cast("Any", object())
    facts = Facts(leases=(broken,), engines=(broken,), backup_need_bytes=broken, step_unknown=(broken,))

    assert isinstance(decide(state, event, facts), Step | Refusal | NoChange)


@pytest.mark.parametrize("one", EVERY_GUARD, ids=repr)
def test_every_guard_states_its_rule(one: Guard) -> None:
    """Each guard of the table has a name in words, a scope, and a sentence for the docs."""
    assert one.name == one.name.lower()
    assert one.scope in {"shared", "local"}
    assert one.rule.endswith(".")


def test_no_two_guards_share_a_name() -> None:
    """The log tells guards apart by name."""
    names = [one.name for one in EVERY_GUARD]

    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "outcome",
    [
        Step(TrainerState.AWAKE, TrainerEvent.SLEEP, "quiesces", TrainerState.SLEEPING, (), (), ()),
        Refusal(TrainerState.AWAKE, TrainerEvent.OFFLOAD, "", ()),
        NoChange(TrainerState.AWAKE, TrainerEvent.WAKE_UP, ()),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_an_outcome_has_no_truth_value(outcome: Step | Refusal | NoChange) -> None:
    """``if decide(...)`` would hide which of three things happened."""
    with pytest.raises(TypeError, match="no truth value"):
        bool(outcome)


@pytest.mark.parametrize(
    ("stray", "remedy"),
    [
        ("lora_A.weight.grad", "train inside step()"),
        ("lora_A.weight#exp_avg", "prepare_optimizer()"),
        ("lm_head.weight", "before the controller is built"),
    ],
)
def test_what_to_do_about_a_stray_is_said_of_its_kind(stray: str, remedy: str) -> None:
    """A gradient, optimizer state and a tensor that was moved come from different mistakes."""
    refusal = decide(TrainerState.SLEEPING, TrainerEvent.OFFLOAD, healthy(TrainerState.SLEEPING, strays=(stray, stray)))

    assert isinstance(refusal, Refusal)
    assert remedy in refusal.remedy
    assert "; " not in refusal.remedy  # each kind is told once


def test_a_refusal_tells_every_failed_guard_in_the_order_of_the_row() -> None:
    """All reasons at once, each with its remedy, so that the caller does not run into them one by one."""
    facts = healthy(TrainerState.SLEEPING, saver_enabled=False, host_free_bytes=1, strays=("exp_avg.0",))

    refusal = decide(TrainerState.SLEEPING, TrainerEvent.OFFLOAD, facts)

    assert isinstance(refusal, Refusal)
    assert [one.name for one in refusal.failed] == ["host-has-room", "saver-is-enabled", "nothing-strays"]
    assert refusal.edge == "offloads-to-cpu"
    assert refusal.remedy.count("; ") == 2


def test_a_refusal_in_the_wrong_state_names_the_way() -> None:
    """``offload`` while awake says from where it leaves and what to call first."""
    refusal = decide(TrainerState.AWAKE, TrainerEvent.OFFLOAD, healthy(TrainerState.AWAKE))

    assert isinstance(refusal, Refusal)
    assert refusal.failed[0].because == "offload leaves from sleeping, not from awake"
    assert refusal.remedy == "sleep() first"


@pytest.mark.parametrize("row", [row for row in TABLE if row.kind is RowKind.REFUSING], ids=lambda row: row.name)
def test_a_refusing_row_gives_its_remedy(row: Any) -> None:
    """While reconciling or faulted the caller is told what ends that."""
    refusal = decide(row.source, row.event, healthy(row.source))

    assert isinstance(refusal, Refusal)
    assert refusal.remedy == row.remedy


def test_facts_find_a_content_group_by_name() -> None:
    """A group that the trainer does not have is None, not an error."""
    facts = Facts()

    assert facts.content("frozen-base") is facts.contents[0]
    assert facts.content("adapter/nobody") is None


@pytest.mark.parametrize("name", ["offload_target", "strategy", "frozen_base"])
def test_facts_refuse_values_that_no_guard_knows(name: str) -> None:
    """A target, strategy or backing that does not exist is an error when the record is made."""
    given: dict[str, Any] = {name: "tape"}

    with pytest.raises(ValueError, match="tape"):
        Facts(**given)


def test_facts_refuse_a_backup_kind_that_does_not_exist() -> None:
    """The message names the group and the kinds there are."""
    with pytest.raises(ValueError, match="frozen-base: backup is 'tape'; use one of"):
        Facts(contents=(ContentFacts(backup="tape"),))


def test_a_guard_says_anew_what_is_another_thing() -> None:
    """The verdict of before is given where it is the same one, and not where anything of it differs."""
    full, other = Facts(step_open=True), Facts(step_open=False)

    verdicts = [the_moon_is_full(one) for one in (full, full, other, full)]

    assert [bool(one) for one in verdicts] == [True, True, False, True]
    assert [one.remedy for one in verdicts] == ["", "", "wait", ""]
    assert verdicts[0] is verdicts[1]


def test_changed_facts_are_facts_with_other_values() -> None:
    """As ``dataclasses.replace`` makes them; the facts themselves stay, and nothing that no guard knows comes in."""
    facts = Facts(paused_tags=2)

    assert facts.changed({"paused_tags": 3, "strategy": "duplicate"}) == replace(
        facts, paused_tags=3, strategy="duplicate"
    )
    assert facts == Facts(paused_tags=2)
    with pytest.raises(TypeError, match="no_such"):
        facts.changed({"no_such": 1})
    with pytest.raises(ValueError, match="nonsense"):
        facts.changed({"strategy": "nonsense"})
