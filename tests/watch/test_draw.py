"""What is drawn fits, says everything in words, and is nothing but text."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from lifecycle.report.model import Lane, Outcome
from lifecycle.watch.attention import Concern, Notice, notices
from lifecycle.watch.draw import draw, fitted
from lifecycle.watch.picture import AdapterSeen, EngineSeen, Picture, Refused, Serving, Unseen
from lifecycle.watch.text import shown
from states import TrainerState
from tests.watch.pictures import HELD, NOW_S, picture, rank, refused, transition

STYLES = re.compile(r"\x1b\[[0-9;]*m")
"""What a terminal is told of colours."""
HOSTILE = (
    "\x1b]0;title\x07",
    "[bold]b[/bold]",
    "a\rb",
    "\u202eabc",
    "a\nb",
    "\x9b2J",
    "\u2028",
    "\ud800",
    "\x00",
    "[/]",
    ":smile:",
)


def written(seen: Picture, width: int = 120, *, colours: bool = False, rows: int = 10) -> str:
    """What a terminal of that width gets."""
    file = io.StringIO()
    system = "standard" if colours else None
    console = Console(file=file, width=width, force_terminal=colours, color_system=system, highlight=False)  # type: ignore[arg-type]
    console.print(draw(seen, notices(seen), width, rows))
    return file.getvalue()


def everything(text: str = "x") -> Picture:
    """A picture in which something stands everywhere, and that text in each of its texts."""
    failed = transition(trigger=text, edge=text, outcome=Outcome.FAILED, problem=text, moved={text: 7})
    whose = Lane(0, text, 0, text, text)
    bad = rank(
        whose=whose,
        last=failed,
        recent=(failed, refused(text, text)),
        refused=(Refused(refused(text, text), 2, is_settled=False),),
        died_in=failed,
        held=HELD | {text: {text: 5}},
        moved_before={text: 7},
        adapters=(AdapterSeen(text, 3, 1, NOW_S, {text: 2}),),
        engines=(EngineSeen(text, Serving.IN_DOUBT, None, 2, text, NOW_S),),
    )
    other = rank(1, running=transition(trigger=text, began_s=NOW_S - 100), state=TrainerState.FAULTED)
    return picture(bad, other, unseen=(Unseen(text, text),), gone=(text,))


@pytest.mark.parametrize("state", list(TrainerState))
def test_a_state_is_said_in_words(state: TrainerState) -> None:
    """Without any colour; a fault in capitals, and in the first line that it is not well."""
    lines = written(picture(rank(state=state))).splitlines()

    assert any(state.value in line.lower() for line in lines)
    assert ("NOT WELL" in lines[0]) == (state is TrainerState.FAULTED)


def test_everything_that_is_asked_for_is_there() -> None:
    """State and since when, what runs, what was last, refusals, bytes, adapters, engines, rates and age."""
    running = rank(running=transition(began_s=NOW_S - 0.5), refused=(Refused(refused(), 2, is_settled=False),))
    text = written(picture(running))

    for wanted in (
        "WELL, with warnings", "grpo-7", "REFUSED", "close it first", "offloaded-cpu", "offload for 0.5 s",
        "sleeping -> offloaded-cpu", "1.50 s", "14.9 GiB", "engine-0  behind", "1 version, 2 groups",
        "800.0 ms, 900.0 ms",
        "math", "836102", "engine-0 1 behind, engine-1 lacks it", "actor/base", "saver_host", "4,210, 1.2/s",
        "2.0 s ago",
        "Moved in the last turn: backup 14.9 GiB, sync 300.0 MiB",
    ):  # fmt: skip
        assert wanted in text, wanted


def test_of_a_long_reason_the_middle_is_left_out() -> None:
    """Which guard it was stands at its beginning, what to do at its end: both are shown."""
    says = f"offload: nothing-strays: {'a.very.long.name, ' * 100}; to do: write in place"
    console = Console(file=io.StringIO(), width=100)
    console.print(draw(picture(), [Notice(Concern.REFUSED, "", says)], 100))
    text = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]

    assert "REFUSED offload: nothing-strays: a.very.long.name" in text
    assert "; to do: write in place" in text
    assert text.count("a.very.long.name") < 30


@pytest.mark.parametrize("width", [40, 60, 76, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Columns are left out or give way; times, states and outcomes stay whole."""
    lines = written(everything("a-rather-long-name-of-something"), width).splitlines()

    assert max(map(len, lines)) <= width
    if width >= 60:
        assert any("offloaded-cpu" in line and "2.0 s ago" in line for line in lines)
        assert any(line.rstrip().endswith("failed") for line in lines)


@pytest.mark.parametrize("height", [12, 20, 24, 50])
def test_a_terminal_gets_as_many_rows_as_it_is_high_for(height: int) -> None:
    """With 64 ranks: those in trouble are shown, and the others counted."""
    ranks = [rank(number, adapters_count=500) for number in range(64)]
    ranks[40] = rank(40, state=TrainerState.FAULTED)
    seen = picture(*ranks)
    console = Console(file=io.StringIO(), width=100, height=height, force_terminal=True)

    group = fitted(seen, notices(seen), console)
    lines = console.render_lines(group, pad=False)
    text = written(seen, rows=1)

    assert len(lines) < height
    assert "FAULTED" in text
    assert "and 63 more, offloaded-cpu" in text


def test_what_ranks_did_alike_is_one_row_and_so_is_what_was_done_again() -> None:
    """With the slowest; a step's begin is part of the step."""
    begun = {"trigger": "begin_step", "edge": "opens", "moved": {}}
    done = {"trigger": "trained", "edge": "commits", "moved": {}}

    def steps(slow_s: float) -> tuple[object, ...]:
        return tuple(
            transition(**kind, number=2 * at + add, ended_s=NOW_S + at + add / 2, duration_s=slow_s)
            for at in range(3)
            for add, kind in enumerate((begun, done))
        )

    text = written(picture(rank(0, recent=steps(0.5)), rank(1, recent=steps(0.75))))

    (row,) = [line for line in text.splitlines() if "trained" in line]
    assert "0-1    trained x3" in row
    assert "750.0 ms" in row
    assert "begin_step" not in text


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_of_a_log_commands_no_terminal(text: str) -> None:
    """It is shown as it is spelled, in every place: no markup, no control characters, no other direction."""
    plain = written(everything(text), 200)
    coloured = STYLES.sub("", written(everything(text), 200, colours=True))

    for output in (plain, coloured):
        assert output.replace("\n", "").isprintable()
    assert shown(text).strip() in re.sub(r"\s+", " ", plain)


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=30), st.integers(30, 160))
def test_whatever_a_log_says_only_text_of_the_right_width_is_drawn(text: str, width: int) -> None:
    """Any characters, wide ones included."""
    output = written(everything(text), width)

    assert output.replace("\n", "").isprintable()


def test_shown_is_cut_off_and_says_so() -> None:
    """At the number of characters that was given, after it was made harmless."""
    assert shown("x" * 300, 10) == "xxxxxxxxx…"
    assert shown("\x1b" * 10, 10) == "\\x1b\\x1b\\…"
    assert shown("plain") == "plain"


def test_no_colour_says_the_same() -> None:
    """What is coloured is the same text."""
    seen = everything("x")

    assert STYLES.sub("", written(seen, colours=True)) == written(seen)
