"""The reference of events: nothing that a table has is without words, and what it says is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lifecycle.adapters.registry import AdapterRegistry
from lifecycle.audit.read import read_log
from lifecycle.cli.docs_errors import error_classes, errors_page
from lifecycle.cli.docs_events import events_page, events_raising, in_order
from lifecycle.cli.docs_raises import error_lines, first_paragraph, linked, raised_by
from lifecycle.controller import TrainerLifecycle
from lifecycle.engines.protocol import RolloutEngine
from lifecycle.transition.effects import EFFECTS
from lifecycle.transition.runner import Runner
from states import ENGINE_TABLE, TABLE, Effect, Guard, RowKind, TableError, TrainerEvent
from states.adapters import ADAPTER_TABLE, AdapterEvent
from states.engine_guards import EngineGuard
from states.engine_memory import EngineEvent
from states.engine_table import TAG_TABLE
from states.event_words import ADAPTER_WORDS, EFFECT_RECORDS, ENGINE_WORDS, TRAINER_WORDS
from states.examples import refused_by, refused_by_engine
from states.render import edges
from tests.auditing.runs import Run
from tests.docs.blocks import ROOT

WORDS = (
    (TrainerEvent, TRAINER_WORDS, TrainerLifecycle),
    (AdapterEvent, ADAPTER_WORDS, AdapterRegistry),
    (EngineEvent, ENGINE_WORDS, RolloutEngine),
)
SECTIONS = dict(re.findall(r"^### `([\w-]+)`\n(.*?)(?=^##|\Z)", events_page(), re.MULTILINE | re.DOTALL))
GUARDS = {guard.name: guard for row in TABLE for guard in row.guards}
ENGINE_GUARDS = {guard.name: guard for row in ENGINE_TABLE for guard in (*row.when, *row.guards)}


def test_every_event_has_words_and_a_section() -> None:
    """Of the trainer, of adapters and of engines; each name is one event, so that a link means one section."""
    every = [str(event) for events, _, _ in WORDS for event in events]

    assert len(set(every)) == len(every)
    assert sorted(SECTIONS) == sorted(every)
    for events, words, _ in WORDS:
        assert words.keys() == set(events)
        assert all(words[event].what.endswith(".") and words[event].what in SECTIONS[event] for event in events)


def test_the_calls_that_send_an_event_are_there() -> None:
    """A method that is renamed does not stay in the reference."""
    for _, words, sender in WORDS:
        for event, one in words.items():
            for name in one.calls:
                assert callable(getattr(sender, name))
                assert f"`{name}()`" in SECTIONS[event]


def test_every_guard_stands_beside_its_event_with_its_rule_an_example_and_what_to_do() -> None:
    """In the words that a refusal uses."""
    for row in TABLE:
        for guard in row.guards:
            failed = refused_by(guard)
            assert not failed
            assert failed.remedy, guard.name
            (line,) = (one for one in SECTIONS[row.event].splitlines() if one.startswith(f"| `{guard.name}`"))
            assert all(part in line for part in (guard.rule.replace("``", "`"), failed.because, failed.remedy))
        for selector in row.when if row.kind is RowKind.MOVE else ():
            name = selector.name.replace(f"-is-{row.target}", "-is-(to)")
            assert f"`{name}`: " in SECTIONS[row.event]


def test_every_guard_of_an_engine_stands_beside_its_event() -> None:
    """The same."""
    for row in ENGINE_TABLE:
        for guard in row.guards:
            failed = refused_by_engine(guard)
            (line,) = (one for one in SECTIONS[row.event].splitlines() if one.startswith(f"| `{guard.name}` |"))
            assert all(part and part in line for part in (guard.rule, failed.because, failed.remedy))


def test_a_guard_without_an_example_is_named() -> None:
    """Whoever adds one is told what is missing."""
    always = Guard(lambda _: (True, "", ""), name="always", scope="shared")
    of_an_engine = EngineGuard("always", "", lambda _, __: (True, "", ""))

    with pytest.raises(TableError, match="always: it holds in every example"):
        refused_by(always)
    with pytest.raises(TableError, match="always: it holds in every example"):
        refused_by_engine(of_an_engine)


def test_no_guard_fails_to_evaluate_in_its_example() -> None:
    """A guard that raises does not hold either; that is no example of it."""
    for guard in GUARDS.values():
        assert "could not be evaluated" not in refused_by(guard).because


def test_every_effect_says_what_it_does_and_what_it_leaves_on_the_record() -> None:
    """In the order in which they run, with how each is taken back."""
    assert EFFECT_RECORDS.keys() == EFFECTS.keys() == set(Effect)
    for event in TrainerEvent:
        moves = [one for one in edges(RowKind.MOVE) if one.event is event]
        lines = [one for one in SECTIONS[event].splitlines() if re.match(r"\| \d+ \| ", one)]
        assert [re.findall(r"`([\w-]+)`", line)[0] for line in lines] == list(in_order(moves))
        for line, effect in zip(lines, in_order(moves), strict=True):
            assert first_paragraph(EFFECTS[effect]) in line
            assert all(f"`{key}`: {meaning}" in line for key, meaning in EFFECT_RECORDS[effect].items())


def test_the_effects_of_an_event_run_in_one_order_on_all_of_its_edges() -> None:
    """Those of each edge are some of the longest one's, in its order: one numbered list is right for all."""
    for event in TrainerEvent:
        moves = [one for one in edges(RowKind.MOVE) if one.event is event]
        longest = in_order(moves)
        for edge in moves:
            assert edge.effects == tuple(one for one in longest if one in edge.effects)
        for effect in longest:
            (line,) = re.findall(rf"^\| \d+ \| `{effect}`.*$", SECTIONS[event], re.MULTILINE)
            without = [edge.name for edge in moves if effect not in edge.effects]
            assert ("(on " in line) is bool(without)
            assert all(f"`{name}`" not in line for name in without)


