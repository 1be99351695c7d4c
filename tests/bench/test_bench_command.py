"""``adapter-lifecycle bench`` from outside: one JSON object, honest relations, a picture, clear errors, exit codes.

Nothing here depends on how long something takes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from lifecycle.bench import catalogue, figures_memory, findings, plot
from lifecycle.bench.findings import Session
from lifecycle.bench.measure import measure
from lifecycle.bench.options import MIB, BenchOptions, Case
from lifecycle.bench.trainer import BEFORE, CYCLE
from lifecycle.cli.bench import bench
from lifecycle.errors import ConfigError, LifecycleError

pytestmark = pytest.mark.timeout(400)

BASE_MIB = 16
NOISE_BYTES = 4 * MIB
KEYS = {
    "strategy",
    "frozen_base",
    "base_bytes",
    "trainable_bytes",
    "ranks",
    "kept_models",
    "event",
    "held_bytes",
    "file_bytes",
    "moved_bytes",
    "seconds",
}
STRATEGIES = ["duplicate", "reference", "lean", "lean+file"]
EVENTS = [*BEFORE, *CYCLE[:6], "weights_open", "weights_views", *CYCLE[7:]]
OFFLOADED = EVENTS[EVENTS.index("offload") : EVENTS.index("wake_up")]


def run(*arguments: object) -> Result:
    """The command in this process; what it measures runs in processes of its own."""
    app = typer.Typer()
    app.command()(bench)
    return CliRunner().invoke(app, [str(one) for one in arguments])


def small(*arguments: object) -> tuple[object, ...]:
    """Options of a run that takes seconds."""
    sizes = ("--base-mib", BASE_MIB, "--tensors", 8, "--rank", 2, "--adapters", 2)
    return (*sizes, "--repetitions", 1, "--cycles", 1, *arguments)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the one run of all strategies draws."""
    return tmp_path_factory.mktemp("bench") / "new"


@pytest.fixture(scope="module")
def printed(out: Path) -> dict[str, Any]:
    """What the command prints for all strategies with a kept model, two repetitions of one cycle."""
    result = run(*small("--repetitions", 2, "--kept-models", 1, "--out", out, "--json"))
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


Rows = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def rows(printed: dict[str, Any]) -> Rows:
    """Rows by strategy, as it was asked for, and event."""
    return {(_name(one), one["event"]): one for one in printed["rows"]}


def _name(row: dict[str, Any]) -> str:
    return f"{row['strategy']}+file" if row["frozen_base"] == "file" else str(row["strategy"])


def test_the_object_has_the_documented_keys(printed: dict[str, Any]) -> None:
    """Other programs parse it; a row has all of them, and its seconds are ordered."""
    assert {"machine", "rows"} <= printed.keys()
    assert {"cpus", "memory_bytes", "python", "torch"} <= printed["machine"].keys()
    for row in printed["rows"]:
        assert row.keys() >= KEYS
        assert 0 <= row["seconds"]["min"] <= row["seconds"]["median"] <= row["seconds"]["max"]


def test_every_strategy_has_a_row_for_every_event(rows: Rows) -> None:
    """In one run, and no row twice."""
    assert sorted(rows) == sorted((name, event) for name in STRATEGIES for event in EVENTS)


def test_rows_say_what_was_asked_for(rows: Rows) -> None:
    """Sizes in bytes of one rank, and the numbers of ranks and kept models."""
    sizes = {(one["base_bytes"], one["trainable_bytes"], one["ranks"], one["kept_models"]) for one in rows.values()}

    assert sizes == {(BASE_MIB * MIB, 2 * 16 * 2 * 2 * 1024 * 4, 1, 1)}


@pytest.mark.parametrize("event", OFFLOADED)
def test_a_leaner_strategy_never_holds_more(rows: Rows, event: str) -> None:
    """Duplicate keeps the base three times here, reference twice, lean once, and in a file not at all."""
    held = [rows[name, event]["held_bytes"] for name in STRATEGIES]
    base = BASE_MIB * MIB

    assert [round(one / base) for one in held] == [3, 2, 1, 0]


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_the_system_counts_is_what_the_books_say(rows: Rows, name: str) -> None:
    """Measured bytes and booked bytes are two sources for one number."""
    for event in EVENTS:
        row = rows[name, event]

        assert abs(row["held_bytes"] - row["books_bytes"]) <= NOISE_BYTES


