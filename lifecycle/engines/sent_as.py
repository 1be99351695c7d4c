"""Under which names and in which dtypes an in-process engine was sent what it holds, to hash it as its sender would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lifecycle.engines.protocol import AdapterPayload
from lifecycle.weights.digests import tensor_sha256


@dataclass
class SentAs:
    """By content group: each tensor's name as it was sent, its dtype then, and where it lies now."""

    _held: dict[str, dict[str, tuple[torch.dtype, Tensor]]] = field(default_factory=dict)

    def base(self, group: str, name: str, dtype: torch.dtype, into: Tensor) -> None:
        """One tensor of a base group was copied into *into*. It belongs to no other group any more."""
        for held in self._held.values():
            held.pop(name, None)
        self._held.setdefault(group, {})[name] = dtype, into

    def adapter(self, group: str, payload: AdapterPayload, lying: Mapping[str, Tensor]) -> None:
        """An adapter was written; *lying* are views of its slot by PEFT name."""
        self._held[group] = {name: (payload.tensors[name].dtype, one) for name, one in lying.items()}

    def forget(self, group: str) -> None:
        """The group is written anew."""
        self._held.pop(group, None)

    def checksums(self, group: str) -> dict[str, str] | None:
        """SHA-256 by name; None where bytes were rounded on their way, so that they cannot be those that were sent."""
        held = self._held.get(group, {})
        if any(torch.promote_types(dtype, one.dtype) != one.dtype for dtype, one in held.values()):
            return None
        return {name: tensor_sha256(one.to(dtype)) for name, (dtype, one) in held.items()}
