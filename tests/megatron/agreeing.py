"""Two tensor-parallel ranks that agree on every transition, and share one engine."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lifecycle import HostArena, LifecycleConfig, MemoryAudit, TrainerLifecycle, TrainerState
from lifecycle.adapters import MegatronAdapters
from lifecycle.audit.projection import canonical
from lifecycle.distributed import RankAgreement, SharedEngine
from lifecycle.errors import AdapterError, LifecycleError
from tests.megatron.ranks import Receiver, opened
from tests.megatron.world import SLOT_RANK, Result, factors, forward, gpt

_ROOT = Path(__file__).parents[2]


@contextmanager
def store() -> Iterator[str]:
    """The address of a store in a process of its own."""
    command = [sys.executable, "-m", "lifecycle.distributed.store", "--until-eof"]
    environment = os.environ | {"PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().decode().strip()
        finally:
            process.kill()


class Agreeing:
    """One rank's trainer with two slots, its agreement with the other, and its end of their engine."""

    def __init__(self, ranks: RankAgreement, arena: HostArena) -> None:
        self.made = MegatronAdapters(gpt(), slots=3, rank=SLOT_RANK, gather_group=opened)
        self.adams = self.made.optimizers(lambda parameters: torch.optim.Adam(parameters, lr=0.01))
        self.audit = MemoryAudit(rank=ranks.seat.rank)
        self.trainer = TrainerLifecycle(
            LifecycleConfig(keep_old_actor=True),
            saver=arena,
            model=self.made.model,
            optimizer=self.adams,
            adapters=self.made,
            audit=self.audit,
            ranks=ranks,
            initial_state=TrainerState.AWAKE,
        )
        self.engine = Receiver() if ranks.seat.rank == 0 else None
        if self.engine is not None:
            self.engine.versions = self.base()  # it has whole files of its own: a shard is no base for it
        self.shared = SharedEngine(self.engine, ranks, name="E0")

    def base(self) -> dict[str, int]:
        """The versions of what is no adapter."""
        return {one.group: one.version for one in self.trainer.facts().contents if "/" not in one.group}

    def register(self, *names: str) -> None:
        """Whole adapters, the same on both ranks."""
        for seed, name in enumerate(names, 1):
            self.made.registry.register(name, tensors=factors(seed, 4), rank=4, alpha=12)

    def train(self, name: str) -> None:
        """One step."""
        adam = self.adams[self.made.slot_of(name)]
        with self.trainer.step([name]), self.made.use(name):
            forward(self.made.model, labels=True).backward()
            adam.step()
            adam.zero_grad(set_to_none=False)

    def tensors(self) -> dict[str, Tensor]:
        """This rank's own part of everything that is trained."""
        own = self.trainer._parts.door.own_bytes
        return {key: own(key, one) for key, one in self.trainer._parts.inventory.slot_tensors().items()}

    def found(self) -> Result:
        """What the test looks at."""
        tensors = self.tensors()
        return {
            "records": canonical(self.audit.records),
            "state": str(self.trainer.state),
            "shapes": {key: tuple(one.shape) for key, one in tensors.items()},
            "bytes": {key: _sha256(one) for key, one in tensors.items()},
            "calls": self.engine.calls if self.engine is not None else None,
        }


def both(address: str, rank: int) -> dict[str, Result]:
    """Both of what follows: starting a rank takes longer."""
    ranks = RankAgreement.over_gloo(rank, dist.get_world_size(), address, timeout_s=30)
    return {"life": life(ranks), "failed_load": failed_load(ranks)}


def life(ranks: RankAgreement) -> Result:
    """Load, train, sleep, offload, load and push while offloaded, wake, train, push, keep a model and switch to it."""
    arena = HostArena()
    try:
        one = Agreeing(ranks, arena)
        one.register("a", "b")
        one.trainer.reconcile_adapters()
        one.train("a")
        one.trainer.sleep()
        one.trainer.offload()
        one.register("c")
        one.made.registry.deregister("b")
        one.trainer.reconcile_adapters()
        one.trainer.update_weights([one.shared])
        one.trainer.wake_up()
        one.train("c")
        one.train("a")
        one.trainer.update_weights([one.shared])
        one.trainer.keep_model("ref")
        one.trainer.switch_model("ref")
        one.trainer.switch_model("actor")
        return one.found() | {"names": sorted(one.made.loaded())}
    finally:
        arena.close()


def failed_load(ranks: RankAgreement) -> Result:
    """Rank 1 cannot load its part of an adapter, awake and offloaded; then it can."""
    arena = HostArena()
    try:
        one = Agreeing(ranks, arena)
        one.register("a")
        one.trainer.reconcile_adapters()
        one.train("a")
        found: Result = {}
        for when in ("awake", "offloaded"):
            one.register(when)
            before = one.found()
            error = _refused(one, when, fails=ranks.seat.rank == 1)
            after = one.found()
            found |= {f"{when} error": error, f"{when} same": after["bytes"] == before["bytes"]}
            one.trainer.reconcile_adapters()
            with suppress(LifecycleError):
                one.trainer.sleep(offload=True)
        return one.found() | found | {"names": sorted(one.made.loaded())}
    finally:
        arena.close()


def _refused(one: Agreeing, name: str, *, fails: bool) -> str:
    real = one.made.prepare

    def prepare(desired: Any) -> Any:
        if fails and desired.name == name:
            raise AdapterError(name, "its part of layer 1 is torn")
        return real(desired)

    one.made.prepare = prepare  # type: ignore[method-assign]
    try:
        one.trainer.reconcile_adapters()
    except LifecycleError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        one.made.prepare = real  # type: ignore[method-assign]
    return "it was loaded"


def _sha256(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
