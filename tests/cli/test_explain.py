"""``adapter-lifecycle explain``: one turn decided on paper, for flags like the config's."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from typer.testing import CliRunner

from lifecycle.cli import app as command
from lifecycle.config import LifecycleConfig
from lifecycle.errors import ConfigError
from lifecycle.explain import Explained, explain_run
from states import Strategy, TrainerEvent, TrainerState

RUNNER = CliRunner()


def _decisions(*flags: str) -> dict[str, Any]:
    result = RUNNER.invoke(command.app, ["explain", "--json", *flags])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert list(told) == ["decisions"]
    return dict(told["decisions"])


def _one(turn: tuple[Explained, ...], event: TrainerEvent, state: TrainerState) -> Explained:
    (found,) = (one for one in turn if one.event is event and one.state is state)
    return found


@pytest.mark.parametrize(
    ("flags", "source"),
    [
        ((), "saver-backup"),
        (("--with-ref", "--with-teacher", "--keep-old-actor"), "saver-backup"),
        (("--no-lora",), "saver-backup"),
        (("--no-colocate",), "saver-backup"),
        (("--frozen-base", "file"), "base-file+saver-backup"),
        (("--offload-target", "disk"), "base-file+saver-backup"),
        (("--offload-target", "disk", "--no-lora"), "saver-backup"),
        (("--offload-target", "none"), "live"),
        (("--strategy", "duplicate"), "actor"),
        (("--strategy", "reference"), "saver-backup"),
        (("--strategy", "reference", "--with-ref"), "actor"),
        (("--strategy", "reference", "--ref", "snapshot"), "actor"),
        (("--strategy", "reference", "--ref", "adapter_off"), "saver-backup"),
        (("--strategy", "reference", "--with-teacher"), "actor"),
        (("--strategy", "reference", "--keep-old-actor"), "actor"),
        (("--strategy", "reference", "--no-lora"), "actor"),
        (("--strategy", "reference", "--offload-target", "disk"), "base-file+actor"),
        (("--strategy", "reference", "--no-colocate"), "saver-backup"),
        (("--strategy", "reference", "--no-colocate", "--offload-target", "disk", "--no-lora"), "live"),
    ],
)
def test_a_sync_in_the_deepest_sleep_reads_where_the_rule_and_the_versions_say(
    flags: tuple[str, ...], source: str
) -> None:
    """Written out by hand. Without colocate a disk offload is refused, so the weights are still live."""
    assert _decisions(*flags)["update_weights"]["source"] == source


@pytest.mark.parametrize("flags", [(), ("--with-ref",), ("--offload-target", "disk"), ("--no-lora",)])
def test_the_json_has_a_source_and_the_four_parts_of_each_verdict(flags: tuple[str, ...]) -> None:
    """Exactly ``{"decisions": {event: {"source", "verdicts": [{"name", "holds", "because", "remedy"}]}}}``."""
    for event, told in _decisions(*flags).items():
        assert event in set(TrainerEvent)
        assert list(told) == ["source", "verdicts"]
        for verdict in told["verdicts"]:
            assert list(verdict) == ["name", "holds", "because", "remedy"]


def test_the_events_of_a_turn_are_told_in_order() -> None:
    """Another model adds the switch; a run without adapters has none to reconcile."""
    assert list(_decisions()) == [
        "begin_step",
        "trained",
        "update_weights",
        "sleep",
        "offload",
        "reconcile_adapters",
        "wake_up",
    ]
    assert list(_decisions("--with-ref"))[-1] == "switch_model"
    assert "reconcile_adapters" not in _decisions("--no-lora")


def test_an_offload_that_would_leave_nothing_readable_is_refused_with_its_remedy() -> None:
    """A disk backup cannot be read, and without colocate the reference rule makes no copy."""
    settings = ("--strategy", "reference", "--no-lora", "--no-colocate", "--offload-target", "disk")
    told = _decisions(*settings)["offload"]

    failed = [one for one in told["verdicts"] if not one["holds"]]
    assert told["source"] is None
    assert [one["name"] for one in failed] == ["survivors-keep-a-readable-copy"]
    assert failed[0]["remedy"].startswith('backup("actor") first')


@pytest.mark.parametrize(
    ("settings", "edge"),
    [
        ({}, "reads-saver-backup"),
        ({"with_ref": True}, "reads-saver-backup"),
        ({"strategy": "reference", "with_ref": True}, "backs-up-actor"),
        ({"strategy": "duplicate"}, "backs-up-actor"),
        ({"colocate": False}, "reads-saver-backup"),
        ({"strategy": "reference", "colocate": False}, "makes-no-copy"),
    ],
)
def test_a_reconcile_shows_the_edge_it_takes(settings: dict[str, Any], edge: str) -> None:
    """Offloaded to the cpu, the adapter is written into the backup; a copy follows only on its own edge."""
    turn = explain_run(LifecycleConfig(**settings))

    assert _one(turn, TrainerEvent.RECONCILE_ADAPTERS, TrainerState.OFFLOADED_CPU).edge == edge


def test_awake_every_read_is_live() -> None:
    """Whatever is kept elsewhere: what is on the device is read there."""
    for settings in ({}, {"with_ref": True}, {"strategy": "duplicate"}):
        turn = explain_run(LifecycleConfig(**settings))

        assert _one(turn, TrainerEvent.UPDATE_WEIGHTS, TrainerState.AWAKE).source == "live"


@pytest.mark.parametrize(("strategy", "edge"), [("lean", "keeps-and-switches"), ("reference", "switches")])
def test_a_switch_reads_the_copy_of_its_target(strategy: str, edge: str) -> None:
    """There and back again: the ref, then the actor, which lean copies only now."""
    turn = explain_run(LifecycleConfig(with_ref=True, lora=False, strategy=strategy))

    switches = [one for one in turn if one.event is TrainerEvent.SWITCH_MODEL]
    assert [(one.source, one.edge) for one in switches] == [("ref", edge), ("actor", "switches")]


def test_a_wake_that_has_nothing_to_do_says_so() -> None:
    """After a refused offload the trainer still sleeps, and a sync may be sent from there."""
    turn = explain_run(LifecycleConfig(offload_target=None))

    assert _one(turn, TrainerEvent.OFFLOAD, TrainerState.SLEEPING).holds is False
    assert _one(turn, TrainerEvent.WAKE_UP, TrainerState.SLEEPING).edge == "wakes"


def test_every_combination_of_flags_is_explained_and_ends_awake() -> None:
    """No combination that the configuration accepts has a hole, and no read goes nowhere."""
    flags = ("colocate", "lora", "with_ref", "with_teacher", "keep_old_actor")
    for values in product((True, False), repeat=5):
        for target, strategy in product(("cpu", "disk", None), Strategy):
            config = LifecycleConfig(**dict(zip(flags, values, strict=True)), offload_target=target, strategy=strategy)
            turn = explain_run(config)

            assert [one.event for one in turn if not one.holds and one.event is not TrainerEvent.OFFLOAD] == []
            assert all("nowhere" not in (one.source or "") for one in turn), config


def test_for_people_it_prints_the_rule_and_a_table() -> None:
    """The two rules with their reasons, then every event in every state of the turn."""
    result = RUNNER.invoke(command.app, ["explain", "--offload-target", "none"], env={"COLUMNS": "200"})

    assert result.exit_code == 0
    assert "weight-sync-reads-saver-backup: no (the offload target is None, not cpu)" in result.stdout
    assert "refused" in result.stdout
    assert "update_weights" in result.stdout


def test_an_unknown_target_is_refused_by_name() -> None:
    """The choices are listed."""
    result = RUNNER.invoke(command.app, ["explain", "--offload-target", "tape"])

    assert result.exit_code == 2
    assert "'tape' is not one of 'cpu', 'disk', 'none'" in " ".join(result.stderr.replace("│", " ").split())


def test_an_error_of_the_library_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback on the command line."""

    def fail() -> None:
        raise ConfigError("a combination that cannot work")

    monkeypatch.setattr(command, "app", fail)

    with pytest.raises(SystemExit) as ended:
        command.main()

    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: a combination that cannot work\n"
