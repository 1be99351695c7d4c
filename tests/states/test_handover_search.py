"""Whatever is planned is legal and fits, and a refusal means that nothing fits: against a search by brute force."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Final

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from states.handover import HandoverPlan, HandoverStep, MemoryPeak, plan_handoff
from states.handover_needs import RESUME_ORDER, EngineBytes, HandoverConfig, HandoverSizes, TrainerBytes

Move = tuple[str, str, tuple[str, ...]]
"""What is done, by which engine (empty for the trainer), to which tags."""

few = st.integers(0, 12)


@st.composite
def engines(draw: st.DrawFn, name: str) -> EngineBytes:
    """An engine in any state of residency that its own rules allow."""
    tags = draw(st.sampled_from([("weights", "kv_cache"), RESUME_ORDER, ("weights",)]))
    resident = draw(st.frozensets(st.sampled_from(tags)))
    discards, mirror = draw(st.booleans()), draw(few)
    is_discarded = discards and "weights" not in resident
    return EngineBytes(
        name=name, tags=tags, resident=resident, discarded=frozenset({"weights"} if is_discarded else ()),
        weights_bytes=draw(few), kv_cache_bytes=draw(few) if "kv_cache" in tags else 0,
        cuda_graph_bytes=draw(few) if "cuda_graph" in tags else 0,
        mirror_bytes=0 if discards else mirror,
        mirror_held_bytes=0 if discards or "weights" in resident else mirror,
        behind_bytes=draw(few), releases_apart=draw(st.booleans()), discards=discards,
    )  # fmt: skip


@st.composite
def hand_overs(draw: st.DrawFn, most: int = 2) -> HandoverSizes:
    """A trainer that is awake, and engines in any residency; what they hold is counted, and a little more."""
    weights, scratch, backed = draw(few), draw(few), draw(st.booleans())
    backup = weights if backed else 0
    kept = draw(st.sampled_from([0, 3]))
    trainer = TrainerBytes(
        target=draw(st.sampled_from(["cpu", "cpu", None])), weights_bytes=weights, scratch_bytes=scratch,
        awake_bytes=weights + scratch, kept_bytes=kept, backup_bytes=backup, base_bytes=weights,
    )  # fmt: skip
    trainer = replace(trainer, returned_bytes=kept + (backup if trainer.target else 0))
    found = tuple(draw(engines(f"E{index}")) for index in range(draw(st.integers(0, most))))
    return HandoverSizes(
        trainer=trainer, engines=found,
        host_held_bytes=draw(few) + sum(one.mirror_held_bytes for one in found),
        device_held_bytes=draw(few) + weights + scratch
        + sum(one.device_bytes(tuple(one.resident)) for one in found),
    )  # fmt: skip


def configs(least_bytes: int, most_bytes: int) -> st.SearchStrategy[HandoverConfig]:
    """What can be asked for, with budgets of this size or without."""
    budgets = st.none() | st.integers(least_bytes, most_bytes)
    return st.builds(
        HandoverConfig,
        memory_peak=st.none() | st.sampled_from(MemoryPeak),
        lora=st.booleans(),
        engine_keeps_weights=st.none() | st.booleans(),
        host_budget_bytes=budgets,
        device_budget_bytes=budgets,
    )


ROOMY: Final = configs(40, 160)
TIGHT: Final = configs(0, 60)


@dataclass
class World:
    """Trainer and engines as they are, played step by step. What an engine would not survive is an error at once."""

    sizes: HandoverSizes
    host: int = 0
    device: int = 0
    peak_host: int = 0
    peak_device: int = 0
    resident: dict[str, set[str]] = field(default_factory=dict)
    mirrors: dict[str, int] = field(default_factory=dict)
    backup: int = 0
    both: bool = False

    def __post_init__(self) -> None:
        self.host, self.device = self.sizes.host_held_bytes, self.sizes.device_held_bytes
        self.resident = {one.name: set(one.resident) for one in self.sizes.engines}
        self.mirrors = {one.name: one.mirror_held_bytes for one in self.sizes.engines}

    def play(self, move: Move) -> None:
        """One step: take, look, give, look."""
        does, name, tags = move
        if name:
            self._engine(does, next(one for one in self.sizes.engines if one.name == name), tags)
        else:
            self._trainer(does)
        self.both |= bool(self.backup) and any(self.mirrors.values())

    def _engine(self, does: str, one: EngineBytes, tags: tuple[str, ...]) -> None:
        held = self.resident[one.name]
        assert tags
        assert set(tags) <= set(one.tags)
        if does == "resume":
            assert not held & set(tags), f"{one.name}: a resume of a held tag"
            gives = self.mirrors[one.name] if "weights" in tags else 0
            self._move(device=one.device_bytes(tags), host=-gives)
            held |= set(tags)
            self.mirrors[one.name] -= gives
        else:
            assert held >= set(tags), f"{one.name}: a release of a released tag"
            assert one.releases_apart or held == set(tags), f"{one.name}: it cannot release these alone"
            takes = one.mirror_bytes if "weights" in tags else 0
            self.mirrors[one.name] += takes
            self._move(host=takes, device=-one.device_bytes(tags))
            held -= set(tags)

    def _trainer(self, does: str) -> None:
        one = self.sizes.trainer
        if does == "sleep":
            self._move(host=one.kept_bytes, device=-one.scratch_bytes)
        elif does == "offload":
            self.backup = one.backup_bytes
            self._move(host=one.backup_bytes, device=-one.weights_bytes)
        elif does == "wake_up":
            stays = one.weights_bytes if one.target is None else 0
            self.backup = 0
            self._move(device=one.awake_bytes - stays, host=-one.returned_bytes)

    def _move(self, *, host: int = 0, device: int = 0) -> None:
        self.peak_host = max(self.peak_host, self.host + max(host, 0))
        self.peak_device = max(self.peak_device, self.device + max(device, 0))
        self.host += host
        self.device += device


def move_of(step: HandoverStep) -> Move:
    """The step without its prediction."""
    return step.does, step.engine, step.tags


@given(sizes=hand_overs(), config=ROOMY)
@settings(max_examples=300, deadline=None)
def test_a_plan_is_legal_exact_and_within_the_budgets_at_every_step(
    sizes: HandoverSizes, config: HandoverConfig
) -> None:
    """Played on a world of its own, every level is the predicted one, and engines survive every step."""
    answer = plan_handoff(config, sizes)
    assume(isinstance(answer, HandoverPlan))
    assert isinstance(answer, HandoverPlan)
    world = World(sizes)
    for step in answer.steps:
        world.peak_host, world.peak_device = world.host, world.device
        world.play(move_of(step))
        assert (world.host, world.device) == (step.host_bytes, step.device_bytes), step
        assert (world.peak_host, world.peak_device) == (step.host_peak_bytes, step.device_peak_bytes), step
        assert config.host_budget_bytes is None or world.peak_host <= config.host_budget_bytes
        assert config.device_budget_bytes is None or world.peak_device <= config.device_budget_bytes
        if step is answer.there.steps[-1]:
            assert all(world.resident[one.name] == set(one.tags) for one in sizes.engines)
    for one in sizes.engines:
        kept = {"weights"} if answer.back.keeps_weights and one.may_keep_weights else set()
        assert world.resident[one.name] == kept


@given(sizes=hand_overs(), config=ROOMY)
@settings(max_examples=200, deadline=None)
def test_with_the_peak_on_the_device_the_two_host_copies_never_coexist(
    sizes: HandoverSizes, config: HandoverConfig
) -> None:
    """Over the whole turn: mirrors are gone before the backup is made, and made when it is gone."""
    answer = plan_handoff(replace(config, memory_peak=MemoryPeak.DEVICE), sizes)
    assume(isinstance(answer, HandoverPlan))
    assert isinstance(answer, HandoverPlan)
    world = World(sizes)
    for step in answer.steps:
        world.play(move_of(step))

    assert not world.both


def ways_there(sizes: HandoverSizes) -> list[tuple[Move, ...]]:
    """Every order of the moves of the way there that makes sense to anybody."""
    gives: list[Move] = [("offload", "", ())] if sizes.trainer.target is not None else []
    takes: list[Move] = []
    ends: list[Move] = []
    for one in sizes.engines:
        lacks = tuple(tag for tag in RESUME_ORDER if tag in one.tags and tag not in one.resident)
        takes += [("resume", one.name, ("weights",))] if "weights" in lacks else []
        rest = tuple(tag for tag in lacks if tag != "weights")
        ends += [("resume", one.name, rest)] if rest else []
    return [(("sleep", "", ()), *order, *ends) for order in permutations([*gives, *takes])]


def ways_back(sizes: HandoverSizes, *, keeps: bool) -> list[tuple[Move, ...]]:
    """Every order of the moves of the way back, with the cache released at once or with the weights."""
    found: list[tuple[Move, ...]] = []
    for apart in (False, True):
        moves: list[Move] = [("wake_up", "", ())]
        for one in sizes.engines:
            goes = tuple(reversed(one.tags))
            if keeps and one.may_keep_weights:
                parts = [tuple(tag for tag in goes if tag != "weights")]
            elif apart and one.releases_apart:
                parts = [tuple(tag for tag in goes if tag != "weights"), ("weights",)]
            else:
                parts = [goes]
            moves += [("release", one.name, part) for part in parts if part]
        found += permutations(moves)
    return found


def fits(world: World, config: HandoverConfig) -> bool:
    """Whether nothing that it saw was more than may be held."""
    limits = (config.host_budget_bytes, config.device_budget_bytes)
    peaks = (world.peak_host, world.peak_device)
    return all(limit is None or peak <= limit for peak, limit in zip(peaks, limits, strict=True))


def some_order_fits(sizes: HandoverSizes, config: HandoverConfig) -> bool:
    """Whether any order fits there, and any back, among all orders of the moves."""
    there = []
    for order in ways_there(sizes):
        world = World(sizes)
        for move in order:
            world.play(move)
        there.append(world)
    asked = config.engine_keeps_weights
    keeps = (True, False) if asked is None and config.lora else (bool(asked),)
    ends = there[0]
    return any(fits(one, config) for one in there) and any(
        _returns(ends, order, config) for one in keeps for order in ways_back(sizes, keeps=one)
    )


def _returns(ends: World, order: tuple[Move, ...], config: HandoverConfig) -> bool:
    names = {name: set(held) for name, held in ends.resident.items()}
    world = replace(ends, peak_host=ends.host, peak_device=ends.device)
    world.host, world.device, world.backup = ends.host, ends.device, ends.backup
    world.resident, world.mirrors = names, dict(ends.mirrors)
    for move in order:
        world.play(move)
    return fits(world, config)


@given(sizes=hand_overs(most=1), config=TIGHT)
@settings(max_examples=400, deadline=None)
def test_there_is_a_plan_exactly_where_some_order_fits(sizes: HandoverSizes, config: HandoverConfig) -> None:
    """With one engine every order of the moves is tried: a refusal overlooks none that fits."""
    answer = plan_handoff(replace(config, memory_peak=None), sizes)

    assert isinstance(answer, HandoverPlan) == some_order_fits(sizes, config)
