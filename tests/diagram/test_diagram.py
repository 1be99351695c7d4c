"""`adapter-lifecycle diagram`: the logs of a run become one picture of it."""

from __future__ import annotations

import json
import stat
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lifecycle.audit.read import read_log
from lifecycle.cli.app import app
from lifecycle.diagram import Form, RunCounter, count_run, diagram_of, write_diagram
from lifecycle.diagram.counting import GUARDS_MAX, KEYS_MAX, OTHER
from lifecycle.errors import LifecycleError
from lifecycle.report.errors import ReportError
from lifecycle.report.model import FailedVerdict, Outcome, Transition
from states import TrainerState
from tests.auditing.runs import Run
from tests.report.logs import Log, write_run

RUNNER = CliRunner()
SLEEP = ("awake", "sleep", "quiesces", "sleeping")
OFFLOAD = ("sleeping", "offload", "offloads-to-cpu")
GUARD = "no-lease-over-live-weights"


def log_of(tmp_path: Path) -> Log:
    """A log that has begun."""
    log = Log()
    log.opened()
    return log


def test_the_logs_of_all_ranks_are_drawn_as_one(tmp_path: Path) -> None:
    """A log that is given twice counts once."""
    paths = write_run(tmp_path, ranks=3, records=600)
    alone = count_run(paths[:1])
    together = count_run([*paths, paths[0]])

    assert together.counts.taken[SLEEP] == 3 * alone.counts.taken[SLEEP]
    assert together.transitions == 3 * alone.transitions


def test_each_end_of_a_transition_is_counted_where_it_belongs(tmp_path: Path) -> None:
    """Moved, undone, faulted, cut off, refused with its guards, and already so."""
    log = log_of(tmp_path)
    log.turn(1)
    log.refused()
    for target in ("sleeping", "faulted"):
        what = log.began("offload", "offloads-to-cpu", "sleeping", "offloaded-cpu")
        log.add("failed", transition=log.transition, **{**what, "target": target}, effect="pause-weights", error="no")
    log.add(
        "unchanged", transition=9, trigger="sleep", edge="already", source="sleeping", target="sleeping", verdicts=[]
    )
    log.began("offload", "offloads-to-cpu", "sleeping", "offloaded-cpu")
    counts = count_run([log.write(tmp_path / "audit.jsonl")]).counts

    assert counts.taken[SLEEP] == 1
    assert counts.undone == counts.faulted == counts.unfinished == {OFFLOAD: 1}
    assert counts.refused == {("sleeping", "offload"): 1}
    assert counts.guards == {("sleeping", "offload"): {GUARD: 1}}
    assert counts.unchanged == {("sleeping", "sleep"): 1}


@pytest.mark.parametrize("seed", range(4))
def test_every_record_of_a_real_run_stands_on_an_edge_of_the_table(seed: int, tmp_path: Path) -> None:
    """Runs of random calls, with refusals and faults: as many as the records say, and none is strange."""
    path = Run(seed, tmp_path).live()
    counted = count_run([path])
    ends = Counter(str(record["event"]).removeprefix("lifecycle.") for record in read_log(path))

    assert counted.counts.strange() == {}
    assert sum(counted.counts.taken.values()) == ends["moved"]
    assert sum(counted.counts.refused.values()) == ends["refused"]
    assert sum(counted.counts.unchanged.values()) == ends["unchanged"]
    assert sum((*counted.counts.undone.values(), *counted.counts.faulted.values())) == ends["failed"]


def test_the_command_writes_a_picture_that_is_the_owners_alone(tmp_path: Path) -> None:
    """And says how many events there were, and how many of them were refused."""
    log = log_of(tmp_path)
    log.turn(1)
    log.refused()
    path, out = log.write(tmp_path / "audit.jsonl"), tmp_path / "run.svg"
    result = RUNNER.invoke(app, ["diagram", str(path), "--out", str(out)])

    assert result.exit_code == 0, result.output
    assert result.stdout == f"8 events, 1 of them refused: wrote {out}\n"
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert out.read_text().startswith("<svg ")
    assert "prefers-color-scheme" in out.read_text()


