"""Host copies that an event would make: how many bytes, and the room there is for them."""

from __future__ import annotations

from dataclasses import replace

from lifecycle.memory import host
from lifecycle.transition.parts import Parts
from states import (
    ACTOR,
    FROZEN_BASE,
    Facts,
    Strategy,
    TrainerEvent,
    groups_to_copy,
    groups_to_keep,
    makes_actor_copy,
)
from states.rule import hidden_groups, the_outgoing_model_is_kept_now


def with_copy_need(parts: Parts, facts: Facts, event: TrainerEvent | None, *, loads: bool) -> Facts:
    """The facts, with what the event would copy on the host and the room there is for it.

    Args:
        parts: the trainer.
        facts: of this moment.
        event: what is asked.
        loads: the step that is asked for loads a checkpoint.
    """
    need = _need_bytes(parts, facts, event, loads=loads)
    if not need:
        return facts
    return replace(facts, copy_need_bytes=need, host_free_bytes=host_room_bytes(parts))


def host_room_bytes(parts: Parts) -> int:
    """Host bytes that backups and copies may still take."""
    held = parts.saver.usage().host_bytes + parts.snapshots.host_bytes()
    return host.host_free_bytes(parts.config.host_budget_bytes, held)


def _need_bytes(parts: Parts, facts: Facts, event: TrainerEvent | None, *, loads: bool) -> int:
    store, present = parts.snapshots, parts.versions.region
    if event is TrainerEvent.SLEEP and groups_to_copy(facts):
        return store.would_copy(ACTOR, ((one, present.get(one)) for one in _copied(facts)))
    if event is TrainerEvent.TRAINED and facts.step_open and makes_actor_copy(facts):
        renewed = set(facts.touched)  # what the step changed gets a version that nobody holds yet
        return store.would_copy(ACTOR, ((one, None if one in renewed else present.get(one)) for one in _copied(facts)))
    if event is TrainerEvent.SWITCH_MODEL and the_outgoing_model_is_kept_now(facts):
        return store.would_copy(ACTOR, ((one, present.get(one)) for one in groups_to_keep(facts)), own=True)
    if event is TrainerEvent.BEGIN_STEP and loads and store.borrowers(FROZEN_BASE):
        return store.would_copy(ACTOR, [(FROZEN_BASE, present.get(FROZEN_BASE))], own=True)
    return 0


def _copied(facts: Facts) -> tuple[str, ...]:
    """What the effect ``backup-actor`` looks at: ``lean`` at what a pause hides, the others at everything."""
    return hidden_groups(facts) if facts.strategy == Strategy.LEAN else tuple(one.group for one in facts.contents)
