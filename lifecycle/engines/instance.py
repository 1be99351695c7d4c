"""One incarnation of the in-process engine: a model, adapter slots, key/value memory and what they hold.

A restart throws the instance away. Nothing here knows about tags, locks or updates being open.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lifecycle.engines.content import Coverage
from lifecycle.engines.kv_pool import KvPool, KvPoolFullError
from lifecycle.engines.lora_slots import BadPayloadError, LoraSlots
from lifecycle.engines.protocol import AdapterPayload
from lifecycle.engines.sampling import Rollout, sample
from lifecycle.engines.sent_as import SentAs
from lifecycle.errors import EngineError
from states import adapter_group


class Instance:
    """A model that serves what was committed.

    Args:
        engine: the engine's name, for messages.
        model: a causal language model of transformers. Belongs to the instance from now on.
        slots: how many adapters fit.
        rank: largest rank that fits.
        target_modules: suffixes of the linear modules that have slots.
        kv_cache_bytes: size of the key/value buffer, in bytes.

    Raises:
        EngineError: the model has none of the target modules.
    """

    def __init__(
        self,
        engine: str,
        model: nn.Module,
        *,
        slots: int,
        rank: int,
        target_modules: Sequence[str],
        kv_cache_bytes: int,
    ) -> None:
        self.id = uuid.uuid4().hex
        self._engine = engine
        self._model = model.eval().requires_grad_(requires_grad=False)
        self._layers = _attention_layers(model)
        try:
            self._lora = LoraSlots(model, slots=slots, rank=rank, target_modules=target_modules)
        except ValueError as error:
            raise EngineError(engine, f"{error}; name modules that the model has") from error
        self.slots = slots
        self._slot_of: dict[str, int] = {}
        self.base = dict(model.named_parameters()) | dict(model.named_buffers())
        self._known_as = _every_name(model, self.base)
        self.device = next(iter(self.base.values())).device
        self.pool = KvPool(kv_cache_bytes, self.device)
        self.covered = Coverage(self.base)
        self._sent = SentAs()

    def weights(self) -> dict[str, Tensor]:
        """Every tensor that belongs into the ``weights`` tag."""
        return {**self.base, **self._lora.tensors()}

    def adapters(self) -> tuple[str, ...]:
        """Names of the adapters that have a slot, sorted."""
        return tuple(sorted(self._slot_of))

    def touch_base(self, group: str, version: int) -> None:
        """Tensors of a base group are about to be written; what it was before counts no more."""
        if self.covered.touch(group, version):
            self._sent.forget(group)

    def write_base(self, group: str, name: str, value: Tensor) -> None:
        """Copy one tensor of a base group that was touched.

        Raises:
            EngineError: a name or shape that the model does not have.
        """
        own_name = self._known_as.get(name)
        if own_name is None:
            raise EngineError(self._engine, f"the model has no tensor {name}; the architectures differ")
        into = self.base[own_name]
        if into.shape != value.shape:
            raise EngineError(self._engine, f"{name} is {tuple(value.shape)}, wanted is {tuple(into.shape)}")
        with torch.no_grad():
            into.copy_(value)
        self._sent.base(group, name, value.dtype, into)
        self.covered.wrote(group, own_name)

    def load_adapter(self, payload: AdapterPayload, before_write: Callable[[], None]) -> None:
        """Check an adapter whole, then copy it into its slot.

        Args:
            payload: the adapter.
            before_write: called when it was checked and before the first byte is written.

        Raises:
            EngineError: it does not fit, or no slot is free. The slot is as it was.
        """
        try:
            factors = self._lora.check(payload)
        except BadPayloadError as error:
            raise EngineError(self._engine, f"adapter {payload.name}: {error}; nothing was written") from error
        slot = self._slot_for(payload.name)
        self._sent.forget(adapter_group(payload.name))
        before_write()
        self._lora.write(slot, factors, payload.alpha / payload.rank)
        self._sent.adapter(adapter_group(payload.name), payload, self._lora.read(slot, payload))

    def drop_adapter(self, name: str) -> None:
        """Free the adapter's slot; the next tenant overwrites all of it."""
        self._slot_of.pop(name, None)

    def checksums(self, group: str) -> dict[str, str] | None:
        """SHA-256 of what lies in the engine, in the names and dtypes it was sent in; None of what was never sent."""
        return self._sent.checksums(group)

    def give_up(self, groups: Iterable[str]) -> None:
        """These groups were touched by an update that is aborted: adapters among them lose their slot."""
        self.covered.abort()
        for name in self.adapters():
            if adapter_group(name) in groups:
                self.drop_adapter(name)

    def discard(self, backup: Callable[[Tensor], Tensor | None]) -> None:
        """Every byte is gone, and no old byte of the base can be taken for a valid one."""
        self.covered.clear()
        self._slot_of.clear()
        for tensor in self.base.values():
            held = backup(tensor)
            if held is not None and held.is_floating_point():
                held.fill_(float("nan"))

    def need_base(self, *, with_pending: bool = False) -> None:
        """Refuse unless every tensor of the base was pushed.

        Raises:
            EngineError: naming some that were not.
        """
        missing = self.covered.missing(with_pending=with_pending)
        if missing:
            some = ", ".join(missing[:3])
            why = f"content undefined: {len(missing)} base tensor(s) were not pushed ({some}); push the base first"
            raise EngineError(self._engine, why)

    def answer(self, prompts: Tensor, adapter: str, served: Mapping[str, int], **how: Any) -> Rollout:
        """Generate. Everything was checked before.

        Args:
            prompts: int64, ``[batch, tokens]``.
            adapter: whose answer it is.
            served: the versions that it depends on, sorted by group.
            how: as in :func:`~lifecycle.engines.sampling.sample`.

        Raises:
            EngineError: the key/value buffer is too small.
        """
        identity = (adapter, tuple(served.items()), tuple(prompts.shape), prompts.cpu().numpy().tobytes())
        capacity = prompts.shape[1] + int(how["max_new_tokens"])
        cache, held = self.pool.lay_out(identity, self._layers, prompts.shape[1], capacity)
        try:
            with self._lora.applied(self._slot_of.get(adapter)):
                tokens, logprobs = sample(self._model, prompts, cache, held, **how)
        except KvPoolFullError as error:
            self.pool.forget()
            raise EngineError(self._engine, f"{error}; raise kv_cache_bytes or send fewer prompts") from error
        except BaseException:
            self.pool.forget()
            raise
        return Rollout(tokens, logprobs, adapter, dict(served), self.id)

    def _slot_for(self, name: str) -> int:
        if name not in self._slot_of:
            free = sorted(set(range(self.slots)) - set(self._slot_of.values()))
            if not free:
                held = ", ".join(self.adapters())
                raise EngineError(self._engine, f"no slot is free for {name}, loaded are {held}; unload one first")
            self._slot_of[name] = free[0]
        return self._slot_of[name]


def _attention_layers(model: nn.Module) -> int:
    config: Any = model.config
    return int(config.get_text_config().num_hidden_layers)


def _every_name(model: nn.Module, own: Mapping[str, Tensor]) -> dict[str, str]:
    """Each name a tensor is known under (tied weights have several) to the one in *own*."""
    by_identity = {id(tensor): name for name, tensor in own.items()}
    found: Iterable[tuple[str, Tensor]] = (
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    )
    return {name: by_identity[id(tensor)] for name, tensor in found}
