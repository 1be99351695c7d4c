"""Facts for tests: healthy ones, single deviations from them, exhaustive blocks, and hypothesis strategies.

The actor's newest version is 5 everywhere, 3 is an older one, 8 the version of a ref model's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import Any, Final

from hypothesis import strategies as st

from states import (
    ACTOR,
    BUFFERS,
    FROZEN_BASE,
    TRAINABLE_BASE,
    ContentFacts,
    EngineFacts,
    Facts,
    LeaseFacts,
    Strategy,
    TrainerEvent,
    TrainerState,
    adapter_group,
)

NEWEST: Final = 5
OLDER: Final = 3
REF: Final = 8
ADAPTER: Final = adapter_group("A")

RULES: Final[dict[str, dict[str, Any]]] = {
    "lean": {},
    "lean-with-ref": {"with_ref": True},
    "the-rule-holds": {"strategy": "reference"},
    "full-parameter": {"strategy": "reference", "lora": False},
    "not-colocated": {"strategy": "reference", "colocate": False},
    "with-ref": {"strategy": "reference", "with_ref": True},
    "duplicate": {"strategy": "duplicate"},
    "not-colocated-duplicate": {"colocate": False, "strategy": "duplicate"},
}
"""Configurations that take each branch of the copy rule, as keywords of ``Facts``."""


def group(name: str = FROZEN_BASE, **changes: Any) -> ContentFacts:
    """One content group, live in its newest version."""
    given: dict[str, Any] = {"version": NEWEST, "live": NEWEST, "frozen": name == FROZEN_BASE}
    return ContentFacts(name, **(given | changes))


def lease(source: str, *groups: str, leaked: tuple[str, ...] = ()) -> LeaseFacts:
    """An open lease, or one that a tensor outlived."""
    return LeaseFacts("reader", source, groups or (FROZEN_BASE, ADAPTER), leaked)


def healthy(state: TrainerState, **changes: Any) -> Facts:
    """Facts of a trainer that is well, in which every event that leaves *state* has something to do.

    A ref model and an actor copy are kept, adapter B waits to be loaded, engine E0 lacks adapter A,
    gradients of A are accumulated and can be kept, nothing is leased and there is room everywhere.
    """
    target: str | None = "cpu"
    copies = ((ACTOR, NEWEST),)
    base = group(copies=(*copies, ("ref", REF)))
    adapter = group(ADAPTER, copies=copies)
    if state is TrainerState.OFFLOADED_CPU:
        base, adapter = replace(base, live=None, saver=NEWEST), replace(adapter, live=None, saver=NEWEST)
    if state is TrainerState.OFFLOADED_DISK:
        target = "disk"
        base, adapter = replace(base, live=None, backup="disk"), replace(adapter, live=None, saver=NEWEST)
    given: dict[str, Any] = {
        "offload_target": target,
        "models": (ACTOR, "ref"),
        "contents": (base, adapter),
        "origin": TrainerState.AWAKE if state is TrainerState.ADAPTER_RECONCILING else None,
        "to_load": ("B",),
        "touched": (ADAPTER,),
        "accumulated": (ADAPTER,),
        "switch_target": "ref",
        "engines": (EngineFacts("E0", stale=(ADAPTER,)), EngineFacts("E1")),
        "backup_need_bytes": 10,
        "copy_need_bytes": 10,
        "host_free_bytes": 20,
        "disk_need_bytes": 10,
        "disk_free_bytes": 20,
        "resume_need_bytes": 10,
        "device_free_bytes": 20,
        "active_tags": 2,
    }
    return Facts(**(given | changes))


Deviation = Callable[[Facts], Facts]


def _set(**changes: Any) -> Deviation:
    return lambda facts: replace(facts, **changes)


def _content(index: int, **changes: Any) -> Deviation:
    def change(facts: Facts) -> Facts:
        contents = list(facts.contents)
        contents[index] = replace(contents[index], **changes)
        return replace(facts, contents=tuple(contents))

    return change


def _lease(source: str, *groups: str, leaked: tuple[str, ...] = ()) -> Deviation:
    return lambda facts: replace(facts, leases=(*facts.leases, lease(source, *groups, leaked=leaked)))


_PLACEMENTS: Final[dict[str, dict[str, Any]]] = {
    "is not live": {"live": None},
    "is live in an older version": {"live": OLDER},
    "is live as ref": {"live": REF},
    "is fresh in the saver": {"saver": NEWEST},
    "is older in the saver": {"saver": OLDER},
    "has no copy": {"copies": ()},
    "has an older actor copy": {"copies": ((ACTOR, OLDER),)},
    "has a fresh ref copy only": {"copies": (("ref", NEWEST),)},
    "has an old ref copy": {"copies": ((ACTOR, NEWEST), ("ref", REF + 1))},
    "has no backup": {"backup": "none"},
    "has a disk backup": {"backup": "disk"},
    "has a cpu backup": {"backup": "cpu"},
    "is unplaced": {"backup": "unplaced"},
    "has an unreadable tensor": {"unreadable": ("layer.0.weight",)},
    "has a fresh retained backup": {"saver": NEWEST, "retained": True},
    "is fresh in a retained backup only": {"live": REF, "saver": NEWEST, "retained": True, "copies": ()},
    "is in the base file": {"file": NEWEST, "backup": "none"},
    "is in the base file only": {"live": None, "file": NEWEST, "backup": "none", "copies": ()},
    "is older in the base file": {"live": None, "file": OLDER, "backup": "none", "copies": ()},
    "lives on a borrowed actor copy": {"live": None, "backup": "none", "borrowed": (ACTOR,)},
    "has a borrowed actor copy": {"backup": "disk", "borrowed": (ACTOR,)},
    "is kept by nobody": {"live": NEWEST, "copies": (("ref", REF),)},
    "has a borrowed copy under another tag": {
        "copies": (("old_actor", NEWEST), ("ref", REF)),
        "borrowed": ("old_actor",),
    },
    "is superseded live": {"live": REF + 1, "copies": ((ACTOR, NEWEST), ("ref", REF))},
}

SHARED_DEVIATIONS: Final[dict[str, Deviation]] = {
    "a step is open": lambda facts: replace(facts, step_open=not facts.step_open),
    "the commit names another adapter than the step": _set(step_differs=("B",)),
    "the step names an unknown adapter": _set(step_unknown=("C",)),
    "the step names a frozen adapter": _set(step_frozen=("F",)),
    "the retired adapter is in use": _set(unsucceeded=("A",)),
    "a reference block is open": _set(reference_open=True),
    "the step touches the trainable base": _set(touched=(ADAPTER, TRAINABLE_BASE)),
    "no gradients are accumulated": _set(accumulated=()),
    "ref is active": _set(active_model="ref"),
    "teacher is active": _set(active_model="teacher"),
    "the switch goes to the actor": _set(switch_target=ACTOR),
    "the switch goes to a model that is not kept": _set(switch_target="teacher"),
    "no model is kept": _set(models=()),
    "nothing is to be loaded": _set(to_load=()),
    "A is to be retired": _set(to_retire=("A",)),
    "A is to be retired by a registry that has never known it": _set(to_retire=("A",), unaccounted=("A",)),
    "A is to be replaced": _set(to_load=("A",), to_retire=("A",)),
    "no origin": _set(origin=None),
    "origin sleeping": _set(origin=TrainerState.SLEEPING),
    "origin offloaded-cpu": _set(origin=TrainerState.OFFLOADED_CPU),
    "origin offloaded-disk": _set(origin=TrainerState.OFFLOADED_DISK),
    "no engine": _set(engines=()),
    "every engine is current": _set(engines=(EngineFacts("E0"), EngineFacts("E1", weights_resident=False))),
    "the engine released its weights": _set(engines=(EngineFacts("E0", weights_resident=False, stale=(ADAPTER,)),)),
    "the engine's residency is unknown": _set(engines=(EngineFacts("E0", weights_resident=None, stale=(ADAPTER,)),)),
    "the engine has no slot for its adapter": _set(engines=(EngineFacts("E0", stale=(ADAPTER,), adapter_slots=0),)),
    "the engine's slots are full": _set(engines=(EngineFacts("E0", stale=(ADAPTER,), adapter_slots=1),)),
    "the engine is too small and lacks nothing": _set(engines=(EngineFacts("E0", adapter_slots=0),)),
    "the engine lacks everything": _set(engines=(EngineFacts("E0", stale=(FROZEN_BASE, ADAPTER)),)),
    "the engine holds a retired adapter": _set(engines=(EngineFacts("E0", extra=("Z",)),)),
    "the engine is fenced although it lacks nothing": _set(engines=(EngineFacts("E0", fenced="it does not answer"),)),
    "the engine is fenced": _set(engines=(EngineFacts("E0", stale=(FROZEN_BASE, ADAPTER), fenced="a push failed"),)),
    "the engine holds a version of another trainer's": _set(
        engines=(EngineFacts("E0", stale=(ADAPTER,), ahead=("adapter/A in version 99",)),)
    ),
    "a retired adapter of the engine is of another trainer's": _set(
        engines=(EngineFacts("E0"), EngineFacts("E1", extra=("Z",), ahead=("adapter/Z in version 99",)))
    ),
    "the engine has discarded its weights": _set(
        engines=(EngineFacts("E0", stale=(FROZEN_BASE, ADAPTER), discarded=("weights",)),)
    ),
    "the target is cpu": _set(offload_target="cpu"),
    "the target is disk": _set(offload_target="disk"),
    "there is no target": _set(offload_target=None),
    **{
        f"{name} {what}": _content(index, **changes)
        for index, name in enumerate(("base", "adapter"))
        for what, changes in _PLACEMENTS.items()
    },
}
"""Single changes of facts that are equal on every rank."""

LOCAL_DEVIATIONS: Final[dict[str, Deviation]] = {
    "the saver is disabled": _set(saver_enabled=False),
    "a tensor strays": _set(strays=("exp_avg.0",)),
    "a slot cannot be written": _set(unwritable=("A.lora_A",)),
    "a slot has state of an unknown kind": _set(unknown_slot_state=("A.lora_A#row_var",)),
    "gradients cannot be kept": _set(gradients_kept=False),
    "the host has no room": _set(host_free_bytes=9),
    "the host has just room": _set(host_free_bytes=10),
    "the host is not limited": _set(host_free_bytes=None),
    "the disk has no room": _set(disk_free_bytes=9),
    "the disk is memory": _set(disk_is_real=False),
    "the disk cannot be written": _set(disk_problem="the directory is read-only"),
    "the base file is damaged": _set(base_file_problem="its size is not what was written"),
    "the device has no room": _set(device_free_bytes=9),
    "the device is not limited": _set(device_free_bytes=None),
    "a receiver holds a buffer": _set(transport_bytes=1),
    "most tags are paused": _set(active_tags=1, paused_tags=2),
    "half the tags are paused": _set(active_tags=1, paused_tags=1),
    "scratch is paused": _set(scratch_paused=True),
    "a lease reads live weights": _lease("live"),
    "a lease reads live frozen weights": _lease("live", FROZEN_BASE),
    "a lease reads live buffers": _lease("live", BUFFERS),
    "a tensor outlived a lease on live weights": _lease("live", ADAPTER, leaked=("A.lora_A",)),
    "a lease reads the saver's backup": _lease("saver-backup", FROZEN_BASE),
    "a lease reads the actor copy": _lease("snapshot:actor"),
    "a lease reads the actor copy of the base": _lease("snapshot:actor", FROZEN_BASE),
    "a lease reads the actor copy of B": _lease("snapshot:actor", adapter_group("B")),
    "a lease reads the ref copy": _lease("snapshot:ref", FROZEN_BASE),
    "a lease reads the base file": _lease("base-file", FROZEN_BASE),
}
"""Single changes of facts of one rank."""

DEVIATIONS: Final = SHARED_DEVIATIONS | LOCAL_DEVIATIONS


def asked(event: TrainerEvent, facts: Facts) -> Facts:
    """The facts as they are when *event* is asked: a commit comes while a step is open."""
    return replace(facts, step_open=not facts.step_open) if event is TrainerEvent.TRAINED else facts


def _all(*names: str) -> Deviation:
    def change(facts: Facts) -> Facts:
        for name in names:
            facts = DEVIATIONS[name](facts)
        return facts

    return change


_GONE = _all("base is not live", "base has no backup")

SETUPS: Final[dict[TrainerState, tuple[Deviation, ...]]] = {
    TrainerState.AWAKE: (
        _all("base has an older actor copy", "adapter has an older actor copy"),
        _all("base has an older actor copy", "base has a disk backup"),
        _all("base is kept by nobody", "adapter has no copy"),
    ),
    TrainerState.SLEEPING: (_all("the target is disk"), _GONE),
    TrainerState.OFFLOADED_CPU: (_GONE,),
    TrainerState.OFFLOADED_DISK: (_GONE,),
    TrainerState.ADAPTER_RECONCILING: (
        _all("origin sleeping"), _all("origin offloaded-cpu"), _all("origin offloaded-disk"),
        _all("base has a disk backup"),
    ),
    TrainerState.FAULTED: (
        _all("scratch is paused"), _all("most tags are paused"), _all("most tags are paused", "the target is disk"),
    ),
}  # fmt: skip
"""Other places to start from: healthy too, and on another edge."""


def bases(state: TrainerState) -> Iterator[Facts]:
    """Healthy facts of one state: under each branch of the copy rule, and on each edge of the state."""
    yield from (healthy(state, **rule) for rule in RULES.values())
    for setup, rule in product(SETUPS[state], ("lean", "the-rule-holds", "with-ref")):
        yield setup(healthy(state, **RULES[rule]))


def directed(state: TrainerState) -> Iterator[Facts]:
    """Healthy facts of one state, and every single deviation from each of them."""
    for base in bases(state):
        yield base
        yield from (deviate(base) for deviate in DEVIATIONS.values())


def pairs(state: TrainerState) -> Iterator[Facts]:
    """Every two deviations at once, under the branch that makes an actor copy: it has the most guards."""
    base = healthy(state, **RULES["with-ref"])
    for one, other in combinations(DEVIATIONS.values(), 2):
        yield other(one(base))


def configurations() -> Iterator[dict[str, Any]]:
    """All 576 combinations of the configuration's switches, the strategy and the active model."""
    names = ("colocate", "lora", "with_ref", "with_teacher", "keep_old_actor")
    for switches in product((True, False), repeat=5):
        for target, strategy, active in product(("cpu", "disk", None), tuple(Strategy), (ACTOR, "ref")):
            given = dict(zip(names, switches, strict=True))
            yield given | {"offload_target": target, "strategy": strategy.value, "active_model": active}


