"""A host that loads what a registry says into the slots of a tiny model, and ranks that have one each."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lifecycle import HostArena, LifecycleConfig, TrainerLifecycle, TrainerState
from lifecycle.adapters import AdapterRegistry
from lifecycle.adapters.protocol import DesiredAdapter, PreparedAdapter
from lifecycle.adapters.sources import AdapterSource
from lifecycle.audit.log import MemoryAudit
from lifecycle.distributed import RankAgreement
from lifecycle.errors import AdapterError
from states import Effect
from tests.distributed.ranks import TIMEOUT_S, WORLD, Member
from tests.lifecycle.world import SLOT_RANK, WIDTH, SlotHost, TinyModel, content_of


class RegistryHost(SlotHost):
    """Its adapters are those of a registry: given tensors, or fresh ones of their seed."""

    def __init__(self, model: TinyModel, registry: AdapterRegistry) -> None:
        super().__init__(model)
        self.registry = registry
        registry.connect(self._check, self.loaded)

    def _check(self, name: str, source: AdapterSource) -> None:
        if source.tensors is not None and set(source.tensors) != {"a", "b"}:
            raise AdapterError(name, "it needs a and b")

    def desired(self) -> Mapping[str, DesiredAdapter]:
        return self.registry.desired()

    def prepare(self, desired: DesiredAdapter) -> PreparedAdapter:
        if desired.name in self.bad:
            raise AdapterError(desired.name, "its file is malformed")
        source, slot = self.registry.source_of(desired), desired.slot
        draw = torch.Generator().manual_seed(source.seed)
        fresh = {"a": torch.randn(SLOT_RANK, WIDTH, generator=draw), "b": torch.randn(WIDTH, SLOT_RANK, generator=draw)}
        given = fresh if source.tensors is None else source.tensors
        return PreparedAdapter(desired, 2, 4.0, ("up",), {f"lora_{one}.{slot}": given[one] for one in "ab"})

    def freed(self, adapters: tuple[DesiredAdapter, ...]) -> None:
        for one in adapters:
            self.registry.release(one)

    def reinstate(self, loaded: Mapping[str, DesiredAdapter]) -> None:
        for one in loaded.values():
            self.registry.reinstate(one)
        super().reinstate(loaded)

    def pushed(self, names: tuple[str, ...]) -> None:
        self.registry.record_weight_update([self.holds[name] for name in names])


def given_tensors(seed: int) -> dict[str, Tensor]:
    """What an adapter may be registered with."""
    draw = torch.Generator().manual_seed(seed)
    return {"a": torch.randn(SLOT_RANK, WIDTH, generator=draw), "b": torch.randn(WIDTH, SLOT_RANK, generator=draw)}


def registered_trainer(ranks: RankAgreement, registry: AdapterRegistry) -> tuple[TrainerLifecycle, RegistryHost]:
    """A trainer that is awake, whose adapters are those of this registry."""
    torch.manual_seed(0)
    model = TinyModel(registry.slots)
    host = RegistryHost(model, registry)
    trainer = TrainerLifecycle(
        LifecycleConfig(),
        saver=HostArena(),
        model=model,
        optimizer=[torch.optim.Adam([model.lora_a[slot], model.lora_b[slot]]) for slot in range(registry.slots)],
        adapters=host,
        audit=MemoryAudit(),
        ranks=ranks,
        initial_state=TrainerState.AWAKE,
    )
    return trainer, host


class Registrar(Member):
    """One of four ranks that share the registry of rank 0."""

    def __init__(self, rank: int, store: str) -> None:
        super().__init__(rank, store)
        self.agreement.close()
        self.agreement = RankAgreement.over_gloo(rank, WORLD, store, run="shared", timeout_s=TIMEOUT_S, registry_from=0)

    def build(self, slots: int = 3) -> None:
        """A new trainer on a new registry."""
        self.registry = AdapterRegistry(slots)
        self.trainer, self.host = registered_trainer(self.agreement, self.registry)

    def call(self, method: str, *args: Any, seed_of_tensors: int | None = None, **given: Any) -> str:
        """Call a method of this rank's registry."""
        if seed_of_tensors is not None:
            given |= {"tensors": given_tensors(seed_of_tensors), "rank": 2}
        return str(getattr(self.registry, method)(*args, **given))

    def event(self, *events: str) -> None:
        """Events by the names of their methods."""
        for one in events:
            getattr(self.trainer, one)()

    def looks(self) -> dict[str, Any]:
        """What this rank has."""
        return {
            "loaded": {name: (one.registration_id, one.slot) for name, one in self.host.loaded().items()},
            "states": {name: str(self.registry.adapter_state(name)) for name in "ABCD"},
            "bytes": content_of(dict(self.host.model.state_dict())),
            "completed": [one.adapter.name for one in self.registry.snapshot().completed],
        }

    def spoil(self, *names: str) -> None:
        """These adapters cannot be loaded on this rank, and all others can."""
        self.host.bad = set(names)

    def stands(self) -> str:
        """The state of its trainer."""
        return str(self.trainer.state)

    def tell(self, payload: bytes | None, by: int = 0) -> bytes:
        """Tell what is given, or hear it."""
        return self.agreement.told(payload, by=by)

    def hears(self, by: int, size_bytes: int) -> str:
        """Digest of so many bytes that a rank tells."""
        payload = digits(size_bytes) if self.rank == by else None
        return hashlib.sha256(self.agreement.told(payload, by=by)).hexdigest()

    def hook_telling(self, *, fails: bool = False, dies: bool = False) -> None:
        """While caches are cleared, rank 0 tells something, unless this rank fails or ends before."""

        def hooked(_parts: Any, _work: Any) -> Callable[[], None]:
            if fails:
                raise ValueError("it broke")
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            self.agreement.told(b"a" * 100 if self.rank == 0 else None)
            return lambda: None

        self.trainer._runner.effects[Effect("clear-caches")] = hooked


def digits(size_bytes: int) -> bytes:
    """So many bytes, which repeat after an odd number of them."""
    return (b"0123456789a" * (size_bytes // 11 + 1))[:size_bytes]
