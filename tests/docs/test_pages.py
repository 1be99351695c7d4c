"""The pages of docs/ are what the table says now, and they say all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lifecycle.cli.docs import pages
from states import REVERSAL, TABLE, Effect, RowKind, TrainerState
from states.adapters import ADAPTER_TABLE
from states.engine_table import ENGINE_TABLE, TAG_TABLE
from states.names import FrozenBase, Strategy
from states.render import diagram, edges, effect_table, guard_table, markdown_table, states_page, transitions_table
from states.render_adapters import adapter_diagram, adapters_page
from states.render_decisions import decision_table, kinds_of_run, reconcile_edge
from states.render_engine import engine_diagram, engine_guards, engine_moves, engine_page, engine_settled, tag_diagram

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", sorted(pages()))
def test_a_committed_page_is_what_the_table_says(name: str) -> None:
    """Byte for byte; ``adapter-lifecycle docs`` writes it again."""
    assert (DOCS / name).read_bytes() == pages()[name].encode()


def test_every_row_of_the_table_is_in_one_edge() -> None:
    """Rows are put together, and none is dropped."""
    drawn = [move for kind in RowKind for edge in edges(kind) for move in edge.moves]

    assert len(drawn) == len(TABLE)


def test_every_move_is_in_the_diagram_under_its_name() -> None:
    """Both edges of a reconcile are visible, and so is every other."""
    text = diagram()
    labels = {f"{row.event} / {row.edge}" for row in TABLE if row.kind is RowKind.MOVE}

    assert {label for label in labels if label not in text} == set()
    assert "reconciled / reads-saver-backup" in text
    assert "reconciled / backs-up-actor" in text


def test_refusing_and_settled_rows_are_left_out_of_the_diagram() -> None:
    """They go nowhere and would hide what goes somewhere."""
    assert "already" not in diagram()
    assert "refuses" not in diagram()


def test_the_diagram_draws_the_moves_of_the_table_and_no_others() -> None:
    """Arrows, with the box opened, are the (source, event, edge, target) of the rows."""
    resting = {"awake", "sleeping", "offloaded_cpu", "offloaded_disk"}
    drawn = set()
    for source, target, labels in re.findall(r"^    (\w+) --> (\w+) : (.+)$", diagram(), re.MULTILINE):
        for one in resting if source == "resting" else {source}:
            for other in resting if target == "resting" else {target}:
                drawn |= {(one, label, other) for label in labels.split("<br/>")}
    rows = {
        (row.source.replace("-", "_"), f"{row.event} / {row.edge}", row.target.replace("-", "_"))
        for row in TABLE
        if row.kind is RowKind.MOVE
    }

    assert drawn == rows


def test_every_move_of_an_adapter_is_drawn_and_listed() -> None:
    """From an unregistered name to a completed registration."""
    for row in ADAPTER_TABLE:
        assert f"    {row.source or '[*]'} --> {row.target} : {row.event}\n" in adapter_diagram()
        needs = "trainable" if row.needs_trainable else "any"
        assert f"| `{row.event}` | {row.source or 'unregistered'} | {row.target} | {needs} |\n" in adapters_page()


def test_the_diagram_of_an_engine_draws_the_moves_of_its_table_and_no_others() -> None:
    """Arrows, taken apart, are the (source, event, target) of the rows that are sent; what is settled is listed."""
    drawn = {
        (source, event, target)
        for source, target, events in re.findall(r"^    (\w+) --> (\w+) : (.+)$", engine_diagram(), re.MULTILINE)
        for event in events.split("<br/>")
    }

    assert drawn == {(str(row.source), str(row.event), str(row.target)) for row in ENGINE_TABLE if not row.settled}
    assert all(f"| `{row.event}` | " in engine_settled() for row in ENGINE_TABLE if row.settled)


def test_every_guard_of_an_engine_stands_beside_its_event_and_in_the_reference() -> None:
    """A guard that is taken from its row is gone from the page, which holds all of the parts."""
    for row in ENGINE_TABLE:
        for guard in (*row.when, *row.guards):
            lines = [line for line in engine_moves().splitlines() if line.startswith(f"| `{row.event}` |")]
            assert any(f"`{guard.name}`" in line and str(row.source) in line for line in lines)
            assert f"| `{guard.name}` | {guard.rule} |" in engine_guards()
    assert all(part in engine_page() for part in (engine_diagram(), engine_moves(), engine_settled(), engine_guards()))


def test_every_move_of_a_tag_is_drawn() -> None:
    """Where the bytes go depends on whether a release keeps a mirror."""
    drawn = re.findall(r"^    (\w+) --> (\w+) : (\w+)", tag_diagram(), re.MULTILINE)

    assert drawn == [(row.source, row.target, row.event) for row in TAG_TABLE]


def test_every_state_is_declared_in_the_diagram_once() -> None:
    """By the name that logs use."""
    for state in TrainerState:
        assert diagram().count(f'state "{state}" as ') == 1


def test_every_guard_of_a_move_stands_in_its_line_and_in_the_reference() -> None:
    """A guard that is taken from its row is gone from the page."""
    table, reference = transitions_table(), guard_table()
    for row in TABLE:
        for guard in row.guards:
            line = next(one for one in table.splitlines() if one.startswith(f"| `{row.event}` | `{row.edge}` |"))
            assert f"`{guard.name}`" in line
        for guard in (*row.when, *row.guards):
            assert f"| `{guard.name}` | {guard.scope} | {guard.rule} |" in reference


def test_every_effect_is_listed_with_its_reversal() -> None:
    """Undoable, compensated or final."""
    for effect in Effect:
        assert f"| `{effect}` | {REVERSAL[effect].name.lower()} |" in effect_table()


def test_every_kind_of_run_has_a_line_in_the_decision_table() -> None:
    """Two to the fifth combinations of flags, three targets."""
    runs = list(kinds_of_run())

    assert len(set(runs)) == 96
    assert len(decision_table().splitlines()) == 96 + 2


def test_the_decision_table_says_what_the_rule_says() -> None:
    """Three lines written out by hand: the rule holds, another model is kept, nothing is colocated."""
    lines = decision_table().splitlines()

    def answers(*flags: str) -> str:
        (line,) = (one for one in lines if one.startswith(f"| {' | '.join(flags)} |"))
        return line.split(" | ", 6)[6]

    def edges_of(*names: str) -> str:
        return " | ".join(f"`{name}`" for name in names)

    reads, copies, makes_none = "reads-saver-backup", "backs-up-actor", "makes-no-copy"
    assert answers("yes", "yes", "cpu", "-", "-", "-") == f"yes | - | {edges_of(reads, reads, copies)} |"
    assert answers("yes", "yes", "cpu", "yes", "-", "-") == f"- | yes | {edges_of(reads, copies, copies)} |"
    assert answers("-", "yes", "disk", "-", "-", "-") == f"- | - | {edges_of(makes_none, makes_none, copies)} |"


def test_where_the_frozen_base_lies_makes_no_difference_to_the_edge() -> None:
    """The page says so, of every kind of run and strategy."""
    unlike = [
        (run, strategy)
        for run in kinds_of_run()
        for strategy in Strategy
        if reconcile_edge(run, strategy, FrozenBase.FILE) != reconcile_edge(run, strategy)
    ]

    assert unlike == []


def test_a_cell_never_breaks_its_table() -> None:
    """Every line of every table on the page has as many cells as its head."""
    for block in re.findall(r"(?:^\|.*\n)+", states_page() + engine_page(), re.MULTILINE):
        assert len({line.count(" | ") for line in block.splitlines()}) == 1
    assert markdown_table(("a", "b"), [("", "x")]) == "| a | b |\n| --- | --- |\n| - | x |\n"


def test_the_glossary_has_the_words_that_are_easily_confused() -> None:
    """Sleep, offload, pause and release are four different things."""
    text = (DOCS / "glossary.md").read_text()

    words = ("sleep", "offload", "pause", "release", "resume", "wake", "lease", "snapshot", "version", "slot")
    for word in (*words, "rank", "registry", "registration", "instance", "turn"):
        assert text.count(f"\n| {word} |") == 1, word