def test_without_a_name_the_file_is_called_by_its_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the command was called."""
    log = log_of(tmp_path)
    log.turn(1)
    path = log.write(tmp_path / "audit.jsonl")
    monkeypatch.chdir(tmp_path)

    assert RUNNER.invoke(app, ["diagram", str(path)]).exit_code == 0
    assert RUNNER.invoke(app, ["diagram", str(path), "--as", "mermaid"]).exit_code == 0
    assert (tmp_path / "run.svg").read_text() == diagram_of(count_run([path]))
    assert (tmp_path / "run.mmd").read_text() == diagram_of(count_run([path]), Form.MERMAID)
    assert (tmp_path / "run.mmd").read_text().startswith("stateDiagram-v2\n")


def test_lines_that_are_no_records_are_left_out_and_told(tmp_path: Path) -> None:
    """The rest is drawn."""
    log = log_of(tmp_path)
    log.turn(1)
    path = log.write(tmp_path / "audit.jsonl")
    with path.open("a") as file:
        file.write('{"event": "life\n')
        file.write(json.dumps({"event": "lifecycle.moved", "sequence": 99, "hash": ""}) + "\n")
    result = RUNNER.invoke(app, ["diagram", str(path), "--out", str(tmp_path / "run.svg")])

    assert result.exit_code == 0
    assert "audit.jsonl: lines that are torn or no records, and were left out: 2" in result.stderr


@pytest.mark.parametrize("text", ["", "no log\n"])
def test_a_file_without_records_is_an_error_that_says_what_to_give(text: str, tmp_path: Path) -> None:
    """No empty picture."""
    (tmp_path / "notes.txt").write_text(text)

    with pytest.raises(ReportError, match="it holds no record of an audit log; give the file that AuditLog writes"):
        write_diagram([tmp_path / "notes.txt"], tmp_path / "run.svg")
    assert not (tmp_path / "run.svg").exists()


def test_a_log_that_is_read_is_never_written_over(tmp_path: Path) -> None:
    """Also one that was put aside."""
    log = log_of(tmp_path)
    log.turn(1)
    path = log.write(tmp_path / "audit.jsonl.1")
    (tmp_path / "audit.jsonl").write_text("")
    before = path.read_bytes()

    with pytest.raises(ReportError, match="it is a log that is read"):
        write_diagram([tmp_path / "audit.jsonl"], path)
    assert path.read_bytes() == before


def test_links_that_lead_in_a_circle_are_a_log_that_holds_no_record(tmp_path: Path) -> None:
    """No error of another kind."""
    (tmp_path / "circle").symlink_to(tmp_path / "circle")

    with pytest.raises(LifecycleError, match="circle"):
        write_diagram([tmp_path / "circle"], tmp_path / "run.svg")


def test_a_picture_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    """It names the file."""
    log = log_of(tmp_path)
    log.turn(1)

    with pytest.raises(ReportError, match="cannot be written"):
        write_diagram([log.write(tmp_path / "audit.jsonl")], tmp_path / "missing" / "run.svg")


def refused(event: str, *guards: str) -> Transition:
    """Something that these guards did not let pass."""
    failed = tuple(FailedVerdict(guard, "", "") for guard in guards)
    state = TrainerState.AWAKE
    at = (0.0, 0.0, 0.0)
    return Transition(Outcome.REFUSED, 1, 1, event, "", state, state, *at, None, {}, {}, (), {}, failed, "")


def test_a_log_of_countless_names_is_counted_within_bounds() -> None:
    """What is too much is counted together, and nothing is lost."""
    counter = RunCounter()
    for index in range(KEYS_MAX + 50):
        counter.see(refused(f"call-{index}"))
    for index in range(GUARDS_MAX + 7):
        counter.see(refused("call-0", f"guard-{index}"))
    counts = counter.counts()

    assert len(counts.refused) == KEYS_MAX + 1
    assert counts.refused[OTHER, OTHER] == 50
    assert len(counts.guards["awake", "call-0"]) == GUARDS_MAX + 1
    assert counts.guards["awake", "call-0"][OTHER] == 7
