"""``adapter-lifecycle demo`` from outside: one JSON object, rewards that rise, clear errors, a clean interrupt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from lifecycle.adapters import PeftAdapters, save_adapter
from lifecycle.audit.read import read_log
from lifecycle.audit.verify import verify_chain
from lifecycle.cli.demo import demo
from lifecycle.demo.model import tiny_llama
from lifecycle.demo.report import LOGPROB_TOLERANCE
from lifecycle.demo.run import Loop
from lifecycle.engines import AdapterPayload

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
MIB = 2**20
BASE_BYTES = sum(4 * one.numel() for one in tiny_llama(0).trainer().parameters())
KEYS = {"turn", "states", "rewards", "host_bytes", "moved_bytes", "logprob_diff"}
TO_CPU_AND_BACK = ["awake", "sleeping", "offloaded-cpu", "awake"]


def run(*arguments: object) -> Result:
    """The command in this process."""
    app = typer.Typer()
    app.command()(demo)
    return CliRunner().invoke(app, [str(one) for one in arguments])


def run_json(*arguments: object) -> dict[str, Any]:
    """The command in this process, with the one object it prints."""
    result = run("--json", *arguments)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the command prints without options."""
    return run_json("--out", tmp_path_factory.mktemp("default"))


def _rewards(report: dict[str, Any], name: str) -> list[float]:
    return [turn["rewards"][name] for turn in report["turns"] if name in turn["rewards"]]


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_every_adapters_reward_rises_clearly(default: dict[str, Any], name: str) -> None:
    """The last third of an adapter's turns is far above its first one; a random policy gets 0.25."""
    rewards = _rewards(default, name)
    last = rewards[-(len(rewards) // 3) :]

    assert rewards[0] < 0.4
    assert mean(last) > rewards[0] + 0.3


def test_the_engine_and_the_trainer_agree_in_every_turn(default: dict[str, Any]) -> None:
    """At most 1e-3, and not because nothing was compared."""
    differences = [turn["logprob_diff"] for turn in default["turns"]]

    assert max(differences) <= LOGPROB_TOLERANCE
    assert min(differences) > 0


def test_the_object_has_the_documented_keys(default: dict[str, Any]) -> None:
    """Other programs parse it."""
    assert set(default) == {"seconds", "turns", "adapters", "reconcile", "weights", "audit", "final_state"}
    assert {frozenset(turn) for turn in default["turns"]} == {frozenset(KEYS)}
    assert [turn["turn"] for turn in default["turns"]] == list(range(12))
    assert default["final_state"] == "awake"


def test_the_first_retires_and_a_third_joins_halfway(default: dict[str, Any]) -> None:
    """Both changes are reconciles under the state machine."""
    names = [set(turn["rewards"]) for turn in default["turns"]]
    reconcile = ["adapter-reconciling", "awake"]

    assert names == [{"a", "b"}] * 6 + [{"b", "c"}] * 6
    assert default["turns"][5]["states"] == TO_CPU_AND_BACK
    assert default["turns"][6]["states"] == ["awake", *reconcile, *reconcile, *TO_CPU_AND_BACK[1:]]


def test_the_reference_strategy_holds_the_base_once(default: dict[str, Any]) -> None:
    """The saver's backup is the only copy: base, two slots and their moments, and nothing else. FB-17."""
    slots = [turn["host_bytes"] - BASE_BYTES for turn in default["turns"]]

    assert max(slots) < 0.9 * BASE_BYTES
    assert min(slots) > 0


def test_every_transition_is_on_the_record(default: dict[str, Any]) -> None:
    """The log is whole, and each turn has its events in it."""
    records = read_log(default["audit"])
    moved = [one["trigger"] for one in records if one["event"] == "lifecycle.moved"]

    assert verify_chain(records) == []
    assert [moved.count(event) for event in ("sleep", "offload", "update_weights", "wake_up")] == [12] * 4
    assert moved.count("trained") == 12 * 2 * 2


def test_the_duplicate_strategy_holds_the_base_twice(tmp_path: Path) -> None:
    """A full second copy is what the other strategy costs."""
    once = run_json("--turns", 1, "--out", tmp_path)["turns"][0]["host_bytes"]
    twice = run_json("--turns", 1, "--strategy", "duplicate", "--out", tmp_path)["turns"][0]["host_bytes"]

    assert twice - once == pytest.approx(BASE_BYTES, abs=4 * MIB)


def test_with_a_ref_the_run_takes_the_other_branch_and_learns_all_the_same(tmp_path: Path) -> None:
    """The ref is reached through switch_model, the log says that what it overwrites was kept."""
    report = run_json("--turns", 4, "--with-ref", "--out", tmp_path)
    records = [one for one in read_log(report["audit"]) if one["event"] == "lifecycle.moved"]
    switches = [one for one in records if one["trigger"] == "switch_model"]
    edges = {one["edge"] for one in records}

    assert len(switches) == 2 * 4
    assert "keeps-and-switches" in edges
    assert _rewards(report, "b")[-1] > _rewards(report, "b")[0]
    assert max(turn["logprob_diff"] for turn in report["turns"]) <= LOGPROB_TOLERANCE


def test_disk_backups_leave_nothing_behind(tmp_path: Path) -> None:
    """The base is in its file, which sync reads: little is held on the host. That file goes with the run."""
    report = run_json("--turns", 2, "--offload-target", "disk", "--out", tmp_path)

    assert report["turns"][0]["states"] == ["awake", "sleeping", "offloaded-disk", "awake"]
    assert report["turns"][0]["host_bytes"] < 0.5 * BASE_BYTES
    assert report["turns"][0]["logprob_diff"] <= LOGPROB_TOLERANCE
    assert [one.name for one in tmp_path.iterdir()] == ["audit.jsonl"]


def test_without_a_target_the_trainer_only_sleeps(tmp_path: Path) -> None:
    """There is room for both; nothing is offloaded, sync reads live memory."""
    report = run_json("--turns", 1, "--offload-target", "none", "--out", tmp_path)

    assert report["turns"][0]["states"] == ["awake", "sleeping", "awake"]
    assert report["turns"][0]["logprob_diff"] <= LOGPROB_TOLERANCE


def test_a_model_and_an_adapter_of_ones_own(tmp_path: Path) -> None:
    """A Hugging Face directory and a PEFT directory, of a rank that the demo would not have chosen."""
    model = tiny_llama(5).trainer()
    model.save_pretrained(tmp_path / "model")  # type: ignore[operator]
    _save_adapter(tmp_path / "adapter", rank=12)
    report = run_json(
        "--model",
        tmp_path / "model",
        "--adapter",
        f"mine={tmp_path / 'adapter'}",
        "--turns",
        2,
        "--out",
        tmp_path / "out",
    )

    assert [set(turn["rewards"]) for turn in report["turns"]] == [{"mine"}, {"c"}]
    assert max(turn["logprob_diff"] for turn in report["turns"]) <= LOGPROB_TOLERANCE


def _save_adapter(directory: Path, rank: int) -> None:
    host = PeftAdapters(tiny_llama(5).trainer(), slots=1, rank=rank)
    prepared = host.prepare(host.registry.register("mine", rank=rank, alpha=2.0 * rank, seed=3))
    host.install(prepared)
    save_adapter(directory, AdapterPayload("mine", 1, *host.export("mine", prepared.tensors.__getitem__)))


def test_people_get_a_table(tmp_path: Path) -> None:
    """Without --json the turns are shown, and where the log is."""
    result = run("--turns", 1, "--out", tmp_path)

    assert result.exit_code == 0
    assert "states passed" in result.stdout
    assert f"on the record in {tmp_path / 'audit.jsonl'}\n" in result.stdout  # one line, to be copied
    assert "\x1b" not in result.stdout


BAD = {
    "a model directory that is not there": (["--model", "nowhere"], "--model nowhere"),
    "an adapter without a directory": (["--adapter", "a"], "write NAME=DIR"),
    "an adapter directory that is not there": (["--adapter", "a=nowhere"], "nowhere"),
    "an adapter name with a slash": (["--adapter", "a/b=nowhere"], "'/'"),
    "no turns": (["--turns", "0"], "--turns"),
    "fewer turns than adapters that follow each other": (["--adapters", "16", "--turns", "3"], "--turns is 3"),
    "no adapters": (["--adapters", "0"], "--adapters is 0"),
    "no slots": (["--adapters", "2", "--slots", "0"], "--slots is 0"),
    "more slots than adapters": (["--adapters", "2", "--slots", "3"], "--slots is 3"),
    "slots without a number of adapters": (["--slots", "2"], "--slots needs --adapters"),
    "adapters of one's own and a number": (["--adapters", "2", "--adapter", "a=x"], "--adapters and --adapter"),
    "an unknown state to reconcile in": (["--reconcile", "asleep"], "--reconcile is 'asleep'"),
    "a state that is never reached": (
        ["--reconcile", "offloaded", "--offload-target", "none"],
        "--reconcile offloaded needs",
    ),
    "an unknown target": (["--offload-target", "tape"], "tape"),
    "an unknown strategy": (["--strategy", "triplicate"], "triplicate"),
    "an output folder that cannot be made": (["--out", "/proc/demo"], "--out /proc/demo"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_option_is_one_clear_line_and_exit_code_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """No traceback, nothing on stdout, and the line names what is wrong."""
    arguments, named = BAD[what]
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)

    assert result.exit_code == 2
    assert (result.stdout, len(result.stderr.splitlines()), "Traceback" in result.stderr) == ("", 1, False)
    assert named in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_three_options_reach_the_run(tmp_path: Path) -> None:
    """Three adapters follow each other in one slot, changed offloaded, in as many turns."""
    report = run_json(
        "--adapters", 3, "--slots", 1, "--turns", 3, "--reconcile", "offloaded", "--seed", 3, "--out", tmp_path
    )  # fmt: skip

    assert [(one["adapter"], one["slot"], one["first_turn"]) for one in report["adapters"]] == [
        ("a", 0, 0), ("b", 0, 1), ("c", 0, 2)
    ]  # fmt: skip
    assert [turn["states"].count("adapter-reconciling") for turn in report["turns"]] == [0, 2, 2]
    assert report["reconcile"] == "offloaded"


def test_a_run_whose_rollouts_are_not_the_trainers_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables are shown all the same; the exit code and one line say it."""
    monkeypatch.setattr(Loop, "difference", lambda *_: 0.5)
    result = run("--turns", 1, "--out", tmp_path)

    assert result.exit_code == 1
    assert "5e-01!" in result.stdout
    assert result.stderr == "error: engine and trainer did not agree on the rollouts of turn 0\n"


@pytest.mark.parametrize(
    ("number", "code", "told"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_an_interrupt_leaves_a_readable_log_and_nothing_else(tmp_path: Path, number: int, code: int, told: str) -> None:
    """Ended in the middle of a run with files on disk: its exit code, one line, a log that reads. FB-20."""
    # A shell's background jobs ignore the interrupt and hand that down; this one is to hear it wherever it runs.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = (
        f"{listen}; import typer; from lifecycle.cli.demo import demo; app = typer.Typer(); app.command()(demo); app()"
    )
    command = [sys.executable, "-c", program, "--turns", "1000", "--offload-target", "disk", "--out", str(tmp_path)]
    log = tmp_path / "audit.jsonl"
    running = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while running.poll() is None and not (log.exists() and log.read_text().count('"wake_up"') >= 2):
        time.sleep(0.05)
    running.send_signal(number)
    try:
        output, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    records = read_log(log)

    assert running.returncode == code, errors
    assert (output, "Traceback" in errors, told in errors) == ("", False, True)
    assert [one.name for one in tmp_path.iterdir()] == ["audit.jsonl"]
    assert verify_chain(records) == []
