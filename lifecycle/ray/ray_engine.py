"""A Ray actor as a rollout engine: methods are called in the actor, tensors travel through Ray's object store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import ray
import torch
from ray.exceptions import GetTimeoutError, RayActorError, RayError
from torch import Tensor

from lifecycle.engines.protocol import AdapterPayload, EngineReport, RolloutEngine
from lifecycle.engines.verifying import AnswersChecksums, AnswersGreedily
from lifecycle.errors import EngineError, EngineUnanswered, LifecycleError
from lifecycle.ray.answers import Answer, answered, told_by_ray
from lifecycle.ray.calls import Handle
from lifecycle.wording import first_line

CHUNK_BYTES: Final = 64 * 2**20
"""Tensors travel in objects of about this size; one that is larger travels alone."""
_OPTIONAL: Final[Mapping[str, type]] = {"checksums": AnswersChecksums, "greedy": AnswersGreedily}


@dataclass(frozen=True, slots=True)
class _Packed:
    """A tensor as it travels: its bytes, which the receiver copies."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    content: Any

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> _Packed:
        whole = tensor.detach().to("cpu").contiguous()
        return cls(name, whole.dtype, tuple(whole.shape), _bytes_of(whole))

    def tensor(self) -> Tensor:
        """On memory of its own."""
        held = torch.empty(self.shape, dtype=self.dtype)
        _bytes_of(held)[:] = self.content
        return held


def _bytes_of(tensor: Tensor) -> Any:
    """Its bytes as a numpy array on the same memory; of an empty one there is no view of bytes."""
    return tensor.reshape(-1).view(torch.uint8).numpy() if tensor.numel() else np.empty(0, np.uint8)


class RayEngine:
    """A :class:`~lifecycle.engines.protocol.RolloutEngine` that is an actor.

    The actor gets CPU tensors on memory of its own, so nothing it keeps aliases the trainer. While a base group is
    sent, all of it lies in the object store. Of the optional protocols it has ``checksums`` and ``greedy`` where the
    actor's class has them. What the actor raises that is no error of this library is an ``EngineError``; an actor that
    has ended or does not answer is ``EngineUnanswered``.

    Args:
        name: by which it goes here.
        actor: its handle.
        answer_s: how long one call may take, in seconds.

    Raises:
        EngineError: the actor does not answer, or its class is no engine.
    """

    checksums: Callable[[str], Mapping[str, str] | None]
    greedy: Callable[[str, Sequence[Sequence[int]], int], tuple[tuple[int, ...], ...]]

    def __init__(self, name: str, actor: Handle, *, answer_s: float = 600.0) -> None:
        self._name, self._actor, self._answer_s = name, actor, answer_s
        abilities = self._run(_abilities)
        if abilities is None:
            raise EngineError(name, "the class of its actor is no rollout engine (lifecycle.engines.RolloutEngine)")
        for one in abilities:
            setattr(self, one, getattr(self, f"_{one}"))

    def __repr__(self) -> str:
        return f"RayEngine({self._name!r})"

    @property
    def name(self) -> str:
        """By which it goes here."""
        return self._name

    def report(self) -> EngineReport:
        """Ask the actor what it holds."""
        found: EngineReport = self._run(_call, "report")
        return found

    def begin_update(self) -> None:
        """Pause admission, drain, drop caches that depend on weights."""
        self._run(_call, "begin_update")

    def send_base(self, group: str, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Write the tensors of one base group. All are taken; what the actor leaves is an error.

        Raises:
            EngineError: it failed, or did not take all.
        """
        refs = [ray.put(chunk) for chunk in _chunks(tensors)]
        left = self._run(_send_base, group, version, refs)
        if left:
            raise EngineError(self._name, f"it left {left} tensors of {group} v{version}")

    def load_adapter(self, payload: AdapterPayload) -> None:
        """Load or replace one adapter."""
        packed = [_Packed.of(name, tensor) for name, tensor in payload.tensors.items()]
        self._run(_load_adapter, replace(payload, tensors={}), packed)

    def unload_adapter(self, name: str) -> None:
        """Drop one adapter."""
        self._run(_call, "unload_adapter", name)

    def commit_update(self) -> None:
        """Make what was sent the served content."""
        self._run(_call, "commit_update")

    def abort_update(self) -> None:
        """Give up the update."""
        self._run(_call, "abort_update")

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:
        """Give back the memory of these tags."""
        self._run(_release, tuple(tags), discard)

    def resume(self, tags: Iterable[str]) -> None:
        """Take the memory of these tags again."""
        self._run(_call, "resume", tuple(tags))

    def _checksums(self, group: str) -> Mapping[str, str] | None:
        found: Mapping[str, str] | None = self._run(_call, "checksums", group)
        return found

    def _greedy(
        self, adapter: str, prompts: Sequence[Sequence[int]], max_new_tokens: int
    ) -> tuple[tuple[int, ...], ...]:
        found: tuple[tuple[int, ...], ...] = self._run(_call, "greedy", adapter, prompts, max_new_tokens)
        return found

    def _run(self, function: Callable[..., Any], *args: object) -> Any:
        """Run a function of the engine in the actor."""
        try:
            answer: Answer[Any] = ray.get(
                self._actor.__ray_call__.remote(_in_actor, function, args), timeout=self._answer_s
            )
        except RayActorError as error:
            raise EngineUnanswered(self._name, f"its actor has ended: {first_line(error)}") from None
        except GetTimeoutError:
            raise EngineUnanswered(self._name, f"its actor did not answer within {self._answer_s:g} s") from None
        except RayError as error:
            raise EngineError(self._name, str(told_by_ray(error))) from None
        if answer.error is None:
            return answer.value
        if isinstance(answer.error, EngineError):
            raise answer.error
        kind = "" if isinstance(answer.error, LifecycleError) else f"{type(answer.error).__name__}: "
        raise EngineError(self._name, f"{kind}{answer.error}") from answer.error


def _chunks(tensors: Iterable[tuple[str, Tensor]]) -> Iterator[list[_Packed]]:
    chunk: list[_Packed] = []
    held_bytes = 0
    for name, tensor in tensors:
        chunk.append(_Packed.of(name, tensor))
        held_bytes += chunk[-1].content.nbytes
        if held_bytes >= CHUNK_BYTES:
            yield chunk
            chunk, held_bytes = [], 0
    if chunk:
        yield chunk


# What runs in the actor, with the instance of its class first.


def _in_actor(engine: object, function: Callable[..., Any], args: tuple[object, ...]) -> Answer[Any]:
    return answered(lambda: function(engine, *args))


def _abilities(engine: object) -> tuple[str, ...] | None:
    if not isinstance(engine, RolloutEngine):
        return None
    return tuple(name for name, kind in _OPTIONAL.items() if isinstance(engine, kind))


def _call(engine: Any, method: str, *args: object) -> Any:
    return getattr(engine, method)(*args)


def _release(engine: RolloutEngine, tags: tuple[str, ...], discard: bool) -> None:  # noqa: FBT001 - as it was sent
    engine.release(tags, discard=discard) if discard else engine.release(tags)


def _load_adapter(engine: RolloutEngine, payload: AdapterPayload, packed: list[_Packed]) -> None:
    engine.load_adapter(replace(payload, tensors={one.name: one.tensor() for one in packed}))


def _send_base(engine: RolloutEngine, group: str, version: int, refs: list[Any]) -> int:
    """The number of tensors that the engine left."""
    tensors = ((one.name, one.tensor()) for ref in refs for one in ray.get(ref))
    engine.send_base(group, version, tensors)
    return sum(1 for _ in tensors)
