"""The transition table: the one place that names a legal move. Engine, docs and tests are derived."""

from __future__ import annotations

from typing import Final

from states import guards as g
from states import guards_memory as m
from states import rule
from states.check import check_table
from states.effects import Effect as Do
from states.names import OFFLOADED, RESTING, TrainerEvent, TrainerState
from states.row import Row, RowKind
from states.verdict import Guard

AWAKE, SLEEPING = TrainerState.AWAKE, TrainerState.SLEEPING
CPU, DISK = TrainerState.OFFLOADED_CPU, TrainerState.OFFLOADED_DISK
RECONCILING, FAULTED = TrainerState.ADAPTER_RECONCILING, TrainerState.FAULTED
E = TrainerEvent

_SLEEP_NEEDS = (g.no_step_in_flight, g.no_reference_block_is_open, g.accumulated_gradients_can_be_kept)
_OFFLOAD_NEEDS = (
    m.saver_is_enabled,
    m.nothing_strays,
    g.no_lease_over_live_weights,
    g.no_lease_over_the_saver_backup,
    m.no_transport_bytes_outstanding,
    m.survivors_keep_a_readable_copy,
)
_WAKE_NEEDS = (
    g.no_lease_over_the_saver_backup,
    m.no_transport_bytes_outstanding,
    m.device_has_room,
    m.lost_bytes_can_be_restored,
)
_ALL_BACK = (Do.RESUME_WEIGHTS, Do.RESUME_SCRATCH, Do.RESTORE_LOST, Do.RETURN_GRADIENTS, Do.REBUILD_GROUPS)
_ALL_BACK_AS_IT_WAS = (*_ALL_BACK, Do.CHECK_DIGESTS)
_PAUSE = (Do.SYNCHRONIZE_DEVICE, Do.NOTE_DIGESTS, Do.PAUSE_WEIGHTS, Do.CHECK_FREED)
_QUIESCE = (Do.KEEP_GRADIENTS, Do.TEAR_DOWN_GROUPS, Do.CLEAR_CACHES, Do.PAUSE_SCRATCH, Do.CHECK_FREED)

_MEMORY = (
    Row("quiesces", E.SLEEP, AWAKE, SLEEPING, (rule.no_actor_copy_is_due,), _SLEEP_NEEDS, _QUIESCE),
    Row("quiesces-and-backs-up-actor", E.SLEEP, AWAKE, SLEEPING, (rule.an_actor_copy_is_due,),
        (*_SLEEP_NEEDS, m.host_has_room_for_copies), (Do.BACKUP_ACTOR, *_QUIESCE)),
    Row("offloads-to-cpu", E.OFFLOAD, SLEEPING, CPU, (m.target_is_cpu,), (m.host_has_room, *_OFFLOAD_NEEDS), _PAUSE),
    Row("offloads-to-disk", E.OFFLOAD, SLEEPING, DISK, (m.target_is_disk,),
        (m.disk_is_real_and_has_room, m.host_has_room, *_OFFLOAD_NEEDS), _PAUSE),
    Row("wakes", E.WAKE_UP, SLEEPING, AWAKE, (), _WAKE_NEEDS, _ALL_BACK),
    Row("resumes-from-cpu", E.WAKE_UP, CPU, AWAKE, (), _WAKE_NEEDS, _ALL_BACK_AS_IT_WAS),
    Row("resumes-from-disk", E.WAKE_UP, DISK, AWAKE, (), _WAKE_NEEDS, _ALL_BACK_AS_IT_WAS),
)  # fmt: skip

_RECONCILE_NEEDS = (
    g.no_step_in_flight,
    g.active_model_is_the_actor,
    g.registry_knows_what_is_loaded,
    g.an_adapter_in_use_has_a_successor,
    g.adapter_bytes_can_be_written,
    g.slot_state_is_known,
    g.no_lease_over_what_reconcile_writes,
)
_ENTER = tuple(
    Row("enters", E.RECONCILE_ADAPTERS, state, RECONCILING, (g.something_to_reconcile,), _RECONCILE_NEEDS)
    for state in RESTING
)
_WRITE = (Do.WRITE_ADAPTERS,)
_LEAVE = tuple(
    row
    for origin, is_origin in zip(RESTING, g.ORIGIN_IS, strict=True)
    for row in (
        Row("reads-saver-backup", E.RECONCILED, RECONCILING, origin,
            (is_origin, rule.makes_no_actor_copy, rule.reads_saver_backup), (), _WRITE),
        Row("backs-up-actor", E.RECONCILED, RECONCILING, origin,
            (is_origin, rule.makes_actor_copy), (), (*_WRITE, Do.BACKUP_ACTOR)),
        Row("makes-no-copy", E.RECONCILED, RECONCILING, origin,
            (is_origin, rule.makes_no_actor_copy, rule.reads_no_saver_backup), (), _WRITE),
        Row("abandons", E.RECONCILE_ABANDONED, RECONCILING, origin, (is_origin,)),
    )
)  # fmt: skip

