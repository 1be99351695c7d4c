"""A small world of bytes for the exploration of the machine: who holds which version, and where.

It knows nothing of ``lifecycle/`` and decides nothing. A version *is* its bytes: equal numbers, equal bytes. What
would end the process, tear bytes under a reader or lose them is a :class:`Harm`, raised where it happens.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from states import ACTOR, BUFFERS, FROZEN_BASE, TRAINABLE_BASE, Source, TrainerState, adapter_group

ADAPTER = adapter_group("A")


class Harm(Exception):
    """A step did something that no step may do."""


@dataclass(frozen=True)
class Setting:
    """One kind of run.

    Attributes:
        strategy: when copies are made.
        target: the offload target.
        file: the frozen base is backed by a file.
        lora: the base is frozen and an adapter trains; else base and buffers train.
        colocate: trainer and engine share the device.
        with_ref: other models are kept.
        retain: the saver keeps its host backups at a resume.
        base_kind: the backup kind of the region in which a framework has placed the base; empty: by the table.
        life: what else goes on: ``registry``, ``engine``, ``readers``, ``models``.
    """

    strategy: str = "lean"
    target: str | None = "cpu"
    file: bool = False
    lora: bool = True
    colocate: bool = True
    with_ref: bool = False
    retain: bool = False
    base_kind: str = ""
    life: tuple[str, ...] = ("registry",)

    def kind(self, group: str) -> str:
        """What a pause does with the bytes of a group."""
        if self.target is None:
            return "unplaced"
        if group == FROZEN_BASE:
            return "none" if self.file else self.base_kind or "cpu"
        if group in (TRAINABLE_BASE, BUFFERS) and self.target == "disk" and self.strategy != "lean":
            return "disk"
        return "cpu"

    def __str__(self) -> str:
        words = (
            self.strategy, self.target or "never", "file" if self.file else "", "lora" if self.lora else "full",
            "" if self.colocate else "apart", "ref" if self.with_ref else "", "retain" if self.retain else "",
            self.base_kind, *self.life,
        )  # fmt: skip
        return "-".join(word for word in words if word)


@dataclass(slots=True)
class Group:
    """The bytes of one content group.

    Attributes:
        kind: ``cpu``, ``disk``, ``none`` or ``unplaced``.
        wanted: the actor's newest version; None for a slot without an adapter.
        device: what the device memory holds, None while it is unmapped or holds noise.
        paused: whether the region is paused.
        host: what the saver's host backup holds, None without one.
        disk: what the saver's backup file holds, None without one.
        file: what the base file holds.
        dirty: a step that is open is changing the device memory.
        tags: what each snapshot says it holds.
        own: the versions that snapshots hold in memory of their own.
    """

    kind: str
    wanted: int | None = 1
    device: int | None = 1
    paused: bool = False
    host: int | None = None
    disk: int | None = None
    file: int | None = None
    dirty: bool = False
    tags: dict[str, int] = field(default_factory=dict)
    own: set[int] = field(default_factory=set)

    def copy(self) -> Group:
        """Another one, that changes alone."""
        return Group(
            self.kind, self.wanted, self.device, self.paused, self.host, self.disk, self.file, self.dirty,
            dict(self.tags), set(self.own),
        )  # fmt: skip

    @property
    def region(self) -> int | None:
        """What the trainer's own memory holds: on the device, or in the backup that a resume reads."""
        if not self.paused:
            return self.device
        return self.host if self.kind == "cpu" else self.disk if self.kind == "disk" else None

    def bytes_of(self, model: str) -> int | None:
        """The version that a model consists of."""
        return self.wanted if model == ACTOR else self.tags.get(model, self.wanted)

    def is_kept(self, version: int | None) -> bool:
        """Whether the version would still be there if the trainer's own memory was overwritten."""
        return version is not None and (version in self.own or version == self.file)

    def fresh_id(self) -> int:
        """A version that was never used."""
        held = (self.wanted, self.device, self.host, self.disk, self.file, *self.tags.values())
        return max(one or 0 for one in held) + 1

    def key(self) -> tuple[object, ...]:
        """Renumbers the versions in the order in which they are met, and drops copies that no tag has."""
        seen: dict[int | None, int | None] = {None: None}

        def number(version: int | None) -> int | None:
            return seen.setdefault(version, len(seen))

        if not self.paused and self.host not in (None, self.wanted):
            self.host = 0  # retained and old: nothing but that is ever asked of it
        self.wanted, self.device = number(self.wanted), number(self.device)
        self.host = self.host and number(self.host)
        self.disk, self.file = number(self.disk), number(self.file)
        kept = self.own & set(self.tags.values())
        self.tags = {tag: int(number(version) or 0) for tag, version in sorted(self.tags.items())}
        self.own = {int(number(version) or 0) for version in kept}
        return (
            self.wanted, self.device, self.paused, self.host, self.disk, self.file, self.dirty,
            tuple(self.tags.items()), tuple(sorted(self.own)),
        )  # fmt: skip


