"""The root of all errors, and those of rollout engines and of what is sent to them. Import :mod:`lifecycle.errors`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from states.errors import Portable

_NAMED: Final = 3
"""How many of many names stand in a message."""


class LifecycleError(Portable):
    """The root of all errors of this library."""


class EngineError(LifecycleError):
    """A rollout engine failed.

    Attributes:
        engine: its name.
        why: what it answered, or what it did not.
    """

    def __init__(self, engine: str, why: str) -> None:
        super().__init__(f"engine {engine}: {why}")
        self.engine = engine
        self.why = why


class EngineRefused(EngineError):
    """An engine answered no. Nothing changed there.

    Attributes:
        status: its HTTP status.
        answer: what it said, shortened.
    """

    def __init__(self, engine: str, why: str, *, status: int, answer: str = "") -> None:
        super().__init__(engine, why)
        self.status = status
        self.answer = answer


class EngineUnanswered(EngineError):
    """An engine did not answer, or failed while it did. What changed there is unknown until it is asked.

    Attributes:
        status: its HTTP status, None where no answer came.
        reached: False when no connection was made, so that nothing was asked of it.
    """

    def __init__(self, engine: str, why: str, *, status: int | None = None, reached: bool = True) -> None:
        super().__init__(engine, why)
        self.status = status
        self.reached = reached


class EngineUnconfirmed(EngineError):
    """An engine took a push, and what it holds afterwards is not what was sent. It is fenced.

    Attributes:
        suspect: the content groups that are in doubt; None: all of them.
        tensors: names of the tensors that differ, where it answers with checksums.
        prompt: number of the probe's prompt at which it answers otherwise, None where it was not that.
        token: number of the first token there that differs, None likewise.
    """

    def __init__(
        self,
        engine: str,
        why: str,
        *,
        suspect: Iterable[str] | None = None,
        tensors: Sequence[str] = (),
        prompt: int | None = None,
        token: int | None = None,
    ) -> None:
        super().__init__(engine, why)
        self.suspect = None if suspect is None else frozenset(suspect)
        self.tensors = tuple(tensors)
        self.prompt = prompt
        self.token = token


class IncompletePush(LifecycleError):
    """What was to be sent of a content group is not exactly its tensors. The group's version stays to be pushed.

    Attributes:
        group: the adapter's name, or the base group.
        version: the version that was to be sent.
        missing: tensors that were left out.
        strange: tensors that do not belong to it.
    """

    def __init__(self, group: str, version: int, missing: Sequence[str], strange: Sequence[str] = ()) -> None:
        told = [f"missing: {_some(missing)}"] if missing else []
        told += [f"not of it: {_some(strange)}"] if strange else []
        super().__init__(
            f"{group} v{version} {'; '.join(told)}. What was sent of it would not be that version: "
            "mend what exports or receives it, and send update_weights again"
        )
        self.group = group
        self.version = version
        self.missing = tuple(missing)
        self.strange = tuple(strange)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
