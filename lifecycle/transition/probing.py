"""Recording the trainer's own greedy tokens of each version, while it is awake, without a trace in its training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from lifecycle.adapters.in_use import InUse
from lifecycle.engines.verifying import BASE_ONLY
from lifecycle.probes import GreedyProbe, ProbeBook, Recorded, Tokens, as_tokens, base_group, greedy
from lifecycle.transition.parts import Parts
from lifecycle.weights.digests import digest, same_bytes
from states import ACTOR, BUFFERS, TrainerState, adapter_group


class ProbeRecorder:
    """After a commit that leaves the actor awake, it records what is not recorded yet.

    Args:
        parts: the trainer.
        model: what is asked.
        note: puts a remark on the record.
    """

    def __init__(self, parts: Parts, model: nn.Module, note: Callable[..., None]) -> None:
        self._parts = parts
        self._model = model
        self._note = note

    def catch_up(self, state: TrainerState) -> None:
        """Record every version that is live and not recorded, if the trainer, which is in *state*, can be asked now."""
        runtime = self._parts.runtime
        busy = runtime.step is not None or runtime.references or runtime.active_model != ACTOR
        if runtime.probes.probe is not None and state is TrainerState.AWAKE and not busy:
            self._record(runtime.probes, runtime.probes.probe)

    def _record(self, book: ProbeBook, probe: GreedyProbe) -> None:
        """What fails is noted, and tried no more."""
        parts = self._parts
        base = note_base(parts)
        asked = {adapter_group(name): name for name in (parts.adapters.loaded() if parts.adapters is not None else ())}
        asked[base_group(parts.versions.wanted)] = BASE_ONLY
        live = {group: one for group, one in parts.versions.wanted.items() if parts.versions.region.get(group) == one}
        if not base.keys() <= live.keys():
            return
        done = {}
        for group, name in sorted(asked.items()):
            if group in live and book.lacks(group, live[group], base):
                try:
                    book.held[group, live[group]] = Recorded(self._ask(probe, name), base)
                    done[group] = live[group]
                except Exception as error:  # noqa: BLE001 - whatever it is, the step stands and the version is unverified
                    book.failed[group, live[group]] = f"{type(error).__name__}: {error}"
                    self._note("a greedy probe was not recorded", group=group, version=live[group], error=str(error))
        if done:
            self._note("greedy probes were recorded", versions=done)

    def _ask(self, probe: GreedyProbe, name: str) -> Tokens:
        mutable = self._parts.inventory.base.get(BUFFERS, {})
        with self._parts.saver.unmanaged(), undisturbed(self._model, mutable), self._using(name):
            given: Any
            if probe.generate is not None:
                given = probe.generate(name, probe.prompts, probe.max_new_tokens)
            else:
                given = greedy(self._model, probe.prompts, probe.max_new_tokens)
            found = as_tokens(given, len(probe.prompts))  # inside: what is given may be a generator
        lengths = sorted({len(one) for one in found} - {probe.max_new_tokens})
        if lengths:
            raise ValueError(f"{lengths[0]} tokens were generated for a prompt, wanted are {probe.max_new_tokens}")
        return found

    def _using(self, name: str) -> AbstractContextManager[None]:
        host = self._parts.adapters
        if not isinstance(host, InUse):
            return nullcontext()
        return host.base_only() if name == BASE_ONLY else host.use(name)


def note_base(parts: Parts) -> dict[str, object]:
    """What tokens depend on besides an adapter: versions of the base, and of buffers what they hold.

    Buffers take a new id with every step, and mostly hold what they held. Their bytes are read; the trainer is awake.
    """
    held = parts.inventory.base.get(BUFFERS)
    if held:
        parts.runtime.probes.buffers = parts.versions.wanted[BUFFERS], digest(held)
    return known_base(parts)


def known_base(parts: Parts) -> dict[str, object]:
    """The same without reading anything; buffers that have changed since they were read stand by their id."""
    found: dict[str, object] = {group: parts.versions.wanted[group] for group in parts.inventory.base}
    if BUFFERS in found and parts.runtime.probes.buffers[0] == found[BUFFERS]:
        found[BUFFERS] = parts.runtime.probes.buffers[1]
    return found


@contextmanager
def undisturbed(model: nn.Module, mutable: Mapping[str, Tensor]) -> Iterator[None]:
    """Eval mode without gradients and autocast inside; afterwards modes, random numbers and buffers are as before.

    Args:
        model: whose modules are set to eval, one by one: what a module does in ``train()`` besides is not done.
        mutable: buffers that forward passes may change.
    """
    modes = [(module, module.training) for module in model.modules()]
    held = {name: one.detach().clone() for name, one in mutable.items()}
    device = next((one.device.type for one in model.parameters()), "cpu")
    cuda = list(range(torch.cuda.device_count())) if device == "cuda" else []
    try:
        for module, _ in modes:
            module.training = False
        with torch.no_grad(), torch.random.fork_rng(devices=cuda), torch.autocast(device, enabled=False):
            yield
    finally:
        for module, was_training in modes:
            module.training = was_training
        with torch.no_grad():
            for name, before in held.items():
                if not same_bytes(mutable[name], before):
                    mutable[name].copy_(before)
