"""The client's books of one engine: asked before each call, moved by its acknowledgement and by nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lifecycle.engines.protocol import EngineReport
from lifecycle.errors import EngineError, EngineRefused
from states.engine_changes import CHANGES_NOTHING, after, broken, lost_at
from states.engine_decision import EngineRefusal, EngineStep, decide_engine
from states.engine_memory import EngineAsk, EngineEvent, EngineMemory, EngineSaid, EngineState, TagState
from states.handover_needs import KV_CACHE, WEIGHTS
from states.names import FROZEN_BASE


class EngineBooks:
    """What is known of an engine.

    Requests to generate may come from several threads, beside anything else. All other calls need one caller at a time.

    Args:
        engine: its name, for messages.
        tags: its memory tags in the order in which they are resumed.
        mirrored: the tags of which a release keeps the bytes in host memory.
        keeps_adapters: adapters survive a release with a mirror, and a new base under them.
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

        If the block raises :class:`~lifecycle.errors.EngineRefused`, nothing has changed there (so what changes
        something takes one request a block); a base comes in several requests, and counts as touched. Any other
        failure leaves the engine ``lost``: no more is known than holds whether it was done or not.

        Args:
            event: what is asked.
            asked: the fields of :class:`~states.engine_memory.EngineAsk`.

        Raises:
            EngineError: it may not be asked now, and nothing was sent; or the record moved inside the block (the
                engine was lost, or another instance answered), and the acknowledgement does not count.
        """
        step = self.decided(event, **asked)
        before = self._memory
        try:
            yield step
        except BaseException as error:
            self._failed(step, error)
            raise
        now = self._memory
        if event is EngineEvent.GENERATE:
            return  # requests run beside other calls, which may have moved on
        if (now.state, now.instance_id) != (before.state, before.instance_id):
            why = f"{event} was acknowledged, but it is {now.state} by now ({now.because or 'another state'})"
            raise EngineError(self._engine, f"{why}: this does not count; report() says what it holds, repeat the push")
        self.acknowledged(step)

    def _failed(self, step: EngineStep, error: BaseException) -> None:
        event = step.ask.event
        if step.settled or event in CHANGES_NOTHING:
            return
        if not isinstance(error, EngineRefused):
            self._memory = lost_at(self._memory, step, f"{event}: {type(error).__name__}: {error}")
            return
        if event is EngineEvent.SEND_BASE:
            self.acknowledged(step)
        self.broke(f"{event}: {error.why}")

    def acknowledged(self, step: EngineStep) -> None:
        """It was done. Only for who knows that for certain; others use :meth:`asking`."""
        self._memory = after(self._memory, step)

    def broke(self, why: str) -> None:
        """A call of the open update has failed: it can only be aborted. Without an open update nothing changes."""
        self._memory = broken(self._memory, why)

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
            EngineError: what it holds is unknown (probe it first), or its weights were discarded.
        """
        memory = self._memory
        if memory.state is EngineState.LOST or memory.tag(WEIGHTS) is TagState.DISCARDED:
            why = memory.because or f"its {WEIGHTS} were discarded"
            raise EngineError(self._engine, f"nothing can be declared of it: {why}; probe it, or push what it lacks")
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
        saver_tags: tuple[str, ...] = (),
    ) -> EngineReport:
        """What is known, in the words of the protocol."""
        memory = self._memory
        is_lost = memory.state is EngineState.LOST
        tags_in: dict[TagState, set[str]] = {state: set() for state in TagState}
        for tag, state in memory.tags:
            tags_in[state].add(tag)
        discarded = frozenset(tags_in[TagState.DISCARDED])
        return EngineReport(
            instance_id=memory.instance_id,
            resident=frozenset(tags_in[TagState.RESIDENT]),
            released=discarded | tags_in[TagState.RELEASED],
            discarded=discarded,
            versions={} if is_lost else dict(memory.versions),
            unknown=memory.because if is_lost else "",
            device_bytes=dict(device_bytes or {}),
            mirror_bytes=mirror_bytes,
            adapter_slots=adapter_slots,
            saver_tags=saver_tags,
        )

    def _took(self, event: EngineEvent, **asked: Any) -> None:
        self.acknowledged(self.decided(event, **asked))
