"""The copy rules: when weight sync reads the saver's own backup, and when a second copy is made.

The reference rule is stated literally as the reference change states it (``_weight_sync_reads_tms_backup``
and ``_enable_weight_backup`` in miles). ``lean`` asks of the bytes instead of the kind of run: a copy is made
of what no one could read otherwise, and of nothing else. Both decide whether a *copy is made*. *Where a read
goes* is :mod:`states.sources`: it always follows from residency and versions.
"""

from __future__ import annotations

from typing import Final

from states.facts import ContentFacts, Facts
from states.names import ACTOR, Strategy
from states.verdict import Answer, guard

_LEAN: Final = Strategy.LEAN  # a member is looked up ten times slower than a name
_DUPLICATE: Final = Strategy.DUPLICATE


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
    is_read, because, _ = weight_sync_reads_saver_backup.body(facts)
    if is_read:
        return False, f"the saver's backup is read: {because}", "no copy is needed"
    reasons = (("colocate",) if facts.colocate else ()) + _other_models(facts)
    if not reasons:
        return False, "not colocated and no ref, teacher or old actor is kept", "the live weights are read"
    return True, f"the saver's backup is not read ({because}), and {', '.join(reasons)} needs a copy", ""


def hidden_groups(facts: Facts) -> tuple[str, ...]:
    """The groups whose bytes nobody could read once the trainer is offloaded.

    Their region's backup cannot be read while it is paused, and no file holds them.
    """
    if facts.offload_target is None:
        return ()
    return tuple(
        [one.group for one in facts.contents if one.backup in {"none", "disk"} and not one.restored_from_file()]
    )


@guard()
def reads_saver_backup(facts: Facts) -> Answer:
    """Weight sync reads the saver's own backup while the trainer is offloaded.

    ``lean``: whenever the offload target is cpu and the actor is in live memory. The others: if the reference
    rule holds.
    """
    if facts.strategy != _LEAN:
        return weight_sync_reads_saver_backup.body(facts)
    against = []
    if facts.offload_target != "cpu":
        against.append(f"the offload target is {facts.offload_target}, not cpu")
    if facts.active_model != ACTOR:
        against.append(f'the active model is "{facts.active_model}"')
    if against:
        return False, "; ".join(against), "weight sync reads the base file, a copy or the live weights instead"
    return True, "strategy lean: the offload target is cpu and the actor is in live memory", ""


@guard()
def makes_actor_copy(facts: Facts) -> Answer:
    """``duplicate``: always. ``reference``: if weight backup is enabled. ``lean``: if a pause would hide bytes."""
    if facts.strategy == _DUPLICATE:
        return True, 'strategy duplicate always keeps a full "actor" copy', ""
    if facts.strategy == _LEAN:
        hidden = hidden_groups(facts)
        if hidden:
            return True, f"a pause would hide the bytes of: {', '.join(hidden)}", ""
        return False, "strategy lean: whatever a pause gives back can be read elsewhere", "no copy is needed"
    return enable_weight_backup.body(facts)


@guard()
def makes_no_actor_copy(facts: Facts) -> Answer:
    """Neither the strategy nor the rule asks for a second copy of the actor."""
    is_made, because, _ = makes_actor_copy.body(facts)
    return not is_made, because, 'an "actor" copy is made on the edge beside this one'


@guard()
def reads_no_saver_backup(facts: Facts) -> Answer:
    """Weight sync does not read the saver's own backup."""
    is_read, because, _ = reads_saver_backup.body(facts)
    return not is_read, because, "the saver's backup is read on the edge beside this one"


def groups_to_copy(facts: Facts) -> tuple[str, ...]:
    """The groups whose newest version the trainer's memory holds and the ``actor`` copy that is called for lacks.

    A group whose memory holds other bytes is left out: copied, they would replace the actor's under its own name.
    """
    if facts.active_model != ACTOR or not makes_actor_copy.body(facts)[0]:
        return ()
    wanted = hidden_groups(facts) if facts.strategy == _LEAN else tuple(one.group for one in facts.contents)
    behind = (one for one in facts.contents if one.is_in_own_memory() and ACTOR not in one.fresh_copies())
    return tuple(one.group for one in behind if one.group in wanted)


@guard()
def an_actor_copy_is_due(facts: Facts) -> Answer:
    """A second copy is called for, the actor is live, and the copy lacks a version that live memory holds."""
    groups = groups_to_copy(facts)
    because = f'the "actor" copy lacks the newest version of: {", ".join(groups) or "nothing"}'
    return bool(groups), because, "the edge beside this one makes no copy"


@guard()
def no_actor_copy_is_due(facts: Facts) -> Answer:
    """No second copy is called for, or it is fresh, or another model is live."""
    is_due, because, _ = an_actor_copy_is_due.body(facts)
    return not is_due, because, "the edge beside this one makes the copy"


def groups_to_keep(facts: Facts) -> tuple[str, ...]:
    """The groups of the outgoing model that a switch to the target would overwrite and nothing else holds."""
    return tuple(
        one.group
        for one in facts.contents
        if one.live not in (None, one.version_of(facts.switch_target)) and one.live not in one.kept_versions()
    )


def keeper_of(content: ContentFacts, model: str) -> str:
    """The tag under which live bytes are kept at a switch: the actor's for its newest, else that of the live model."""
    return ACTOR if content.live == content.version else model


@guard()
def the_outgoing_model_is_kept_now(facts: Facts) -> Answer:
    """Strategy ``lean``, and the switch would overwrite the only bytes of the outgoing model: they are copied first."""
    groups = groups_to_keep(facts)
    if facts.strategy != _LEAN:
        return False, f"strategy {facts.strategy} copies nothing at a switch", "the edge beside this one copies nothing"
    model = facts.active_model
    # Kept under the tag of a model that no longer consists of them, they would replace the bytes that it does.
    kept = [one for one in facts.contents if one.group in groups]
    foreign = [one.group for one in kept if one.live != one.version_of(keeper_of(one, model))]
    if foreign:
        return False, f'no longer bytes of "{model}": {", ".join(foreign)}', "the edge beside this one copies nothing"
    because = f"the switch would overwrite the only bytes of: {', '.join(groups) or 'nothing'}"
    return bool(groups), because, "the edge beside this one copies nothing"


@guard()
def nothing_is_kept_at_the_switch(facts: Facts) -> Answer:
    """The strategy copies nothing at a switch, or what the switch overwrites is kept already."""
    is_kept, because, _ = the_outgoing_model_is_kept_now.body(facts)
    return not is_kept, because, "the edge beside this one copies what is overwritten"
