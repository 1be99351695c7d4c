"""The adapters of a run: who waits for a slot, who trains in one, and who has left it.

The registry is the authority on slots and steps. It refuses a registration when no slot is free, so there is a
queue here; and it deregisters an adapter by itself when its last step has been counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from string import ascii_lowercase
from typing import Final

from lifecycle.adapters import PeftAdapters
from lifecycle.adapters.refusals import NoFreeSlot
from lifecycle.adapters.settings import AdapterSettings
from lifecycle.demo.options import DemoOptions, shared_slots, waves
from lifecycle.demo.report import Tenancy
from lifecycle.demo.rewards import ResidueReward
from lifecycle.errors import AdapterError, ConfigError
from states.adapters import AdapterState

_CLASSES: Final = 4
_NEWCOMER: Final = "c"
_DEFAULT: Final = (("a", None), ("b", None))


@dataclass(frozen=True, slots=True)
class Tenant:
    """An adapter that is to be trained.

    Attributes:
        index: its place in the queue; its first weights, prompts and samples follow from it and the run's seed.
        name: its name.
        turns: how many turns it trains for.
        path: its PEFT directory; None starts it as the base.
    """

    index: int
    name: str
    turns: int
    path: Path | None = None

    @property
    def reward(self) -> ResidueReward:
        """What it is rewarded for. Every fourth adapter is rewarded for the same."""
        return ResidueReward(self.index % _CLASSES, _CLASSES)


def plan_tenants(options: DemoOptions) -> tuple[tuple[Tenant, ...], int]:
    """Every adapter of the run, in the order in which they get a slot, and the number of slots."""
    count, turns = options.count, options.turns
    if count is not None:
        slots = shared_slots(count, options.slots)
        return tuple(Tenant(one, _letters(one), _turns_of(one, count, slots, turns)) for one in range(count)), slots
    first, half = tuple(options.adapters) or _DEFAULT, turns // 2
    tenants = [Tenant(index, name, turns, path) for index, (name, path) in enumerate(first)]
    if half:
        tenants[0] = replace(tenants[0], turns=half)
        names = [one.name for one in tenants]
        newcomer = _NEWCOMER if _NEWCOMER not in names else f"{_NEWCOMER}-{len(names)}-new"
        tenants.append(Tenant(len(first), newcomer, turns - half))
    return tuple(tenants), len(first)


def _turns_of(index: int, count: int, slots: int, turns: int) -> int:
    """The turns are shared out among those that follow each other in a slot, so that the first slot is never empty.

    Where the slots are equally full, the first tenant of every other one leaves a turn early: slots are then free
    at different times, and the neighbours go on training.
    """
    wave, slot = divmod(index, slots)
    share, rest = divmod(turns, waves(count, slots))
    share += wave < rest
    leaves_early = wave == 0 and slot % 2 == 1 and count % slots == 0 and share > 1
    return share - leaves_early


def _letters(index: int) -> str:
    """One letter, and a number after the first 26: a, b, ..., z, a1, b1, ..."""
    round_, letter = divmod(index, len(ascii_lowercase))
    return f"{ascii_lowercase[letter]}{round_ or ''}"


class Tenants:
    """The queue before a registry of few slots, and the books of who had which slot when.

    Args:
        host: the slots, none of them given out yet.
        options: of the run.
        planned: every adapter, in the order of the queue.
    """

    def __init__(self, host: PeftAdapters, options: DemoOptions, planned: tuple[Tenant, ...]) -> None:
        self._host = host
        self._options = options
        self._waiting = deque(planned)
        self._present: dict[str, Tenant] = {}
        self._seen: dict[str, list[tuple[int, float]]] = {}
        self._left: list[Tenancy] = []

    @property
    def names(self) -> tuple[str, ...]:
        """The adapters that have a slot, in the order in which they got it."""
        return tuple(self._present)

    @property
    def left(self) -> tuple[Tenancy, ...]:
        """The adapters that have left, in the order of their registration."""
        return tuple(sorted(self._left, key=lambda one: one.registration_id))

    def __getitem__(self, name: str) -> Tenant:
        """An adapter that has a slot."""
        return self._present[name]

    def admit(self) -> tuple[str, ...]:
        """Register from the queue until the registry refuses for want of a slot. The next reconcile loads them.

        Raises:
            ConfigError: an adapter's directory is refused. It names the option.
        """
        admitted = []
        while self._waiting:
            try:
                self._register(self._waiting[0])
            except NoFreeSlot:
                break
            except AdapterError as error:
                raise ConfigError(f"--adapter cannot be used: {error}") from error
            tenant = self._waiting.popleft()
            self._present[tenant.name] = tenant
            admitted.append(tenant.name)
        return tuple(admitted)

    def _register(self, tenant: Tenant) -> None:
        training = self._options.training
        steps = tenant.turns * training.inner_steps
        settings = AdapterSettings(num_step=steps, rollout_batch_size=training.prompts, n_samples_per_prompt=1)
        if tenant.path is not None:
            self._host.registry.register(tenant.name, tenant.path, settings=settings)
            return
        seed = self._options.seed + tenant.index
        self._host.registry.register(
            tenant.name, rank=training.rank, alpha=training.alpha, seed=seed, settings=settings
        )

    def saw(self, turn: int, rewards: Mapping[str, float]) -> None:
        """Note the mean reward of each adapter in a turn."""
        for name, reward in rewards.items():
            self._seen.setdefault(name, []).append((turn, reward))

    def ended(self) -> tuple[str, ...]:
        """The adapters that the registry has deregistered and whose slots are not cleared yet."""
        return tuple(self._host.registry.in_state(AdapterState.RETIRING))

    def leave(self, name: str, weights: str) -> None:
        """Close the books of an adapter that is about to lose its slot.

        Args:
            name: an adapter that has ended.
            weights: digest of its final weights.
        """
        record = self._host.registry.in_state(AdapterState.RETIRING)[name]
        (first, first_reward), (last, last_reward) = self._seen[name][0], self._seen[name][-1]
        one, steps = record.adapter, record.step - record.start_step
        self._left.append(
            Tenancy(name, one.registration_id, one.slot, first, last, steps, first_reward, last_reward, weights)
        )
        del self._present[name]
