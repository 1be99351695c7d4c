"""One turn of a run, decided on paper: what each event would do, which source it would read, and why.

Nothing is allocated and no model is needed. The facts are those that would be gathered at that event
in a run of this configuration, with the memory laid out as :func:`states.place` lays it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from lifecycle.config import LifecycleConfig, Reference
from states import (
    ACTOR,
    FROZEN_BASE,
    TRAINABLE_BASE,
    ContentFacts,
    Decision,
    Effect,
    EngineFacts,
    Facts,
    Place,
    Refusal,
    Step,
    Strategy,
    TrainerEvent,
    TrainerState,
    Verdict,
    adapter_group,
    as_one,
    decide,
    decide_reads,
    decide_reconcile,
    groups_to_copy,
    groups_to_keep,
    place,
)

_TRAINED_ADAPTER: Final = "trained"
_NEW_ADAPTER: Final = "new"
E = TrainerEvent


@dataclass(frozen=True, slots=True)
class Explained:
    """One event of the turn.

    Attributes:
        state: the state it was asked in.
        event: the event.
        edge: the edge it takes, ``already`` when nothing is to be done, empty when it is refused.
        source: where weights are read at that event: ``live``, ``saver-backup`` or the tag of a
            snapshot such as ``actor``; several joined by ``+`` if content groups differ; None when refused.
        because: why there, or why not at all, in words.
        verdicts: every selector and guard that was asked.
    """

    state: TrainerState
    event: TrainerEvent
    edge: str
    source: str | None
    because: str
    verdicts: tuple[Verdict, ...]

    @property
    def holds(self) -> bool:
        """Whether the event may happen."""
        return self.source is not None


def explain_run(config: LifecycleConfig) -> tuple[Explained, ...]:
    """Every event of one turn, in order: train, sync, sleep, offload, load an adapter, sync, wake, switch.

    An event that is refused leaves the state as it is, and the turn goes on from there, as in a run.
    """
    turn = _Turn(config)
    turn.ask(E.BEGIN_STEP, touched=turn.trained)
    turn.ask(E.TRAINED, touched=turn.trained, step_open=True)
    turn.ask(E.UPDATE_WEIGHTS, engines=turn.engines())
    turn.ask(E.SLEEP)
    turn.ask(E.OFFLOAD)
    if config.lora:
        turn.ask(E.RECONCILE_ADAPTERS, to_load=(_NEW_ADAPTER,))
    turn.ask(E.UPDATE_WEIGHTS, engines=turn.engines())
    turn.ask(E.WAKE_UP)
    for model in turn.others:
        turn.ask(E.SWITCH_MODEL, switch_target=model)
        turn.ask(E.SWITCH_MODEL, switch_target=ACTOR)
    return tuple(turn.told)


def decisions(config: LifecycleConfig) -> dict[str, dict[str, object]]:
    """The turn as plain data: event to its source and verdicts.

    Of an event that is asked several times it is the one in the deepest sleep that counts: there the
    question where to read has no simple answer.
    """
    depth = (TrainerState.AWAKE, TrainerState.SLEEPING, TrainerState.OFFLOADED_CPU, TrainerState.OFFLOADED_DISK)
    chosen: dict[str, Explained] = {}
    for one in explain_run(config):
        known = chosen.get(one.event)
        if known is None or depth.index(one.state) > depth.index(known.state):
            chosen[one.event] = one
    return {str(event): {"source": one.source, "verdicts": _plain(one.verdicts)} for event, one in chosen.items()}


def _plain(verdicts: Iterable[Verdict]) -> list[dict[str, object]]:
    return [{"name": one.name, "holds": one.holds, "because": one.because, "remedy": one.remedy} for one in verdicts]


class _Turn:
    """The trainer on paper: a state, and where each content group stands."""

    def __init__(self, config: LifecycleConfig) -> None:
        self.config = config
        self.told: list[Explained] = []
        has_ref = config.reference is Reference.SNAPSHOT
        kept = (("ref", has_ref), ("teacher", config.with_teacher), ("old_actor", config.keep_old_actor))
        self.others = tuple(tag for tag, is_kept in kept if is_kept)
        self.trained = (adapter_group(_TRAINED_ADAPTER),) if config.lora else (TRAINABLE_BASE,)
        self._state = TrainerState.AWAKE
        self._active = ACTOR
        self._contents: tuple[ContentFacts, ...] = (self._base(),)
        if config.lora:
            self._contents += (self._slot(_TRAINED_ADAPTER, version=2),)

    def _base(self) -> ContentFacts:
        config = self.config
        where = self._place("frozen-base" if config.lora else "trainable-base")
        lent = config.lora and config.strategy == Strategy.LEAN
        return ContentFacts(
            group=FROZEN_BASE if config.lora else TRAINABLE_BASE,
            copies=tuple((tag, 1) for tag in self.others),
            borrowed=self.others if lent else (),
            backup=where.backup,
            file=1 if where.file else None,
            frozen=config.lora,
        )

    def _place(self, content: str) -> Place:
        config = self.config
        return place(content, target=config.offload_target, frozen_base=config.frozen_base, strategy=config.strategy)

    def engines(self) -> tuple[EngineFacts, ...]:
        """A rollout engine that has just started and lacks everything."""
        return (EngineFacts("rollout", stale=tuple(one.group for one in self._contents)),)

    def ask(self, event: TrainerEvent, **asked: Any) -> None:
        """Decide one event, tell it, and go where it leads."""
        facts = self._facts(**asked)
        decision = _decide(self._state, event, facts)
        self.told.append(_tell(self._state, decision, facts))
        if isinstance(decision, Step):
            self._state = decision.target
            self._happen(event, facts)
            due = groups_to_copy(facts) if self.config.strategy == Strategy.LEAN else None
            if Effect.BACKUP_ACTOR in decision.effects:
                self._contents = tuple(_backed_up(one, due) for one in self._contents)

    def _facts(self, **asked: Any) -> Facts:
        has_copy = any(one.copy_version(ACTOR) for one in self._contents)
        return Facts(
            **self.config.facts_settings(),
            active_model=self._active,
            models=(*self.others, *((ACTOR,) if has_copy else ())),
            contents=self._contents,
            **asked,
        )

    def _happen(self, event: TrainerEvent, facts: Facts) -> None:
        """What the event does to the bytes."""
        if event is E.TRAINED:
            self._contents = tuple(self._renewed(one) for one in self._contents)
        elif event is E.OFFLOAD:
            self._contents = tuple(map(_paused, self._contents))
        elif event is E.WAKE_UP:
            self._contents = tuple(replace(one, live=one.version, saver=None) for one in self._contents)
        elif event is E.RECONCILE_ADAPTERS:
            new = self._slot(_NEW_ADAPTER, version=9)
            is_offloaded = self._contents[0].live is None
            self._contents += (_paused(new) if is_offloaded else new,)
        elif event is E.SWITCH_MODEL:
            kept = groups_to_keep(facts) if self.config.strategy == Strategy.LEAN else ()
            self._contents = tuple(_backed_up(one, kept) for one in self._contents)
            self._switch(facts.switch_target)

    def _switch(self, target: str) -> None:
        self._active = target
        self._contents = tuple(replace(one, live=one.copy_version(target) or one.version) for one in self._contents)

    def _renewed(self, content: ContentFacts) -> ContentFacts:
        if content.group not in self.trained:
            return content
        return replace(content, version=content.version + 1, live=content.version + 1)

    def _slot(self, name: str, version: int) -> ContentFacts:
        backup = self._place("adapters").backup
        return ContentFacts(adapter_group(name), version=version, live=version, backup=backup, frozen=False)


def _paused(content: ContentFacts) -> ContentFacts:
    return replace(content, live=None, saver=content.live if content.backup == "cpu" else None)


def _backed_up(content: ContentFacts, due: tuple[str, ...] | None) -> ContentFacts:
    if due is not None and content.group not in due:
        return content
    kept = {**dict(content.copies), ACTOR: content.version}
    return replace(content, copies=tuple(kept.items()))


def _decide(state: TrainerState, event: TrainerEvent, facts: Facts) -> Decision:
    if event is not E.RECONCILE_ADAPTERS:
        return decide(state, event, facts)
    both = decide_reconcile(state, facts)
    return as_one(*both) if isinstance(both, tuple) else both


def _tell(state: TrainerState, decision: Decision, facts: Facts) -> Explained:
    event, verdicts = TrainerEvent(decision.event), decision.verdicts
    if isinstance(decision, Refusal):
        reasons = "; ".join(f"{one.name}: {one.because}" for one in decision.failed)
        return Explained(state, event, "", None, f"{reasons}. What to do: {decision.remedy}", verdicts)
    if isinstance(decision, Step) and Effect.RESTORE_MODEL in decision.effects:
        target = facts.switch_target
        return Explained(state, event, decision.edge, target, f'the "{target}" copy replaces what is live', verdicts)
    groups: dict[tuple[str, str], list[str]] = {}
    for read in decide_reads(facts):
        groups.setdefault((read.tag or read.source or "nowhere", read.because), []).append(read.group)
    source = "+".join(dict.fromkeys(place for place, _ in groups))
    because = "; ".join(f"{', '.join(names)}: {why}" for (_, why), names in groups.items())
    return Explained(
        state, event, decision.edge if isinstance(decision, Step) else "already", source, because, verdicts
    )
