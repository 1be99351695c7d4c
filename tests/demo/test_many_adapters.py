"""More adapters than slots, on real parts: a queue, slots that are used again, and one truth in every state.

The models are small and the rollouts short; everything else is as the command runs it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lifecycle.audit.read import read_log
from lifecycle.audit.verify import verify_chain
from lifecycle.demo.build import colocated
from lifecycle.demo.options import DemoOptions, Training
from lifecycle.demo.report import DemoReport
from lifecycle.demo.run import Loop, run_demo
from lifecycle.weights.digests import digest

pytestmark = pytest.mark.timeout(300)

SMALL = Training(prompts=4, prompt_tokens=4, new_tokens=4, inner_steps=2, learning_rate=0.05)
SIX_IN_TWO = DemoOptions(count=6, slots=2, turns=6, training=SMALL)
BETWEEN = {"awake": "awake", "offloaded": "offloaded-cpu", "disk": "offloaded-disk"}


def _run(options: DemoOptions) -> DemoReport:
    return run_demo(options, lambda *_: None)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, DemoReport]:
    """Six adapters in two slots, changed awake, offloaded to host memory, and offloaded to disk."""
    wanted = {
        "awake": SIX_IN_TWO,
        "offloaded": replace(SIX_IN_TWO, reconcile="offloaded"),
        "disk": replace(SIX_IN_TWO, reconcile="offloaded", offload_target="disk"),
    }
    return {name: _run(replace(one, out=tmp_path_factory.mktemp(name))) for name, one in wanted.items()}


def _final(report: DemoReport) -> dict[str, str]:
    return {one.adapter: one.weights for one in report.adapters}


@pytest.mark.parametrize("where", ["offloaded", "disk"])
def test_the_final_weights_are_the_same_wherever_adapters_were_changed(runs: dict[str, DemoReport], where: str) -> None:
    """Bit for bit, adapter by adapter; and no two adapters have the same ones."""
    assert _final(runs[where]) == _final(runs["awake"])
    assert runs[where].weights == runs["awake"].weights
    assert len(set(_final(runs["awake"]).values())) == 6


@pytest.mark.parametrize("where", BETWEEN)
def test_adapters_are_changed_in_the_state_that_was_asked_for(runs: dict[str, DemoReport], where: str) -> None:
    """Each pass begins and ends there, the one before the first turn and the one after the last among them."""
    records = read_log(runs[where].audit)
    passes = [
        (one["source"], one["target"])
        for one in records
        if one["event"] == "lifecycle.moved" and one["trigger"] == "reconcile_adapters"
    ]

    assert verify_chain(records) == []
    assert passes == [(BETWEEN[where], BETWEEN[where])] * 11  # load; clear and load, four times; clear, twice
    assert runs[where].final_state == "awake"


@pytest.mark.parametrize("where", BETWEEN)
def test_slots_are_used_again_and_no_registration_id_is(runs: dict[str, DemoReport], where: str) -> None:
    """Who sat where when: b leaves a turn early, its slot goes to c, and so on. Steps are the registry's count."""
    found = [
        (one.adapter, one.registration_id, one.slot, one.first_turn, one.last_turn, one.steps)
        for one in runs[where].adapters
    ]

    assert found == [
        ("a", 1, 0, 0, 1, 4),
        ("b", 2, 1, 0, 0, 2),
        ("c", 3, 1, 1, 2, 4),
        ("d", 4, 0, 2, 3, 4),
        ("e", 5, 1, 3, 4, 4),
        ("f", 6, 0, 4, 5, 4),
    ]


@pytest.mark.parametrize("where", BETWEEN)
def test_engine_and_trainer_agree_after_every_change(runs: dict[str, DemoReport], where: str) -> None:
    """A slot that kept something of its last tenant, on one side only, would show in the numbers."""
    assert runs[where].disagreeing == ()
    assert min(one.logprob_diff for one in runs[where].turns) > 0


def test_a_tenants_weights_do_not_depend_on_who_was_there_before_or_sits_beside_it(
    runs: dict[str, DemoReport], tmp_path: Path
) -> None:
    """Six adapters one after the other in one slot end as those of the same number of turns did in two."""
    alone = _run(replace(SIX_IN_TWO, slots=1, turns=12, out=tmp_path))
    shared = {one.adapter: (one.steps, one.weights) for one in runs["awake"].adapters}
    comparable = {one.adapter for one in alone.adapters if shared[one.adapter][0] == one.steps}

    assert comparable == {"a", "c", "d", "e", "f"}
    assert {name: _final(alone)[name] for name in comparable} == {name: shared[name][1] for name in comparable}


def test_the_digest_is_of_what_was_trained(tmp_path: Path) -> None:
    """It is read offloaded, where the saver's backup has the bytes, and is that of the live weights before."""
    options = replace(SIX_IN_TWO, count=2, turns=1, reconcile="offloaded", out=tmp_path)
    with colocated(options) as world:
        loop, live = Loop(world), dict(world.host.model.named_parameters())
        began = {name: digest(world.host.export(name, live.__getitem__)[-1]) for name in "ab"}
        loop.turn(0)
        trained = {name: digest(world.host.export(name, live.__getitem__)[-1]) for name in "ab"}
        loop.close()
        found = {one.adapter: one.weights for one in world.tenants.left}

    assert found == trained
    assert not set(began.values()) & set(trained.values())


def test_a_step_that_fails_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry counts a batch when all of its adapters have been trained."""
    with colocated(replace(SIX_IN_TWO, out=tmp_path)) as world:
        loop, honest = Loop(world), world.optimizers[1].step
        monkeypatch.setattr(world.optimizers[1], "step", _fail)
        with pytest.raises(RuntimeError, match="out of order"):
            loop.turn(0)
        counted = [world.host.registry.step_count(name) for name in "ab"]
        monkeypatch.setattr(world.optimizers[1], "step", honest)

    assert counted == [0, 0]


def _fail(*_: object) -> None:
    raise RuntimeError("out of order")
