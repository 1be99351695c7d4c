"""The picture of a run: what was taken is as wide as it was often taken, and nothing that went wrong is hidden."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from states import TABLE
from states.draw_run import WIDEST, listing, run_drawing, run_svg, times
from states.draw_shapes import Arrow, Drawing, Look
from states.names import TrainerEvent, TrainerState
from states.render_run import run_mermaid
from states.replay import EDGES
from states.run_counts import RunCounts, Trouble
from tests.states.pictures import overlaps, parsed

SLEEP = ("awake", "sleep", "quiesces", "sleeping")
OFFLOAD = ("sleeping", "offload", "offloads-to-cpu", "offloaded-cpu")
SEND = ("offloaded-cpu", "update_weights", "sends", "offloaded-cpu")
RECONCILE = ("sleeping", "reconcile_adapters", "reads-saver-backup", "sleeping")
EVERYTHING = RunCounts(
    taken={(str(a), str(b), c, str(d)): 99_999 for a, b, c, d in EDGES},
    undone=dict.fromkeys((edge[:3] for edge in EDGES), 99),
    faulted=dict.fromkeys((edge[:3] for edge in EDGES), 9),
    unfinished=dict.fromkeys((edge[:3] for edge in EDGES), 9),
    refused={(state, event): 99_999 for state in TrainerState for event in TrainerEvent},
    guards={("awake", "sleep"): {"no-lease-over-what-the-step-changes": 9, "a": 3, "b": 2, "c": 1}},
    unchanged={(state, event): 7 for state in TrainerState for event in TrainerEvent},
)


def arrow(drawing: Drawing, ends: str) -> Arrow:
    """The one that leads from the one to the other."""
    (found,) = (one for one in drawing.arrows if one.told.startswith(f"From {ends}:"))
    return found


def in_ascii(text: str) -> str:
    """Times as an x, which can be told apart in a test."""
    return text.replace("\N{MULTIPLICATION SIGN}", "x")


def said(one: Arrow) -> list[str]:
    """The lines of its label."""
    return [in_ascii("".join(part.text for part in line)) for line in one.label.lines]


def lines(counts: RunCounts) -> list[str]:
    """What stands below the picture."""
    return [in_ascii("".join(part.text for part in line)) for line in listing(counts)]


@pytest.mark.parametrize("counts", [EVERYTHING, RunCounts()], ids=["everything", "nothing"])
def test_nothing_in_the_picture_of_a_run_lies_on_anything_else(counts: RunCounts) -> None:
    """Also with everything taken, failed and refused, of which all texts grow."""
    assert overlaps(run_drawing(counts)) == []


def test_an_edge_is_the_wider_the_more_often_it_was_taken() -> None:
    """By the logarithm, so that what happened once stays visible beside what happened a million times."""
    drawing = run_drawing(RunCounts(taken={SLEEP: 1_000_000, OFFLOAD: 1000, SEND: 1}))
    most, some, once, never = (
        arrow(drawing, ends)
        for ends in (
            "awake to sleeping",
            "sleeping to offloaded-cpu",
            "offloaded-cpu to offloaded-cpu",
            "sleeping to awake",
        )
    )

    assert most.width == WIDEST
    assert most.width > some.width > once.width > never.width


def test_an_edge_tells_how_often_it_was_taken() -> None:
    """Each edge of an arrow for itself; an arrow is as wide as all of them."""
    copied = ("awake", "sleep", "quiesces-and-backs-up-actor", "sleeping")
    one = arrow(run_drawing(RunCounts(taken={SLEEP: 1204, copied: 3})), "awake to sleeping")

    assert said(one) == ["sleep", "quiesces x1,204", "quiesces-and-backs-up-actor x3"]
    assert (
        in_ascii(one.told) == "From awake to sleeping: sleep (quiesces) x1,204, sleep (quiesces-and-backs-up-actor) x3."
    )


def test_what_was_never_taken_is_faint() -> None:
    """The machine is drawn whole, and what a run did in it stands out."""
    drawing = run_drawing(RunCounts(taken={SLEEP: 1}))
    taken, never = arrow(drawing, "awake to sleeping"), arrow(drawing, "sleeping to awake")

    assert [one.told for one in drawing.arrows if not one.faint] == [taken.told]
    assert all(part.faint for line in never.label.lines for part in line)
    assert [part.text for line in taken.label.lines for part in line if part.faint] == ["quiesces-and-backs-up-actor"]
    assert never.told == "From sleeping to awake: never."
    assert never.told not in drawing.description


def test_a_reconcile_is_drawn_as_its_two_moves() -> None:
    """The record tells them as one, back at the origin."""
    drawing = run_drawing(RunCounts(taken={RECONCILE: 5}, undone={RECONCILE[:3]: 2}))

    assert said(arrow(drawing, "resting to adapter-reconciling")) == ["reconcile_adapters", "enters x7"]
    assert said(arrow(drawing, "adapter-reconciling to resting")) == [
        "reconciled", "reads-saver-backup x5", "backs-up-actor", "makes-no-copy",
        "reconcile_abandoned", "abandons x2", "(!) 2 failed",
    ]  # fmt: skip


def test_what_left_the_trainer_faulted_is_an_edge_to_faulted() -> None:
    """From where it was: a reconcile has left its origin by then."""
    drawing = run_drawing(RunCounts(faulted={OFFLOAD[:3]: 3, RECONCILE[:3]: 1}))

    assert said(arrow(drawing, "resting to faulted")) == ["fail", "faults x3"]
    assert said(arrow(drawing, "adapter-reconciling to faulted")) == ["fail", "faults x1"]
    assert said(arrow(drawing, "resting to adapter-reconciling")) == ["reconcile_adapters", "enters x1"]
    assert said(arrow(drawing, "sleeping to offloaded-cpu"))[-1] == "(!) 3 failed"


def test_what_has_no_end_is_marked_on_its_edge() -> None:
    """Its process died in it: the arrow is not faint, although nobody arrived."""
    one = arrow(run_drawing(RunCounts(unfinished={SLEEP[:3]: 1})), "awake to sleeping")

    assert said(one)[-1] == "(!) 1 failed"
    assert one.told.endswith("never; 1 unfinished.")
    assert not one.faint
    assert lines(RunCounts(unfinished={SLEEP[:3]: 1}))[1] == "(!) sleep (quiesces) in awake: 1 unfinished"


def test_what_was_refused_is_marked_at_the_state_that_refused_it() -> None:
    """Dashed, with a mark of its own, and counted; also calls that are no events of the table."""
    refused = {("sleeping", "offload"): 12, ("sleeping", "prepare_optimizer"): 1, ("awake", "trained"): 2}
    marks = [one for one in run_drawing(RunCounts(refused=refused)).arrows if one.look is Look.REFUSED]

    assert [said(one) for one in marks] == [["2 refused"], ["13 refused"]]
    assert in_ascii(marks[1].told) == "Refused in sleeping: offload x12, prepare_optimizer x1."
    assert 'stroke-dasharray="4 3"' in run_svg(RunCounts(refused=refused))
    assert "stroke-dasharray" not in run_svg(RunCounts())


def test_the_guards_that_failed_most_often_are_named_below() -> None:
    """Three of each, the most frequent first, and the most frequent refusals first."""
    guards = {("sleeping", "offload"): {"a": 1, "b": 5, "c": 5, "d": 7}}
    found = lines(RunCounts(refused={("awake", "trained"): 2, ("sleeping", "offload"): 12}, guards=guards))

    assert found[1:] == [
        "(x) offload in sleeping x12", "      d x7", "      b x5", "      c x5", "(x) trained in awake x2",
    ]  # fmt: skip


def test_a_long_list_says_what_it_leaves_out() -> None:
    """A log may hold as many names as it likes; the picture stays one."""
    refused = {("awake", f"call-{index:02}"): 1 for index in range(40)}
    strange = {("awake", f"event-{index}", "edge", "awake"): 1 for index in range(400)}
    settled = {("awake", f"event-{index}"): 1 for index in range(400)}
    failed = {("awake", f"event-{index:02}", "edge"): 50 - index for index in range(50)}
    found = lines(RunCounts(refused=refused, taken=strange, unchanged=settled, undone=failed))

    assert "(x) and 28 more that were refused" in found
    assert "(!) and 38 more that failed" in found
    assert len(found) < 45
    assert "(!) event-00 (edge) in awake: 50 undone" in found
    assert all(not line.endswith("-") for line in found)
    assert max(map(len, found)) <= 93


def test_what_no_table_has_is_told_and_drawn_nowhere() -> None:
    """A log of another version, or one that was changed."""
    counts = RunCounts(
        taken={("awake", "teleport", "beams", "sleeping"): 4, ("awake", "sleep", "quiesces", "offloaded-cpu"): 1},
        undone={("awake", "dream", "x"): 2},
    )
    drawing = run_drawing(counts)

    assert all(one.faint for one in drawing.arrows)
    (line,) = (one for one in lines(counts) if one.startswith("On no edge"))
    assert line == "On no edge of the table: teleport (beams) in awake x4, dream (x) in awake x2, sleep"
    assert counts.moves() == {}


def test_a_long_name_does_not_hide_how_often() -> None:
    """It is cut off; those of the tables never are."""
    found = lines(RunCounts(refused={("awake", "x" * 200): 7}, guards={("awake", "x" * 200): {"y" * 200: 5}}))

    assert [line[-14:] for line in found[1:]] == [
        "x\N{HORIZONTAL ELLIPSIS} in awake x7",
        "yyyyyyyyyy\N{HORIZONTAL ELLIPSIS} x5",
    ]
    names = {name for row in TABLE for name in (row.event, row.edge, *(one.name for one in (*row.when, *row.guards)))}
    assert max(map(len, names)) < 48


def test_what_held_already_is_told_below() -> None:
    """It takes no edge."""
    assert "Already so, and nothing done: sleep in sleeping x4" in lines(
        RunCounts(unchanged={("sleeping", "sleep"): 4})
    )


def test_the_list_is_left_out_where_a_page_has_its_own() -> None:
    """The picture is that much lower; who cannot see it is told all the same."""
    counts = RunCounts(refused={("awake", "trained"): 2})
    with_list, without = run_drawing(counts), run_drawing(counts, listed=False)

    assert without.texts == ()
    assert without.height < with_list.height
    assert "(x) trained in awake x2" in in_ascii(without.description)


def test_a_picture_on_a_page_may_stand_there_twice() -> None:
    """No id, no class and no style sheet; a file of its own has both sets of colours."""
    on_a_page = run_svg(EVERYTHING)

    assert re.findall(r"<style|class=|style=| id=", on_a_page) == []
    assert "prefers-color-scheme" in run_svg(EVERYTHING, standalone=True)
    assert parsed(run_svg(EVERYTHING, title="Ours")).findtext("title") == "Ours"


def test_names_of_a_log_are_text_and_nothing_else() -> None:
    """In SVG they are escaped, in Mermaid what is no name is replaced."""
    nasty = '<script>alert(1)</script>\x1b[31m\n"]: x --> y'
    counts = RunCounts(
        refused={("awake", nasty): 1},
        guards={("awake", nasty): {nasty: 1}},
        taken={("awake", nasty, nasty, nasty): 1},
        unfinished={("awake", nasty, nasty): 1},
        unchanged={("awake", nasty): 1},
    )
    told = run_svg(counts, standalone=True)

    parsed(told)
    assert "<script" not in told
    assert "\x1b" not in told
    mermaid = run_mermaid(counts)
    assert re.findall(r"script>|[\x1b;]", mermaid) == []
    assert len(mermaid.splitlines()) == len(run_mermaid(RunCounts()).splitlines()) + 3


NAMES = st.text(max_size=120)
COUNTS = st.integers(1, 10**12)
ASKED = st.tuples(st.sampled_from([*TrainerState, "nowhere"]), NAMES)
TRIED = st.tuples(st.sampled_from([*TrainerState, "nowhere"]), NAMES, NAMES)


@given(
    st.builds(
        RunCounts,
        taken=st.dictionaries(st.tuples(NAMES, NAMES, NAMES, NAMES), COUNTS),
        undone=st.dictionaries(TRIED, COUNTS),
        refused=st.dictionaries(ASKED, COUNTS),
        guards=st.dictionaries(ASKED, st.dictionaries(NAMES, COUNTS)),
        unchanged=st.dictionaries(ASKED, COUNTS),
    )
)
@settings(max_examples=30, deadline=None)
def test_whatever_a_log_says_is_one_picture(counts: RunCounts) -> None:
    """Well formed, as high as some lists of bounded length, with lines that are no longer than it is wide."""
    drawing = run_drawing(counts)

    parsed(run_svg(counts, standalone=True))
    assert drawing.height < 2_000
    assert max(map(len, lines(counts))) <= 93
    assert re.fullmatch(r"[^\x00-\x09\x0b-\x1f\x7f-\x9f]*", run_mermaid(counts))


def test_mermaid_has_the_edges_that_were_taken_and_what_was_refused() -> None:
    """With their counts, and the guard that failed most often."""
    counts = RunCounts(
        taken={SLEEP: 1204},
        undone={OFFLOAD[:3]: 1},
        refused={("sleeping", "offload"): 12, ("awake", "trained"): 1},
        guards={("sleeping", "offload"): {"a": 1, "no-lease-over-live-weights": 11}},
    )
    told = in_ascii(run_mermaid(counts))

    assert "    awake --> sleeping : sleep / quiesces x1,204\n" in told
    assert "    sleeping --> offloaded_cpu : 1 undone\n" in told
    assert told.count(" --> ") == 2
    assert "    note right of sleeping\n        refused offload x12, no-lease-over-live-weights\n    end note\n" in told
    assert "    note right of awake\n        refused trained x1\n    end note\n" in told


def test_mermaid_says_what_it_leaves_out() -> None:
    """A note of forty lines is none."""
    told = run_mermaid(RunCounts(refused={("awake", f"call-{index}"): 1 for index in range(40)}))

    assert "        and 28 more\n" in told


def test_a_list_that_has_room_leaves_nothing_out() -> None:
    """And does not say that none are left out."""
    asked = {("awake", f"call-{index:02}"): 1 for index in range(12)}
    failed = {(*one, "edge"): 1 for one in asked}

    marked = [line for line in lines(RunCounts(refused=asked, undone=failed)) if line.startswith("(")]

    assert len(marked) == 12 + 12
    assert " more" not in " ".join(marked)
    assert " more" not in run_mermaid(RunCounts(refused=asked))


@pytest.mark.parametrize(
    ("count", "told"),
    [(1, "x1"), (99_999, "x99,999"), (100_000, "x100k"), (12_345_678, "x12,345k"), (2 * 10**11, "x200G")],
)
def test_a_large_count_is_short(count: int, told: str) -> None:
    """A label has the room of seven digits at most."""
    assert in_ascii(times(count)) == told


def test_trouble_is_told_in_words() -> None:
    """None is told as nothing."""
    assert Trouble().words() == ""
    assert Trouble(1, 0, 2).plus(Trouble(1, 1, 0)).words() == "2 undone, 1 faulted, 2 unfinished"
