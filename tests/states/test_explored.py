"""Every reachable state of the pure machine: nothing stale is read, nothing is lost, and there is always a way back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Final

import pytest

from states import (
    TABLE,
    ContentFacts,
    Effect,
    Facts,
    Read,
    Row,
    RowKind,
    Source,
    TrainerEvent,
    guards,
    guards_memory,
    rule,
    sources,
)
from tests.states.explorer import Explored, Explorer
from tests.states.lockstep import Lockstep
from tests.states.settings import KINDS, settings
from tests.states.world import Setting

pytestmark = [pytest.mark.timeout(900), pytest.mark.no_cover]
"""A minute, and more beside other tests. Coverage would double it, and every line it runs has a test of its own."""

E = TrainerEvent


@cache
def _explored() -> tuple[Explored, ...]:
    started = time.process_time()
    found = tuple(Explorer(setting).run() for setting in settings())
    states, steps = sum(len(one.worlds) for one in found), sum(one.transitions for one in found)
    spent_s = time.process_time() - started
    print(f"{states} states and {steps} transitions of {len(found)} kinds of run were explored in {spent_s:.0f} s")
    return found


def test_no_reachable_state_is_wrong_and_each_leads_back_to_awake() -> None:
    """Nothing stale is chosen, no byte lost, no illegal call made, no needless copy held; failures at every act too."""
    found = _explored()

    assert sorted((harm for one in found for harm in one.harm), key=len)[:3] == []
    assert sum(len(one.worlds) for one in found) > 50_000


def test_every_edge_of_the_table_was_taken() -> None:
    """A row that the exploration never takes would be explored by nobody."""
    moves = {(row.source, row.event, row.edge, row.target) for row in TABLE if row.kind is RowKind.MOVE}
    missing = moves - {edge for one in _explored() for edge in one.edges}

    # The target is of the configuration: who offloads to disk never reads the saver's host backup.
    assert missing == {("adapter-reconciling", "reconciled", "reads-saver-backup", "offloaded-disk")}


_ALONE: Final = [replace(kind, life=("registry",)) for kind in KINDS if not kind.retain and not kind.base_kind]
_IN_COMPANY: Final = [
    replace(kind, with_ref=True, life=("models",))
    for kind in KINDS
    if not kind.retain and (kind.lora or kind.target != "disk")
]


@pytest.mark.parametrize("kind", [*_ALONE, *_IN_COMPANY], ids=str)
def test_lean_serves_what_the_reference_serves_and_never_holds_more(kind: Setting) -> None:
    """In lockstep over every reachable pair of states: the same calls, no more host bytes, no more copied by an event.

    Left out: memory adopted without a readable backup in a run without other models, where the reference cannot
    offload at all; and full-parameter training with target disk and a kept model, where lean holds the trainables
    in a host backup and the reference shares its actor copy with a model of the same version.
    """
    found = Lockstep(kind).run()
    print(f"{found.pairs} pairs of states were compared")

    assert found.harm[:1] == []
    assert found.pairs > 5


# --- the proof that the exploration can fail -----------------------------------------------------


def _without(event: E, *names: str) -> Callable[[], tuple[Row, ...]]:
    """The table without these guards on the rows of an event."""

    def table() -> tuple[Row, ...]:
        rows = tuple(
            replace(row, guards=tuple(one for one in row.guards if one.name not in names))
            if row.event is event
            else row
            for row in TABLE
        )
        assert rows != TABLE
        return rows

    return table


def _without_effect(effect: Effect) -> Callable[[], tuple[Row, ...]]:
    return lambda: tuple(
        replace(row, effects=tuple(one for one in row.effects if one is not effect)) for row in TABLE
    )  # fmt: skip


def _without_rows(*edges: str) -> Callable[[], tuple[Row, ...]]:
    return lambda: tuple(row for row in TABLE if row.edge not in edges)


_READERS = Setting(life=("readers", "registry"))
_MODELS = Setting(with_ref=True, life=("models", "registry"))
_MODELS_READ = Setting(with_ref=True, retain=True, life=("models", "readers"))
_BY_REFERENCE = replace(_MODELS, strategy="reference")
_ENGINE = Setting(life=("engine",))
_BARE = Setting(strategy="reference", base_kind="none")

GUARDS: Final[dict[str, tuple[Callable[[], tuple[Row, ...]], Setting, str]]] = {
    "memory is unmapped under a reader": (
        _without(E.OFFLOAD, "no-lease-over-live-weights"), _READERS, "unmaps memory under a reader",
    ),
    "a retained backup is overwritten under a reader": (
        _without(E.OFFLOAD, "no-lease-over-the-saver-backup"), _MODELS_READ, "overwrites a backup under a reader",
    ),
    "a backup is freed under a reader": (
        _without(E.WAKE_UP, "no-lease-over-the-saver-backup"), _READERS, "frees a backup under a reader",
    ),
    "an offload leaves nothing to read": (_without(E.OFFLOAD, "survivors-keep-a-readable-copy"), _BARE, "are nowhere"),
    "the trainer wakes while receivers hold memory": (
        _without(E.WAKE_UP, "no-transport-bytes-outstanding"), _ENGINE, "while receivers map buffers",
    ),
    "weights go into released memory": (
        _without(E.UPDATE_WEIGHTS, "engines-hold-their-weights-tag"), _ENGINE, "the engine has released",
    ),
    "half-trained weights are sent": (_without(E.UPDATE_WEIGHTS, "no-step-in-flight"), Setting(), "reads nothing"),
    "another model is trained": (
        _without(E.BEGIN_STEP, "active-model-is-the-actor", "live-weights-are-the-newest"), _MODELS, 'trains "ref"',
    ),
    "a mixture is trained": (
        _without(E.BEGIN_STEP, "live-weights-are-the-newest"), _MODELS, "computes on other bytes than the newest",
    ),
    "a step changes what is read": (
        _without(E.BEGIN_STEP, "no-lease-over-what-the-step-changes"), _READERS, "changes weights under a reader",
    ),
    "a step is opened inside another one": (_without(E.BEGIN_STEP, "no-step-in-flight"), Setting(), "inside another"),
    "a step is committed that was not opened": (_without(E.TRAINED, "a-step-is-open"), Setting(), "was not opened"),
    "the trainer sleeps in the middle of a step": (_without(E.SLEEP, "no-step-in-flight"), Setting(), "half-trained"),
    "an adapter is written under a reader": (
        _without(E.RECONCILE_ADAPTERS, "no-lease-over-what-reconcile-writes"), _READERS, "writes an adapter under",
    ),
    "an adapter is changed in the middle of a step": (
        _without(E.RECONCILE_ADAPTERS, "no-step-in-flight"), Setting(), "in the middle",
    ),
    "an adapter is written into another model": (
        _without(E.RECONCILE_ADAPTERS, "active-model-is-the-actor"), _MODELS, 'of the actor into "ref"',
    ),
    "a model is overwritten that nobody holds": (
        _without(E.SWITCH_MODEL, "outgoing-model-is-kept"), _BY_REFERENCE, "overwrites the only bytes",
    ),
    "a model is replaced under a reader": (
        _without(E.SWITCH_MODEL, "no-lease-open"), _MODELS_READ, "overwrites weights under a reader",
    ),
    "lean switches without keeping": (_without_effect(Effect.KEEP_OUTGOING), _MODELS, "overwrites the only bytes"),
    "what comes back without values is left so": (
        _without_effect(Effect.RESTORE_LOST), Setting(target="disk", file=True, life=()), "another one than before",
    ),
    "nothing wakes an offloaded trainer": (_without_rows("resumes-from-cpu"), Setting(), "no way back to awake"),
    "nothing recovers": (_without_rows("recovers"), Setting(), "no way back to awake"),
    "a reconcile cannot be abandoned or ended": (
        _without_rows("abandons", "reads-saver-backup", "faults"), Setting(), "no way back to awake",
    ),
}  # fmt: skip
"""What is taken from the table, the kind of run, and a word of what the exploration must say."""


@pytest.mark.parametrize("name", GUARDS)
def test_a_table_that_lacks_something_is_caught(name: str) -> None:
    """With a guard, an effect or a row taken away, some reachable state is wrong, and the trace says how."""
    table, setting, word = GUARDS[name]

    harm = Explorer(setting, table()).run(stop_at_harm=True).harm

    assert word in "\n".join(harm)


def _own_versions(content: ContentFacts) -> frozenset[int]:
    return frozenset(version for _, version in content.copies)


_right_read = sources._decide_read


def _whatever_is_live(content: ContentFacts, *, prefers_saver: bool) -> Read:
    if content.live is not None and not content.unreadable:
        return Read(content.group, Source.LIVE, content.version, because="it is live")
    return _right_read(content, prefers_saver=prefers_saver)


def _overwritten_by_a_copy(facts: Facts) -> tuple[str, ...]:
    return tuple(
        one.group
        for one in facts.contents
        if one.live is not None
        and one.copy_version(facts.switch_target) not in (None, one.live)
        and one.live not in one.kept_versions()
    )


RULES: Final[dict[str, tuple[list[tuple[object, str, object]], Setting, str]]] = {
    "any backup counts as fresh": (
        [(ContentFacts, "saver_is_fresh", lambda self: self.saver is not None)], replace(_MODELS, life=("models",)),
        "wanted is",
    ),
    "any file counts as fresh": (
        [
            (ContentFacts, "restored_from_file", lambda self: self.file is not None),
            (sources, "comes_back", lambda *_: True),
            (guards_memory, "comes_back_as_it_is", lambda *_: True),
        ],
        Setting(file=True, life=("loads",)), "are nowhere",
    ),
    "a borrowed copy counts as a copy": (
        [(ContentFacts, "kept_versions", _own_versions)], _MODELS, "overwrites the only bytes",
    ),
    "a borrowed copy can be read": (
        [(ContentFacts, "fresh_copies", lambda self: tuple(tag for tag, held in self.copies if held == self.version))],
        replace(_MODELS, strategy="lean"), "reads nothing",
    ),
    "live memory is read whatever it holds": ([(sources, "_decide_read", _whatever_is_live)], _MODELS, "wanted is"),
    "a second copy is made although the rule says none": (
        [(rule, "_against_reading", lambda facts: ("a mistake",))], Setting(strategy="reference"), "a second host copy",
    ),
    "only what the target has a copy of counts as overwritten": (
        [(rule, "groups_to_keep", _overwritten_by_a_copy), (guards, "groups_to_keep", _overwritten_by_a_copy)],
        _MODELS, "holds together with",
    ),
    "the actor must have a copy to be switched to": (
        [(guards, "ACTOR", "nobody")], Setting(with_ref=True, lora=False, life=("models",)), "no way back to awake",
    ),
    "what is live may come back as something else": (
        [(guards_memory, "comes_back_as_it_is", lambda *_: True)],
        Setting(with_ref=True, base_kind="none", life=("models",)), "another one than before",
    ),
}  # fmt: skip
"""What is replaced, the kind of run, and a word of what the exploration must say."""


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_is_wrong_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in what the guards ask is found as surely as a guard that is missing."""
    changes, setting, word = RULES[name]
    for where, what, value in changes:
        monkeypatch.setattr(where, what, value)

    harm = Explorer(setting).run(stop_at_harm=True).harm

    assert word in "\n".join(harm)
