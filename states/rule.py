"""The reference rule: when weight sync reads the saver's own backup, and when a second copy is made.

Both are stated literally as the reference change states them (``_weight_sync_reads_tms_backup`` and
``_enable_weight_backup`` in miles). They decide whether a *copy is made*. *Where a read goes* is
:mod:`states.sources`: it always follows from residency and versions.
"""

from __future__ import annotations

from states.facts import Facts
from states.names import ACTOR, Strategy
from states.verdict import Answer, Verdict, guard


def _other_models(facts: Facts) -> tuple[str, ...]:
    kept = (("ref", facts.with_ref), ("teacher", facts.with_teacher), ("old_actor", facts.keep_old_actor))
    return tuple(name for name, is_kept in kept if is_kept)


def _against_reading(facts: Facts) -> tuple[str, ...]:
    others = _other_models(facts)
    conditions = (
        (facts.colocate, "the run is not colocated"),
        (facts.lora, "the base is trained (no LoRA)"),
        (facts.offload_target == "cpu", f"the offload target is {facts.offload_target}, not cpu"),
        (not others, f"other models are kept: {', '.join(others)}"),
    )
    return tuple(reason for holds, reason in conditions if not holds)


@guard()
def weight_sync_reads_saver_backup(facts: Facts) -> Answer:
    """Colocated, LoRA, offload target cpu, and no other model kept: the saver's backup is the copy to read."""
    against = _against_reading(facts)
    if not against:
        return True, "colocate, LoRA, offload target cpu, and no ref, teacher or old actor is kept", ""
    return (
        False,
        "; ".join(against),
        'weight sync reads the "actor" copy or the live weights instead',
    )


@guard()
def enable_weight_backup(facts: Facts) -> Answer:
    """The rule above does not hold, and the run is colocated or keeps a ref, teacher or old actor."""
    reading = weight_sync_reads_saver_backup(facts)
    if reading:
        return False, f"the saver's backup is read: {reading.because}", "no copy is needed"
    reasons = (("colocate",) if facts.colocate else ()) + _other_models(facts)
    if not reasons:
        return False, "not colocated and no ref, teacher or old actor is kept", "the live weights are read"
    return True, f"the saver's backup is not read ({reading.because}), and {', '.join(reasons)} needs a copy", ""


@guard()
def makes_actor_copy(facts: Facts) -> Answer:
    """The strategy is ``duplicate``, or ``reference`` and weight backup is enabled."""
    if facts.strategy == Strategy.DUPLICATE:
        return True, 'strategy duplicate always keeps a full "actor" copy', ""
    verdict: Verdict = enable_weight_backup(facts)
    return verdict.holds, verdict.because, verdict.remedy


@guard()
def makes_no_actor_copy(facts: Facts) -> Answer:
    """Neither the strategy nor the rule asks for a second copy of the actor."""
    verdict = makes_actor_copy(facts)
    return not verdict.holds, verdict.because, 'an "actor" copy is made on the edge beside this one'


@guard()
def reads_no_saver_backup(facts: Facts) -> Answer:
    """The reference rule does not hold."""
    verdict = weight_sync_reads_saver_backup(facts)
    return not verdict.holds, verdict.because, "the saver's backup is read on the edge beside this one"


def groups_to_copy(facts: Facts) -> tuple[str, ...]:
    """The groups whose newest version is live and is missing in the ``actor`` copy that is called for."""
    if facts.active_model != ACTOR or not makes_actor_copy(facts):
        return ()
    behind = (one for one in facts.contents if one.live == one.version != one.copy_version(ACTOR))
    return tuple(one.group for one in behind)


@guard()
def an_actor_copy_is_due(facts: Facts) -> Answer:
    """A second copy is called for, the actor is live, and the copy lacks a version that live memory holds."""
    groups = groups_to_copy(facts)
    because = f'the "actor" copy lacks the newest version of: {", ".join(groups) or "nothing"}'
    return bool(groups), because, "the edge beside this one makes no copy"


@guard()
def no_actor_copy_is_due(facts: Facts) -> Answer:
    """No second copy is called for, or it is fresh, or another model is live."""
    verdict = an_actor_copy_is_due(facts)
    return not verdict.holds, verdict.because, "the edge beside this one makes the copy"
