"""The small world of the field cases: a base with tied weights, adapters A and B, an arena, fake engines."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from lifecycle import HostArena, LifecycleConfig, MemoryAudit, TrainerLifecycle, TrainerState
from lifecycle.adapters.protocol import DesiredAdapter, PreparedAdapter
from lifecycle.engines.protocol import AdapterPayload, EngineReport
from lifecycle.errors import AdapterError, EngineError
from lifecycle.transition.ranks import ALONE, Ranks

WIDTH, SLOT_RANK = 32, 4


class TinyModel(nn.Module):
    """Three frozen tensors, one tied to a second name, a buffer, slots, and a trainable P on demand."""

    def __init__(self, slots: int = 3, *, trainable: bool = False) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.embed = nn.Parameter(torch.randn(WIDTH, WIDTH), requires_grad=False)
        self.head = self.embed
        self.up = nn.Parameter(torch.randn(WIDTH, WIDTH), requires_grad=False)
        self.down = nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.bfloat16), requires_grad=False)
        self.register_buffer("bias", torch.zeros(WIDTH))
        if trainable:
            self.p = nn.Parameter(torch.randn(WIDTH))
        self.lora_a = nn.ParameterList(nn.Parameter(torch.zeros(SLOT_RANK, WIDTH)) for _ in range(slots))
        self.lora_b = nn.ParameterList(nn.Parameter(torch.zeros(WIDTH, SLOT_RANK)) for _ in range(slots))

    def loss(self, slot: int, x: Tensor) -> Tensor:
        """Something that depends on one slot, and on P if there is one."""
        hidden = x @ self.up + (x @ self.lora_a[slot].T) @ self.lora_b[slot].T
        if hasattr(self, "p"):
            hidden = hidden * self.p
        return (hidden**2).mean()


@dataclass
class SlotHost:
    """An adapter host over :class:`TinyModel`: the registry is a dict, the files are tensors."""

    model: TinyModel
    wanted: dict[str, DesiredAdapter] = field(default_factory=dict)
    holds: dict[str, DesiredAdapter] = field(default_factory=dict)
    values: dict[str, Mapping[str, Tensor]] = field(default_factory=dict)
    pushes: list[str] = field(default_factory=list)
    bad: set[str] = field(default_factory=set)
    registrations: int = 0

    @property
    def slots(self) -> int:
        return len(self.model.lora_a)

    def register(self, name: str, slot: int, seed: int | None = None) -> None:
        self.registrations += 1
        self.wanted[name] = DesiredAdapter(name, self.registrations, slot)
        draw = torch.Generator().manual_seed(self.registrations if seed is None else seed)
        self.values[name] = {
            f"lora_a.{slot}": torch.randn(SLOT_RANK, WIDTH, generator=draw),
            f"lora_b.{slot}": torch.randn(WIDTH, SLOT_RANK, generator=draw),
        }

    def deregister(self, name: str) -> None:
        del self.wanted[name]

    def desired(self) -> Mapping[str, DesiredAdapter]:
        return dict(self.wanted)

    def loaded(self) -> Mapping[str, DesiredAdapter]:
        return dict(self.holds)

    def slot_tensors(self, slot: int) -> Mapping[str, Tensor]:
        return {f"lora_a.{slot}": self.model.lora_a[slot], f"lora_b.{slot}": self.model.lora_b[slot]}

    def prepare(self, desired: DesiredAdapter) -> PreparedAdapter:
        if desired.name in self.bad:
            raise AdapterError(desired.name, "its file is malformed")
        return PreparedAdapter(desired, 2, 4.0, ("up",), self.values[desired.name])

    def install(self, prepared: PreparedAdapter) -> None:
        self.holds[prepared.desired.name] = prepared.desired

    def uninstall(self, name: str) -> None:
        del self.holds[name]

    def freed(self, adapters: tuple[DesiredAdapter, ...]) -> None:
        """The dict has no slots to free."""

    def reinstate(self, loaded: Mapping[str, DesiredAdapter]) -> None:
        self.holds = dict(loaded)

    def pushed(self, names: tuple[str, ...]) -> None:
        self.pushes.extend(names)

    def export(
        self, name: str, read: Callable[[str], Tensor]
    ) -> tuple[int, float, tuple[str, ...], Mapping[str, Tensor]]:
        return 2, 4.0, ("up",), {key: read(key) for key in self.slot_tensors(self.holds[name].slot)}

    def base_tensors(self) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        names = {name: one for name, one in self.model.named_parameters() if not name.startswith("lora_")}
        return names, dict(self.model.named_buffers())


@dataclass
class FakeEngine:
    """An engine that remembers digests. Writing into released memory is process death: the test fails at once."""

    name: str = "E0"
    instance: int = 0
    resident: set[str] = field(default_factory=lambda: {"weights", "kv_cache"})
    versions: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    fails_at: str = ""
    keeps: list[Tensor] = field(default_factory=list)
    hoards: bool = False
    staged: dict[str, tuple[int, str]] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)

    def report(self) -> EngineReport:
        released = frozenset({"weights", "kv_cache"} - self.resident)
        return EngineReport(f"{self.name}-{self.instance}", frozenset(self.resident), released, dict(self.versions))

    def begin_update(self) -> None:
        self._call("begin")
        self.staged, self.touched = {}, set()

    def send_base(self, group: str, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        self.touched.add(group)
        received = dict(tensors)
        self._call(f"base:{group}")
        self._receive(group, version, received)

    def load_adapter(self, payload: AdapterPayload) -> None:
        group = f"adapter/{payload.name}"
        self.touched.add(group)
        self._call(f"adapter:{payload.name}")
        self._receive(group, payload.version, payload.tensors)

    def unload_adapter(self, name: str) -> None:
        self._call(f"unload:{name}")
        self.versions.pop(f"adapter/{name}", None)

    def commit_update(self) -> None:
        self._call("commit")
        for group, (version, content) in self.staged.items():
            self.versions[group], self.digests[group] = version, content
        self.touched = set()

    def abort_update(self) -> None:
        self.calls.append("abort")
        for group in self.touched:
            self.versions.pop(group, None)

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:
        self.calls.append(f"release:{','.join(tags)}")
        self.resident -= set(tags)

    def resume(self, tags: Iterable[str]) -> None:
        self.calls.append(f"resume:{','.join(tags)}")
        self.resident |= set(tags)

    def restart(self) -> None:
        self.instance += 1
        self.versions, self.digests = {}, {}

    def _call(self, what: str) -> None:
        assert "weights" in self.resident, f"process death: {what} into released memory"
        self.calls.append(what)
        if self.fails_at and what.startswith(self.fails_at):
            raise EngineError(self.name, f"told to fail at {what}")

    def _receive(self, group: str, version: int, tensors: Mapping[str, Tensor]) -> None:
        if self.hoards:
            self.keeps.extend(tensors.values())
        self.staged[group] = (version, content_of(tensors))


def content_of(tensors: Mapping[str, Tensor]) -> str:
    """A digest of names and bytes."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        total.update(name.encode())
        total.update(tensors[name].detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


@dataclass
class World:
    """One trainer with everything around it."""

    model: TinyModel
    host: SlotHost
    arena: HostArena
    audit: MemoryAudit
    trainer: TrainerLifecycle
    optimizers: dict[int, torch.optim.Optimizer]

    def train(self, *names: str, steps: int = 1, from_zero: bool = True) -> None:
        """Really train: forward, backward, optimizer step; on top of what is accumulated unless *from_zero*."""
        for _ in range(steps):
            with self.trainer.step(names) as step:
                for name in names if from_zero else ():
                    self.optimizers[self.host.holds[name].slot].zero_grad(set_to_none=False)
                self.backward(*names)
                for name in names:
                    self.optimizers[self.host.holds[name].slot].step()
                step.stepped()

    def backward(self, *names: str) -> None:
        x = torch.ones(2, WIDTH)
        for name in names:
            self.model.loss(self.host.holds[name].slot, x).backward()

    def weights(self) -> dict[str, str]:
        """SHA-256 of each tensor that the trainer would serve, read through a lease."""
        with self.trainer.weights("test") as lease:
            return {name: content_of({name: lease[name]}) for name in lease}

    def all_bytes(self) -> dict[str, str]:
        """SHA-256 of every tensor where it is, through the door: weights and moments."""
        parts = self.trainer._parts
        tensors = {name: one for held in parts.inventory.groups().values() for name, one in held.items()}
        tensors |= parts.inventory.slot_tensors() | parts.moments.tensors()
        return {name: content_of({name: parts.door.own_bytes(name, one)}) for name, one in tensors.items()}

    def records(self, name: str = "") -> list[dict[str, object]]:
        return [one for one in self.audit.records if str(one["event"]).startswith("lifecycle." + name)]


def make_world(
    *,
    config: LifecycleConfig | None = None,
    adapters: tuple[str, ...] = ("A", "B"),
    trainable: bool = False,
    slots: int = 3,
    arena: HostArena | None = None,
    ballast_bytes: int = 0,
    ranks: Ranks = ALONE,
    **changes: object,
) -> World:
    """A trainer that is awake, with the named adapters loaded; *ballast_bytes* make its frozen base larger."""
    model = TinyModel(slots, trainable=trainable)
    if ballast_bytes:
        model.register_parameter("ballast", nn.Parameter(torch.randn(ballast_bytes // 4), requires_grad=False))
    host = SlotHost(model)
    saver = arena if arena is not None else HostArena()
    optimizers: dict[int, torch.optim.Optimizer] = {
        slot: torch.optim.Adam([model.lora_a[slot], model.lora_b[slot]], lr=0.01) for slot in range(slots)
    }
    if trainable:
        optimizers[slots] = torch.optim.Adam([model.p], lr=0.01)
    audit = MemoryAudit()
    settings = config if config is not None else LifecycleConfig()
    trainer = TrainerLifecycle(
        replace(settings, **changes),  # type: ignore[arg-type]
        saver=saver,
        model=model,
        optimizer=optimizers,
        adapters=host,
        audit=audit,
        ranks=ranks,
        initial_state=TrainerState.AWAKE,
    )
    for slot, name in enumerate(adapters):
        host.register(name, slot)
    if adapters:
        trainer.reconcile_adapters()
    audit.records.clear()
    return World(model, host, saver, audit, trainer, optimizers)
