"""Examples in which guards do not hold, so that the docs can show what a refusal says in the words that it uses."""

from __future__ import annotations

from typing import Final

from states.engine_guards import EngineGuard
from states.engine_memory import EngineAsk, EngineEvent, EngineMemory, EngineSaid, TagState
from states.errors import TableError
from states.facts import ContentFacts, EngineFacts, Facts, LeaseFacts
from states.handover_needs import KV_CACHE, WEIGHTS
from states.names import FROZEN_BASE, Source, adapter_group
from states.run_counts import RunCounts
from states.verdict import Guard, Verdict

_GIB: Final = 1024**3
_MATH: Final = adapter_group("math")
_CODE: Final = adapter_group("code")

NOTHING_RIGHT: Final = Facts(
    offload_target=None,
    active_model="ref",
    switch_target="teacher",
    contents=(
        ContentFacts(version=7, live=6, copies=(("ref", 4),), backup="none", unreadable=("model.embed_tokens.weight",)),
        ContentFacts(group=_MATH, version=9, live=None, saver=None, backup="none", frozen=False),
        ContentFacts(group=_CODE, version=11, live=11, frozen=False),
    ),
    to_load=("code",),
    to_retire=("math",),
    unaccounted=("math",),
    touched=(_MATH,),
    step_open=True,
    step_differs=("code",),
    step_unknown=("code",),
    step_frozen=("judge",),
    unsucceeded=("math",),
    reference_open=True,
    accumulated=(_MATH,),
    engines=(
        EngineFacts("engine-0", weights_resident=False, stale=(_MATH, _CODE), adapter_slots=1,
                    ahead=(f"{_MATH} in version 40",)),
    ),
    saver_enabled=False,
    leases=(
        LeaseFacts("weight sync to engine-0", Source.LIVE, (FROZEN_BASE, _MATH)),
        LeaseFacts("save of math", Source.SAVER_BACKUP, (FROZEN_BASE, _MATH)),
    ),
    strays=("lm_head.weight#exp_avg",),
    unwritable=("slot-0.lora_A",),
    unknown_slot_state=("a scheduler of slot 0",),
    gradients_kept=False,
    backup_need_bytes=12 * _GIB,
    copy_need_bytes=12 * _GIB,
    host_free_bytes=8 * _GIB,
    disk_need_bytes=12 * _GIB,
    disk_free_bytes=8 * _GIB,
    resume_need_bytes=12 * _GIB,
    device_free_bytes=8 * _GIB,
    transport_bytes=_GIB,
    transport_holders=("engine-0",),
    paused_tags=2,
    active_tags=1,
)  # fmt: skip
"""Facts in which hardly any guard holds."""

NOTHING_ASKED: Final = Facts()
"""A trainer that is awake, at rest, and has nothing to do."""

ENGINE_WRONG: Final = EngineMemory(
    because="",
    instance_id="engine-0/1",
    tags=((WEIGHTS, TagState.DISCARDED), (KV_CACHE, TagState.UNKNOWN)),
    touched=((_MATH, 9),),
    flushed=False,
    broken="send-base: the connection was reset",
)
"""An engine of which hardly any guard holds."""

ENGINE_ASKED: Final = (
    EngineAsk(event=EngineEvent.RELEASE, tags=(KV_CACHE,), group="", adapter="math", expected=((_MATH, 9),),
              said=EngineSaid(instance_id="engine-0/2", is_open=True, tags={}, versions={})),
    EngineAsk(event=EngineEvent.PROBE, said=EngineSaid(instance_id="engine-0/1", is_open=False, tags={}, versions={})),
)  # fmt: skip
"""What is asked of it."""


RUN: Final = RunCounts(
    taken={
        ("awake", "begin_step", "opens", "awake"): 4210,
        ("awake", "trained", "commits", "awake"): 4208,
        ("awake", "sleep", "quiesces", "sleeping"): 526,
        ("sleeping", "offload", "offloads-to-cpu", "offloaded-cpu"): 524,
        ("offloaded-cpu", "update_weights", "sends", "offloaded-cpu"): 521,
        ("offloaded-cpu", "wake_up", "resumes-from-cpu", "awake"): 523,
        ("awake", "reconcile_adapters", "reads-saver-backup", "awake"): 41,
        ("offloaded-cpu", "reconcile_adapters", "reads-saver-backup", "offloaded-cpu"): 7,
        ("faulted", "recover", "recovers", "offloaded-cpu"): 1,
    },
    undone={("offloaded-cpu", "update_weights", "sends"): 2, ("sleeping", "offload", "offloads-to-cpu"): 1},
    faulted={("offloaded-cpu", "wake_up", "resumes-from-cpu"): 1},
    refused={("sleeping", "offload"): 9, ("awake", "sleep"): 2, ("offloaded-cpu", "begin_step"): 1},
    guards={
        ("sleeping", "offload"): {"no-lease-over-live-weights": 8, "host-has-room": 1},
        ("awake", "sleep"): {"no-step-in-flight": 2},
        ("offloaded-cpu", "begin_step"): {"the-event-leaves-this-state": 1},
    },
    unchanged={("offloaded-cpu", "update_weights"): 3},
)
"""What the logs of a run may come to."""


def refused_by(guard: Guard) -> Verdict:
    """What a guard of the trainer says where it does not hold.

    Raises:
        TableError: it holds in every example: give it one.
    """
    verdicts = (guard(facts) for facts in (NOTHING_RIGHT, NOTHING_ASKED))
    return _first_failed(guard.name, tuple(one for one in verdicts if not one))


def refused_by_engine(guard: EngineGuard) -> Verdict:
    """The same of a guard of an engine.

    Raises:
        TableError: it holds in every example: give it one.
    """
    return _first_failed(guard.name, tuple(one for ask in ENGINE_ASKED if not (one := guard(ENGINE_WRONG, ask))))


def _first_failed(name: str, failed: tuple[Verdict, ...]) -> Verdict:
    if not failed:
        raise TableError(name, "it holds in every example: give it one in which it does not")
    return failed[0]
