"""The client's books of one engine: asked before each call, moved by its acknowledgement and by nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lifecycle.engines.protocol import EngineReport
from lifecycle.errors import EngineError, EngineRefused
from states.engine_decision import EngineRefusal, EngineStep, after, broken, decide_engine, lost_at
from states.engine_memory import EngineAsk, EngineEvent, EngineMemory, EngineSaid, EngineState, TagState
from states.handover_needs import KV_CACHE, WEIGHTS
from states.names import FROZEN_BASE


class EngineBooks:
    """What is known of an engine whose memory is in another process.

    Args:
        engine: its name, for messages.
        tags: its memory tags in the order in which they are resumed.
        mirrored: the tags of which a release keeps the bytes in host memory.
        keeps_adapters: adapters survive a release with a mirror.
        base_groups: content groups of the base that must be whole before anything is served.
    """

    def __init__(
        self,
        engine: str,
        *,
        tags: Iterable[str] = (WEIGHTS, KV_CACHE),
        mirrored: Iterable[str] = (WEIGHTS,),
        keeps_adapters: bool = False,
        base_groups: Iterable[str] = (FROZEN_BASE,),
    ) -> None:
        self._engine = engine
        self._memory = EngineMemory(
            tags=tuple((tag, TagState.UNKNOWN) for tag in tags),
            mirrored=tuple(mirrored),
            keeps_adapters=keeps_adapters,
            base_groups=tuple(sorted(base_groups)),
        )

    @property
    def memory(self) -> EngineMemory:
        """What is known now."""
        return self._memory

    @contextmanager
    def asking(self, event: EngineEvent, **asked: Any) -> Iterator[EngineStep]:
        """Ask something of the engine inside the block; left normally, it is acknowledged.

        If the block raises :class:`~lifecycle.errors.EngineRefused`, nothing has changed there. Any other failure
        leaves the engine ``lost``: no more is known than holds whether it was done or not.

        Args:
            event: what is asked.
            asked: the fields of :class:`~states.engine_memory.EngineAsk`.

        Raises:
            EngineError: it may not be asked now. Nothing was sent.
        """
        step = self.decided(event, **asked)
        before = self._memory
        try:
            yield step
        except EngineRefused as error:
            self._memory = broken(before, f"{event}: {error.why}")
            raise
        except BaseException as error:
            if not step.settled:
                self._memory = lost_at(before, step, f"{event}: {type(error).__name__}: {error}")
            raise
        self._memory = after(self._memory, step)

    def decided(self, event: EngineEvent, **asked: Any) -> EngineStep:
        """Whether it may be asked now, as a step. Changes nothing.

        Raises:
            EngineError: it may not; the message names every guard that failed and what to do.
        """
        answer = decide_engine(self._memory, EngineAsk(event=event, **asked))
        if isinstance(answer, EngineRefusal):
            raise EngineError(self._engine, str(answer))
        return answer

    def lost(self, because: str) -> None:
        """A call failed in an unknown place: what the engine holds is unknown until it is probed."""
        self._took(EngineEvent.LOSE, because=because)

    def probed(self, said: EngineSaid) -> None:
        """The engine said what it holds. Another instance than the one that is known holds nothing of before."""
        if said.instance_id != self._memory.instance_id:
            self._took(EngineEvent.RESTART, instance_id=said.instance_id)
        self._took(EngineEvent.PROBE, said=said)

    def declared(self, versions: Mapping[str, int]) -> None:
        """The user declares, or a check has shown, that this instance holds these versions (such as of its base).

        Raises:
            EngineError: what it holds is unknown; probe it first.
        """
        memory = self._memory
        if memory.state is EngineState.LOST:
            raise EngineError(
                self._engine, f"nothing can be declared of it: {memory.because}; report() probes it first"
            )
        said = EngineSaid(
            instance_id=memory.instance_id, is_open=memory.state is EngineState.OPEN, tags={}, versions=dict(versions)
        )
        self._took(EngineEvent.PROBE, said=said)

    def report(
        self,
        *,
        device_bytes: Mapping[str, int] | None = None,
        mirror_bytes: int = 0,
        adapter_slots: int | None = None,
    ) -> EngineReport:
        """What is known, in the words of the protocol."""
        memory = self._memory
        return EngineReport(
            instance_id=memory.instance_id,
            resident=frozenset(memory.in_state(TagState.RESIDENT)),
            released=frozenset(memory.in_state(TagState.RELEASED, TagState.DISCARDED)),
            discarded=frozenset(memory.in_state(TagState.DISCARDED)),
            versions={} if memory.state is EngineState.LOST else dict(memory.versions),
            unknown=memory.because if memory.state is EngineState.LOST else "",
            device_bytes=dict(device_bytes or {}),
            mirror_bytes=mirror_bytes,
            adapter_slots=adapter_slots,
        )

    def _took(self, event: EngineEvent, **asked: Any) -> None:
        self._memory = after(self._memory, self.decided(event, **asked))
