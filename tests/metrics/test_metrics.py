"""The numbers of a trainer: what each is, when it changes, and that watching changes nothing."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest

from lifecycle import AuditError, ConfigError, EventRefused, HostArena, Moved, TransitionFailed
from lifecycle.ledger import Held
from lifecycle.metrics import Metrics
from lifecycle.metrics.families import FAMILIES
from lifecycle.metrics.reading import parts_of
from states import TrainerState
from tests.docs.blocks import code_of
from tests.lifecycle.test_refusals import fault
from tests.lifecycle.world import FakeEngine, make_world

DOCS = Path(__file__).parents[2] / "docs"


def _of(metrics: Metrics, family: str) -> dict[str, float]:
    """The values of one family, by their labels."""
    start = f"lifecycle/{family}/"
    return {key.removeprefix(start): value for key, value in metrics.as_dict().items() if key.startswith(start)}


def test_every_value_is_a_number_under_a_name_of_the_table() -> None:
    """With the prefix that is asked for."""
    world = make_world()
    metrics = Metrics(world.trainer)
    world.trainer.update_weights([FakeEngine()])

    found = metrics.as_dict("run/")

    assert {type(value) for value in found.values()} == {float}
    assert {key.split("/")[0] for key in found} == {"run"}
    assert {key.split("/")[1] for key in found} <= {family.name for family in FAMILIES}


def test_the_state_is_one_of_all_states() -> None:
    """Also after a fault, which moves without an outcome."""
    world = make_world()
    metrics = Metrics(world.trainer)
    before = _of(metrics, "state")
    fault(world)

    assert set(before) == set(TrainerState)
    assert [name for name, value in before.items() if value] == ["awake"]
    assert [name for name, value in _of(metrics, "state").items() if value] == ["faulted"]


def test_events_are_counted_since_the_trainer_was_attached() -> None:
    """Also those before somebody watched."""
    world = make_world()
    world.trainer.sleep()
    metrics = Metrics(world.trainer)
    world.trainer.wake_up()
    world.trainer.wake_up()
    with pytest.raises(EventRefused):
        world.trainer.offload()

    transitions = _of(metrics, "transitions_total")
    assert transitions["sleep/quiesces"] == transitions["wake_up/wakes"] == 1
    assert _of(metrics, "unchanged_total") == {"wake_up": 1}
    assert _of(metrics, "refusals_total") == {f"offload/{guard}": 1 for _, guard in world.trainer.tally.refused}
    fault(world)
    assert _of(metrics, "failures_total") == {"sleep/tear-down-groups": 1}


def test_held_and_moved_bytes_are_those_of_the_ledger() -> None:
    """By place, and by the part without the model's name; what was emptied stays, with 0."""
    world = make_world()
    metrics = Metrics(world.trainer)
    awake = _of(metrics, "held_bytes")
    world.trainer.sleep()
    offloaded = world.trainer.offload()

    held = _of(metrics, "held_bytes")
    assert isinstance(offloaded, Moved)
    assert _of(metrics, "moved_bytes_total")["offload/backup"] == offloaded.moved_bytes
    assert held["saver_host/base"] == awake["device/base"] > 0
    assert held["device/base"] == 0
    assert sum(held.values()) == sum(world.trainer.held_bytes().values())


def test_memory_of_others_and_models_of_a_users_names_are_other() -> None:
    """So that there are as few values as the project has names."""
    arena = HostArena()
    first = make_world(arena=arena)
    second = make_world(arena=arena, model="critic", strategy="duplicate")
    metrics = Metrics(second.trainer)
    second.trainer.keep_model("tuesday")
    second.trainer.keep_model("ref")

    held = _of(metrics, "held_bytes")
    assert held["device/other"] == sum(
        info.size_bytes for tag, info in arena.tags().items() if tag.startswith("actor/") and not info.paused
    )
    assert {key for key in held if "snapshots" in key} >= {"snapshots/ref", "snapshots/other"}
    assert not any("tuesday" in key or "actor/" in key for key in held)
    assert first.trainer.state is TrainerState.AWAKE


def test_no_adapter_is_in_a_key() -> None:
    """A run may have thousands of them."""
    world = make_world(adapters=("tenant-1", "tenant-2"))
    metrics = Metrics(world.trainer)
    world.train("tenant-1")
    world.trainer.update_weights([FakeEngine()])

    assert [key for key in metrics.as_dict() if "tenant" in key] == []


def test_seconds_are_those_of_the_outcomes() -> None:
    """All of them together, how many, and the last; refused ones took none."""
    world = make_world()
    metrics = Metrics(world.trainer)
    first, woken, second = world.trainer.sleep(), world.trainer.wake_up(), world.trainer.sleep()
    with pytest.raises(EventRefused):
        world.trainer.begin_step()

    assert isinstance(first, Moved)
    assert isinstance(second, Moved)
    assert isinstance(woken, Moved)
    seconds = _of(metrics, "event_seconds")
    assert seconds["sleep/count"] == 2
    assert seconds["sleep/sum"] == first.duration_s + second.duration_s
    assert "begin_step/count" not in seconds
    assert _of(metrics, "event_last_seconds") == {"sleep": second.duration_s, "wake_up": woken.duration_s}


def test_an_engine_falls_behind_with_each_step_until_it_is_pushed_to() -> None:
    """In versions where it is furthest behind, and in content groups that it lacks."""
    world, engine = make_world(), FakeEngine()
    metrics = Metrics(world.trainer)
    world.trainer.update_weights([engine])
    current = metrics.as_dict()
    world.train("A", steps=2)
    world.train("B")
    behind = metrics.as_dict()
    world.trainer.update_weights([engine])

    assert current["lifecycle/engine_versions_behind/E0"] == current["lifecycle/engine_pending_pushes/E0"] == 0
    assert behind["lifecycle/engine_versions_behind/E0"] == 3  # buffers may change in every step
    assert behind["lifecycle/engine_pending_pushes/E0"] == 3  # A, B and the buffers
    assert metrics.as_dict()["lifecycle/engine_pending_pushes/E0"] == 0


