"""What is seen of a rank is what the rank itself says, of every run and from wherever reading began."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from lifecycle import EngineError, EventRefused, LifecycleError, TrainerState
from lifecycle.lag import ENGINES_MAX
from lifecycle.report.model import Outcome
from lifecycle.watch import RunWatch, start
from lifecycle.watch.engines import EngineWatch
from lifecycle.watch.picture import RankSeen, Serving
from tests.auditing.runs import Run
from tests.report.logs import AWAKE_HELD, Log
from tests.watch.live import Live


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """A trainer with a log."""
    with Live(tmp_path / "audit.jsonl") as live:
        yield live


def test_state_and_bytes_are_those_of_the_trainer(live: Live) -> None:
    """After each event."""
    trainer, seen = live.world.trainer, []
    for event in (trainer.sleep, trainer.offload, trainer.wake_up):
        event()
        rank = live.seen()
        seen.append(rank.state)
        assert (rank.state, rank.running) == (trainer.state, None)
        assert rank.held == trainer.ledger.held.by_place()
        assert rank.since_s == rank.seen_s

    assert seen == [TrainerState.SLEEPING, TrainerState.OFFLOADED_CPU, TrainerState.AWAKE]


def test_a_transition_is_seen_while_it_runs(live: Live) -> None:
    """From its first record on, before its first effect has ended."""
    trainer, found = live.world.trainer, []
    live.turn()
    effects = trainer._runner.effects
    pause = effects["pause-weights"]
    effects["pause-weights"] = lambda parts, work: (found.append(live.seen()), pause(parts, work))[1]  # type: ignore[func-returns-value]
    trainer.sleep()
    trainer.offload()

    (running,) = (one.running for one in found)
    assert running is not None
    assert (running.trigger, running.edge, running.target) == ("offload", "offloads-to-cpu", "offloaded-cpu")
    assert found[0].usual_s is not None
    assert live.seen().running is None


def test_adapters_and_engines_are_as_far_behind_as_the_trainer_says(live: Live) -> None:
    """Current after a push; behind by the steps since, in the adapters that were trained."""
    live.turn()
    current = live.seen()
    live.world.train("B", steps=3)
    live.world.train("A")
    behind = live.seen()

    assert [(one.name, one.serving, one.lacks) for one in current.engines] == [("E0", Serving.CURRENT, 0)]
    assert {one.name: dict(one.behind) for one in current.adapters} == {"A": {"E0": 0}, "B": {"E0": 0}}
    assert [one.serving for one in behind.engines] == [Serving.BEHIND]
    assert [(one.name, dict(one.behind)) for one in behind.adapters] == [("A", {"E0": 1}), ("B", {"E0": 3})]
    assert behind.engines[0].versions_behind == live.world.trainer.staleness(live.engine.versions)


def test_an_engine_whose_push_failed_is_in_doubt_until_it_is_mended(live: Live) -> None:
    """With the reason of the engine, and then the one that it has when it is asked again."""
    live.turn()
    live.world.train("A")
    live.engine.fails_at = "commit"
    with suppress(EngineError, LifecycleError):
        live.world.trainer.update_weights([live.engine])
    (doubted,) = live.seen().engines
    live.engine.fails_at = ""
    live.engine.resident.discard("weights")
    with suppress(EventRefused):
        live.world.trainer.update_weights([live.engine])
    (asked,) = live.seen().engines
    live.engine.resident.add("weights")
    live.world.trainer.update_weights([live.engine])

    assert doubted.serving is Serving.IN_DOUBT
    assert doubted.because == "EngineError: engine E0: told to fail at commit"
    assert (asked.serving, asked.versions_behind) == (Serving.IN_DOUBT, None)
    assert asked.because == "a push failed: engine E0: told to fail at commit"
    assert [(one.serving, one.because) for one in live.seen().engines] == [(Serving.CURRENT, "")]


def test_a_retired_adapter_is_gone_and_a_loaded_one_is_there(live: Live) -> None:
    """Engines lack it until it was sent."""
    live.turn()
    live.world.host.deregister("A")
    live.world.host.register("C", 2)
    live.world.trainer.reconcile_adapters()

    assert {one.name: dict(one.behind) for one in live.seen().adapters} == {"B": {"E0": 0}, "C": {"E0": None}}


def test_refusals_are_counted_until_the_same_is_done(live: Live) -> None:
    """By event and guards; then they are settled, and a new one begins at 1."""
    trainer = live.world.trainer
    trainer.sleep()
    with trainer.weights("reader"):
        for _ in range(3):
            with suppress(EventRefused):
                trainer.offload()
        (refused,) = live.seen().refused
    trainer.offload()
    (settled,) = live.seen().refused
    trainer.wake_up()
    trainer.sleep()
    with trainer.weights("reader"), suppress(EventRefused):
        trainer.offload()

    assert (refused.times, refused.is_settled) == (3, False)
    assert "reader" in refused.transition.failed[0].because
    assert refused.transition.failed[0].remedy
    assert settled.is_settled
    assert [(one.times, one.is_settled) for one in live.seen().refused] == [(1, False)]


def test_a_fault_is_the_state_and_its_reason_is_the_last_transition(live: Live) -> None:
    """Until the trainer has recovered."""
    live.fault()
    rank = live.seen()

    assert rank.state is TrainerState.FAULTED
    assert rank.last is not None
    assert rank.last.outcome is Outcome.FAILED
    assert "ZeroDivisionError" in rank.last.problem


def test_bytes_moved_are_those_of_the_turn(live: Live) -> None:
    """A turn ends with the wake; the one under way is told apart."""
    live.turn()
    live.turn()
    live.world.trainer.sleep()
    live.world.trainer.offload()
    rank = live.seen()

    assert rank.moved_before is not None
    assert set(rank.moved_before) == {"backup", "sync", "restore"}
    assert rank.moved_before["backup"] == rank.moved_before["restore"] == rank.moved["backup"]
    assert set(rank.moved) == {"backup"}
    assert len(rank.syncs_s) == 2


def test_a_new_session_says_in_what_the_one_before_died(tmp_path: Path) -> None:
    """Nothing of the old process is shown as if it were there; then the new one has moved, and all is well."""
    log = Log()
    log.opened()
    log.turn(0)
    log.began("offload", "offloads-to-cpu", "awake", "offloaded-cpu")
    log.opened(restart=True)
    path = log.write(tmp_path / "audit.jsonl")
    with RunWatch([path]) as run:
        list(run.poll())
        (before,) = run.picture().ranks
        with path.open("a") as file:
            log.turn(1)
            file.writelines(log.lines())
        list(run.poll())
        (after,) = run.picture().ranks

    assert before.died_in is not None
    assert before.died_in.trigger == "offload"
    assert (before.state, before.running, before.held, before.restarts) == (None, None, None, 1)
    assert (after.died_in, after.state, after.held) == (None, TrainerState.AWAKE, AWAKE_HELD)


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """What is remembered of transitions, refusals, syncs and times is bounded."""
    log = Log()
    log.opened()
    for number in range(300):
        log.turn(number)
    with RunWatch([log.write(tmp_path / "audit.jsonl")]) as run:
        list(run.poll())
        (rank,) = run.picture().ranks

    assert (len(rank.recent), len(rank.syncs_s), len(rank.adapters)) == (100, 5, 2)
    assert rank.records == log.sequence


def test_engines_that_come_and_go_are_forgotten_in_the_end() -> None:
    """With everything that was known of them: names of engines may be new each time that one is started."""
    watch = EngineWatch()
    for number in range(2 * ENGINES_MAX):
        engines = {f"engine-{number}": {"committed": False, "sent": ["base"], "error": "lost"}}
        details = {"details": {"engines": engines}}
        watch.see({"event": "lifecycle.moved", "trigger": "update_weights", **details}, float(number))

    assert len(watch.engines()) == ENGINES_MAX
    assert {one.because for one in watch.engines()} == {"lost"}
    assert set(watch._because) == set(watch._pushed_s) == {one.name for one in watch.engines()}


def _comparable(rank: RankSeen) -> RankSeen:
    """Without what depends on how much of the log was read."""
    return replace(
        rank,
        recent=rank.recent[-1:],
        refused=(),
        usual_s=None,
        adapters=tuple(
            sorted(
                (replace(one, changes=0, changed_s=None, behind={}) for one in rank.adapters), key=lambda one: one.name
            )
        ),
        engines=(),
        syncs_s=(),
        moved_before=None,
        moved={},
        longest_silence_s=0,
        records_per_s=0,
        since_s=None,
        unreadable=0,
        restarts=0,
    )


@pytest.mark.parametrize("seed", range(12))
def test_random_runs_are_seen_as_they_are_and_alike_from_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Any calls and faults: the state after each call is the trainer's; who comes late sees the same in the end."""
    run = Run(seed, tmp_path)
    with RunWatch([run.log.path]) as watch:
        for _ in range(40):
            with suppress(LifecycleError):
                run.draw.choice(run.calls())()
            list(watch.poll())
            list(watch.poll())
            ranks = watch.picture().ranks
            if ranks and ranks[0].state is not None:
                assert ranks[0].state == run.world.trainer.state
                assert ranks[0].running is None
            run.mend()
        run.close_all()
        run.world.trainer.sleep()
        run.world.trainer.wake_up()
        list(watch.poll())
        list(watch.poll())
        (rank,) = watch.picture().ranks
    run.log.close()
    monkeypatch.setattr(start, "BEGIN_BYTES", 6_000)
    with RunWatch([run.log.path]) as late:
        list(late.poll())
        (seen,) = late.picture().ranks

    wanted = run.world.trainer.versions
    assert {f"adapter/{one.name}": one.version for one in rank.adapters} == {
        group: version for group, version in wanted.items() if group.startswith("adapter/")
    }
    assert _comparable(seen) == _comparable(rank)


def test_records_of_a_trainer_that_nobody_has_versions_of_are_still_seen(tmp_path: Path) -> None:
    """A log that begins anew in the middle of a run: what is not known is left out."""
    with Live(tmp_path / "audit.jsonl") as live:
        live.turn()
    lines = (tmp_path / "audit.jsonl").read_bytes().splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(b"".join(lines[len(lines) // 2 :]))
    with RunWatch([cut]) as run:
        list(run.poll())
        (rank,) = run.picture().ranks

    assert rank.state is TrainerState.AWAKE
    assert rank.unreadable == 0


def test_the_rank_is_that_of_its_log(tmp_path: Path) -> None:
    """Several logs, each its own; of one that has only begun no state is known."""
    paths = [tmp_path / f"audit.rank{rank}.jsonl" for rank in range(2)]
    with Live(paths[0], 0), Live(paths[1], 1) as second, RunWatch(paths) as run:
        second.turn()
        list(run.poll())
        found = run.picture().ranks

    assert [(one.whose.rank, one.state) for one in found] == [(0, None), (1, TrainerState.AWAKE)]
