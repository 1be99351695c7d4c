"""Errors, split by who caused them. Every one says what happened, why and what to do, and changes nothing.

LifecycleError
├── EventRefused        the caller: the event may not happen in this state, or a guard fails
├── ReentrantEvent      the caller: an event sent from inside another one
├── BusyError           the caller: another thread's event did not end in time
├── LeaseError          the caller: a lease was used after its end, or cannot be opened
├── ConfigError         the caller: a combination that cannot work (also a ValueError)
├── AdapterError        the caller: a bad adapter name, file, tensor or registration (also a ValueError)
├── UnreadableTensor    the caller: no source holds the bytes that are asked for
├── UnknownTag          the caller: a snapshot tag that does not exist (also a KeyError)
├── SaverMisuse         the caller: a saver call that the real library answers by ending the process
├── BaseFileError       the world: the file behind a frozen base is missing room, bytes or trust
├── SaverError          the world: out of memory, a full or broken disk, a saver that frees nothing
├── SlotWriteError      the world: an adapter could not be written into its slot, or out of it
├── DigestMismatch      the world: bytes are not those of their version
├── IncompletePush      the world: what was to be sent of a content group is not all of it
├── EngineError         the world: a rollout engine failed, or answered something else than asked
│   ├── EngineRefused       it answered no: nothing changed there
│   ├── EngineUnanswered    it failed or did not answer: what changed there is unknown
│   └── EngineUnconfirmed   it took a push and holds something else than it was sent
├── AuditError          the world: the log could not be written
├── RanksError          the caller or the world: the ranks did not come to the same end
├── TransitionFailed    the world: an effect failed and everything was undone
└── TrainerFaulted      us or the world: an undo failed; call recover()

The kinds of ``RanksError`` are in :mod:`lifecycle.distributed.errors`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lifecycle.errors_engines import (
    EngineError,
    EngineRefused,
    EngineUnanswered,
    EngineUnconfirmed,
    IncompletePush,
    LifecycleError,
)
from states import Refusal, TrainerEvent, TrainerState, Verdict

if TYPE_CHECKING:
    from lifecycle.outcome import EngineOutcome

__all__ = [
    "AdapterError", "AuditError", "BaseFileError", "BusyError", "ConfigError", "DigestMismatch", "EngineError",
    "EngineRefused", "EngineUnanswered", "EngineUnconfirmed", "EventRefused", "IncompletePush", "LeaseError",
    "LifecycleError", "RanksError", "ReentrantEvent", "SaverError", "SaverMisuse", "SlotWriteError", "TrainerFaulted",
    "TransitionFailed", "UnknownTag", "UnreadableTensor",
]  # fmt: skip


class EventRefused(LifecycleError):
    """The event may not happen now. Nothing changed; one ``lifecycle.refused`` record was written.

    Attributes:
        event: what was asked.
        state: the state the trainer is in.
        verdicts: every guard that was asked.
        failed: those that do not hold.
        remedy: what to do.
    """

    def __init__(self, refusal: Refusal) -> None:
        self.event: str = refusal.event
        self.state: TrainerState = refusal.state
        self.verdicts: tuple[Verdict, ...] = refusal.verdicts
        self.failed: tuple[Verdict, ...] = refusal.failed
        self.remedy: str = refusal.remedy
        reasons = "; ".join(f"{verdict.name}: {verdict.because}" for verdict in self.failed)
        super().__init__(f"{self.event} is refused in state {self.state}: {reasons}. What to do: {self.remedy}")


class ReentrantEvent(LifecycleError):
    """An event was sent by the thread that is still inside another one. Send it after that one has returned."""


class BusyError(LifecycleError):
    """Another thread's event did not end within the timeout. Wait for it, or raise ``event_timeout_s``."""


class LeaseError(LifecycleError):
    """A lease was used after its end. Open a new one with ``weights()``."""


class ConfigError(LifecycleError, ValueError):
    """A configuration that cannot work, refused before anything is allocated."""


class AdapterError(LifecycleError, ValueError):
    """A bad adapter: its name, directory, file, shape, values or registration.

    Attributes:
        adapter: the name as it was given.
        why: what is wrong with it.
    """

    def __init__(self, adapter: str, why: str) -> None:
        super().__init__(f"adapter {adapter!r}: {why}")
        self.adapter = adapter
        self.why = why


class SlotWriteError(LifecycleError):
    """An adapter was read and checked, and then could not be written into its slot, or retired from it.

    Attributes:
        adapter: its name.
        why: what failed (also ``__cause__``).
    """

    def __init__(self, adapter: str, why: str) -> None:
        super().__init__(f"adapter {adapter!r} could not be loaded or retired: {why}")
        self.adapter = adapter
        self.why = why


class UnreadableTensor(LifecycleError):
    """No source holds the bytes of this tensor in the version that is wanted.

    Attributes:
        tensor: its name.
        why: what was looked at.
    """

    def __init__(self, tensor: str, why: str) -> None:
        super().__init__(f"cannot read {tensor}: {why}")
        self.tensor = tensor
        self.why = why


