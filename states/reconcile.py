"""Both moves of a reconcile, decided before the first one is taken."""

from __future__ import annotations

from states.decision import Decision, NoChange, Refusal, Step, decide
from states.facts import Facts
from states.names import TrainerEvent, TrainerState


def decide_reconcile(state: TrainerState, facts: Facts) -> tuple[Step, Step] | Refusal | NoChange:
    """Decide ``reconcile_adapters`` and the ``reconciled`` that follows it.

    Returns:
        The step into ``adapter-reconciling`` and the step out of it, on the edge that says whether a
        copy is made; or why the reconcile may not begin, or that there is nothing to do.
    """
    entering = decide(state, TrainerEvent.RECONCILE_ADAPTERS, facts)
    if not isinstance(entering, Step):
        return entering
    leaving: Decision = decide(entering.target, TrainerEvent.RECONCILED, facts.changed({"origin": state}))
    if isinstance(leaving, Step):
        return entering, leaving
    verdicts = entering.verdicts + leaving.verdicts
    return Refusal(state, TrainerEvent.RECONCILE_ADAPTERS, entering.edge, verdicts)


def as_one(entering: Step, leaving: Step) -> Step:
    """The two moves told as one: what the caller asked, the edge that carries the effects, back at the origin."""
    return Step(
        entering.state,
        entering.event,
        leaving.edge,
        leaving.target,
        leaving.effects,
        entering.verdicts + leaving.verdicts,
        leaving.reads,
    )