def test_a_push_that_failed_leaves_its_engine_in_doubt_and_the_others_up_to_date() -> None:
    """Until it is pushed to again."""
    world, good, bad = make_world(), FakeEngine("good"), FakeEngine("bad", fails_at="adapter:B")
    metrics = Metrics(world.trainer)
    with pytest.raises(TransitionFailed):
        world.trainer.update_weights([good, bad])
    failed = metrics.as_dict()
    bad.fails_at = ""
    world.trainer.update_weights([good, bad])

    assert failed["lifecycle/engine_in_doubt/good"] == failed["lifecycle/engine_pending_pushes/good"] == 0
    assert failed["lifecycle/engine_in_doubt/bad"] == 1
    assert failed["lifecycle/engine_pending_pushes/bad"] == len(world.trainer.versions)
    assert metrics.as_dict()["lifecycle/engine_in_doubt/bad"] == 0


def test_an_engine_that_restarted_is_seen_when_it_is_looked_at() -> None:
    """Nobody asks it otherwise."""
    world, engine = make_world(), FakeEngine()
    metrics = Metrics(world.trainer)
    world.trainer.update_weights([engine])
    engine.restart()
    unseen = metrics.as_dict()["lifecycle/engine_pending_pushes/E0"]

    standings = metrics.look_at([engine])

    assert unseen == 0
    assert metrics.as_dict()["lifecycle/engine_pending_pushes/E0"] == len(world.trainer.versions)
    assert list(standings) == ["E0"]


def test_another_thread_reads_while_an_event_is_under_way() -> None:
    """It gets the numbers of the last event, and waits for nobody."""
    world = make_world()
    metrics = Metrics(world.trainer)
    inside, read = Event(), Event()

    def wait(*_: object) -> None:
        inside.set()
        assert read.wait(30)

    world.trainer.subscribe(wait)
    event = Thread(target=world.trainer.sleep)
    event.start()
    assert inside.wait(30)
    during = metrics.reading()
    read.set()
    event.join()

    assert during.tally.moved["sleep", "quiesces"] == 1
    assert "sleep" not in during.seconds
    assert "sleep" in metrics.reading().seconds
    assert world.trainer.callback_errors == ()


def test_the_code_of_the_page_runs_as_it_stands() -> None:
    """On a free port."""
    logged: list[dict[str, float]] = []
    wandb = SimpleNamespace(log=lambda numbers, step: logged.append(numbers))
    world = make_world()
    namespace: dict[str, Any] = {"trainer": world.trainer, "wandb": wandb, "steps": 1}

    for block in code_of("metrics.md"):
        exec(block.replace("9464", "0"), namespace)  # noqa: S102 - the page's own code
    world.trainer.sleep()
    namespace["exporter"].close()

    assert "lifecycle/held_bytes/device/base" in logged[0]
    assert namespace["url"].startswith("http://127.0.0.1:")
    assert world.trainer.callback_errors == ()


def test_the_page_lists_every_metric_with_its_labels() -> None:
    """Name, kind and labels, as the table has them."""
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")

    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        assert f"| `{family.name}` | {family.kind} | {labels} |" in page


@pytest.mark.parametrize("rank", [-1, "0", 0.0, None, True])
def test_a_rank_that_is_none_is_refused(rank: Any) -> None:
    """Nobody watches then."""
    world = make_world()

    with pytest.raises(ConfigError, match="rank is"):
        Metrics(world.trainer, rank=rank)
    assert world.trainer._runner.watchers._watchers == []


@pytest.mark.parametrize("trainer", [None, "trainer"])
def test_who_is_no_trainer_cannot_be_watched(trainer: Any) -> None:
    """The error says what to give."""
    with pytest.raises(ConfigError, match="give the TrainerLifecycle itself"):
        Metrics(trainer)


def test_metrics_that_fail_break_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they raise is kept; the event is as it would be without them, and they count on when they can."""
    world = make_world()
    metrics = Metrics(world.trainer)
    with monkeypatch.context() as patch:
        patch.setattr(metrics, "_read", lambda: (_ for _ in ()).throw(RuntimeError("no numbers")))
        slept = world.trainer.sleep()
    world.trainer.wake_up()

    assert isinstance(slept, Moved)
    assert [str(one) for one in world.trainer.callback_errors] == ["no numbers"]
    assert _of(metrics, "transitions_total")["sleep/quiesces"] == 1
    assert _of(metrics, "event_seconds")["sleep/count"] == 1


def test_a_tag_of_another_tenant_is_no_part_of_the_trainer() -> None:
    """Whatever it is called: only what has the model's prefix is the trainer's own."""
    device = {"actor/base": 5, "base": 7, "critic/base": 11, "actor/unheard": 13}
    held = Held(device, {}, {}, {}, {}, {}, {})

    assert parts_of(held, "actor") == {("device", "base"): 5, ("device", "other"): 31}


def test_what_is_missing_on_the_log_only_has_taken_its_time() -> None:
    """It is committed, and its caller gets an error."""
    world = make_world()
    metrics = Metrics(world.trainer)
    write = world.audit.write

    def full(name: str, keys: Any) -> None:
        if name == "lifecycle.moved":
            raise AuditError("log", "the disk is full")
        write(name, keys)

    world.audit.write = full  # type: ignore[method-assign]
    with pytest.raises(AuditError):
        world.trainer.sleep()

    assert _of(metrics, "event_seconds")["sleep/count"] == 1
