"""Guards about the trainer itself: steps, models, leases and the plan.

A guard is a sentence about the facts. What it says when it fails is read by somebody whose training
run has just stopped, so it names the holder, the tensor or the number, and the next step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from states.facts import Facts, LeaseFacts
from states.names import ACTOR, BUFFERS, RESTING, TRAINABLE_BASE, Source, TrainerState, adapter_group
from states.rule import groups_to_keep
from states.verdict import Answer, Guard, guard

_LIVE: Final = Source.LIVE  # a member is looked up ten times slower than a name
_SAVER_BACKUP: Final = Source.SAVER_BACKUP
_REPLACED: Final = (Source.LIVE, Source.BASE_FILE)


def _held(leases: Sequence[LeaseFacts], what: str) -> Answer:
    if not leases:
        return True, f"no lease is open over {what}", ""
    holders = "; ".join(lease.describe() for lease in leases)
    return (
        False,
        f"{len(leases)} lease(s) still read {what}: {holders}",
        "exhaust or close the lease, drop tensors that outlived it, or materialise() it first",
    )


def _changed_groups(facts: Facts) -> set[str]:
    return {*facts.touched, BUFFERS, TRAINABLE_BASE}


@guard()
def no_step_in_flight(facts: Facts) -> Answer:
    """No training step is open."""
    if facts.step_open:
        return False, "step open: True", "leave the step() block first"
    return True, "step open: False", ""


@guard()
def a_step_is_open(facts: Facts) -> Answer:
    """A training step was opened."""
    if facts.step_open:
        return True, "step open: True", ""
    return False, "step open: False", "open one with step(adapters) around the work"


@guard()
def the_commit_names_the_open_step(facts: Facts) -> Answer:
    """What is committed is what the open step was opened for: bytes that changed must not keep their version."""
    named = ", ".join(facts.step_differs)
    because = f"only in the open step or only in the commit: {named}" if named else "the commit is the open step's"
    return not facts.step_differs, because, "commit the adapters that the step was opened with, or none to mean them"


@guard()
def step_adapters_are_loaded(facts: Facts) -> Answer:
    """Every adapter that the step names is loaded."""
    if facts.step_unknown:
        return (
            False,
            f"not loaded: {', '.join(facts.step_unknown)}",
            "register the adapter and call reconcile_adapters() first",
        )
    return True, "all adapters of the step are loaded", ""


@guard()
def step_adapters_are_trainable(facts: Facts) -> Answer:
    """No adapter that the step names is frozen: one that was registered to be served is never trained."""
    if facts.step_frozen:
        remedy = "leave it out of the step, or register it anew as trainable"
        return False, f"frozen: {', '.join(facts.step_frozen)}", remedy
    return True, "no adapter of the step is frozen", ""


@guard()
def no_reference_block_is_open(facts: Facts) -> Answer:
    """No reference() block is open: its forward passes need the device and the process groups."""
    return not facts.reference_open, f"reference() open: {facts.reference_open}", "leave the reference() block first"


@guard(scope="local")
def accumulated_gradients_can_be_kept(facts: Facts) -> Answer:
    """Gradients of an accumulation that is under way survive the pause of their region."""
    if not facts.accumulated:
        return True, "no gradients are accumulated", ""
    return (
        facts.gradients_kept,
        f"gradients are accumulated for {', '.join(facts.accumulated)}",
        "finish the accumulation with an optimizer step, or place the gradients where they can be copied to the host",
    )


@guard()
def active_model_is_the_actor(facts: Facts) -> Answer:
    """The model in live memory is the actor."""
    if facts.active_model == ACTOR:
        return True, 'the active model is "actor"', ""
    return False, f'the active model is "{facts.active_model}"', 'switch_model("actor") first'


@guard()
def live_weights_are_the_newest(facts: Facts) -> Answer:
    """The device holds the newest bytes of every content group: nothing is paused, lost or of another model."""
    behind = [one.group for one in facts.contents if one.live != one.version]
    if not behind:
        return True, "every content group is live", ""
    return (
        False,
        f"not live in the newest version: {', '.join(behind)}",
        'switch_model("actor") restores what is missing from the "actor" copy',
    )


@guard(scope="local")
def no_lease_over_live_weights(facts: Facts) -> Answer:
    """No lease is open on memory that a pause gives back."""
    return _held([one for one in facts.leases if one.source == _LIVE], "live weights")


@guard(scope="local")
def no_lease_over_the_saver_backup(facts: Facts) -> Answer:
    """No lease is open on host memory that a resume frees and a pause overwrites."""
    return _held([one for one in facts.leases if one.source == _SAVER_BACKUP], "the saver's backup")


@guard(scope="local")
def no_lease_over_what_reconcile_writes(facts: Facts) -> Answer:
    """No lease is open over an adapter that is loaded, replaced or retired."""
    if len(facts.leases) == 0:  # not by its truth: None has no length, and a defect is no permission
        return _held((), "adapters that change")
    changed = {adapter_group(name) for name in (*facts.to_load, *facts.to_retire)}
    return _held([one for one in facts.leases if not changed.isdisjoint(one.groups)], "adapters that change")


@guard(scope="local")
def no_lease_over_what_the_step_changes(facts: Facts) -> Answer:
    """No lease is open over bytes that a training step changes, nor over the file of a base that it replaces."""
    if len(facts.leases) == 0:
        return _held((), "weights that the step changes")
    changed = _changed_groups(facts)
    leases = [one for one in facts.leases if one.source in _REPLACED and not changed.isdisjoint(one.groups)]
    return _held(leases, "weights that the step changes")


@guard(scope="local")
def no_lease_open(facts: Facts) -> Answer:
    """No lease is open at all."""
    return _held(facts.leases, "weights")


def _changes(facts: Facts) -> str:
    return f"load {list(facts.to_load)}, retire {list(facts.to_retire)}"


@guard()
def something_to_reconcile(facts: Facts) -> Answer:
    """An adapter is to be loaded, replaced or retired."""
    return bool(facts.to_load or facts.to_retire), _changes(facts), "nothing is to be done"


@guard()
def nothing_to_reconcile(facts: Facts) -> Answer:
    """The loaded adapters are the registered ones."""
    return not (facts.to_load or facts.to_retire), _changes(facts), "reconcile_adapters()"


@guard()
def registry_knows_what_is_loaded(facts: Facts) -> Answer:
    """Every loaded adapter is one that the registry has known: a registry that was lost retires nobody."""
    if not facts.unaccounted:
        return True, "the registry knows every loaded adapter", ""
    names = ", ".join(facts.unaccounted[:3])
    return (
        False,
        f"{len(facts.unaccounted)} loaded adapter(s) are unknown to the registry, which may have been lost: {names}",
        "load the saved registry, or call declare_complete() on this one if these adapters are to be retired",
    )


@guard()
def an_adapter_in_use_has_a_successor(facts: Facts) -> Answer:
    """Whoever is retired while it is in use has a named successor that stays, or was given none on purpose."""
    if not facts.unsucceeded:
        return True, "no adapter that is retired is in use without a successor", ""
    return (
        False,
        f"to be retired while in use: {', '.join(facts.unsucceeded)}",
        "leave its use() block first, or name who takes over: use(name, successor=...)",
    )


@guard(scope="local")
def adapter_bytes_can_be_written(facts: Facts) -> Answer:
    """The slots are on the device, or paused with a host backup that resume brings back."""
    if not facts.unwritable:
        return True, "every slot tensor is on the device or has a host backup", ""
    names = ", ".join(facts.unwritable[:3])
    return False, f"no writable bytes for {names}", "wake_up() first, or place the adapters with a cpu backup"


@guard(scope="local")
def slot_state_is_known(facts: Facts) -> Answer:
    """Everything that belongs to a slot that changes hands can be handed over: its first value is known."""
    if not facts.unknown_slot_state:
        return True, "what belongs to the slots can be handed over", ""
    return (
        False,
        f"nobody knows how to hand over: {'; '.join(facts.unknown_slot_state[:3])}",
        "declare main copies and schedulers, use an optimizer whose state starts from zero, or build a new trainer",
    )


@guard()
def switch_target_exists(facts: Facts) -> Answer:
    """A copy of the model to switch to is kept, or it is the actor, which is known by its versions."""
    kept = ", ".join(facts.models) or "none"
    return (
        facts.switch_target == ACTOR or facts.switch_target in facts.models,
        f'"{facts.switch_target}" is wanted, kept are: {kept}',
        f'keep_model("{facts.switch_target}", tensors) first, or switch to one that is kept',
    )


@guard()
def switches_to_another_model(facts: Facts) -> Answer:
    """The target is not the active model, or live memory does not hold the newest bytes of all its groups."""
    return (
        not _is_switched(facts),
        f'active is "{facts.active_model}", wanted is "{facts.switch_target}"',
        "nothing is to be done",
    )


@guard()
def is_switched_already(facts: Facts) -> Answer:
    """The target is the active model and live memory holds the newest bytes of all its groups."""
    return (
        _is_switched(facts),
        f'active is "{facts.active_model}", wanted is "{facts.switch_target}"',
        "switch_model() restores what is missing",
    )


def _is_switched(facts: Facts) -> bool:
    """By version, not by name: a model whose copy was renewed is not the one in live memory."""
    if facts.switch_target != facts.active_model:
        return False
    return all(one.live == one.version_of(facts.switch_target) for one in facts.contents)


@guard()
def switch_target_is_complete(facts: Facts) -> Answer:
    """Every group of the target is live in its version, or some copy or the base file holds it."""
    model = facts.switch_target
    wrong = [
        one.group
        for one in facts.contents
        if one.version_of(model) != one.live and one.version_of(model) not in one.kept_versions()
    ]
    because = (
        f'nothing holds the bytes that "{model}" has of: {", ".join(wrong)}' if wrong else "the target is complete"
    )
    return not wrong, because, f'copy a fresh snapshot onto "{model}", or load these bytes again'


@guard()
def outgoing_model_is_kept(facts: Facts) -> Answer:
    """Each group of the outgoing model is fresh in a copy of its own, or the incoming model shares it."""
    lost = groups_to_keep(facts)
    return (
        not lost,
        f"would be overwritten without a copy: {', '.join(lost)}" if lost else "what is replaced has a copy",
        "snapshots.backup() these bytes first, under a tag that keeps nothing else",
    )


def _origin_guard(state: TrainerState) -> Guard:
    def body(facts: Facts) -> Answer:
        return facts.origin is state, f"the reconcile left from {facts.origin}", "the reconcile returns there"

    body.__doc__ = f"The reconcile left from {state}."
    return Guard(body, name=f"origin-is-{state}", scope="shared")


ORIGIN_IS: Final = tuple(_origin_guard(state) for state in RESTING)
