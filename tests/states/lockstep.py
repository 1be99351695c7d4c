"""Two trainers, one lean and one by the reference rule, that are asked the same: what each holds and copies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from states import FROZEN_BASE, RESTING, TRAINABLE_BASE, Refusal, Step, TrainerEvent, decide
from tests.states import world_effects as effects
from tests.states.explorer import asked_of, facts_asked
from tests.states.world import Group, Setting, World
from tests.states.world_facts import facts_of
from tests.states.world_users import doings

_BASE_SIZE, _SIZE = 10, 1
_COPYING = (TrainerEvent.SLEEP, TrainerEvent.TRAINED, TrainerEvent.RECONCILED)
"""Events at which lean copies no more than the reference. A switch copies what the reference has copied before."""

Pair = tuple[World, World]


def _size(name: str) -> int:
    return _BASE_SIZE if name in (FROZEN_BASE, TRAINABLE_BASE) else _SIZE


def _copies(group: Group) -> int:
    return len(group.own & set(group.tags.values()))


def held(world: World) -> int:
    """Host bytes that are held: the copies of the snapshots and the backups of the saver. Files are not host bytes."""
    return sum(_size(name) * (_copies(one) + (one.host is not None)) for name, one in world.groups.items())


def _stored(world: World) -> dict[str, set[int]]:
    return {name: set(one.own) for name, one in world.groups.items()}


class Lockstep:
    """Explores what the reference can serve, and compares.

    Args:
        setting: the kind of run; its strategy is left aside.
    """

    def __init__(self, setting: Setting) -> None:
        self.harm: list[str] = []
        self.pairs = 0
        self._setting = setting

    def run(self) -> Lockstep:
        """Explore until nothing new is met, or until the first harm."""
        lean, reference = (replace(self._setting, strategy=one) for one in ("lean", "reference"))
        todo = deque([((World.at_start(lean), World.at_start(reference)), "")])
        seen = set()
        while todo and not self.harm:
            pair, how = todo.popleft()
            key = (pair[0].key(), pair[1].key())
            if key in seen:
                continue
            seen.add(key)
            self.pairs += 1
            self._compare(pair, how)
            todo += self._after(pair, how)
        return self

    def _compare(self, pair: Pair, how: str) -> None:
        lean, reference = pair
        if lean.state in RESTING and held(lean) > held(reference):
            self.harm.append(f"[{self._setting}]{how}: lean holds {held(lean)}, the reference {held(reference)}")

    def _after(self, pair: Pair, how: str) -> Iterator[tuple[Pair, str]]:
        lean, reference = pair
        one, other = facts_of(lean), facts_of(reference)
        named = dict(doings(lean, one))
        for told, after in doings(reference, other):
            if told in named:
                yield (named[told], after), f"{how} > {told}"
            else:
                self.harm.append(f"[{self._setting}]{how}: {told} is possible by the reference alone")
        for event in TrainerEvent:
            for asked in asked_of(event, reference):
                facts = facts_asked(event, asked, reference, other)
                served = decide(reference.state, event, facts)
                if event is TrainerEvent.FAIL or not isinstance(served, Step):
                    continue
                told = f"{how} > {event}"
                answer = decide(lean.state, event, facts_asked(event, asked, lean, one))
                if isinstance(answer, Refusal):
                    self.harm.append(f"[{self._setting}]{told}: lean refuses, {answer.failed}")
                    continue
                mine = _taken(lean, answer, asked) if isinstance(answer, Step) else lean.copy()
                theirs = _taken(reference, served, asked)
                if event in _COPYING and _added(lean, mine) > _added(reference, theirs):
                    self.harm.append(f"[{self._setting}]{told}: lean copies {_added(lean, mine)}")
                yield (mine, theirs), told


def _added(before: World, after: World) -> int:
    """Bytes that were copied into snapshots."""
    old, new = _stored(before), _stored(after)
    return sum(_size(name) * len(new[name] - old[name]) for name in new)


def _taken(world: World, step: Step, asked: effects.Asked) -> World:
    now = world.copy()
    for _, acts in effects.acts_of(step, asked):
        for act in acts(now):
            act.do(now)
    effects.after(step, now)
    return now
