"""The frozen record of what guards may look at. Shared facts are equal on every rank, local ones are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from states.names import ACTOR, FROZEN_BASE, FrozenBase, Strategy, TrainerState

SHARED: Final = {"scope": "shared"}
LOCAL: Final = {"scope": "local"}

BACKUPS: Final = ("none", "cpu", "disk", "unplaced")
TARGETS: Final = ("cpu", "disk", None)
_STRATEGIES: Final = frozenset(one.value for one in Strategy)
_CHECKED: Final = frozenset({"offload_target", "strategy", "frozen_base", "contents"})
"""The fields that may hold a value that no guard knows."""
_BACKINGS: Final = frozenset(one.value for one in FrozenBase)


@dataclass(frozen=True, slots=True)
class ContentFacts:
    """Where one content group stands: which version is wanted, and which versions are held where.

    Attributes:
        group: ``frozen-base``, ``trainable-base``, ``buffers`` or ``adapter/NAME``.
        version: id of the actor's newest bytes. Equal ids mean equal bytes.
        live: id of the bytes on the device, None while they are paused or undefined.
        saver: id of the bytes in the saver's host backup, None when it cannot be read.
        retained: that backup is the one of the last pause and the region is active again.
        file: id of the bytes in the base file, None when there is none.
        copies: (snapshot tag, id) of every snapshot that has *all* tensors of the group.
        borrowed: the tags among them without bytes of their own: they share those of the trainer.
        backup: what happens to the bytes when the region is paused: ``cpu`` and ``disk`` come back
            on resume, ``none`` comes back without values, ``unplaced`` memory is never paused.
        frozen: the bytes never change while the group exists.
        unreadable: names of tensors that no source can serve now (a few, for the message).
    """

    group: str = FROZEN_BASE
    version: int = 1
    live: int | None = 1
    saver: int | None = None
    retained: bool = False
    file: int | None = None
    copies: tuple[tuple[str, int], ...] = ()
    borrowed: tuple[str, ...] = ()
    backup: str = "cpu"
    frozen: bool = True
    unreadable: tuple[str, ...] = ()

    def copy_version(self, tag: str) -> int | None:
        """Version of this group in snapshot *tag*, None when the snapshot lacks it."""
        return None if len(self.copies) == 0 else dict(self.copies).get(tag)

    def version_of(self, model: str) -> int:
        """What the bytes of a model are; a group that it keeps no copy of it shares with the actor."""
        kept = None if model == ACTOR else self.copy_version(model)
        return self.version if kept is None else kept

    def fresh_copies(self) -> tuple[str, ...]:
        """Tags of the snapshots that hold the newest version in bytes of their own."""
        if len(self.copies) == 0:  # not by its truth: None has no length, and a defect is no permission
            return ()
        return tuple(tag for tag, held in self.copies if held == self.version and tag not in self.borrowed)

    def kept_versions(self) -> frozenset[int]:
        """The versions that would still exist if the live bytes were overwritten."""
        own = {held for tag, held in self.copies if tag not in self.borrowed}
        return frozenset(own if self.file is None else {*own, self.file})

    def is_in_own_memory(self) -> bool:
        """Whether the trainer's own memory holds the newest version: live, or in the backup of the present pause."""
        return self.version == (self.saver if self.live is None else self.live)

    def saver_is_fresh(self) -> bool:
        """Whether the saver's backup holds the newest version.

        A retained backup holds the bytes of the last pause: right for what is frozen, and for nothing else
        once the trainer is awake.
        """
        return self.saver == self.version and (self.frozen or not self.retained)

    def restored_from_file(self) -> bool:
        """Whether the base file brings the newest version back."""
        return self.file == self.version


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """An open lease, or a tensor that outlived one.

    Attributes:
        holder: who reads; named in refusals.
        source: ``live``, ``saver-backup`` or ``snapshot:TAG``: the memory that must stay as it is.
        groups: the content groups it reads.
        leaked: names of tensors that are still alive although their lease was closed.
    """

    holder: str
    source: str
    groups: tuple[str, ...]
    leaked: tuple[str, ...] = ()

    def describe(self) -> str:
        """The holder, and the tensors if they outlived their lease."""
        if self.leaked:
            more = f" and {len(self.leaked) - 3} more" if len(self.leaked) > 3 else ""  # noqa: PLR2004 - a few names do
            return f"{self.holder} (closed, but {', '.join(self.leaked[:3])}{more} outlived it)"
        return self.holder


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a rollout engine has acknowledged.

    Attributes:
        name: the engine.
        weights_resident: it holds its ``weights`` tag; None when it is unknown.
        stale: groups whose acknowledged version is not the trainer's, or whose registry has heard of no push; in order.
        extra: adapters it holds that the trainer no longer has.
        fenced: why it may not serve, empty when it may.
        adapter_slots: how many adapters it holds at once; None when it does not say.
        discarded: tags that it released without a copy: what they held is gone, sorted.
        unknown: why it is not known what it holds, empty when it is. Everything is stale then.
        ahead: groups that it holds in a version that the trainer has never given out yet, each with the version.
    """

    name: str
    weights_resident: bool | None = True
    stale: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    fenced: str = ""
    adapter_slots: int | None = None
    discarded: tuple[str, ...] = ()
    unknown: str = ""
    ahead: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything a guard may look at, gathered once per event. Bytes are in bytes."""

    # Without slots: a dict of this many values is copied at once, see changed().

    # configuration
    colocate: bool = field(default=True, metadata=SHARED)
    lora: bool = field(default=True, metadata=SHARED)
    offload_target: str | None = field(default="cpu", metadata=SHARED)
    with_ref: bool = field(default=False, metadata=SHARED)
    with_teacher: bool = field(default=False, metadata=SHARED)
    keep_old_actor: bool = field(default=False, metadata=SHARED)
    strategy: str = field(default=Strategy.LEAN.value, metadata=SHARED)
    frozen_base: str = field(default=FrozenBase.SAVER.value, metadata=SHARED)
    # versions and plans
    active_model: str = field(default=ACTOR, metadata=SHARED)
    models: tuple[str, ...] = field(default=(), metadata=SHARED)
    contents: tuple[ContentFacts, ...] = field(default=(ContentFacts(),), metadata=SHARED)
    origin: TrainerState | None = field(default=None, metadata=SHARED)
    to_load: tuple[str, ...] = field(default=(), metadata=SHARED)
    to_retire: tuple[str, ...] = field(default=(), metadata=SHARED)
    plan_digest: str = field(default="", metadata=SHARED)
    unaccounted: tuple[str, ...] = field(default=(), metadata=SHARED)
    touched: tuple[str, ...] = field(default=(), metadata=SHARED)
    step_open: bool = field(default=False, metadata=SHARED)
    step_differs: tuple[str, ...] = field(default=(), metadata=SHARED)
    step_unknown: tuple[str, ...] = field(default=(), metadata=SHARED)
    step_frozen: tuple[str, ...] = field(default=(), metadata=SHARED)
    unsucceeded: tuple[str, ...] = field(default=(), metadata=SHARED)
    reference_open: bool = field(default=False, metadata=SHARED)
    accumulated: tuple[str, ...] = field(default=(), metadata=SHARED)
    switch_target: str = field(default=ACTOR, metadata=SHARED)
    engines: tuple[EngineFacts, ...] = field(default=(), metadata=SHARED)
    # this rank
    saver_enabled: bool = field(default=True, metadata=LOCAL)
    leases: tuple[LeaseFacts, ...] = field(default=(), metadata=LOCAL)
    strays: tuple[str, ...] = field(default=(), metadata=LOCAL)
    unwritable: tuple[str, ...] = field(default=(), metadata=LOCAL)
    unknown_slot_state: tuple[str, ...] = field(default=(), metadata=LOCAL)
    gradients_kept: bool = field(default=True, metadata=LOCAL)
    backup_need_bytes: int = field(default=0, metadata=LOCAL)
    copy_need_bytes: int = field(default=0, metadata=LOCAL)
    host_free_bytes: int | None = field(default=None, metadata=LOCAL)
    disk_need_bytes: int = field(default=0, metadata=LOCAL)
    disk_free_bytes: int | None = field(default=None, metadata=LOCAL)
    disk_is_real: bool = field(default=True, metadata=LOCAL)
    disk_problem: str = field(default="", metadata=LOCAL)
    base_file_problem: str = field(default="", metadata=LOCAL)
    resume_need_bytes: int = field(default=0, metadata=LOCAL)
    device_free_bytes: int | None = field(default=None, metadata=LOCAL)
    transport_bytes: int = field(default=0, metadata=LOCAL)
    transport_holders: tuple[str, ...] = field(default=(), metadata=LOCAL)
    active_tags: int = field(default=1, metadata=LOCAL)
    paused_tags: int = field(default=0, metadata=LOCAL)
    scratch_paused: bool = field(default=False, metadata=LOCAL)

    def __post_init__(self) -> None:
        """Refuse values that no guard knows.

        Raises:
            ValueError: an offload target, strategy, backing or backup kind that does not exist.
        """
        if self.offload_target not in TARGETS:
            raise ValueError(f"offload_target is {self.offload_target!r}; use 'cpu', 'disk' or None")
        if self.strategy not in _STRATEGIES or self.frozen_base not in _BACKINGS:
            Strategy(self.strategy)
            FrozenBase(self.frozen_base)
        for content in self.contents:
            if content.backup not in BACKUPS:
                raise ValueError(f"{content.group}: backup is {content.backup!r}; use one of {BACKUPS}")

    def changed(self, values: Mapping[str, Any]) -> Facts:
        """The facts with other values. As :func:`dataclasses.replace`, in a tenth of its time.

        Args:
            values: by the name of the field.

        Raises:
            TypeError: there is no such field.
            ValueError: a value that no guard knows.
        """
        made = object.__new__(Facts)
        made.__dict__.update(self.__dict__)
        made.__dict__.update(values)
        if len(made.__dict__) != len(self.__dict__):
            raise TypeError(f"facts have no {', '.join(sorted(made.__dict__.keys() - self.__dict__.keys()))}")
        if not _CHECKED.isdisjoint(values):
            made.__post_init__()
        return made

    def content(self, group: str) -> ContentFacts | None:
        """The facts of one content group, None when the trainer has no such group."""
        return next((one for one in self.contents if one.group == group), None)

    def shared(self) -> dict[str, Any]:
        """The facts that must be equal on every rank, by name."""
        return self._scoped("shared")

    def local(self) -> dict[str, Any]:
        """The facts of this rank alone, by name."""
        return self._scoped("local")

    def _scoped(self, scope: str) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self) if one.metadata["scope"] == scope}
