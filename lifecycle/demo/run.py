"""The loop: hand over, generate, take back, check, train."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from lifecycle.config import Reference
from lifecycle.demo.build import Colocated, colocated, register_fresh
from lifecycle.demo.options import DemoOptions
from lifecycle.demo.report import DemoReport, TurnReport
from lifecycle.demo.rewards import advantages
from lifecycle.demo.train import policy_logprobs, policy_loss
from lifecycle.engines.local import Rollout
from lifecycle.outcome import Moved
from states import TrainerEvent, TrainerState, adapter_group

Progress = Callable[[str, int], None]
"""Called with what is being done and how many turns are complete."""


def run_demo(options: DemoOptions, progress: Progress) -> DemoReport:
    """Run the demo from start to end.

    Args:
        options: what was asked for.
        progress: told before each turn and at the end.

    Raises:
        ConfigError: an option that cannot work.
        LifecycleError: the run failed; the log says where.
    """
    started = time.perf_counter()
    with _threads(1 if options.model is None else torch.get_num_threads()), colocated(options) as world:
        reports = []
        loop = Loop(world)
        for turn in range(options.turns):
            progress(f"turn {turn}: {', '.join(loop.names)}", turn)
            reports.append(loop.turn(turn))
        progress("done", options.turns)
        seconds = time.perf_counter() - started
        return DemoReport(seconds, tuple(reports), world.audit_path, world.trainer.state)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """The small model's operations are too small to share: on a busy machine a second thread is waited for."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Loop:
    """Turn after turn on one pair of trainer and engine.

    Args:
        world: the pair.

    Attributes:
        names: the adapters that train now.
    """

    def __init__(self, world: Colocated) -> None:
        self._world = world
        self._trainer = world.trainer
        self._random = torch.Generator().manual_seed(world.options.seed)
        self._outcomes: list[Moved] = []
        self.names = world.names
        world.trainer.subscribe(self._outcomes.append)

    def turn(self, turn: int) -> TurnReport:
        """One turn, with the change of adapters before it if it is time."""
        self._outcomes.clear()
        begun_in = self._trainer.state
        if turn and turn == self._world.options.turns // 2:
            self._change_adapters()
        prompts = {name: self.prompts() for name in self.names}
        with self._trainer.handoff([self._world.engine]):
            rollouts = {name: self.generate(name, prompts[name], turn) for name in self.names}
            host_bytes = self._world.meter.host_bytes()
        difference = max(self.difference(name, prompts[name], rollouts[name]) for name in self.names)
        refs = self._ref_logprobs(prompts, rollouts)
        for name in self.names:
            self.train(name, prompts[name], rollouts[name], refs.get(name))
        return TurnReport(
            turn=turn,
            states=tuple(_states_passed(begun_in, self._outcomes)),
            rewards={name: float(self._rewards(name, rollouts[name]).mean()) for name in self.names},
            host_bytes=host_bytes,
            moved_bytes=sum(one.moved_bytes for one in self._outcomes),
            logprob_diff=difference,
        )

    def _change_adapters(self) -> None:
        """The first adapter retires and its slot is cleared; the newcomer takes it."""
        world = self._world
        world.host.registry.deregister(self.names[0])
        self._trainer.reconcile_adapters()
        register_fresh(world.host, world.options, world.newcomer, len(world.names))
        self._trainer.reconcile_adapters()
        self.names = (*self.names[1:], world.newcomer)

    def prompts(self) -> Tensor:
        """Random prompts, int64 ``[batch, tokens]``."""
        training = self._world.options.training
        shape = (training.prompts, training.prompt_tokens)
        return torch.randint(0, self._world.vocabulary, shape, generator=self._random)

    def generate(self, name: str, prompts: Tensor, turn: int) -> Rollout:
        """Sample, from the versions that the trainer wants served and from no others.

        Raises:
            EngineError: the engine is not whole, not awake, or holds another version.
        """
        options = self._world.options
        return self._world.engine.generate(
            prompts,
            name,
            max_new_tokens=options.training.new_tokens,
            seed=options.seed + 1000 * turn + self._world.rewards[name].residue,
            expected=self.wanted(name),
        )

    def wanted(self, name: str) -> dict[str, int]:
        """Content group to the trainer's newest version, of all that an answer under this adapter depends on."""
        others = {adapter_group(one) for one in self.names if one != name}
        return {one.group: one.version for one in self._trainer.facts().contents if one.group not in others}

    def _rewards(self, name: str, rollout: Rollout) -> Tensor:
        return self._world.rewards[name].of(rollout.tokens)

    @torch.no_grad()
    def difference(self, name: str, prompts: Tensor, rollout: Rollout) -> float:
        """Largest difference between what the engine and what the trainer say of the same tokens."""
        with self._trainer.live(f"log-probabilities of {name}"), self._world.host.use(name):
            own = policy_logprobs(self._world.host.model, prompts, rollout.tokens)
        return float((own - rollout.logprobs).abs().max())

    @torch.no_grad()
    def _ref_logprobs(self, prompts: dict[str, Tensor], rollouts: dict[str, Rollout]) -> dict[str, Tensor]:
        """What the reference says: the base, or (a snapshot) each adapter that it keeps, as it began."""
        kind, host = self._trainer.config.reference, self._world.host
        if kind is None:
            return {}
        kept = self._world.names if kind is Reference.SNAPSHOT else ()
        found = {}
        with self._trainer.reference():
            for name, rollout in rollouts.items():
                with host.use(name) if name in kept else nullcontext():
                    found[name] = policy_logprobs(host.model, prompts[name], rollout.tokens)
        return found

    def train(self, name: str, prompts: Tensor, rollout: Rollout, ref: Tensor | None) -> None:
        """A few optimizer steps on one rollout, each of them a step under the state machine."""
        host, training = self._world.host, self._world.options.training
        advantage = advantages(self._rewards(name, rollout))
        optimizer = self._world.optimizers[host.slot_of(name)]
        for _ in range(training.inner_steps):
            with self._trainer.step([name]) as step, host.use(name):
                now = policy_logprobs(host.model, prompts, rollout.tokens)
                policy_loss(now, rollout.logprobs, advantage, ref, training).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
                step.stepped()


def _states_passed(begun_in: TrainerState, outcomes: list[Moved]) -> Iterator[TrainerState]:
    """The states in order; a reconcile passes through its own state and comes back."""
    yield begun_in
    for one in outcomes:
        if one.event is TrainerEvent.RECONCILE_ADAPTERS:
            yield TrainerState.ADAPTER_RECONCILING
        if one.source is not one.target or one.event is TrainerEvent.RECONCILE_ADAPTERS:
            yield one.target