@pytest.mark.parametrize("event", ["step", "sleep", "update_weights", "update_weights_fresh", "weights_views"])
@pytest.mark.parametrize("name", ["lean", "lean+file"])
def test_lean_copies_nothing_at_a_step_or_a_sync(rows: Rows, name: str, event: str) -> None:
    """Nor when its weights are read."""
    assert rows[name, event]["moved_bytes"] == 0


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_an_engine_takes_is_sent_and_not_moved(rows: Rows, name: str) -> None:
    """A sync sends the adapters that changed; a fresh engine gets the base too."""
    trained, base = rows[name, "step"]["trainable_bytes"], rows[name, "step"]["base_bytes"]

    assert rows[name, "update_weights"]["sent_bytes"] == trained
    assert rows[name, "update_weights_fresh"]["sent_bytes"] == base + trained


def test_an_offload_with_the_base_in_a_file_copies_none_of_it(rows: Rows) -> None:
    """Adapters and Adam's two moments; without the file the base as well."""
    trained, base = rows["lean", "offload"]["trainable_bytes"], rows["lean", "offload"]["base_bytes"]

    assert rows["lean+file", "offload"]["moved_bytes"] == 3 * trained
    assert rows["lean", "offload"]["moved_bytes"] == 3 * trained + base


def test_file_bytes_have_a_column_of_their_own(rows: Rows) -> None:
    """One file of the size of the base, only where it was asked for."""
    files = [rows[name, "offload"]["file_bytes"] for name in STRATEGIES]

    assert files[:3] == [0, 0, 0]
    assert BASE_MIB * MIB <= files[3] <= 1.01 * BASE_MIB * MIB


def test_a_duplicate_step_copies_its_adapters_again(rows: Rows) -> None:
    """The zeros above are not because nothing is counted."""
    assert rows["duplicate", "step"]["moved_bytes"] == rows["duplicate", "step"]["trainable_bytes"]


def test_a_kept_model_takes_a_base_of_its_own_under_duplicate_only(rows: Rows) -> None:
    """Under lean it takes the adapters it was kept with, and the base that is there already."""
    duplicate, lean = rows["duplicate", "keep_models"], rows["lean", "keep_models"]

    assert duplicate["moved_bytes"] == duplicate["base_bytes"] + duplicate["trainable_bytes"]
    assert lean["moved_bytes"] == lean["trainable_bytes"]


