"""Tensors in the form that SGLang takes over HTTP: its ``MultiprocessingSerializer`` bytes, by value.

SGLang defines that form as a pickle, which it opens with a list of allowed globals. It is only ever written here, from
tensors of our own; nothing is unpickled. torch's own reduction to bytes is used, which SGLang reads back with
``weights_only=True``, not the one to shared memory or to CUDA IPC handles: a handle is good in one place only, keeps
the memory that it names, and cannot be made of memory of the saver. Values can go through any proxy.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

PROTOCOL = 4
"""Of the pickle; readable by every Python that SGLang runs on."""


def serialized(tensors: Mapping[str, Tensor] | list[tuple[str, Tensor]]) -> str:
    """Base64 text of named tensors.

    Args:
        tensors: name to tensor (an adapter), or pairs (base weights): SGLang wants the one there and the other here.
            Any dtype, any device; copied to contiguous CPU tensors, each with a storage of its own.
    """
    pairs = tensors.items() if isinstance(tensors, Mapping) else tensors
    own: Any = [(name, _own(one)) for name, one in pairs]
    if isinstance(tensors, Mapping):
        own = dict(own)
    return base64.b64encode(pickle.dumps(own, protocol=PROTOCOL)).decode("ascii")


def chunks(tensors: Iterable[tuple[str, Tensor]], bytes_max: int) -> Iterator[list[tuple[str, Tensor]]]:
    """The pairs in lists of at most *bytes_max* bytes each; a tensor that is larger is alone in its list.

    Args:
        tensors: consumed as the lists are.
        bytes_max: at least 1.
    """
    held: list[tuple[str, Tensor]] = []
    size = 0
    for name, tensor in tensors:
        more = tensor.numel() * tensor.element_size()
        if held and size + more > bytes_max:
            yield held
            held, size = [], 0
        held.append((name, tensor))
        size += more
    if held:
        yield held


def _own(tensor: Tensor) -> Tensor:
    """A plain tensor with a storage of its own: a view would bring the whole storage it lies in."""
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