@dataclass(slots=True)
class World:
    """Everything that a step can change.

    Attributes:
        setting: the kind of run.
        state: where the trainer is.
        origin: the state that a reconcile under way has left.
        groups: the content groups.
        active: whose bytes are live.
        models: the snapshot tags that exist.
        step: the adapters of the open step, None when none is open.
        loads: the open step loads a checkpoint.
        scratch: whether scratch regions are paused.
        lease: (source, group) of the one reader there may be.
        registered: what the registry says of adapter A: ``same`` as loaded, ``new`` or ``none``.
        resident: the engine holds its weights memory.
        acked: the groups that the engine holds in the newest version.
        serves: the engine holds some version of adapter A.
        fenced: a push to the engine failed.
        transport: buffers of the last push are outstanding.
    """

    setting: Setting
    state: TrainerState = TrainerState.AWAKE
    origin: TrainerState | None = None
    groups: dict[str, Group] = field(default_factory=dict)
    active: str = ACTOR
    models: frozenset[str] = frozenset()
    step: tuple[str, ...] | None = None
    loads: bool = False
    scratch: bool = False
    lease: tuple[str, str] | None = None
    registered: str = "same"
    resident: bool = True
    acked: frozenset[str] = frozenset()
    serves: bool = False
    fenced: bool = False
    transport: bool = False

    @classmethod
    def at_start(cls, setting: Setting) -> World:
        """Attached and awake; the engine holds nothing."""
        names = (FROZEN_BASE, ADAPTER) if setting.lora else (TRAINABLE_BASE, BUFFERS)
        groups = {name: Group(setting.kind(name)) for name in names}
        if setting.file:
            groups[FROZEN_BASE].file = 1
        return cls(setting, groups=groups)

    def copy(self) -> World:
        """Another one, that changes alone."""
        return World(
            self.setting, self.state, self.origin, {name: one.copy() for name, one in self.groups.items()},
            self.active, self.models, self.step, self.loads, self.scratch, self.lease, self.registered, self.resident,
            self.acked, self.serves, self.fenced, self.transport,
        )  # fmt: skip

    def key(self) -> tuple[object, ...]:
        """Equal for worlds that differ in the numbers of their versions alone. Renumbers them."""
        return (
            self.state, self.origin, self.active, self.models, self.step, self.loads, self.scratch, self.lease,
            self.registered, self.resident, self.acked, self.serves, self.fenced, self.transport,
            *(group.key() for group in self.groups.values()),
        )  # fmt: skip

    def loaded(self) -> dict[str, Group]:
        """The groups that have a newest version."""
        return {name: one for name, one in self.groups.items() if one.wanted is not None}

    def changed_by(self, step: tuple[str, ...], *, loads: bool) -> tuple[str, ...]:
        """The groups that a step changes."""
        adapters = {adapter_group(name) for name in step}
        return tuple(
            name for name in self.loaded() if loads or name in (TRAINABLE_BASE, BUFFERS) or name in adapters
        )  # fmt: skip

    def is_read(self, source: str, group: str) -> bool:
        """Whether somebody reads this group there."""
        return self.lease == (source, group)

    def pin(self, source: str, group: str, what: str) -> None:
        """Raise when somebody reads there."""
        if self.is_read(source, group):
            raise Harm(f"{what} under a reader: {group} in {source}")

    def took_a_new_id(self, name: str) -> None:
        """The group's newest bytes are others now; no engine has them yet."""
        self.acked -= {name}

    def put(self, tag: str, name: str, version: int, *, own: bool = False) -> None:
        """A snapshot takes a version of a group; lean borrows a frozen one that the trainer keeps readable."""
        group = self.groups[name]
        is_in_file = version == group.file == group.wanted  # the file is written anew when the newest is another
        stays = is_in_file or (version == group.region and group.kind in ("cpu", "unplaced"))
        borrows = self.setting.strategy == "lean" and name == FROZEN_BASE and stays and not own
        group.tags[tag] = version
        if not borrows:
            group.own.add(version)
        self.models |= {tag}

    def place_of(self, source: Source, name: str, tag: str) -> int | None:
        """The bytes that a read of this source really gets; None where there is nothing to read."""
        group = self.groups[name]
        if source is Source.LIVE:
            return None if group.dirty else group.device
        if source is Source.SAVER_BACKUP:
            return group.host
        if source is Source.BASE_FILE:
            return group.file
        version = group.tags.get(tag)
        return version if version in group.own else None