class UnknownTag(LifecycleError, KeyError):
    """A snapshot tag that does not exist. Nothing was created.

    Attributes:
        tag: the tag that was asked for.
        known: the tags that exist.
    """

    def __init__(self, tag: str, known: Sequence[str]) -> None:
        super().__init__(tag)
        self.tag = tag
        self.known = tuple(known)

    def __str__(self) -> str:
        kept = ", ".join(self.known) or "none"
        return f'no snapshot "{self.tag}" is kept (kept: {kept}); backup("{self.tag}") first'


class SaverMisuse(LifecycleError):
    """A call that the real torch_memory_saver answers by ending the process. It was not made.

    Attributes:
        call: the call, such as ``pause(actor/base)``.
        why: why it is misuse.
    """

    def __init__(self, call: str, why: str) -> None:
        super().__init__(f"{call}: {why}")
        self.call = call
        self.why = why


class SaverError(LifecycleError):
    """The saver could not do what was asked: out of memory, a full or broken disk, nothing freed.

    Attributes:
        tag: the region's tag.
        why: what happened, with bytes.
    """

    def __init__(self, tag: str, why: str) -> None:
        super().__init__(f"region {tag}: {why}")
        self.tag = tag
        self.why = why


class BaseFileError(LifecycleError):
    """The file behind a frozen base cannot be written, or is not what it should be. No byte of it was used.

    Attributes:
        path: the file, or its directory.
        why: what is wrong, and what to do.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"base file {path}: {why}")
        self.path = path
        self.why = why


class DigestMismatch(LifecycleError):
    """Bytes are not those of their version. They are never trained on or served.

    Attributes:
        group: the content group.
        copies: tags of the snapshots that hold the right version; ``recover()`` mends from them.
        tensors: names of the tensors that differ, as far as they are known.
    """

    def __init__(self, group: str, why: str, copies: Sequence[str], tensors: Sequence[str] = ()) -> None:
        self.group = group
        self.tensors = tuple(tensors)
        self.copies = tuple(copies)
        where = f"recover() mends it from: {', '.join(self.copies)}" if self.copies else "no copy of it is kept"
        super().__init__(f"{group}: {why}; {where}")


class AuditError(LifecycleError):
    """The audit log could not be written. The transition's outcome does not depend on it.

    Attributes:
        path: the log's file.
        outcome: what the transition came to, None when it was not begun.
    """

    def __init__(self, path: str, why: str, outcome: object = None) -> None:
        super().__init__(f"audit log {path}: {why}")
        self.path = path
        self.outcome = outcome


class TransitionFailed(LifecycleError):
    """An effect failed; what was done before it has been undone and the state is as before.

    Attributes:
        event: the event.
        state: the state the trainer is back in.
        effect: name of the effect that failed.
        cause: the error it raised (also ``__cause__``).
        adapter: the adapter that it failed at, None where it was none.
        engines: engine name to what became of it (:class:`~lifecycle.outcome.EngineOutcome`), also of those that are
            up to date now; empty where no engine was sent anything.
    """

    def __init__(
        self,
        event: TrainerEvent,
        state: TrainerState,
        effect: str,
        cause: BaseException,
        engines: Mapping[str, EngineOutcome] | None = None,
    ) -> None:
        undone = "it was undone,"
        if engines:
            told = [f"{name} {'is up to date' if one.committed else 'failed'}" for name, one in engines.items()]
            undone = f"each engine stands for itself ({', '.join(told)}),"
        super().__init__(
            f"{event} failed in {effect}, {undone} the trainer is {state} as before: {cause}. "
            f"What to do: mend the cause and send {event} again"
        )
        self.event = event
        self.state = state
        self.effect = effect
        self.cause = cause
        self.adapter: str | None = getattr(cause, "adapter", None)
        self.engines: Mapping[str, EngineOutcome] = dict(engines or {})


class RanksError(LifecycleError):
    """The ranks did not come to the same end. What they were in the middle of ends with it on every rank.

    Attributes:
        has_begun: other ranks had begun to act, also where this one has not.
    """

    has_begun = False


class TrainerFaulted(LifecycleError):
    """An effect failed and its undo failed too, or bytes are wrong. Every further event is refused until ``recover()``.

    Attributes:
        event: the event.
        effect: name of the effect whose undo failed, or that found the wrong bytes.
        cause: the first error.
        undo_error: the error of the undo, None when bytes are wrong.
    """

    def __init__(
        self, event: TrainerEvent, effect: str, cause: BaseException, undo_error: BaseException | None
    ) -> None:
        undone = f" and undoing {effect} failed too ({undo_error})" if undo_error is not None else f" in {effect}"
        remedy = "call recover()"
        if event == TrainerEvent.RECOVER:
            remedy = (
                "mend the cause and call recover() again; if bytes are lost, build a new model and controller from "
            )
            remedy += (
                "a checkpoint, under another LifecycleConfig(model=...) or after saver.release() of this one's tags"
            )
        super().__init__(f"{event} failed{undone}: {cause}. The trainer is faulted. What to do: {remedy}")
        self.event = event
        self.effect = effect
        self.cause = cause
        self.undo_error = undo_error
