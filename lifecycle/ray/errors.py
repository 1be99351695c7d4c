"""What a driver gets when ranks, registries or engines that are Ray actors fail.

LifecycleError
├── GroupError      one or several ranks failed: every rank's error, and which one was first
├── RankLost        the world: a rank's process ended, or does not answer
├── RegistryLost    the world: the actor that holds a registry ended, or does not answer
└── RemoteFailure   an error of another process that is none of this library: its kind and words
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lifecycle.distributed.errors import RankFenced, RanksFailed, RanksMissing, ranks_told
from lifecycle.errors_engines import LifecycleError


class RemoteFailure(LifecycleError):
    """Something that is no error of this library was raised in another process.

    Attributes:
        kind: the name of its class, with the module unless that is Python's own.
        why: its words.
        trace: its traceback as text.
    """

    def __init__(self, kind: str, why: str, trace: str = "") -> None:
        super().__init__(f"{kind}: {why}")
        self.kind = kind
        self.why = why
        self.trace = trace


class RankLost(LifecycleError):
    """A rank's process ended, or did not answer in time.

    Attributes:
        rank: which one.
        why: what is known of it.
        is_dead: its process has ended; else nobody knows what it does.
    """

    def __init__(self, rank: int, why: str, *, is_dead: bool) -> None:
        super().__init__(why)
        self.rank = rank
        self.why = why
        self.is_dead = is_dead


class RegistryLost(LifecycleError):
    """The actor that holds a registry ended, does not answer, or was never there. What it held is gone with it.

    Attributes:
        registry: its name.
        why: what happened.
    """

    def __init__(self, registry: str, why: str) -> None:
        super().__init__(
            f"registry {registry!r}: {why}. What to do: start another one under this name with what it had saved "
            "(start_registry(..., path=)), and build the group anew"
        )
        self.registry = registry
        self.why = why


class GroupError(LifecycleError):
    """A call failed on one or several ranks. What the trainers' states are then, each rank's error says.

    Attributes:
        call: what was called.
        errors: rank to its error; ranks that succeeded are not in it.
        dead: ranks whose process has ended.
        silent: ranks that did not answer in time.
        rank: the rank of the first cause.
        cause: the error of that rank (also ``__cause__`` where it is raised).
        kind: the name of that error's class.
    """

    def __init__(self, call: str, errors: Mapping[int, Exception]) -> None:
        self.call = call
        self.errors: Mapping[int, Exception] = dict(sorted(errors.items()))
        lost = {rank: one for rank, one in self.errors.items() if isinstance(one, RankLost)}
        self.dead = tuple(rank for rank, one in lost.items() if one.is_dead)
        self.silent = tuple(rank for rank, one in lost.items() if not one.is_dead)
        self.rank = _first(self.errors, self.dead, self.silent)
        self.cause = self.errors[self.rank]
        self.kind = self.cause.kind if isinstance(self.cause, RemoteFailure) else type(self.cause).__name__
        also = [f"{ranks_told(others)} ended too" for others in [_but(self.dead, self.rank)] if others]
        also += [f"{ranks_told(others)} did not answer" for others in [_but(self.silent, self.rank)] if others]
        also += ["replace() who is lost, or close() the group"] if lost else []
        told = "".join(f"; {one}" for one in also)
        super().__init__(
            f"{call} failed on {ranks_told(tuple(self.errors))}. Rank {self.rank}: {_told(self.cause)}{told}"
        )


def joint_of(error: BaseException) -> BaseException:
    """What ranks raise together, where a transition failed because of them; else the error itself."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, RanksFailed | RanksMissing | RankFenced) else error


def _told(error: Exception) -> str:
    """Its words; those of Python's own errors say little without their kind."""
    return str(error) if isinstance(error, LifecycleError) else f"{type(error).__name__}: {error}"


def _first(errors: Mapping[int, Exception], dead: tuple[int, ...], silent: tuple[int, ...]) -> int:
    """The rank that the others' errors come from: one that ended, one with an error of its own, one that is named."""
    return next(iter((*dead, *_own(errors), *_named(errors), *silent, *errors)))


def _own(errors: Mapping[int, Exception]) -> Iterator[int]:
    for rank, error in errors.items():
        if not isinstance(joint_of(error), RanksFailed | RanksMissing | RankFenced | RankLost):
            yield rank


def _named(errors: Mapping[int, Exception]) -> Iterator[int]:
    for error in errors.values():
        joint = joint_of(error)
        if isinstance(joint, RanksFailed):
            yield from (rank for rank in joint.ranks if rank in errors)


def _but(ranks: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return tuple(one for one in ranks if one != rank)