def residencies(name: str = FROZEN_BASE) -> Iterator[ContentFacts]:
    """All combinations of where one group's bytes are: device, saver, base file, copies, backup kind."""
    versions = (NEWEST, OLDER, None)
    copies = ((), ((ACTOR, NEWEST),), ((ACTOR, OLDER),), (("ref", NEWEST),), ((ACTOR, OLDER), ("ref", REF)))
    for live, saver, held, backup, lost in product(
        versions, versions, copies, ("cpu", "disk", "none", "unplaced"), ((), ("w",))
    ):
        yield group(name, live=live, saver=saver, copies=held, backup=backup, unreadable=lost)
        if not lost:
            yield from _variants(group(name, live=live, saver=saver, copies=held, backup=backup))


def _variants(one: ContentFacts) -> Iterator[ContentFacts]:
    """The same, with a base file, with copies that are borrowed, and with a backup that was retained."""
    if one.backup in {"none", "cpu"} and one.saver != OLDER:
        yield from (replace(one, file=version) for version in (NEWEST, OLDER))
    if one.copies:
        yield replace(one, borrowed=tuple(tag for tag, _ in one.copies))
    if one.live is not None and one.saver is not None and one.backup == "cpu":
        yield replace(one, retained=True)
        yield replace(one, retained=True, frozen=not one.frozen)


