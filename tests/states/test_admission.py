"""Whether ranks may admit a new process, and what of it must be like theirs."""

from __future__ import annotations

from typing import Any

import pytest

from states import RESTING, ContentFacts, Facts, Refusal, TrainerState
from states.admission import GUARDS, decide_admission, in_words, unlike

AWAKE = TrainerState.AWAKE


def failed(refusal: Refusal | None) -> list[str]:
    """Names of the guards that fail."""
    return [] if refusal is None else [one.name for one in refusal.failed]


@pytest.mark.parametrize("state", TrainerState)
def test_ranks_admit_in_every_resting_state_and_in_no_other(state: TrainerState) -> None:
    """What is under way must end first."""
    found = failed(decide_admission(state, Facts()))

    assert found == ([] if state in RESTING else ["the-trainer-is-at-rest"])


@pytest.mark.parametrize(
    ("facts", "guard"),
    [
        ({"step_open": True}, "no-step-in-flight"),
        ({"reference_open": True}, "no-reference-block-is-open"),
        ({"active_model": "ref", "models": ("ref",)}, "active-model-is-the-actor"),
        ({"accumulated": ("adapter/A",)}, "no-gradient-is-accumulated"),
        ({"contents": (ContentFacts(saver=1, retained=True),)}, "no-backup-is-retained"),
    ],
)
def test_each_guard_refuses_alone(facts: dict[str, Any], guard: str) -> None:
    """With what it has seen, and what to do."""
    refusal = decide_admission(AWAKE, Facts(**facts))

    assert failed(refusal) == [guard]
    assert refusal is not None
    assert all(one.because and one.remedy for one in refusal.failed)
    assert guard in [one.name for one in GUARDS]


def test_gradients_cannot_be_left_while_a_rank_is_missing() -> None:
    """No step opens then, so the remedy is a checkpoint."""
    refusal = decide_admission(AWAKE, Facts(accumulated=("adapter/A",)))

    assert refusal is not None
    assert "resume all ranks from checkpoints" in refusal.remedy


def test_what_is_split_over_ranks_died_with_the_rank() -> None:
    """The remedy is a checkpoint."""
    refusal = decide_admission(AWAKE, Facts(), split=True)

    assert failed(refusal) == ["each-rank-holds-the-same"]
    assert refusal is not None
    assert "resume" in refusal.remedy


def test_what_cannot_be_read_is_named() -> None:
    """A few of many, and how many more."""
    refusal = decide_admission(
        TrainerState.OFFLOADED_DISK, Facts(), unreadable=tuple(f"p{one} is away" for one in range(5))
    )

    assert failed(refusal) == ["what-is-handed-over-can-be-read"]
    assert refusal is not None
    assert "p0 is away; p1 is away; p2 is away and 2 more" in refusal.failed[0].because


def test_differences_are_named_with_both_values() -> None:
    """Also what is on one side only; equal values are none."""
    found = unlike({"a": 1, "b": 2, "d": 5}, {"a": 1, "b": 3, "c": 4})

    assert found == ("b is 2 here and 3 there", "c is (nothing) here and 4 there", "d is 5 here and (nothing) there")
    assert unlike({"a": 1}, {"a": 1}) == ()


def test_of_many_differences_the_first_few_are_told() -> None:
    """And how many more there are."""
    assert in_words(("a", "b")) == "a; b"
    assert in_words(tuple("abcde")) == "a; b; c; and 2 more"
