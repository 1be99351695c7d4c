"""A rollout engine as the trainer sees it: tagged memory, and content with acknowledged versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from torch import Tensor

from lifecycle.errors import ConfigError, EngineError, LifecycleError
from states.handover_needs import KV_CACHE, WEIGHTS

__all__ = ["KV_CACHE", "WEIGHTS", "AdapterPayload", "EngineReport", "RolloutEngine", "calling", "checked"]


@dataclass(frozen=True, slots=True)
class AdapterPayload:
    """One adapter as it is sent.

    Attributes:
        name: its name; requests name it so.
        version: version id of these bytes.
        rank: LoRA rank r.
        alpha: LoRA alpha; the scale is alpha / r.
        target_modules: suffixes of the module names it applies to.
        tensors: PEFT names (``base_model.model...lora_A.weight``) to CPU or device tensors,
            ``[r, in]`` and ``[out, r]``. Valid only until the call that receives them returns.
    """

    name: str
    version: int
    rank: int
    alpha: float
    target_modules: tuple[str, ...]
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class EngineReport:
    """What an engine says of itself when asked.

    Attributes:
        instance_id: changes when the engine restarts. A new instance holds nothing.
        resident: tags whose memory is mapped.
        released: tags whose memory is given back.
        versions: content group to the version that was committed; a missing group holds nothing valid.
        device_bytes: device memory of each tag when it is resident. A hand-over is planned with it; an engine
            that leaves it empty counts as nothing.
        mirror_bytes: host memory that it takes for its weights when it releases them and gives back when it resumes.
        saver_tags: its tags in the saver that it shares with the trainer, empty when its memory is elsewhere.
        adapter_slots: how many adapters it holds at once. More than that are never sent to it. None: it does not say.
        discarded: tags whose memory is given back and whose bytes are gone. They are among the released ones too.
        unknown: why it is not known what it holds, empty when it is. Nothing it reports then counts as held.
        releases_apart: it can release one tag and keep another.
        discards: it keeps no copy of its weights when it releases them, and has to be pushed the base afterwards.
    """

    instance_id: str
    resident: frozenset[str] = frozenset()
    released: frozenset[str] = frozenset()
    versions: Mapping[str, int] = field(default_factory=dict)
    device_bytes: Mapping[str, int] = field(default_factory=dict)
    mirror_bytes: int = 0
    saver_tags: tuple[str, ...] = ()
    adapter_slots: int | None = None
    discarded: frozenset[str] = frozenset()
    unknown: str = ""
    releases_apart: bool = True
    discards: bool = False


@runtime_checkable
class RolloutEngine(Protocol):
    """An engine to hand over to. Versions move on ``commit`` only.

    Its errors are :class:`~lifecycle.errors.EngineError`.
    """

    @property
    def name(self) -> str:
        """A name that is unique among the engines of a run."""

    def report(self) -> EngineReport:
        """Ask the engine what it holds. Cheap; called at every update."""

    def begin_update(self) -> None:
        """Pause admission, drain, drop caches that depend on weights."""

    def send_base(self, group: str, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Write the tensors of one base group, every one. They alias the trainer's bytes; copy before returning.

        What is left in *tensors* when it returns counts as missing, and the update is aborted.
        """

    def load_adapter(self, payload: AdapterPayload) -> None:
        """Load or replace one adapter. Copy before returning."""

    def unload_adapter(self, name: str) -> None:
        """Drop one adapter. One that is not there is dropped already."""

    def commit_update(self) -> None:
        """Make what was sent the served content, under the versions it was sent with."""

    def abort_update(self) -> None:
        """Give up the update. What was touched holds no version any more and is not served."""

    def release(self, tags: Iterable[str], *, discard: bool = False) -> None:
        """Give back the memory of these tags; those already released are skipped.

        Args:
            tags: which; what they need to serve is dropped with them (cached prefixes).
            discard: also give up the content of ``weights``: no version is left, and the base has to be pushed again.
        """

    def resume(self, tags: Iterable[str]) -> None:
        """Take the memory of these tags again; those that are resident are skipped."""


def checked(engines: Iterable[RolloutEngine]) -> tuple[RolloutEngine, ...]:
    """The engines of one call.

    Raises:
        ConfigError: it is no collection of engines, or two have the same name: their versions could
            not be told apart.
    """
    if not isinstance(engines, Iterable):
        raise ConfigError(f"{type(engines).__name__} is not a collection of engines; pass a list, also for one engine")
    found = tuple(engines)
    strangers = [type(one).__name__ for one in found if not isinstance(one, RolloutEngine)]
    if strangers:
        raise ConfigError(f"no rollout engine (lifecycle.engines.RolloutEngine): {', '.join(strangers)}")
    names = sorted(one.name for one in found)
    if len(set(names)) < len(names):
        raise ConfigError(f"two engines have the same name: {', '.join(names)}; name each one for itself")
    return found


@contextmanager
def calling(engine: str, what: str) -> Iterator[None]:
    """Whatever an engine raises inside of the block is an error of this library, which names it.

    Args:
        engine: its name.
        what: what is then said of it.

    Raises:
        EngineError: in place of what it raised, unless that is of this library already.
    """
    try:
        yield
    except LifecycleError:
        raise
    except Exception as error:
        raise EngineError(engine, f"{what}: {type(error).__name__}: {error}") from error
