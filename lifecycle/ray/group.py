"""A trainer on many ranks, each in a Ray actor, that a driver calls as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Self

from lifecycle.adapters.given import as_names
from lifecycle.errors import ConfigError
from lifecycle.outcome import Explanation
from lifecycle.ray.calls import Limits
from lifecycle.ray.engines import EngineSpec, SpecNumbers, checked_specs
from lifecycle.ray.members import Members
from lifecycle.ray.outcome import GroupOutcome, joined
from lifecycle.ray.registry import RegistryProxy
from lifecycle.standing import Standing
from states import ACTOR, Facts, TrainerEvent, TrainerState

Build = Callable[..., object]
"""``build(rank, world, ranks)``; with ``registry=`` and ``joins=True`` where the group says so."""
_CALL_S: Final = 3600.0
_START_S: Final = 300.0


class TrainerGroup:
    """One trainer a rank, each in an actor, and one call for all of them. Use it as a context manager.

    Every call goes to all ranks and returns one result, or raises one :class:`~lifecycle.ray.GroupError` with the error
    of every rank. The ranks agree with each other (docs/ranks.md), so all of them have taken the event, or none.

    *build* runs in each actor: ``build(rank, world, ranks)`` makes the model, the saver and the trainer, with
    ``ranks=ranks``, and returns the trainer, or an object with the trainer as its ``.trainer`` and methods of its own
    for :meth:`call`. Its ``close()``, where it has one, is called at the end. With a *registry* it gets ``registry=``
    too, the registry to give to its adapter slots. For :meth:`replace` it has to take ``joins=False``, and to give it
    to the trainer.

    Args:
        build: a function that Ray can send to its actors.
        world: how many ranks; at least 2.
        name: of the run, for the ranks' meetings and in messages.
        options: options of each rank's actor as Ray takes them (``num_cpus``, ``num_gpus``, ``resources``,
            ``runtime_env``, ``scheduling_strategy``), for all ranks, or one mapping a rank.
        registry: one that :func:`~lifecycle.ray.start_registry` or :func:`~lifecycle.ray.registry` gave, which stays;
            or a number of slots, for one of the group's own, which ends with it; None: ranks have registries of their
            own, which have to be alike.
        timeout_s: how long ranks wait for each other in one meeting, in seconds; longer than the effects of one rank
            may take more than those of another.
        call_timeout_s: how long the driver waits for the answer of all ranks to one call, in seconds.
        start_timeout_s: how long the actors may take to start, in seconds.

    Attributes:
        world: how many ranks.
        name: of the run.
        registry: the registry of all ranks, None where there is none.

    Raises:
        ConfigError: Ray is not initialised, or something given cannot be.
        GroupError: a rank could not be started or built. All are ended, nothing is left.
    """

    def __init__(
        self,
        build: Build,
        world: int,
        *,
        name: str = "run",
        options: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
        registry: RegistryProxy | int | None = None,
        timeout_s: float = 600.0,
        call_timeout_s: float = _CALL_S,
        start_timeout_s: float = _START_S,
    ) -> None:
        limits = Limits(call_timeout_s, timeout_s)
        self._members = Members(build, world, name, options, limits, start_timeout_s)
        self._numbers = SpecNumbers()
        self.world, self.name = world, name
        self.registry = self._members.start(registry)

    def __repr__(self) -> str:
        return f"TrainerGroup({self.name!r}, {self.world} ranks)"

    @property
    def lost(self) -> tuple[int, ...]:
        """Ranks whose process ended or did not answer; :meth:`replace` them, or :meth:`close` the group."""
        return tuple(sorted(self._members.lost))

    # events

    def sleep(self, *, offload: bool = False) -> GroupOutcome:
        """See :meth:`TrainerLifecycle.sleep`."""
        return self._event("sleep", offload=offload)

    def offload(self) -> GroupOutcome:
        """See :meth:`TrainerLifecycle.offload`."""
        return self._event("offload")

    def wake_up(self) -> GroupOutcome:
        """See :meth:`TrainerLifecycle.wake_up`."""
        return self._event("wake_up")

    def recover(self) -> GroupOutcome:
        """See :meth:`TrainerLifecycle.recover`."""
        return self._event("recover")

    def reconcile_adapters(self, *, partial: str | None = None) -> GroupOutcome:
        """See :meth:`TrainerLifecycle.reconcile_adapters`."""
        return self._event("reconcile_adapters", partial=partial)

    def update_weights(self, engines: Sequence[EngineSpec]) -> GroupOutcome:
        """See :meth:`TrainerLifecycle.update_weights`; an engine is a :class:`~lifecycle.ray.UrlEngine` or the like.

        Raises:
            ConfigError: these are no engines.
            GroupError: an engine could not be built where it is called, or the push failed.
        """
        return joined(self._with_engines("update_weights", engines))

    def switch_model(self, target: str = ACTOR) -> GroupOutcome:
        """See :meth:`TrainerLifecycle.switch_model`."""
        return self._event("switch_model", target)

    def begin_step(self, adapters: Iterable[str] = ()) -> GroupOutcome:
        """See :meth:`TrainerLifecycle.begin_step`."""
        return self._event("begin_step", as_names("adapters", adapters))

    def trained(self, adapters: Iterable[str] | None = None) -> GroupOutcome:
        """See :meth:`TrainerLifecycle.trained`."""
        return self._event("trained", None if adapters is None else as_names("adapters", adapters))

    def accumulated(self) -> None:
        """See :meth:`TrainerLifecycle.accumulated`."""
        self._members.all("accumulated", "send", "accumulated")

    def abort_step(self) -> None:
        """See :meth:`TrainerLifecycle.abort_step`."""
        self._members.all("abort_step", "send", "abort_step")

    # questions, answered by each rank for itself

    def states(self) -> dict[int, TrainerState]:
        """The state of each rank that is not lost."""
        return self._members.there("states", "look", "state")

    def facts(self) -> dict[int, Facts]:
        """What guards would look at now, by rank that is not lost."""
        return self._members.there("facts", "send", "facts")

    def versions(self) -> dict[int, Mapping[str, int]]:
        """The newest version of each content group, by rank that is not lost."""
        return self._members.there("versions", "look", "versions")

    def explain(self, event: TrainerEvent | str, **asked: object) -> dict[int, Explanation]:
        """What the event would do now on each rank that is not lost, and why; see :meth:`TrainerLifecycle.explain`.

        Each rank answers for itself: what the others would say to it is found when the event is sent. Engines cannot be
        asked so.
        """
        return self._members.there("explain", "send", "explain", event, **asked)

    def serving(self, engines: Sequence[EngineSpec]) -> Mapping[str, Standing]:
        """Which engines may get requests now; see :meth:`TrainerLifecycle.serving`. All ranks ask."""
        standings: dict[int, Mapping[str, Standing]] = self._with_engines("serving", engines)
        return standings[min(standings)]

    # what the owner built

    def call(self, method: str, /, *args: object, **kwargs: object) -> dict[int, Any]:
        """Call a method of what *build* returned on every rank, with the same arguments.

        Returns:
            Rank to what it gave.

        Raises:
            GroupError: it failed on a rank.
        """
        return self._members.all(method, "call", method, *args, **kwargs)

    def call_each(self, method: str, shares: Sequence[object], /, **kwargs: object) -> dict[int, Any]:
        """The same with another first argument on each rank, such as its share of a batch.

        Raises:
            ConfigError: there is not one share a rank, or one cannot be sent. No rank was called.
            GroupError: it failed on a rank.
        """
        if len(shares) != self.world:
            raise ConfigError(f"{method}: {len(shares)} shares for {self.world} ranks; give one a rank")
        return self._members.each(method, shares, **kwargs)

    def call_there(self, method: str, /, *args: object, **kwargs: object) -> dict[int, Any]:
        """The same on the ranks that are not lost, such as to save what they hold. It must not meet the others."""
        return self._members.there(method, "call", method, *args, **kwargs)

    # the end, and going on without one that ended

    def replace(self, *ranks: int) -> None:
        """Start new processes in the places of lost ranks, which join at the present versions.

        The survivors hand over what they need (``admit``); see docs/ranks.md for what that asks of them. A process that
        has not ended is ended. Where the ranks do not know of a loss yet, they find out first, which takes the
        *timeout_s* of a meeting; the new processes start meanwhile.

        Args:
            ranks: others to replace too. Those that are lost are replaced whatever is named, all of them together.

        Raises:
            ConfigError: there is no such rank, none would be left to hand over, or *build* takes no ``joins``.
            GroupError: a new process could not be started or did not join. Survivors are as before; replace again.
        """
        self._members.replace(ranks)

    def close(self) -> None:
        """End all that was started here: ranks, their store, the group's own registry. Idempotent, never raises."""
        self._members.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _event(self, what: str, *args: object, **kwargs: object) -> GroupOutcome:
        return joined(self._members.all(what, "send", what, *args, **kwargs))

    def _with_engines(self, what: str, engines: Sequence[EngineSpec]) -> dict[int, Any]:
        specs = self._numbers.of(checked_specs(engines, self.world))
        self._members.all(what, "hold_engines", specs)
        return self._members.all(what, "with_engines", what, specs)
