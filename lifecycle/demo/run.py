"""The loop: hand over, generate, take back, check, train."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from math import isnan

import torch
from torch import Tensor

from lifecycle.config import Reference
from lifecycle.demo.build import Colocated, colocated, to_reconcile
from lifecycle.demo.options import DemoOptions
from lifecycle.demo.report import DemoReport, TurnReport
from lifecycle.demo.rewards import advantages
from lifecycle.demo.seat import Seat
from lifecycle.demo.train import policy_logprobs, policy_loss
from lifecycle.engines.local import Rollout
from lifecycle.outcome import Moved
from lifecycle.weights.digests import digest
from states import TrainerEvent, TrainerState, adapter_group

Progress = Callable[[str, int], None]
"""Called with what is being done and how many turns are complete."""


def run_demo(options: DemoOptions, progress: Progress, seat: Seat | None = None) -> DemoReport:
    """Run the demo from start to end.

    Args:
        options: what was asked for.
        progress: told before each turn and at the end.
        seat: of this rank, where the run has many; they all call this.

    Raises:
        ConfigError: an option that cannot work.
        LifecycleError: the run failed; the log says where.
    """
    started = time.perf_counter()
    with _threads(1 if options.model is None else torch.get_num_threads()), colocated(options, seat) as world:
        reports = []
        loop = Loop(world)
        for turn in range(options.turns):
            progress(f"turn {turn}", turn)
            reports.append(loop.turn(turn))
        loop.close()
        progress("done", options.turns)
        seconds = time.perf_counter() - started
        left = world.tenants.left
        return DemoReport(seconds, tuple(reports), left, options.reconcile, world.audit_path, world.trainer.state)


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
    """

    def __init__(self, world: Colocated) -> None:
        self._world = world
        self._trainer = world.trainer
        self._outcomes: list[Moved] = []
        world.trainer.subscribe(self._outcomes.append)

    @property
    def names(self) -> tuple[str, ...]:
        """The adapters that train now."""
        return self._world.tenants.names

    def turn(self, turn: int) -> TurnReport:
        """One turn, with the change of adapters before it if it is time."""
        self._outcomes.clear()
        begun_in = self._trainer.state
        self.change_adapters()
        prompts = {name: self.prompts(name) for name in self.names}
        with self._trainer.handoff([self._world.engine]):
            rollouts = {name: self.generate(name, prompts[name]) for name in self.names}
            host_bytes = self._world.meter.host_bytes()
        differences = [self.difference(name, prompts[name], rollouts[name]) for name in self.names]
        rewards = {name: self._rewards(name, rollouts[name]) for name in self.names}
        means = {name: float(one.mean()) for name, one in rewards.items()}
        self._world.tenants.saw(turn, means)
        self.train(turn, prompts, rollouts, rewards, self._ref_logprobs(prompts, rollouts))
        share = self._world.share
        share.compare(self.names, self._digest)
        return TurnReport(
            turn=turn,
            states=tuple(_states_passed(begun_in, self._outcomes)),
            rewards=means,
            host_bytes=int(sum(share.of_all(host_bytes))),
            moved_bytes=sum(one.moved_bytes for one in self._outcomes),
            logprob_diff=_largest(share.of_all(_largest(differences))),
        )

    def change_adapters(self) -> None:
        """Those that have ended are retired and their slots cleared; whoever is first in the queue gets them.

        A slot has to be cleared before the registry gives it out again: hence two reconciles.
        """
        world = self._world
        ended = world.tenants.ended()
        if not ended:
            return
        to_reconcile(self._trainer, world.options)
        for name in ended:
            world.tenants.leave(name, self._digest(name))
        self._trainer.reconcile_adapters()
        if world.tenants.admit():
            self._trainer.reconcile_adapters()

    def close(self) -> None:
        """Retire the adapters that ended with the last turn. The trainer is awake afterwards."""
        self.change_adapters()
        if self._trainer.state is not TrainerState.AWAKE:
            self._trainer.wake_up()

    def _digest(self, name: str) -> str:
        """Of an adapter's weights, under PEFT names, from wherever they are."""
        with self._trainer.weights(f"final weights of {name}", groups=[adapter_group(name)]) as lease:
            tensors = self._world.host.export(name, lease.__getitem__)[-1]
            return digest(tensors)

    def prompts(self, name: str) -> Tensor:
        """Random prompts for an adapter's present step, int64 ``[batch, tokens]``: this rank's of the batch."""
        training = self._world.options.training
        shape = (training.prompts, training.prompt_tokens)
        random = torch.Generator().manual_seed(self._seed(name))
        return self._world.share.own(torch.randint(0, self._world.vocabulary, shape, generator=random))

    def _seed(self, name: str) -> int:
        """An adapter's own, and its step's: what it learns from does not depend on its slot or its neighbours."""
        steps = self._world.host.registry.step_count(name)
        return self._world.options.seed + 1000 * steps + 2 * self._world.tenants[name].index

    def generate(self, name: str, prompts: Tensor) -> Rollout:
        """Sample, from the versions that the trainer wants served and from no others.

        Raises:
            EngineError: the engine is not whole, not awake, or holds another version.
        """
        training = self._world.options.training
        return self._world.sample(
            prompts,
            name,
            max_new_tokens=training.new_tokens,
            seed=self._seed(name) + 1,
            expected=self.wanted(name),
            **self._world.share.within(training.prompts),
        )

    def wanted(self, name: str) -> dict[str, int]:
        """Content group to the trainer's newest version, of all that an answer under this adapter depends on."""
        others = {adapter_group(one) for one in self.names if one != name}
        return {one.group: one.version for one in self._trainer.facts().contents if one.group not in others}

    def _rewards(self, name: str, rollout: Rollout) -> Tensor:
        """Of every rank's tokens, float32 ``[batch, new]``."""
        own = self._world.tenants[name].reward.of(rollout.tokens)
        return self._world.share.gathered(own, self._world.options.training.prompts)

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
        kept = self._world.began if kind is Reference.SNAPSHOT else ()
        found = {}
        with self._trainer.reference():
            for name, rollout in rollouts.items():
                with host.use(name) if name in kept else nullcontext():
                    found[name] = policy_logprobs(host.model, prompts[name], rollout.tokens)
        return found

    def train(
        self,
        turn: int,
        prompts: dict[str, Tensor],
        rollouts: dict[str, Rollout],
        rewards: dict[str, Tensor],
        refs: dict[str, Tensor],
    ) -> None:
        """A few optimizer steps on the rollouts. The registry counts each when all adapters have done it."""
        registry, training, names = self._world.host.registry, self._world.options.training, self.names
        for inner in range(training.inner_steps):
            batch = turn * training.inner_steps + inner
            registry.record_batch_adapters(batch, dict.fromkeys(names, training.prompts), names)
            for name in names:
                self._step(name, prompts[name], rollouts[name], rewards[name], refs.get(name))
            registry.mark_batch_trained(batch)

    def _step(self, name: str, prompts: Tensor, rollout: Rollout, rewards: Tensor, ref: Tensor | None) -> None:
        """One optimizer step of one adapter, under the state machine."""
        host, share = self._world.host, self._world.share
        advantage = share.own(advantages(rewards))
        optimizer = self._world.optimizers[host.slot_of(name)]
        with self._trainer.step([name]) as step, host.use(name):
            now = policy_logprobs(host.model, prompts, rollout.tokens)
            loss = policy_loss(now, rollout.logprobs, advantage, ref, self._world.options.training)
            loss.backward()  # type: ignore[no-untyped-call]
            share.average((one for group in optimizer.param_groups for one in group["params"]), len(rewards))
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            step.stepped()


def _largest(differences: list[float]) -> float:
    """What is no number is larger than every number."""
    return max(differences, key=lambda one: (isnan(one), one))


def _states_passed(begun_in: TrainerState, outcomes: list[Moved]) -> Iterator[TrainerState]:
    """The states in order; a reconcile passes through its own state and comes back."""
    yield begun_in
    for one in outcomes:
        if one.event is TrainerEvent.RECONCILE_ADAPTERS:
            yield TrainerState.ADAPTER_RECONCILING
        if one.source is not one.target or one.event is TrainerEvent.RECONCILE_ADAPTERS:
            yield one.target