def test_where_an_event_finds_what_it_asks_for_is_told() -> None:
    """And where it is refused whatever the facts are, with what to do."""
    assert (
        "Already so in `awake`, `sleeping`, `offloaded-cpu`, `offloaded-disk`, if `every-engine-is-current`"
        in (SECTIONS["update_weights"])
    )
    assert "Always refused in `awake`: sleep() first." in SECTIONS["offload"]
    assert "Always refused in `sleeping`, `offloaded-cpu`, `offloaded-disk`: wake_up() first." in SECTIONS["begin_step"]
    assert "Already so in `paused`, `updating`: nothing is sent." in SECTIONS["pause"]
    assert "| lost | ask it what it holds first: report() probes it |" in SECTIONS["pause"]
    assert "| pending | it is already registered and waits for its first push |" in SECTIONS["register"]
    assert "| frozen | it is frozen: it is served and never trained |" in SECTIONS["batch-trained"]
    assert "frozen" not in SECTIONS["set-step"]


def test_every_move_of_an_adapter_an_engine_and_a_tag_stands_in_its_section() -> None:
    """From where, to where."""
    for adapter in ADAPTER_TABLE:
        needs = "a trainable registration" if adapter.needs_trainable else "-"
        assert f"| {adapter.source or 'unregistered'} | {adapter.target} | {needs} |" in SECTIONS[adapter.event]
    for engine in ENGINE_TABLE:
        target = "(same)" if engine.source is engine.target else engine.target
        assert engine.settled or f"| {engine.source} | {target} | " in SECTIONS[engine.event]
    for tag in TAG_TABLE:
        assert f" | {tag.source} | {tag.target} |" in SECTIONS[tag.event]


def test_errors_are_those_of_the_docstrings_with_a_link() -> None:
    """What a call raises itself, and what an effect raises as the cause of a failed transition."""
    assert "| [`SaverError`](errors.md#savererror) | `check-freed` | too little was freed." in SECTIONS["offload"]
    assert "| [`ConfigError`](errors.md#configerror) | `update_weights()` |" in SECTIONS["update_weights"]
    assert "| [`IncompletePush`](errors.md#incompletepush) | `send-weights` |" in SECTIONS["update_weights"]
    assert "| [`AdapterError`](errors.md#adaptererror) | `deregister()` |" in SECTIONS["deregister"]
    linked_to = set(re.findall(r"\[`(\w+)`\]\(errors\.md#", events_page()))
    assert linked_to <= error_classes().keys()
    assert {"EventRefused", "TransitionFailed", "TrainerFaulted", "BusyError", "ReentrantEvent"} <= linked_to


def test_an_error_names_the_events_of_which_it_may_come() -> None:
    """With a link to each; those that any event may raise name none."""
    found = events_raising()
    page = errors_page(found)

    assert found["SaverError"] == ["sleep", "offload"]
    assert found["AdapterError"][0] == "reconciled"
    assert found.keys().isdisjoint(raised_by(Runner.send))
    for error, events in found.items():
        section = page.partition(f"## {error}\n")[2].partition("\n## ")[0]
        assert all(f"[`{event}`](events.md#{event})" in section for event in events)
        assert all(f"`{error}`" in SECTIONS[event] for event in events)


def test_a_docstring_is_read_as_it_is_written() -> None:
    """Entries of several lines are one, and what is no error of the library has no link."""

    def raising() -> None:
        """Do something: ``x``.

        More of it.

        Raises:
            ValueError: it is bad,
                and wrong.
            BusyError: too late.

        Returns:
            Nothing.
        """

    assert first_paragraph(raising) == "Do something: `x`."
    assert raised_by(raising) == {"ValueError": "it is bad, and wrong.", "BusyError": "too late."}
    assert raised_by(test_a_docstring_is_read_as_it_is_written) == {}
    assert linked("ValueError") == "`ValueError`"
    assert [*error_lines((("a()", raising), ("b()", raising)))][1] == (
        "[`BusyError`](errors.md#busyerror)", "`a()`, `b()`", "too late.",
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_what_real_runs_leave_on_the_record_is_in_the_reference(seed: int, tmp_path: Path) -> None:
    """Every kind of bytes and every detail of a ``moved`` record is said to be left by an effect of the event."""
    for record in read_log(Run(seed, tmp_path).live()):
        if record["event"] == "lifecycle.moved":
            keys = [f"moved.{one}" for one in record["moved"]] + [f"details.{one}" for one in record["details"]]
            named = TrainerEvent.RECONCILED if record["trigger"] == "reconcile_adapters" else str(record["trigger"])
            assert [key for key in keys if f"`{key}`: " not in SECTIONS[named]] == [], record["trigger"]


def test_what_the_code_leaves_on_the_record_is_in_the_reference_and_nothing_else() -> None:
    """Also what is rare: every key of ``details`` and every kind of bytes that effects name in their source."""
    told = {key for keys in EFFECT_RECORDS.values() for key in keys}
    places = [*(ROOT / "lifecycle" / "transition").glob("*.py"), ROOT / "lifecycle" / "memory" / "regions.py"]
    source = "\n".join(path.read_text(encoding="utf-8") for path in places)

    assert {f"details.{name}" for name in re.findall(r'work\.details\["(\w+)"\]', source)} <= told
    assert {f"moved.{name}" for name in re.findall(r'work\.count\("([\w-]+)"', source)} <= told
    assert [key for key in told if f'"{key.partition(".")[2]}"' not in source] == []