def switchable(name: str = FROZEN_BASE) -> Iterator[ContentFacts]:
    """All combinations of which model's bytes are live and which copies are kept."""
    for live, actor, ref in product((NEWEST, OLDER, REF, None), (NEWEST, OLDER, None), (NEWEST, REF, REF + 1, None)):
        kept = (("actor", actor), ("ref", ref))
        placed = group(name, live=live, copies=tuple((tag, version) for tag, version in kept if version is not None))
        yield placed
        if live == actor == NEWEST:
            yield replace(placed, borrowed=(ACTOR,))
            yield replace(placed, file=NEWEST, copies=placed.copies[1:])


def all_leases() -> Iterator[tuple[LeaseFacts, ...]]:
    """No lease, or one over each memory and each group, open or outlived."""
    yield ()
    memories = ("live", "saver-backup", "snapshot:actor", "snapshot:ref", "base-file")
    groups = (FROZEN_BASE, TRAINABLE_BASE, BUFFERS, ADAPTER, adapter_group("B"))
    for memory, name, leaked in product(memories, groups, ((), ("t",))):
        yield (lease(memory, name, leaked=leaked),)


def any_facts(state: TrainerState) -> st.SearchStrategy[Facts]:
    """Facts anywhere in the space: a configuration, two groups placed at will, and up to six deviations."""
    contents = st.tuples(
        st.sampled_from([*residencies(), *switchable()]), st.sampled_from([*residencies(ADAPTER), *switchable(ADAPTER)])
    )
    chosen = st.lists(st.sampled_from(sorted(DEVIATIONS)), max_size=6, unique=True)

    def build(rule: dict[str, Any], placed: tuple[ContentFacts, ...] | None, names: list[str]) -> Facts:
        facts = healthy(state, **rule) if placed is None else healthy(state, **(rule | {"contents": placed}))
        for name in names:
            facts = DEVIATIONS[name](facts)
        return facts

    return st.builds(build, st.sampled_from(list(configurations())), st.none() | contents, chosen)
