"""Breadth-first exploration of every reachable state of the pure machine over the small world. No randomness."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from states import ACTOR, TABLE, Effect, Facts, Row, Step, TableError, TrainerEvent, TrainerState, decide
from tests.states import world_effects as effects
from tests.states.world import ADAPTER, Harm, Setting, World
from tests.states.world_effects import Asked
from tests.states.world_facts import facts_of, is_well, judged
from tests.states.world_memory import Act, Change
from tests.states.world_users import doings

E = TrainerEvent


def asked_of(event: TrainerEvent, world: World) -> Iterator[Asked]:
    """What an event can be asked with."""
    if event is E.BEGIN_STEP:
        yield Asked()
        if ADAPTER in world.groups:
            yield Asked(("A",))
        if "loads" in world.setting.life:
            yield Asked(loads=True)
    elif event is E.SWITCH_MODEL:
        yield from (Asked(target=model) for model in sorted({ACTOR, "ref", *world.models}))
    else:
        yield Asked(world.step or (), world.loads)


def facts_asked(event: TrainerEvent, asked: Asked, world: World, facts: Facts) -> Facts:
    """The facts with what the event is asked with."""
    if event is E.SWITCH_MODEL:
        return replace(facts, switch_target=asked.target)
    if event not in (E.BEGIN_STEP, E.TRAINED):
        return facts
    step = asked.adapters if world.step is None else world.step
    unknown = tuple(name for name in step if f"adapter/{name}" not in world.loaded())
    return replace(facts, touched=world.changed_by(step, loads=asked.loads or world.loads), step_unknown=unknown)


@dataclass
class Explored:
    """What was found.

    Attributes:
        worlds: every state, in the order in which it was first reached.
        parents: for each state the one it was reached from, and how.
        back: for each state those from which a step leads to it.
        edges: the edges of the table that were taken.
        transitions: how many steps were taken, failures included.
        harm: what went wrong, with the shortest trace.
    """

    worlds: list[World] = field(default_factory=list)
    parents: list[tuple[int, str]] = field(default_factory=list)
    back: list[list[int]] = field(default_factory=list)
    edges: set[tuple[str, str, str, str]] = field(default_factory=set)
    transitions: int = 0
    harm: list[str] = field(default_factory=list)

    def trace(self, index: int) -> str:
        """How a state is reached, from the start."""
        told = []
        while index > 0:
            index, how = self.parents[index]
            told.append(how)
        return " > ".join(reversed(told)) or "(at the start)"


class Explorer:
    """Explores one kind of run.

    Args:
        setting: the kind of run.
        table: the rows; another one than the library's only to see the exploration fail.
        worlds_max: where to give up.
    """

    def __init__(self, setting: Setting, table: tuple[Row, ...] = TABLE, worlds_max: int = 200_000) -> None:
        self.setting, self.table, self.worlds_max = setting, table, worlds_max
        self.found = Explored()
        self._seen: dict[tuple[object, ...], int] = {}

    def run(self, *, stop_at_harm: bool = False) -> Explored:
        """Explore until nothing new is met, or until the first harm."""
        self._meet(World.at_start(self.setting), 0, "")
        index = 0
        while index < len(self.found.worlds) and not (stop_at_harm and self.found.harm):
            self._leave(index)
            index += 1
            if index > self.worlds_max:
                raise AssertionError(f"{self.setting}: more than {self.worlds_max} states")
        if not self.found.harm:
            self.found.harm += self._stuck()
        return self.found

    def _meet(self, world: World, parent: int, how: str) -> int:
        key = world.key()
        index = self._seen.get(key)
        if index is None:
            index = self._seen[key] = len(self.found.worlds)
            self.found.worlds.append(world)
            self.found.parents.append((parent, how))
            self.found.back.append([])
            self._judge(world, index)
        self.found.back[index].append(parent)
        return index

    def _say(self, index: int, how: str, harm: object) -> None:
        self.found.harm.append(f"[{self.setting}] {self.found.trace(index)} > {how}: {harm}")

    def _judge(self, world: World, index: int) -> None:
        for harm in judged(world):
            self._say(index, "here", harm)

    def _leave(self, index: int) -> None:
        world = self.found.worlds[index]
        facts = facts_of(world)
        for event in TrainerEvent:
            for asked in asked_of(event, world):
                self._ask(index, world, event, asked, facts)
        for how, other in doings(world, facts):
            self._meet(other, index, how)

    def _ask(self, index: int, world: World, event: TrainerEvent, asked: Asked, facts: Facts) -> None:
        target = asked.target if event is E.SWITCH_MODEL else ""
        how = " ".join(filter(None, (event, *asked.adapters, "loads" if asked.loads else "", target)))
        try:
            decision = decide(world.state, event, facts_asked(event, asked, world, facts), table=self.table)
        except TableError as error:
            self._say(index, how, error)
            return
        if isinstance(decision, Step) and (event is not E.FAIL or world.step is None):
            self.found.edges.add((decision.state, event, decision.edge, decision.target))
            try:
                self._take(index, world, decision, asked, f"{how}/{decision.edge}")
            except Harm as harm:
                self._say(index, f"{how}/{decision.edge}", harm)

    def _take(self, index: int, world: World, step: Step, asked: Asked, how: str) -> None:
        """Take a step act by act; after each act see what its failure would leave."""
        now = world.copy()
        for effect, acts in effects.acts_of(step, asked):
            for act in acts(now):
                self._break_off(index, now, act, effect, how)
                before = now.copy()
                undo = act.do(now)
                self.found.transitions += 1
                self._take_back(index, before, now, undo, effect, f"{how}, undone at {act.name}")
                self._fault(index, now, f"{how}, its undo failed after {act.name}")
        effects.after(step, now)
        self._meet(now, index, how)

    def _break_off(self, index: int, now: World, act: Act, effect: Effect, how: str) -> None:
        """The act breaks off in the middle, and cannot be taken back: the trainer is faulted."""
        if act.torn is None:
            return
        torn = now.copy()
        act.torn(torn)
        if effect is Effect.SEND_WEIGHTS:
            self._meet(torn, index, f"{how}, failed")
        else:
            self._fault(index, torn, f"{how}, broke off at {act.name}")

    def _take_back(
        self, index: int, before: World, now: World, undo: Change, effect: Effect, how: str
    ) -> None:  # fmt: skip
        """An act that is undone leaves every byte and every book as it was."""
        if effect in (Effect.SEND_WEIGHTS, Effect.DRIVE_TAGS, Effect.VERIFY_AND_MEND):
            return
        undone = now.copy()
        undo(undone)
        if self.setting.retain:  # what the saver has retained of an earlier pause may be of this one now
            for name, group in before.groups.items():
                group.host = undone.groups[name].host
        if undone.key() != before.copy().key():
            self._say(index, how, "the world is another one than before")

    def _fault(self, index: int, now: World, how: str) -> None:
        faulted = now.copy()
        faulted.state, faulted.origin = TrainerState.FAULTED, None
        self._meet(faulted, index, how)
        self.found.transitions += 1

    def _stuck(self) -> list[str]:
        """The states from which no step leads back to an actor that is awake and can train."""
        worlds = self.found.worlds
        goal = [at for at, one in enumerate(worlds) if is_well(one)]
        reached, todo = set(goal), list(goal)
        while todo:
            for before in self.found.back[todo.pop()]:
                if before not in reached:
                    reached.add(before)
                    todo.append(before)
        stuck = [at for at in range(len(worlds)) if at not in reached]
        return [f"[{self.setting}] {self.found.trace(at)}: no way back to awake ({len(stuck)})" for at in stuck[:1]]