_UPDATE = tuple(
    Row("sends", E.UPDATE_WEIGHTS, state, state, (m.an_engine_is_behind,),
        (g.no_step_in_flight, g.active_model_is_the_actor, m.sources_are_fresh, m.engines_hold_their_weights_tag,
         m.engines_have_room_for_the_adapters, m.engines_hold_no_newer_version),
        (Do.CHECK_SOURCES, Do.SEND_WEIGHTS))
    for state in RESTING
)  # fmt: skip

_SWITCH_NEEDS = (g.no_step_in_flight, g.switch_target_exists, g.switch_target_is_complete, g.no_lease_open)
_TRAINING = (
    Row("opens", E.BEGIN_STEP, AWAKE, AWAKE, (),
        (g.no_step_in_flight, g.active_model_is_the_actor, g.live_weights_are_the_newest,
         m.everything_is_resident_and_known, g.step_adapters_are_loaded, g.step_adapters_are_trainable,
         g.no_lease_over_what_the_step_changes, m.host_has_room_for_copies), (Do.OPEN_STEP,)),
    Row("commits", E.TRAINED, AWAKE, AWAKE, (rule.makes_no_actor_copy,),
        (g.a_step_is_open, g.the_commit_names_the_open_step, g.active_model_is_the_actor, g.step_adapters_are_loaded,
         g.no_lease_over_what_the_step_changes, m.nothing_was_replaced), (Do.COMMIT_VERSIONS, Do.WRITE_BASE_FILE)),
    Row("commits-and-backs-up-actor", E.TRAINED, AWAKE, AWAKE, (rule.makes_actor_copy,),
        (g.a_step_is_open, g.the_commit_names_the_open_step, g.active_model_is_the_actor, g.step_adapters_are_loaded,
         g.no_lease_over_what_the_step_changes, m.nothing_was_replaced, m.host_has_room_for_copies),
        (Do.COMMIT_VERSIONS, Do.WRITE_BASE_FILE, Do.BACKUP_ACTOR)),
    Row("switches", E.SWITCH_MODEL, AWAKE, AWAKE, (g.switches_to_another_model, rule.nothing_is_kept_at_the_switch),
        (*_SWITCH_NEEDS, g.outgoing_model_is_kept), (Do.RESTORE_MODEL,)),
    Row("keeps-and-switches", E.SWITCH_MODEL, AWAKE, AWAKE, (rule.the_outgoing_model_is_kept_now,),
        (*_SWITCH_NEEDS, m.host_has_room_for_copies), (Do.KEEP_OUTGOING, Do.RESTORE_MODEL)),
)  # fmt: skip

_FAULT = (
    *(Row("faults", E.FAIL, state, FAULTED) for state in TrainerState if state is not FAULTED),
    *(
        Row(
            "recovers",
            E.RECOVER,
            FAULTED,
            state,
            (nearest,),
            (g.no_lease_open, *(() if state in OFFLOADED else (m.device_has_room,))),
            (Do.DRIVE_TAGS, Do.VERIFY_AND_MEND),
        )
        for state, nearest in zip(RESTING, m.NEAREST_IS, strict=True)
    ),
)


def _settled(event: TrainerEvent, states: tuple[TrainerState, ...], *when: Guard) -> tuple[Row, ...]:
    return tuple(Row("already", event, state, state, when, kind=RowKind.SETTLED) for state in states)


_SETTLED = (
    *_settled(E.SLEEP, (SLEEPING, CPU, DISK)),
    *_settled(E.OFFLOAD, (CPU, DISK)),
    *_settled(E.WAKE_UP, (AWAKE,)),
    *_settled(E.RECONCILE_ADAPTERS, RESTING, g.nothing_to_reconcile),
    *_settled(E.UPDATE_WEIGHTS, RESTING, m.every_engine_is_current),
    *_settled(E.SWITCH_MODEL, (AWAKE,), g.is_switched_already),
    *_settled(E.RECOVER, RESTING),
    *_settled(E.FAIL, (FAULTED,)),
)


def _refusing(state: TrainerState, takes: tuple[TrainerEvent, ...], remedy: str) -> tuple[Row, ...]:
    events = (event for event in TrainerEvent if event not in takes)
    return tuple(Row("refuses", event, state, state, kind=RowKind.REFUSING, remedy=remedy) for event in events)


_REFUSING = (
    *_refusing(
        RECONCILING, (E.RECONCILED, E.RECONCILE_ABANDONED, E.FAIL), "wait until the reconcile under way has ended"
    ),
    *_refusing(FAULTED, (E.FAIL, E.RECOVER), "call recover() first; it says which bytes it could verify"),
)

TABLE: Final[tuple[Row, ...]] = (
    *_MEMORY, *_ENTER, *_LEAVE, *_UPDATE, *_TRAINING, *_FAULT, *_SETTLED, *_REFUSING,
)  # fmt: skip
"""Every row of the trainer's machine. Checked when this module is imported."""

check_table(TABLE)
