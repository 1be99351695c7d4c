"""What is sent of each content group, and that it is all of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Protocol, runtime_checkable

from torch import Tensor

from lifecycle.adapters.protocol import AdapterHost
from lifecycle.engines.protocol import AdapterPayload
from lifecycle.errors import IncompletePush
from lifecycle.transition.parts import Parts
from lifecycle.weights.digests import tensor_sha256
from lifecycle.weights.leases import WeightLease
from states import ADAPTER_PREFIX, adapter_group


@runtime_checkable
class NamesExports(Protocol):
    """An adapter host that says, apart from its export, which tensors an adapter consists of. Optional."""

    def exported(self, name: str) -> Collection[str]:
        """The PEFT names of a loaded adapter's tensors."""


def payload_of(host: AdapterHost, name: str, version: int, lease: WeightLease) -> AdapterPayload:
    """One adapter as it is sent or saved; its tensors are views of what the lease gives."""
    rank, alpha, targets, tensors = host.export(name, lease.__getitem__)
    return AdapterPayload(name, version, rank, alpha, targets, tensors)


def payloads_of(parts: Parts, groups: tuple[str, ...], lease: WeightLease) -> dict[str, AdapterPayload]:
    """The adapters among these groups, whole. Made before an engine is touched.

    Raises:
        IncompletePush: an export does not consist of exactly the tensors of its adapter.
    """
    if parts.adapters is None:
        return {}
    found = {}
    for group in groups:
        if group.startswith(ADAPTER_PREFIX):
            found[group] = _whole(parts, parts.adapters, group.removeprefix(ADAPTER_PREFIX), lease)
    return found


def sent_tensors(
    parts: Parts, payloads: Mapping[str, AdapterPayload], lease: WeightLease
) -> Callable[[str], Mapping[str, Tensor]]:
    """Gives the trainer's own tensors of a content group under the names that they are sent with."""

    def tensors(group: str) -> Mapping[str, Tensor]:
        if group in payloads:
            return payloads[group].tensors
        return {name: lease[name] for name in parts.inventory.groups()[group]}

    return tensors


def _whole(parts: Parts, host: AdapterHost, name: str, lease: WeightLease) -> AdapterPayload:
    group = adapter_group(name)
    version, read = parts.versions.wanted[group], set[str]()
    held = frozenset(parts.inventory.groups()[group])

    def reading(tensor: str) -> Tensor:
        if tensor not in held:
            raise IncompletePush(name, version, (), (tensor,))
        read.add(tensor)
        return lease[tensor]

    rank, alpha, targets, tensors = host.export(name, reading)
    given = frozenset(tensors)
    if isinstance(host, NamesExports):
        expected = frozenset(host.exported(name))
        missing, strange = expected - given, given - expected
    else:
        missing, strange = held - read, frozenset()
        if not missing and len(given) < len(held):
            missing = held - given
    if missing or strange:
        raise IncompletePush(name, version, sorted(missing), sorted(strange))
    return AdapterPayload(name, version, rank, alpha, targets, tensors)


class BaseStream:
    """The tensors of one base group, each once, for an engine that takes them one by one.

    Args:
        group: the content group.
        version: of its bytes.
        names: its tensors.
        lease: gives them.

    Attributes:
        sent_bytes: what was taken so far.
    """

    def __init__(self, group: str, version: int, names: Collection[str], lease: WeightLease) -> None:
        self._group = group
        self._version = version
        self._left = deque(names)
        self._lease = lease
        self.sent_bytes = 0

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        while self._left:
            name = self._left.popleft()
            tensor = self._lease[name]
            self.sent_bytes += size_bytes(tensor)
            yield name, tensor
            del tensor

    def check(self) -> None:
        """Refuse a stream that was not taken to its end.

        Raises:
            IncompletePush: naming what is left.
        """
        if self._left:
            raise IncompletePush(self._group, self._version, list(self._left))


class Checksums:
    """SHA-256 of the trainer's own tensors, one by one, worked out once for all engines of an event."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, str]] = {}

    def of(self, group: str, tensors: Mapping[str, Tensor]) -> dict[str, str]:
        """By name: the digest of a tensor's contiguous bytes, in its own dtype."""
        if group not in self._known:
            self._known[group] = {name: tensor_sha256(one) for name, one in tensors.items()}
        return self._known[group]


def size_bytes(tensor: Tensor) -> int:
    """Bytes of its elements."""
    return tensor.numel() * tensor.element_size()
