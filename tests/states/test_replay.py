"""A decision made again, and in what a record differs from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from states import ContentFacts, Facts, LeaseFacts, NoChange, Refusal, Step, TrainerEvent, TrainerState, Verdict
from states.decision import Decision
from states.replay import EDGES, Told, decide_again, difference

AWAKE, SLEEPING = TrainerState.AWAKE, TrainerState.SLEEPING
LEASED = Facts(leases=(LeaseFacts("eval", "live", ("frozen-base",)),))


def told_of(decision: Decision, rank: int = 0) -> Told:
    """What a record says of this decision."""
    kinds = {Step: "began", Refusal: "refused", NoChange: "unchanged"}
    edge = "already" if isinstance(decision, NoChange) else decision.edge
    target = decision.target if isinstance(decision, Step) else decision.state
    reads = {"live": len(decision.reads)} if isinstance(decision, Step) else None
    return Told(kinds[type(decision)], edge, target, decision.verdicts, reads, rank)


STEP = decide_again(AWAKE, TrainerEvent.SLEEP, Facts())
REFUSAL = decide_again(SLEEPING, TrainerEvent.OFFLOAD, LEASED)
NO_CHANGE = decide_again(AWAKE, TrainerEvent.WAKE_UP, Facts())


@pytest.mark.parametrize("decision", [STEP, REFUSAL, NO_CHANGE], ids=["step", "refusal", "no-op"])
def test_what_was_decided_differs_in_nothing(decision: Decision) -> None:
    """Whatever it came to."""
    assert difference(decision, told_of(decision)) == ""


def test_both_moves_of_a_reconcile_are_one() -> None:
    """From where it began and back, on the edge that says whether a copy is made."""
    decision = decide_again(AWAKE, TrainerEvent.RECONCILE_ADAPTERS, Facts(to_load=("a",)))

    assert isinstance(decision, Step)
    assert (decision.state, decision.event, decision.edge, decision.target) in EDGES
    assert isinstance(decide_again(AWAKE, TrainerEvent.RECONCILE_ADAPTERS, Facts()), NoChange)


def test_no_edge_that_records_tell_begins_or_ends_in_the_middle_of_a_reconcile() -> None:
    """And none of them is the entering alone."""
    assert {state for source, _, _, target in EDGES for state in (source, target)} == set(TrainerState) - {
        TrainerState.ADAPTER_RECONCILING
    } | {TrainerState.FAULTED}
    assert "enters" not in {edge for _, _, edge, _ in EDGES}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"kind": "refused"}, "the facts give began (quiesces), the record says refused"),
        ({"edge": "wakes"}, "the edge quiesces, the record says wakes"),
        ({"target": "awake"}, "the target sleeping, the record says awake"),
        ({"reads": None}, "the record says none"),
        ({"verdicts": ()}, "the facts ask no-actor-copy-is-due"),
    ],
)
def test_each_part_that_differs_is_said(changes: dict[str, object], what: str) -> None:
    """What the facts give, and what the record says."""
    assert what in difference(STEP, replace(told_of(STEP), **changes))  # type: ignore[arg-type]


def test_a_verdict_that_differs_is_said() -> None:
    """Whether it holds, why, and the remedy of one that does not; why one holds is not on every record."""
    told = told_of(REFUSAL)
    last = told.verdicts[-1]
    failed = next(at for at, one in enumerate(told.verdicts) if not one.holds)

    def with_verdict(at: int, **said: object) -> Told:
        verdicts = list(REFUSAL.verdicts)
        verdicts[at] = replace(verdicts[at], **said)  # type: ignore[arg-type]
        return replace(told, verdicts=verdicts)

    assert last.holds
    assert difference(REFUSAL, with_verdict(-1, because="")) == ""
    assert f"{last.name} holds by the facts, the record says that it does not hold" in difference(
        REFUSAL, with_verdict(-1, holds=False)
    )
    assert "does not hold because" in difference(REFUSAL, with_verdict(failed, because="somebody"))
    assert "does not hold because" in difference(REFUSAL, with_verdict(failed, remedy=""))


def test_other_names_are_said_before_what_they_say() -> None:
    """Whoever was asked something else has another answer anyway; that there are more or fewer counts as well."""
    told = told_of(REFUSAL)
    first, *rest = REFUSAL.verdicts
    turned = replace(first, holds=not first.holds)

    for verdicts in ((turned, *rest[:-1], replace(rest[-1], name="another")), (turned, *rest[:-1])):
        assert difference(REFUSAL, replace(told, verdicts=verdicts)).startswith(f"the facts ask {first.name}, ")
    assert difference(REFUSAL, replace(told, verdicts=(turned, *rest))).startswith(f"{first.name} holds by the facts")


def test_reads_that_differ_are_told_by_source() -> None:
    """As a record tells them."""
    wrong = difference(STEP, replace(told_of(STEP), reads={"none": 1}))

    assert wrong == "the facts give the reads {'live': 1}, the record says {'none': 1}"


def joined(*verdicts: tuple[str, str], rank: int = 0) -> Told:
    """A refusal of several ranks, as each of them records it."""
    return Told(
        "refused",
        "offloads-to-cpu",
        SLEEPING,
        tuple(Verdict(n, holds=False, because=b) for n, b in verdicts),
        None,
        rank,
    )


def said_by(decision: Decision, name: str) -> str:
    """Why this rank says that it does not hold."""
    return next(one.because for one in decision.verdicts if one.name == name)


LIVE = "no-lease-over-live-weights"


def test_a_refusal_of_another_rank_is_believed() -> None:
    """This rank would go on, and its own facts say nothing of the other's leases."""
    going = decide_again(SLEEPING, TrainerEvent.OFFLOAD, Facts())

    assert difference(going, joined((LIVE, "rank 1: 1 lease(s) still read live weights: eval"))) == ""


def test_what_this_rank_is_said_to_have_said_must_follow_from_its_facts() -> None:
    """Under its own number, among those of others."""
    said = said_by(REFUSAL, LIVE)
    going = decide_again(SLEEPING, TrainerEvent.OFFLOAD, Facts())

    assert difference(REFUSAL, joined((LIVE, f"rank 0: {said}; rank 1: another"))) == ""
    assert difference(REFUSAL, joined((LIVE, f"rank 0: {said}; 5 more rank(s) refuse"))) == ""
    assert "the record says 'another'" in difference(REFUSAL, joined((LIVE, f"rank 0: another; rank 1: {said}")))
    assert "holds by the facts of this rank" in difference(going, joined((LIVE, "rank 0: eval reads")))


def test_what_is_equal_on_every_rank_must_follow_from_the_facts_of_each() -> None:
    """A shared guard has no number."""
    lost = Facts(contents=(ContentFacts(live=None),))
    wakes = decide_again(
        SLEEPING, TrainerEvent.WAKE_UP, replace(lost, contents=(ContentFacts(live=None, backup="none"),))
    )
    name = "lost-bytes-can-be-restored"
    said = said_by(wakes, name)

    assert difference(wakes, joined((name, f"{said}; 2 more rank(s) refuse"))) == ""
    assert "the record says 'else'" in difference(wakes, joined((name, "else; 2 more rank(s) refuse")))