def test_out_gets_the_picture_and_the_numbers(printed: dict[str, Any], out: Path) -> None:
    """A folder that is not there is made; the numbers are those that were printed."""
    written = json.loads((out / "bench.json").read_text())

    assert (out / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert written["rows"] == printed["rows"]


def test_ranks_share_one_base_file() -> None:
    """Two ranks: twice the adapters, one file, and moved bytes of both."""
    case = Case(frozen_base="file", base_bytes=8 * MIB, tensors=4, adapters=1, rank=2, ranks=2)
    (found,) = measure([case], cycles=1, repetitions=1)
    offload, attach = found.events["offload"], found.events["attach"]

    assert offload.moved == [2 * 3 * found.trainable_bytes]
    assert offload.files[0] < 1.01 * 8 * MIB
    assert attach.kinds["base-file-write"] == offload.files[0]
    assert len(offload.seconds) == 2


def test_the_disk_target_keeps_the_base_in_a_file_too() -> None:
    """Under every strategy, whatever was asked for; the rows say so."""
    result = run(*small("--offload-target", "disk", "--strategy", "lean", "--json"))
    rows = json.loads(result.stdout)["rows"]

    assert {(one["frozen_base"], one["offload_target"]) for one in rows} == {("file", "disk")}
    assert {one["event"]: one["moved_bytes"] for one in rows}["update_weights"] == 0


def test_people_get_tables_with_every_event_and_strategy_in_full() -> None:
    """Also where the output is no terminal, whose width is not known."""
    result = run(*small("--strategy", "lean+file"))

    assert result.exit_code == 0, result.output
    assert [name for name in (*EVENTS, "lean+file", "median") if name not in result.stdout] == []


def test_a_check_that_holds_exits_0() -> None:
    """Machine and figures, with what was measured beside the limit."""
    result = run(*small("--figure", "moved-sleep-file", "--check", "--plot-format", "svg"))

    assert result.exit_code == 0, result.output
    assert "cores" in result.stdout
    assert "moved-sleep-file" in result.stdout
    assert "ok" in result.stdout


def test_a_check_exits_1_when_a_limit_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding says so; rows of all strategies are there as ever."""
    monkeypatch.setitem(findings.LIMITS, "moved-sleep-file", 0.1)

    missed = run(*small("--figure", "moved-sleep-file", "--check", "--json"))

    assert missed.exit_code == 1
    assert [one["ok"] for one in json.loads(missed.stdout)["figures"]] == [False]


def test_without_a_check_a_missed_limit_is_only_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring is not judging."""
    monkeypatch.setitem(findings.LIMITS, "moved-sleep-file", 0.1)

    result = run(*small("--figure", "moved-sleep-file"))

    assert result.exit_code == 0, result.output
    assert "FAILED" in result.stdout


def test_a_check_covers_every_figure_of_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    """None can be forgotten: without names, all are measured; one that cannot be measured has failed."""
    asked: list[str] = []

    def refuses(session: Session) -> list[findings.Finding]:
        asked.append("")
        raise LifecycleError("no room")

    monkeypatch.setattr(catalogue, "FIGURES", dict.fromkeys(catalogue.FIGURES, refuses))
    result = run(*small("--check", "--json", "--strategy", "lean"))
    told = json.loads(result.stdout)["figures"]

    assert result.exit_code == 1
    assert len(asked) == len(told) == len(catalogue.FIGURES) > 1
    assert {one["measured"] for one in told} == {"no room"}


@pytest.mark.parametrize("name", ["weights-2000", "arena", "overhead", "registry"])
def test_a_figure_on_time_can_be_measured_alone(name: str) -> None:
    """It gives findings of its own name and no rows; whether they hold is not asked here."""
    told = json.loads(run(*small("--figure", name, "--json")).stdout)

    assert told["rows"] == []
    assert {one["figure"] for one in told["figures"]} == {name}
    assert all(one["what"] != "could not be measured" for one in told["figures"])


@pytest.fixture(scope="module")
def session() -> Session:
    """One run for all figures on bytes."""
    return Session(BenchOptions(base_mib=BASE_MIB, tensors=8, adapters=1, rank=1, cycles=1, repetitions=1))


def test_bytes_moved_are_within_their_limits_for_any_base(session: Session) -> None:
    """Counted, not measured: a small base shows the same as a large one."""
    told = [*figures_memory.moved_trained_sync(session), *figures_memory.moved_sleep_file(session)]

    assert [one.ok for one in told] == [True] * 7


def test_a_base_in_a_file_is_held_by_none_of_four_ranks(session: Session) -> None:
    """What is left is what the measurement itself costs: far less than one base."""
    (told,) = figures_memory.shared_file(session)

    assert _mib(told.measured) < 0.5 * BASE_MIB
    assert "4 ranks" in told.measured


def test_hand_overs_peak_where_the_plan_says_and_every_level_is_the_predicted_one() -> None:
    """The sum of both copies, the larger of them, or no mirror: as the system and the books count them."""
    told = catalogue.FIGURES["handover"](Session(BenchOptions(base_mib=64, tensors=8, adapters=1, rank=1)))
    host, device, kept = (_mib(one.measured) for one in told[::3])

    assert [one.ok for one in told] == [True] * 9
    assert host > 1.8 * device
    assert kept < 1.2 * device


def test_lean_holds_one_base_with_or_without_kept_models(session: Session) -> None:
    """Duplicate holds two of them, and five with three kept models."""
    (alone,) = figures_memory.held_offloaded(session)
    lean, duplicate = figures_memory.held_kept_models(session)

    assert BASE_MIB <= _mib(alone.measured) <= 1.5 * BASE_MIB
    assert BASE_MIB <= _mib(lean.measured) <= 1.5 * BASE_MIB
    assert duplicate.ok
    assert _mib(duplicate.measured) >= 5 * BASE_MIB


def _mib(text: str) -> float:
    return float(text.split(maxsplit=1)[0].replace(",", ""))


def test_the_cost_of_a_reading_moves_no_byte_for_any_base() -> None:
    """The figure on base sizes finds equal bytes for a base of 4 and one of 64 MiB."""
    options = BenchOptions(base_mib=16, tensors=8, adapters=1, rank=1)
    told = catalogue.FIGURES["base-size"](Session(options))

    assert [one.what.split(",")[1].strip() for one in told] == [
        "trained while awake",
        "reconcile_adapters while awake",
        "reconcile_adapters while offloaded-cpu",
        "weights_open while offloaded-cpu",
        "weights_views while offloaded-cpu",
    ]
    assert all(one.measured.split(";")[0].count(" and ") == 0 for one in told)


def test_a_case_is_measured_once_for_all_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the table has measured is not measured again for a figure."""
    session = Session(
        BenchOptions(base_mib=8, tensors=4, adapters=1, cycles=1, repetitions=1, strategies=("lean+file",))
    )
    first = session.measured(session.options.cases())
    monkeypatch.setattr(findings, "measure", lambda missing, **_: [] if not missing else pytest.fail("measured again"))

    (told,) = figures_memory.moved_sleep_file(session)

    assert told.ok
    assert session.measured(session.options.cases()) == first


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--base-mib", 0), "--base-mib is 0; use 1 to"),
        (("--tensors", 0), "--tensors is 0; use 1 to"),
        (("--base-mib", 1, "--tensors", 1000), "has no page for each"),
        (("--adapters", -1), "--adapters is -1; use 1 to"),
        (("--rank", 0), "--rank is 0; use 1 to"),
        (("--ranks", 0), "--ranks is 0; use 1 to"),
        (("--kept-models", 4), "--kept-models is 4; use 0 to 3 (of ref, old_actor, rollout_actor)"),
        (("--cycles", 0), "--cycles is 0; use 1 to"),
        (("--repetitions", 0), "--repetitions is 0; use 1 to"),
        (("--strategy", "thrifty"), "--strategy is 'thrifty'; use one of"),
        (("--strategy", "lean+disk"), "--strategy is 'lean+disk'; use one of"),
        (("--strategy", "lean", "--strategy", "lean"), "name each strategy once"),
        (("--offload-target", "tape"), "--offload-target is 'tape'; use one of cpu, disk"),
        (("--verify", "maybe"), "--verify is 'maybe'; use one of always, sampled, off"),
        (("--figure", "speed"), "--figure is speed; the figures are held-offloaded, "),
        (("--plot-format", "bmp"), "--plot-format is 'bmp'; use one of png, svg"),
        (("--work-dir", "/nowhere/at/all"), "--work-dir is /nowhere/at/all, which is no directory"),
        (("--out", "/dev/null/below"), "--out is /dev/null/below, which cannot be made"),
        (("--base-mib", 1 << 20), "use a smaller --base-mib"),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_a_bad_option_is_told_before_anything_is_measured(arguments: tuple[object, ...], told: str) -> None:
    """Exit code 2, one line, the option by its name, and what to use instead."""
    result = run(*arguments)

    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert told in result.stderr


def test_a_folder_in_memory_is_refused_with_the_librarys_own_words() -> None:
    """A base file on a tmpfs would save nothing; the process that finds out says so."""
    result = run(*small("--work-dir", "/dev/shm", "--strategy", "lean+file"))  # noqa: S108 - a tmpfs is what this is about

    assert result.exit_code == 1
    assert "tmpfs" in result.stderr


def test_without_matplotlib_a_picture_is_refused_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not after an hour of measuring; the extra is named."""
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)

    with pytest.raises(ConfigError, match=r"adapter-lifecycle\[bench\]"):
        plot.check_can_draw()
    assert run(*small("--out", tmp_path)).exit_code == 2


def test_a_process_that_ends_is_an_error_with_what_it_said() -> None:
    """A case that no controller takes: the message of the process comes through."""
    case = replace(Case(base_bytes=MIB, tensors=1, adapters=1, rank=1), offload_target="tape")

    with pytest.raises(LifecycleError, match="offload_target is 'tape'"):
        measure([case], cycles=1, repetitions=1)
