"""Every state, event and record of an engine: one answer, as the oracle gives it, and one that explains itself."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from states import TableError
from states.engine_changes import after, lost_at
from states.engine_decision import EngineRefusal, EngineStep, decide_engine
from states.engine_memory import EngineEvent, EngineState
from states.engine_table import ENGINE_TABLE
from tests.states.engine_cases import cases
from tests.states.engine_oracle import objection

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("event", EngineEvent)
@pytest.mark.parametrize("state", EngineState)
def test_nothing_unsafe_is_allowed_and_nothing_safe_is_refused(state: EngineState, event: EngineEvent) -> None:
    """The oracle agrees on every record: never two rows, the right target, the right tags, sent only where needed."""
    assert next((found for case in cases(state, event) if (found := objection(*case))), "") == ""


def test_the_space_is_large_enough_to_take_every_row() -> None:
    """Each row was taken by some case, so that none of them is dead."""
    taken = set()
    for row in ENGINE_TABLE:
        for memory, ask in cases(row.source, row.event):
            step = decide_engine(memory, ask, table=(row,))
            if isinstance(step, EngineStep):
                taken.add(row)
                break
    asked = sum(len(cases(state, event)) for state, event in product(EngineState, EngineEvent))
    print(f"{asked} cases were asked")

    assert asked > 40_000
    assert taken == set(ENGINE_TABLE)


@pytest.mark.parametrize("state", EngineState)
def test_a_refusal_gives_reasons_and_remedies(state: EngineState) -> None:
    """Each guard that failed says because of what, and what to do; the whole is one line."""
    mute = []
    for event in EngineEvent:
        for case in cases(state, event)[::7]:
            answer = decide_engine(*case)
            if isinstance(answer, EngineRefusal):
                told = all(one.name and one.because and one.remedy for one in answer.failed)
                mute += [] if answer.failed and told and "\n" not in str(answer) else [answer]

    assert mute[:3] == []


@pytest.mark.parametrize("state", EngineState)
def test_no_step_gives_a_version_to_what_was_not_sent(state: EngineState) -> None:
    """Only a commit and an answer to a probe can add one, and a commit adds exactly what was sent."""
    wrong = []
    for event in EngineEvent:
        for memory, ask in cases(state, event)[::3]:
            step = decide_engine(memory, ask)
            if isinstance(step, EngineStep):
                gained = set(after(memory, step).versions) - set(memory.versions)
                sent = {(group, version) for group, version in memory.touched if version is not None}
                wrong += [] if gained == (sent if event is EngineEvent.COMMIT_UPDATE else set()) else [(memory, ask)]

    assert wrong[:3] == []


@pytest.mark.parametrize("state", EngineState)
def test_what_is_settled_moves_no_state_no_tag_and_no_version(state: EngineState) -> None:
    """Nothing was sent, so nothing there has changed."""
    wrong = []
    for event in EngineEvent:
        for memory, ask in cases(state, event)[::3]:
            step = decide_engine(memory, ask)
            if isinstance(step, EngineStep) and step.settled:
                now = after(memory, step)
                same = (now.state, now.tags, now.versions) == (memory.state, memory.tags, memory.versions)
                wrong += [] if same else [(memory, ask)]

    assert wrong[:3] == []


def test_two_rows_that_hold_together_are_an_error() -> None:
    """Nobody chooses between them in silence; the error names both."""
    memory, ask = cases(EngineState.OPEN, EngineEvent.PAUSE)[0]
    row = next(one for one in ENGINE_TABLE if (one.source, one.event) == (EngineState.OPEN, EngineEvent.PAUSE))

    with pytest.raises(TableError, match="holds together with open --pause--> paused"):
        decide_engine(memory, ask, table=(row, replace(row, target=EngineState.LOST)))


@pytest.mark.parametrize("event", [EngineEvent.GENERATE, EngineEvent.PROBE])
def test_a_request_or_a_question_that_fails_leaves_nothing_in_doubt(event: EngineEvent) -> None:
    """It changes no byte there, wherever it failed."""
    memory, ask = cases(EngineState.OPEN, event)[-1]

    assert lost_at(memory, EngineStep(ask, EngineState.OPEN), "timed out") == memory


def test_outcomes_have_no_truth_value() -> None:
    """A step is not "yes": its tags and whether it is settled have to be read."""
    memory, ask = cases(EngineState.OPEN, EngineEvent.PAUSE)[0]

    with pytest.raises(TypeError, match="no truth value"):
        bool(decide_engine(memory, ask))
