"""The engine's key/value memory: one preallocated buffer that every generation is laid out in.

The buffer belongs to the engine's ``kv_cache`` tag. What was computed for the last prompts stays in it
and is used again when the very same request identity returns: prompts, adapter and the versions of
everything the keys and values depend on. The name alone is no identity.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

_ALIGNMENT_BYTES = 64


class KvPoolFullError(Exception):
    """The buffer is too small for the request.

    Attributes:
        need_bytes: bytes asked for so far.
        size_bytes: bytes there are.
    """

    def __init__(self, need_bytes: int, size_bytes: int) -> None:
        super().__init__(f"at least {need_bytes} bytes of key/value memory are needed, there are {size_bytes}")
        self.need_bytes = need_bytes
        self.size_bytes = size_bytes


class _PooledLayer(DynamicLayer):  # type: ignore[misc]  # transformers is not checked
    """One layer's keys and values, written in place into slices of the pool."""

    def __init__(self, pool: KvPool, capacity: int) -> None:
        super().__init__()
        self._pool = pool
        self._capacity = capacity
        self._length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take this layer's slices. ``key_states`` and ``value_states`` are [batch, heads, tokens, dim]."""
        self.device = key_states.device
        self._all_keys = self._pool.take(self._shape(key_states), key_states.dtype)
        self._all_values = self._pool.take(self._shape(value_states), value_states.dtype)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append new tokens; returns views over all tokens so far, [batch, heads, tokens, dim]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self._length + key_states.shape[-2]
        self._all_keys[..., self._length : end, :].copy_(key_states)
        self._all_values[..., self._length : end, :].copy_(value_states)
        self._length = end
        return self._all_keys[..., :end, :], self._all_values[..., :end, :]

    def get_seq_length(self) -> int:
        """Tokens held."""
        return self._length

    def keep(self, tokens: int) -> None:
        """Forget all but the first *tokens*."""
        self._length = min(self._length, tokens)

    def _shape(self, states: Tensor) -> tuple[int, ...]:
        return (*states.shape[:-2], self._capacity, states.shape[-1])


@dataclass
class _Held:
    identity: Hashable
    capacity: int
    layers: list[_PooledLayer]
    prompt_tokens: int


class KvPool:
    """The buffer, and the one set of prefixes that is held in it.

    Args:
        size_bytes: its size, in bytes.
        device: where the model is.

    Attributes:
        buffer: uint8, [size_bytes]. The engine places it in its ``kv_cache`` tag.
        flushes: how often held prefixes were dropped.
        hits: how often they were used again.
    """

    def __init__(self, size_bytes: int, device: torch.device) -> None:
        self.buffer = torch.zeros(size_bytes, dtype=torch.uint8, device=device)
        self.flushes = 0
        self.hits = 0
        self._taken = 0
        self._held: _Held | None = None

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The next slice of the buffer, valid until the next :meth:`lay_out` or :meth:`flush`.

        Raises:
            KvPoolFullError: there is no room.
        """
        size = prod(shape) * dtype.itemsize
        if self._taken + size > self.buffer.numel():
            raise KvPoolFullError(self._taken + size, self.buffer.numel())
        found = self.buffer[self._taken : self._taken + size].view(dtype).view(shape)
        self._taken += -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        return found

    def lay_out(self, identity: Hashable, layers: int, prompt_tokens: int, capacity: int) -> tuple[Cache, int]:
        """A cache for one request.

        Args:
            identity: equal only if prompts, adapter and all versions are.
            layers: attention layers of the model.
            prompt_tokens: tokens of each prompt.
            capacity: tokens of each prompt with its answer.

        Returns:
            The cache, and how many prompt tokens it holds already (all but the last one, or 0).
        """
        held = self._held
        if held is not None and held.identity == identity and held.capacity >= capacity:
            self.hits += 1
            for layer in held.layers:
                layer.keep(prompt_tokens - 1)
            return Cache(layers=list(held.layers)), held.layers[0].get_seq_length()
        self.forget()
        made = [_PooledLayer(self, capacity) for _ in range(layers)]
        self._held = _Held(identity, capacity, made, prompt_tokens)
        return Cache(layers=list(made)), 0

    def forget(self) -> None:
        """Drop what is held without counting it: the request failed, or another one takes the room."""
        self._held = None
        self._taken = 0

    def flush(self) -> None:
        """Drop every prefix, because what it was computed with changes or its memory goes."""
        self.flushes += 1
        self.forget()
