"""vLLM's ``WeightSource`` over the tensors of a lease: what its trainer side reads when it pushes base weights.

Pushing base weights into a vLLM server needs its weight transfer (NCCL or CUDA IPC), and so a GPU. This class is the
trainer's half of it, and is the same wherever the decided source has the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from torch import Tensor

from lifecycle.errors import ConfigError

_PEFT_PREFIX = "base_model.model."
_PEFT_BASE = ".base_layer."


def plain_name(name: str) -> str:
    """The name of a base tensor as its checkpoint has it: without what PEFT puts around it."""
    return name.removeprefix(_PEFT_PREFIX).replace(_PEFT_BASE, ".")


def weight_source(tensors: Mapping[str, Tensor], *, rename: Callable[[str], str | None] = plain_name) -> Any:
    """A ``vllm.distributed.weight_transfer.base.WeightSource`` over a lease.

    Each pass reads every tensor from its source anew and copies nothing; a tensor is valid while the lease is open.

    Args:
        tensors: a :class:`~lifecycle.weights.leases.WeightLease`, or any mapping of name to tensor.
        rename: the trainer's name to the checkpoint's; None for a tensor that is not sent.

    Raises:
        ConfigError: vLLM is not installed here, or two tensors would be sent under one name.
    """
    names: dict[str, str] = {}
    for own in tensors:
        sent = rename(own)
        if sent is None:
            continue
        if sent in names:
            raise ConfigError(f"{names[sent]} and {own} would both be sent as {sent}; rename them apart")
        names[sent] = own
    return _class()(tensors, names)


@cache
def _class() -> type:
    try:
        from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource  # noqa: PLC0415 - large, and only here
    except ImportError as error:
        raise ConfigError("a weight source is made where vLLM is installed, in the trainer's process too") from error

    class LeaseSource(WeightSource):  # type: ignore[misc]
        """Tensors of a lease, under checkpoint names."""

        def __init__(self, tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> None:
            self._tensors = tensors
            self._names = names

        def metadata(self) -> list[ParamMeta]:
            """Name, dtype and shape of each tensor, in the order of a pass."""
            found = ((sent, self._tensors[own]) for sent, own in self._names.items())
            return [ParamMeta(name, one.dtype, tuple(one.shape)) for name, one in found]

        def __iter__(self) -> Iterator[tuple[str, Tensor]]:
            for sent, own in self._names.items():
                yield sent, self._tensors[own]

    return LeaseSource
