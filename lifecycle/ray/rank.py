"""What runs in a rank's process: one agreement, one trainer, and what its owner built around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from lifecycle.controller import TrainerLifecycle
from lifecycle.distributed import RankAgreement, RanksMissing
from lifecycle.errors import ConfigError
from lifecycle.ray.answers import Answer, answered
from lifecycle.ray.engines import NumberedSpec, RankEngines
from lifecycle.ray.place import Meeting, Place, place_here
from lifecycle.ray.rank_registry import GroupRegistry, rank_registry
from lifecycle.ray.registry import RegistryProxy

REGISTRY_RANK: Final = 0
"""The rank that asks the registry's actor, and tells the others."""
_NEVER_MET: Final = -1


class RankProcess:
    """The actor of one rank. Its methods answer and never raise; see :class:`~lifecycle.ray.answers.Answer`.

    Args:
        rank: which one.
        world: how many there are.
    """

    def __init__(self, rank: int, world: int) -> None:
        self._rank, self._world = rank, world
        self._ranks: RankAgreement | None = None
        self._registry: GroupRegistry | None = None
        self._engines = RankEngines(rank)
        self._built: Any = None

    def place(self) -> Answer[Place]:
        """Where this rank is."""
        return answered(place_here)

    def load(self, _build: Callable[..., object]) -> Answer[None]:
        """Import what the owner's function needs: whoever waits for this rank in a meeting does not wait for that."""
        return answered(lambda: None)

    def build(
        self, build: Callable[..., object], meeting: Meeting, registry: RegistryProxy | None, *, joins: bool
    ) -> Answer[None]:
        """Meet the others and build the trainer with the owner's function."""
        return answered(lambda: self._build(build, meeting, registry, joins=joins))

    def send(self, what: str, /, *positional: object, **named: object) -> Answer[Any]:
        """Call a method of the trainer."""
        return self._told(lambda: getattr(self._trainer, what)(*positional, **named))

    def look(self, what: str) -> Answer[Any]:
        """Read a property of the trainer."""
        return answered(lambda: getattr(self._trainer, what))

    def call(self, what: str, /, *positional: object, **named: object) -> Answer[Any]:
        """Call a method of what the owner built."""
        return self._told(lambda: self._owners(what)(*positional, **named))

    def hold_engines(self, specs: Sequence[NumberedSpec]) -> Answer[None]:
        """Build the engines that this rank calls itself, before the ranks meet about them."""
        return answered(lambda: self._engines.hold(specs))

    def with_engines(self, what: str, specs: Sequence[NumberedSpec]) -> Answer[Any]:
        """Call a method of the trainer that takes engines."""
        return self._told(lambda: getattr(self._trainer, what)(self._engines.of(specs, self._agreement)))

    def find_loss(self, by: int) -> Answer[None]:
        """Hold a meeting of which nothing is expected but the news that a rank is lost, unless that is known.

        Args:
            by: a rank that is not lost.
        """
        return answered(lambda: self._find_loss(by))

    def admit(self) -> Answer[tuple[int, ...]]:
        """Let the newcomers in. Engines are asked anew by all ranks alike."""
        self._engines.forget()
        return self._told(self._admit)

    def leave(self) -> Answer[None]:
        """Close what was built here and leave the others."""
        return answered(self._leave)

    def _build(
        self, build: Callable[..., object], meeting: Meeting, registry: RegistryProxy | None, *, joins: bool
    ) -> None:
        registry_from = None if registry is None else REGISTRY_RANK
        self._ranks = ranks = RankAgreement.over_gloo(
            self._rank,
            self._world,
            meeting.store,
            run=meeting.run,
            host=meeting.host,
            timeout_s=meeting.timeout_s,
            registry_from=registry_from,
        )
        named: dict[str, object] = {"joins": True} if joins else {}
        if registry is not None:
            named["registry"] = local = rank_registry(registry, is_first=self._rank == REGISTRY_RANK)
            self._registry = local if isinstance(local, GroupRegistry) else None
        try:
            self._built = build(self._rank, self._world, ranks, **named)
            self._check_built()
        except BaseException as error:
            if joins and ranks.seat.generation == _NEVER_MET:
                ranks.unbuilt(error)  # the others wait for it, to admit it
            ranks.close()
            raise

    def _check_built(self) -> None:
        built = self._built
        if not isinstance(built, TrainerLifecycle) and not isinstance(
            getattr(built, "trainer", None), TrainerLifecycle
        ):
            told = f"build returned {type(built).__name__}"
            raise ConfigError(f"{told}; give a TrainerLifecycle, or an object with one as its .trainer")

    @property
    def _trainer(self) -> TrainerLifecycle:
        built = self._built
        trainer = built if isinstance(built, TrainerLifecycle) else getattr(built, "trainer", None)
        if not isinstance(trainer, TrainerLifecycle):
            raise ConfigError(f"rank {self._rank} has no trainer; close the group and build another")
        return trainer

    @property
    def _agreement(self) -> RankAgreement:
        assert self._ranks is not None  # who has a trainer has one
        return self._ranks

    def _owners(self, what: str) -> Callable[..., object]:
        found = getattr(self._built, what, None)
        if not callable(found) or what.startswith("_"):
            raise ConfigError(f"{type(self._built).__name__}, which build returned, has no method {what!r}")
        method: Callable[..., object] = found
        return method

    def _admit(self) -> tuple[int, ...]:
        return self._trainer.admit()

    def _find_loss(self, by: int) -> None:
        ranks = self._agreement
        if ranks.seat.connected:
            with suppress(RanksMissing):
                ranks.told(b"" if self._rank == by else None, by=by)

    def _told(self, call: Callable[[], Any]) -> Answer[Any]:
        """An answer that leaves only when the registry's actor has heard what this rank had to tell it."""
        answer = answered(call)
        if self._registry is not None:
            flushed = answered(self._registry.flush)
            if answer.error is None and flushed.error is not None:
                return flushed
        return answer

    def _leave(self) -> None:
        self._engines.close()
        ends = getattr(self._built, "close", None)
        try:
            if callable(ends):
                ends()
        finally:
            if self._ranks is not None:
                self._ranks.close()
