"""One call to every rank, and what came of it: all answers, or one error that has them all.

A rank that hangs is not waited for once the others say that it is missing, or some time after one has failed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError

from lifecycle.distributed.errors import RanksFailed, RanksMissing
from lifecycle.errors import ConfigError
from lifecycle.ray.answers import Answer, told_by_ray
from lifecycle.ray.errors import GroupError, RankLost, joint_of
from lifecycle.wording import first_line

Handle = Any
"""A Ray actor's handle; Ray has no type for it that says what the actor is."""
_SLACK_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a driver waits, in seconds.

    Attributes:
        call_s: for all answers.
        meeting_s: what ranks wait for each other in one meeting. Twice as long, and a little, after the first rank has
            failed, the others have found out too, or they hang.
        is_hasty: once a rank has failed for itself, the others are not waited for, and not told of.
    """

    call_s: float
    meeting_s: float = 0.0
    is_hasty: bool = False


def collect(call: str, refs: Mapping[int, Any], limits: Limits) -> dict[int, Any]:
    """Wait for every rank's :class:`Answer`.

    Raises:
        GroupError: a rank failed, ended, or did not answer in time.
    """
    answers = _wait(refs, limits)
    errors = {rank: one.error for rank, one in answers.items() if one.error is not None}
    if errors:
        failed = GroupError(call, errors)
        raise failed from failed.cause
    return {rank: answers[rank].value for rank in sorted(answers)}


def _wait(refs: Mapping[int, Any], limits: Limits) -> dict[int, Answer[Any]]:
    pending = {ref: rank for rank, ref in refs.items()}
    answers: dict[int, Answer[Any]] = {}
    begun = time.monotonic()
    until = begun + limits.call_s
    while pending and not _given_up(answers, pending.values()):
        ready, _ = ray.wait(list(pending), timeout=max(0.0, until - time.monotonic()))
        if not ready:
            break
        for ref in ready:
            rank = pending.pop(ref)
            answers[rank] = read(ref, rank)
            if answers[rank].error is not None:
                until = min(until, time.monotonic() + 2 * limits.meeting_s + _SLACK_S)
        if limits.is_hasty and any(_is_own(one) for one in answers.values()):
            return answers
    for rank in pending.values():
        why = f"it did not answer within {time.monotonic() - begun:.0f} s"
        answers[rank] = Answer(error=RankLost(rank, why, is_dead=False))
    return answers


def _given_up(answers: Mapping[int, Answer[Any]], pending: Collection[int]) -> bool:
    """Nobody is left but ranks that the others call missing."""
    joints = [joint_of(one.error) for one in answers.values() if one.error is not None]
    missing = {rank for one in joints if isinstance(one, RanksMissing) for rank in one.ranks}
    return bool(missing) and missing >= set(pending)


def _is_own(answer: Answer[Any]) -> bool:
    return answer.error is not None and not isinstance(joint_of(answer.error), RanksMissing | RanksFailed)


def read(ref: Any, rank: int) -> Answer[Any]:
    """One rank's answer that has arrived."""
    try:
        found: Answer[Any] = ray.get(ref)
    except RayActorError as error:
        is_away = isinstance(error, ActorUnavailableError)
        why = f"it {'cannot be reached' if is_away else 'has ended'}: {first_line(error)}"
        return Answer(error=RankLost(rank, why, is_dead=not is_away))
    except RayError as error:
        return Answer(error=told_by_ray(error))
    return found


def sent(what: str, value: object) -> Any:
    """A value in Ray's object store, before any rank is called: one rank alone in a call would wait for the others.

    Raises:
        ConfigError: it cannot be sent to another process.
    """
    try:
        return ray.put(value)
    except (TypeError, ValueError, AttributeError) as error:  # what pickle raises
        raise ConfigError(f"{what} cannot be sent to another process: {first_line(error)}; give plain data") from error


def need_ray() -> None:
    """Refuse where there is no cluster: the library never starts one.

    Raises:
        ConfigError: Ray is not initialised.
    """
    if not ray.is_initialized():
        raise ConfigError("Ray is not initialised in this process; call ray.init() first (address='auto' joins one)")
