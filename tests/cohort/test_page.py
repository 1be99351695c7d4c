"""docs/cohort.md is true: its loop runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.cohort.world import NAMES, make_world
from tests.docs.blocks import code_of
from tests.lifecycle.world import FakeEngine

TEXT = (Path(__file__).parents[2] / "docs" / "cohort.md").read_text(encoding="utf-8")


def test_the_loop_of_the_page_trains_all_members_on_a_device_that_holds_one() -> None:
    """Who is awake when is what the comments say."""
    world, engine, seen = make_world(fits=1), FakeEngine(), list[tuple[str, ...]]()

    def train(name: str) -> Any:
        seen.append(world.awake)
        if name:
            world.train(name)

    (block,) = code_of("cohort.md")
    names: dict[str, Any] = {
        **{name: world[name] for name in NAMES},
        "engine": engine,
        "turns": 2,
        "generate": lambda _: train(""),
        "teacher_log_probs": lambda _: train("teacher"),
        "train_critic": lambda *_: train("critic"),
        "train_actor": lambda *_: train("actor"),
    }
    exec(block, names)  # noqa: S102 - the page's own

    assert seen == [(), ("teacher",), ("critic",), ("actor",)] * 2
    assert engine.versions.keys() == world["actor"].versions.keys()


def test_every_note_of_the_log_stands_on_the_page() -> None:
    """By its words."""
    notes = set()
    for path in sorted((Path(__file__).parents[2] / "lifecycle" / "cohort").glob("*.py")):
        notes |= set(re.findall(r'_note\(\s*"([^"]+)"', path.read_text(encoding="utf-8")))

    assert len(notes) == 9
    told = TEXT.replace("was planned, was refused, has gone", "was planned; a hand-over of the cohort was refused; "
                        "a hand-over of the cohort has gone")  # fmt: skip
    assert [note for note in notes if note not in told] == []
