"""Ranks with a Llama that has slots, and one real engine: in the process of rank 0, or a vLLM server behind HTTP."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import Adam

from lifecycle import HostArena, LifecycleConfig, MemoryAudit, TrainerLifecycle, TrainerState
from lifecycle.audit.projection import canonical
from lifecycle.demo.train import policy_logprobs
from lifecycle.distributed import SharedEngine
from lifecycle.engines.local import LocalEngine
from lifecycle.engines.vllm import VllmEngine, held_base
from tests.adapters.world import IDS, SLOT_RANK, TARGETS, factors, host, llama
from tests.distributed.ranks import Member
from tests.engines.vllm_server import PROMPTS, FakeVllm, engine_on, tokens


class Colocated(Member):
    """A rank with adapter a loaded."""

    server: FakeVllm | None = None
    engine: LocalEngine | VllmEngine | None = None

    def begin(self, engine: str) -> None:
        """A new trainer, and one engine on rank 0 for all: ``"local"`` or ``"vllm"``."""
        self.arena, self.made, self.audit = HostArena(), host(), MemoryAudit(rank=self.rank)
        self.adams = self.made.optimizers(lambda parameters: Adam(parameters, lr=0.01))
        self.trainer = TrainerLifecycle(
            LifecycleConfig(),
            saver=self.arena,
            model=self.made.model,
            optimizer=self.adams,
            adapters=self.made,
            audit=self.audit,
            ranks=self.agreement,
            initial_state=TrainerState.AWAKE,
        )
        self.enroll("a")
        self.trainer.reconcile_adapters()
        if self.rank == 0:
            self.engine = self._local() if engine == "local" else self._vllm()
        name = "e0"
        self.shared = SharedEngine(self.engine, self.agreement, name=name)

    def enroll(self, name: str) -> None:
        """Register an adapter; the same on every rank."""
        self.made.registry.register(name, tensors=factors(len(name), 4), rank=4, alpha=12)

    def life(self) -> None:
        """Train, sleep, offload, load another adapter, push, wake, train and push again."""
        self.train()
        self.trainer.sleep(offload=True)
        self.enroll("bb")
        self.trainer.reconcile_adapters()
        self.trainer.update_weights([self.shared])
        self.trainer.wake_up()
        self.train()
        self.trainer.update_weights([self.shared])

    def train(self) -> None:
        """One step of adapter a."""
        adam = self.adams[self.made.slot_of("a")]
        with self.trainer.step(["a"]), self.made.use("a"):
            self.made.model(input_ids=IDS, labels=IDS).loss.backward()
            adam.step()
            adam.zero_grad(set_to_none=False)

    def push(self) -> None:
        """Send what the engine lacks."""
        self.trainer.update_weights([self.shared])

    def refuse(self, what: str) -> None:
        """The server refuses adapters from now on, or takes them again."""
        assert self.server is not None
        self.server.refuses = lambda path: bool(what) and what in str(path)

    def took(self) -> list[str]:
        """What changed something at the server, since this was last asked."""
        assert self.server is not None
        return self.server.took()

    def difference(self, name: str) -> float:
        """The local engine's log-probabilities of tokens that it sampled, against this rank's trainer's."""
        assert isinstance(self.engine, LocalEngine)
        rollout = self.engine.generate(IDS, name, max_new_tokens=6, seed=1)
        with torch.no_grad(), self.made.use(name):
            own = policy_logprobs(self.made.model, IDS, rollout.tokens)
        return float((own - rollout.logprobs).abs().max())

    def found(self) -> dict[str, Any]:
        """What must be alike on every rank."""
        books = self.trainer._parts.runtime.engines
        (standing,) = self.trainer.serving([self.shared]).values()
        return {
            "records": canonical(self.audit.records),
            "books": (dict(books.confirmed), dict(books.verified), dict(books.fences)),
            "serves": str(standing.serves),
            "held": dict(standing.versions),
        }

    def close(self) -> None:
        """Give the memory back, and the server's files."""
        if isinstance(self.engine, VllmEngine):
            self.engine.close()
        self.engine = self.server = None
        self.arena.close()

    def _local(self) -> LocalEngine:
        return LocalEngine(
            "e0",
            lambda: llama(99),
            saver=self.arena,
            slots=3,
            rank=SLOT_RANK,
            target_modules=TARGETS,
            kv_cache_bytes=2**18,
        )

    def _vllm(self) -> VllmEngine:
        self.server = FakeVllm()
        said = [tokens("weights-1", b"", list(prompt), 4) for prompt in PROMPTS]
        return engine_on(self.server, held_base=held_base(self.trainer, PROMPTS, said))
