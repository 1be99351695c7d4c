"""What somebody on call is told to look at, and what not."""

from __future__ import annotations

from pathlib import Path

import pytest

from lifecycle.report.model import Outcome
from lifecycle.watch.attention import LATE_S, Concern, Level, is_well, notices
from lifecycle.watch.picture import EngineSeen, Picture, Refused, Serving, Unseen
from states import TrainerState
from tests.watch.live import Live
from tests.watch.pictures import NOW_S, picture, rank, refused, transition


def concerns(seen: Picture, max_age_s: float | None = None) -> list[Concern]:
    """What there is to look at."""
    return [one.concern for one in notices(seen, max_age_s)]


def test_where_all_is_well_there_is_nothing_to_look_at() -> None:
    """An engine that is behind is nothing: it is behind after every step."""
    assert concerns(picture(rank(0), rank(1))) == []


def test_a_faulted_rank_comes_first_and_says_why_and_what_to_do() -> None:
    """Before everything else, and it is an error."""
    failed = transition(outcome=Outcome.FAILED, target=TrainerState.FAULTED, problem="pause-weights: OSError: full")
    bad = rank(1, state=TrainerState.FAULTED, last=failed, unreadable=3)

    first, *others = notices(picture(rank(0), bad))

    assert (first.concern, first.level, first.who) == (Concern.FAULTED, Level.ERROR, "rank 1")
    assert first.says == "every event is refused until recover(): offload: pause-weights: OSError: full"
    assert Concern.TORN in [one.concern for one in others]


def test_the_fault_of_a_real_trainer_is_seen(tmp_path: Path) -> None:
    """And gone when it has recovered."""
    with Live(tmp_path / "audit.jsonl") as live:
        live.fault()
        faulted = notices(live.picture())
        for name in ("synchronize-device", "pause-weights"):
            del live.world.trainer._runner.effects[name]
        live.world.trainer._runner.effects |= _effects()
        live.world.trainer.recover()
        mended = concerns(live.picture())

    assert [one.concern for one in faulted] == [Concern.FAULTED]
    assert "ZeroDivisionError" in faulted[0].says
    assert mended == []


def _effects() -> dict[str, object]:
    from tests.lifecycle.world import make_world  # noqa: PLC0415 - what a trainer begins with

    return dict(make_world().trainer._runner.effects)


def test_a_failed_transition_is_an_error_until_another_has_moved() -> None:
    """With its effect and its error."""
    failed = transition(outcome=Outcome.FAILED, target=TrainerState.SLEEPING, problem="pause: OSError: full")

    (found,) = notices(picture(rank(last=failed)))

    assert (found.concern, found.level) == (Concern.FAILED, Level.ERROR)
    assert found.says == "offload failed and was undone, the state is sleeping: pause: OSError: full"
    assert concerns(picture(rank(last=transition(), recent=(failed, transition())))) == []


def test_ranks_that_have_done_the_same_and_are_in_other_states_are_apart() -> None:
    """While one of them is in a transition they may be."""
    apart = picture(rank(0), rank(1, state=TrainerState.AWAKE), rank(2))
    running = picture(rank(0), rank(1, state=TrainerState.AWAKE, running=transition(began_s=NOW_S - 1)))

    (found,) = notices(apart)
    faulted = picture(rank(0), rank(1, state=TrainerState.FAULTED))

    assert concerns(faulted) == [Concern.FAULTED]
    assert (found.concern, found.level) == (Concern.APART, Level.ERROR)
    assert found.says.endswith("in different states: ranks 0,2 offloaded-cpu, rank 1 awake")
    assert concerns(running) == []


def test_models_are_not_compared_with_each_other() -> None:
    """A critic sleeps while the actor trains."""
    other = rank(0).whose
    critic = rank(1, state=TrainerState.AWAKE, number=99, whose=type(other)(1, "grpo-7", 0, "critic", "c.jsonl"))

    assert concerns(picture(rank(0), critic)) == []


@pytest.mark.parametrize(("ahead_s", "expected"), [(LATE_S - 1, []), (LATE_S + 1, [Concern.LATE])])
def test_a_rank_that_is_behind_for_long_is_late(ahead_s: float, expected: list[Concern]) -> None:
    """Not for the moment in which others are a little faster."""
    ahead = rank(0, number=8, running=transition(began_s=NOW_S - ahead_s, number=8))

    found = notices(picture(ahead, rank(1), rank(2)))

    assert [one.concern for one in found] == expected
    assert [one.who for one in found] == ["ranks 1-2"] * len(expected)
    assert all(one.says == "2 transitions behind rank 0, at 8" for one in found)


@pytest.mark.parametrize(
    ("runs_s", "usual_s", "expected"),
    [(9, 1.0, []), (11, 1.0, [Concern.SLOW]), (11, 4.0, []), (11, None, [Concern.SLOW])],
)
def test_a_transition_that_runs_far_longer_than_any_before_is_slow(
    runs_s: float, usual_s: float | None, expected: list[Concern]
) -> None:
    """Three times as long, and ten seconds at least."""
    assert concerns(picture(rank(running=transition(began_s=NOW_S - runs_s), usual_s=usual_s))) == expected


@pytest.mark.parametrize(("age_s", "longest_s", "expected"), [(59, 1, []), (61, 1, [Concern.SILENT]), (300, 200, [])])
def test_a_log_in_which_nothing_is_written_for_longer_than_ever_is_silent(
    age_s: float, longest_s: float, expected: list[Concern]
) -> None:
    """Generation may take minutes without a record: what was so before is nothing."""
    assert concerns(picture(rank(seen_s=NOW_S - age_s, longest_silence_s=longest_s))) == expected


def test_who_asks_for_an_age_gets_an_error_beyond_it() -> None:
    """Only then."""
    seen = picture(rank(seen_s=NOW_S - 50))

    assert concerns(seen) == []
    assert concerns(seen, 60) == []
    assert concerns(seen, 40) == [Concern.OLD]
    assert not is_well(notices(seen, 40))


def test_a_refusal_says_which_guard_why_and_what_to_do_until_it_is_settled() -> None:
    """And how often."""
    (found,) = notices(picture(rank(refused=(Refused(refused(), 3, is_settled=False),))))

    assert (found.concern, found.level) == (Concern.REFUSED, Level.WARNING)
    assert found.says == (
        "offload in sleeping (3 times): no-lease-over-live-weights: reader holds a lease; to do: close it first"
    )
    assert concerns(picture(rank(refused=(Refused(refused(), 3, is_settled=True),)))) == []


def test_an_engine_in_doubt_must_not_serve() -> None:
    """With the reason."""
    engine = EngineSeen("E1", Serving.IN_DOUBT, None, 3, "told to fail", NOW_S)

    (found,) = notices(picture(rank(engines=(engine,))))

    assert (found.concern, found.says) == (
        Concern.DOUBT,
        "E1 must not serve, nobody knows what it holds: told to fail",
    )


def test_what_ranks_have_in_common_is_said_once() -> None:
    """With their numbers."""
    same = Refused(refused(), 1, is_settled=False)

    (found,) = notices(picture(*(rank(number, refused=(same,)) for number in range(64))))

    assert found.who == "ranks 0-63"


def test_logs_that_are_not_there_or_damaged_are_told() -> None:
    """Warnings: a run is as well as its ranks are."""
    seen = picture(rank(unreadable=2, unfinished_bytes=7), unseen=(Unseen("b.jsonl", "waiting"),), gone=("c.jsonl",))

    assert concerns(seen) == [Concern.TORN, Concern.TORN, Concern.GONE, Concern.WAITING]
    assert is_well(notices(seen))
