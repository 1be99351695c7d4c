"""Optimizers that step while no step is open: what they have changed takes new version ids at once.

Without this the new bytes would keep the old id, and every engine that has that id would be called current. Each
optimizer of the trainer is given a hook. What cannot be told so: writes without an optimizer, steps of a captured
graph that is replayed, and optimizers of other kinds than torch's.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from lifecycle.adapters.custody import note_changed
from lifecycle.transition import steps
from lifecycle.transition.parts import Parts
from lifecycle.transition.records import Recorder
from lifecycle.weights.digests import digest
from states import ACTOR, ADAPTER_PREFIX, BUFFERS, FROZEN_BASE, TRAINABLE_BASE, TrainerState, Verify

if TYPE_CHECKING:
    from lifecycle.transition.runner import Runner


def watch_optimizers(runner: Runner, parts: Parts) -> None:
    """Let the optimizers tell of their steps, as long as the trainer lives. They do not keep it alive."""
    for optimizer in parts.moments.optimizers:
        register = getattr(optimizer, "register_step_post_hook", None)
        if register is not None:
            handle = register(_hook(weakref.ref(runner), weakref.ref(parts)))
            weakref.finalize(runner, handle.remove).atexit = False


def _hook(runner: weakref.ref[Runner], parts: weakref.ref[Parts]) -> Callable[[Optimizer, Any, Any], None]:
    def stepped(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        of, held = runner(), parts()
        if of is not None and held is not None:
            _stepped(of, held, optimizer)

    # A compiled step, whose graph torch breaks itself, calls it as it is.
    hook: Callable[[Optimizer, Any, Any], None] = torch.compiler.disable(stepped)  # type: ignore[no-untyped-call]
    return hook


def _stepped(runner: Runner, parts: Parts, optimizer: Optimizer) -> None:
    runtime, state = parts.runtime, runner.machine.state
    is_told = runtime.step is not None or parts.moments.materialising
    if is_told or state is not TrainerState.AWAKE or runtime.active_model != ACTOR:
        return
    runtime.outside |= dict.fromkeys(_stepped_groups(parts, optimizer), False)
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return  # nothing may be copied now
    with runner.turn.at_once() as mine:
        if mine:
            with suppress(Exception):  # the step is done; the next event tries again and raises
                _give_ids(parts, runner.recorder, state)


def _stepped_groups(parts: Parts, optimizer: Optimizer) -> frozenset[str]:
    """The content groups with parameters, or parameters with main copies, that it steps."""
    names = {parts.moments.name_of(one) for group in optimizer.param_groups for one in group["params"]}
    groups = parts.inventory.groups().items()
    return frozenset(group for group, held in groups if held.keys() & names) - {BUFFERS, FROZEN_BASE}


def settle(parts: Parts, recorder: Recorder, state: TrainerState) -> None:
    """Before an event is decided: ids for what has none yet, and what the bytes are that were stepped.

    Only now: main copies are copied into their parameters after the step.
    """
    if not parts.runtime.outside or state is TrainerState.FAULTED:
        return
    _give_ids(parts, recorder, state)
    stepped, parts.runtime.outside = parts.runtime.outside, {}
    versions = parts.versions
    is_read = state is TrainerState.AWAKE and parts.config.verify != Verify.OFF
    for group in stepped.keys() & versions.wanted.keys() if is_read else ():
        if group != TRAINABLE_BASE and versions.region.get(group) == versions.wanted[group]:
            versions.digests[versions.wanted[group]] = digest(parts.own_bytes(group))


def _give_ids(parts: Parts, recorder: Recorder, state: TrainerState) -> None:
    """New ids for what was stepped outside of a step, as an aborted step takes them, and a note on the record.

    Gradients go into their region with the values that they have: an accumulation may go on. No bytes are looked at.
    """
    outside = parts.runtime.outside
    groups = tuple(group for group in parts.inventory.groups() if outside.get(group) is False)
    if not groups:
        return
    outside |= dict.fromkeys(groups, True)
    for group in groups:
        parts.versions.renew(group)
    adapters = (group.removeprefix(ADAPTER_PREFIX) for group in groups if group.startswith(ADAPTER_PREFIX))
    note_changed(parts.adapters, list(adapters))
    if state is TrainerState.AWAKE:
        parts.gradients.lead_home(parts.parameter_names(groups), keep=True)
        steps.forget_old(parts)
    recorder.stepped_outside(parts.versions.wanted)
