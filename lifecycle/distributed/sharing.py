"""One registry for all ranks: one rank's, which the others take over before each event."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Mapping
from typing import Final, Protocol

from torch import Tensor

from lifecycle.adapters.protocol import AdapterHost
from lifecycle.adapters.records import AdapterRecord, RegistrySnapshot
from lifecycle.adapters.registry import AdapterRegistry
from lifecycle.errors import ConfigError

_MARK: Final = struct.Struct("!16sQ?7x")
"""Which registry it is, its revision, and whether it has changed since it was taken over."""
_NOTHING: Final = bytes(16)


class Tells(Protocol):
    """What telling needs of an agreement of ranks."""

    def told(self, payload: bytes | None, *, by: int = 0) -> bytes:
        """What rank *by* says, on every rank."""


class Meets(Tells, Protocol):
    """What sharing needs of an agreement of ranks."""

    def marks(self, mark: bytes, by: int) -> tuple[bytes, ...]:
        """The marks of all ranks, in the order of the ranks, each of 32 bytes, for what rank *by* shares."""


class SharedRegistry:
    """This rank's part in it: what it has told, or heard.

    Args:
        ranks: the agreement.
        rank: this one.
    """

    def __init__(self, ranks: Meets, rank: int) -> None:
        self._ranks, self._rank = ranks, rank
        self._registry: AdapterRegistry | None = None
        self._identity = _NOTHING
        self._mark = _NOTHING, 0
        self._revision = -1
        self._cut: int | None = None
        self._known: dict[int, AdapterRecord] = {}

    def share(self, host: AdapterHost | None, by: int) -> None:
        """Be as the registry of rank *by*. Where all are as they were told, this takes one collective of a ballot.

        Args:
            host: of this rank.
            by: whose registry is the truth.

        Raises:
            ConfigError: the host has no :class:`AdapterRegistry`, or what was told cannot be taken over: it is
                malformed, has another number of slots, or has never known what this rank's host holds.
            RanksFailed, RanksDisagree, RanksMissing, RankFenced: as :meth:`~lifecycle.distributed.RankAgreement.told`.
        """
        registry, tells = self._own(host), self._rank == by
        if tells:
            registry.refresh()
        self._cut = registry.revision if tells else None
        marks = self._ranks.marks(
            self._own_mark(registry.revision if self._cut is None else self._cut, tells=tells), by
        )
        if set(marks) == {marks[by]}:
            return
        if tells:
            heard = {_MARK.unpack(one)[:2] for rank, one in enumerate(marks) if rank != by}
            self._tell(registry, by, marks[by], is_known=heard == {self._mark})
        else:
            self._hear(registry, by, marks[by])

    @property
    def has_moved(self) -> bool:
        """Whether this rank's registry, which the others go by, has changed since it was told."""
        return self._cut is not None and self._registry is not None and self._registry.revision != self._cut

    def _own(self, host: AdapterHost | None) -> AdapterRegistry:
        registry = getattr(host, "registry", None)
        if not isinstance(registry, AdapterRegistry):
            told = "ranks are to share a registry (registry_from), and this one's adapters have no AdapterRegistry"
            raise ConfigError(f"{told}; give every rank a host that has one, or leave registry_from out")
        if registry is not self._registry:
            self._registry, self._identity = registry, secrets.token_bytes(16)
            self._mark, self._revision, self._known = (_NOTHING, 0), -1, {}
        return registry

    def _own_mark(self, revision: int, *, tells: bool) -> bytes:
        """One that tells says what it has; one that hears says what it heard last, and whether it is that still."""
        if tells:
            return _MARK.pack(self._identity, revision, False)
        return _MARK.pack(*self._mark, revision != self._revision)

    def _tell(self, registry: AdapterRegistry, by: int, mark: bytes, *, is_known: bool) -> None:
        """Tell everything; what all the others heard the last time by its id alone."""
        with registry.unchanged():
            self._cut, snapshot = registry.revision, registry.snapshot()
        self._note(registry, mark, tell_registry(self._ranks, by, snapshot, self._known if is_known else {}))

    def _hear(self, registry: AdapterRegistry, by: int, mark: bytes) -> None:
        from lifecycle.adapters.wire import records_of  # noqa: PLC0415 - needs msgspec

        snapshot = hear_registry(self._ranks, by, self._known)
        registry.adopt(snapshot)
        self._note(registry, mark, records_of(snapshot))

    def _note(self, registry: AdapterRegistry, mark: bytes, records: dict[int, AdapterRecord]) -> None:
        identity, revision, _ = _MARK.unpack(mark)
        self._mark, self._revision, self._known = (identity, revision), registry.revision, records


def tell_registry(
    ranks: Tells, by: int, snapshot: RegistrySnapshot, known: Mapping[int, AdapterRecord]
) -> dict[int, AdapterRecord]:
    """Tell a registry, and then the tensors that registrations were given.

    Args:
        ranks: the agreement.
        by: this rank.
        snapshot: what is told.
        known: what all the others have heard before, by id.

    Returns:
        Every registration that was told, by id.
    """
    from lifecycle.adapters.wire import records_of, render_registry, render_tensors_told  # noqa: PLC0415 - msgspec

    content, follows = render_registry(snapshot, known)
    ranks.told(content, by=by)
    records = records_of(snapshot)
    for registration_id in follows:
        source = records[registration_id].source
        assert source is not None  # else nothing would follow
        assert source.tensors is not None
        ranks.told(render_tensors_told(source.tensors), by=by)
    return records


def hear_registry(ranks: Tells, by: int, known: Mapping[int, AdapterRecord]) -> RegistrySnapshot:
    """Hear what rank *by* tells with :func:`tell_registry`.

    Raises:
        ConfigError: it is malformed.
    """
    from lifecycle.adapters.wire import read_registry_told, read_tensors_told  # noqa: PLC0415 - needs msgspec

    heard = read_registry_told(ranks.told(None, by=by), known)
    tensors: dict[int, Mapping[str, Tensor]] = {}
    for registration_id in heard.awaits:
        tensors[registration_id] = read_tensors_told(registration_id, ranks.told(None, by=by))
    return heard.with_tensors(tensors)
