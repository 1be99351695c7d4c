"""Decisions: what may happen to the trainer's memory, and why. Pure; imports neither torch nor lifecycle."""

from __future__ import annotations

from states.adapter_plan import ReconcilePlan, Registration, Tenancy, plan_reconcile
from states.adapters import (
    ADAPTER_TABLE,
    AdapterEvent,
    AdapterRefusal,
    AdapterRow,
    AdapterState,
    decide_adapter,
)
from states.decision import Decision, NoChange, Refusal, Step, decide
from states.effects import REVERSAL, Effect, Reversal
from states.engine_decision import EngineRefusal, EngineStep, decide_engine
from states.engine_guards import EngineGuard
from states.engine_memory import (
    BASE_ONLY,
    EngineAsk,
    EngineEvent,
    EngineMemory,
    EngineSaid,
    EngineState,
    TagState,
)
from states.engine_table import ENGINE_TABLE, TAG_TABLE, EngineRow, TagRow
from states.errors import TableError
from states.facts import ContentFacts, EngineFacts, Facts, LeaseFacts
from states.freed import freed_enough, residue_is_steady
from states.handover import HandoverPlan, HandoverRefusal, plan_handoff
from states.handover_needs import HandoverConfig, HandoverSizes, MemoryPeak
from states.machine import TrainerMachine
from states.names import (
    ACTOR,
    ADAPTER_PREFIX,
    BUFFERS,
    FROZEN_BASE,
    OFFLOADED,
    RESTING,
    TRAINABLE_BASE,
    FrozenBase,
    Source,
    Strategy,
    TrainerEvent,
    TrainerState,
    Verify,
    adapter_group,
)
from states.placement import CONTENTS, Place, place, why_not_adopted
from states.push_plan import PushPlan, ahead_of, plan_push
from states.reconcile import as_one, decide_reconcile
from states.row import Row, RowKind
from states.rule import (
    enable_weight_backup,
    groups_to_copy,
    groups_to_keep,
    keeper_of,
    makes_actor_copy,
    reads_saver_backup,
    weight_sync_reads_saver_backup,
)
from states.sources import Read, decide_read, decide_reads
from states.staleness import StalenessError, staleness
from states.table import TABLE
from states.verdict import Guard, Verdict, guard

__all__ = [
    "ACTOR",
    "ADAPTER_PREFIX",
    "ADAPTER_TABLE",
    "BASE_ONLY",
    "BUFFERS",
    "CONTENTS",
    "ENGINE_TABLE",
    "FROZEN_BASE",
    "OFFLOADED",
    "RESTING",
    "REVERSAL",
    "TABLE",
    "TAG_TABLE",
    "TRAINABLE_BASE",
    "AdapterEvent",
    "AdapterRefusal",
    "AdapterRow",
    "AdapterState",
    "ContentFacts",
    "Decision",
    "Effect",
    "EngineAsk",
    "EngineEvent",
    "EngineFacts",
    "EngineGuard",
    "EngineMemory",
    "EngineRefusal",
    "EngineRow",
    "EngineSaid",
    "EngineState",
    "EngineStep",
    "Facts",
    "FrozenBase",
    "Guard",
    "HandoverConfig",
    "HandoverPlan",
    "HandoverRefusal",
    "HandoverSizes",
    "LeaseFacts",
    "MemoryPeak",
    "NoChange",
    "Place",
    "PushPlan",
    "Read",
    "ReconcilePlan",
    "Refusal",
    "Registration",
    "Reversal",
    "Row",
    "RowKind",
    "Source",
    "StalenessError",
    "Step",
    "Strategy",
    "TableError",
    "TagRow",
    "TagState",
    "Tenancy",
    "TrainerEvent",
    "TrainerMachine",
    "TrainerState",
    "Verdict",
    "Verify",
    "adapter_group",
    "ahead_of",
    "as_one",
    "decide",
    "decide_adapter",
    "decide_engine",
    "decide_read",
    "decide_reads",
    "decide_reconcile",
    "enable_weight_backup",
    "freed_enough",
    "groups_to_copy",
    "groups_to_keep",
    "guard",
    "keeper_of",
    "makes_actor_copy",
    "place",
    "plan_handoff",
    "plan_push",
    "plan_reconcile",
    "reads_saver_backup",
    "residue_is_steady",
    "staleness",
    "weight_sync_reads_saver_backup",
    "why_not_adopted",
]
