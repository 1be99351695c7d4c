"""Names in the pages are those of the code: classes, attributes, arguments, metrics, guards, effects, options."""

from __future__ import annotations

import importlib
import re
from typing import Final

import pytest
import typer.main
import yaml
from typer.core import TyperGroup

from lifecycle.cli.app import app
from lifecycle.metrics.families import FAMILIES
from states import TABLE, Effect, Facts, TrainerEvent, TrainerState
from states.admission import decide_admission
from states.guards_snapshots import SNAPSHOT_TABLE
from tests.docs.blocks import PAGES, ROOT, code_of, prose_of, text_of
from tests.docs.names import Known, calls_in, classes_in, dotted_in, known, spans_of, unknown_keywords

THEIR_CLASSES: Final = {
    "ActorRolloutRefWorker", "AdapterStore", "DistributedDataParallel", "KeyError", "LoraSignature", "RuntimeError",
    "ValueError", "WeightSource",
}  # fmt: skip
"""Of Python, PyTorch, vLLM and the frameworks that a page compares with."""

THEIR_CALLS: Final = {
    "GPUState", "_maybe_get_cpu_backup", "clone", "configure_subprocess", "empty_cache", "exit", "help",
    "increase", "prepare_for_generation", "push_to_gateway", "rate", "start_param_sync", "swap_to", "sync_weights",
    "to", "write_to_textfile", "zero_grad",
}  # fmt: skip
"""Of Python, PyTorch, the memory saver, Prometheus, and the frameworks that a page compares with."""

THEIR_OPTIONS: Final = {
    "--api-key", "--api-server-count", "--data-parallel-size", "--enable-lora", "--enable-memory-saver",
    "--enable-sleep-mode", "--enable-weights-cpu-backup", "--enforce-eager", "--gpu-memory-utilization",
    "--lora-target-modules", "--max-cpu-loras", "--max-loaded-loras", "--max-lora-rank", "--max-loras",
    "--mem-fraction-static",
}  # fmt: skip
"""Of vLLM and SGLang."""

OTHER_OPTIONS: Final = {"--help", "--host", "--until-eof"}
"""Of every command, and of ``python -m lifecycle.distributed.store``."""

PREFIX: Final = "adapter_lifecycle_"
LABELS: Final = {family.name: {*family.labels, "model", "rank"} for family in FAMILIES}
METRIC: Final = re.compile(rf"\b{PREFIX}(\w+)(?:\{{([^}}]*)\}})?")
GUARDS: Final = {guard.name for row in TABLE for guard in (*row.when, *row.guards)} | {
    guard.name for guards in SNAPSHOT_TABLE.values() for guard in guards
}
REFUSING: Final = {guard.name for row in TABLE for guard in row.guards}
CALLS_ALONE: Final = {"the-event-leaves-this-state"} | {
    name
    for path in (ROOT / "lifecycle").rglob("*.py")
    for name in re.findall(r'_refusal\("([a-z-]+)"', path.read_text(encoding="utf-8"))
}
"""Guards of no row: of an event that does not leave a state, and of calls that are no events."""

ADMITTING: Final = {
    verdict.name
    for refusal in [decide_admission(TrainerState.FAULTED, Facts())]
    if refusal is not None
    for verdict in refusal.verdicts
}


def first_cells(page: str, head: str) -> list[str]:
    """What stands in the first column of the tables whose first head cell is *head*, without backticks."""
    found, inside = [], False
    for line in prose_of(page).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            inside = False
        elif cells[0] == head:
            inside = True
        elif inside and not cells[0].startswith("---"):
            found += [one.strip().strip("`") for one in cells[0].split(", ")]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_classes_and_their_attributes_exist(page: str) -> None:
    """Where a page names a class between backticks, and an attribute behind a dot; others are in ``THEIR_CLASSES``."""
    members = known().members
    unknown = {
        f"{name}.{attribute}"
        for name, attribute in classes_in(page)
        if name not in THEIR_CLASSES and (name not in members or (attribute and attribute not in members[name]))
    }

    assert unknown == set()


@pytest.mark.parametrize("page", PAGES)
def test_calls_and_their_arguments_exist(page: str) -> None:
    """`register(name, resume=...)` names a function of the project, and an argument that it takes.

    A function of another library is listed in ``THEIR_CALLS``.
    """
    arguments = known().arguments
    unknown = [
        (name, keywords)
        for name, keywords in calls_in(page)
        if name not in THEIR_CALLS and (name not in arguments or unknown_keywords(name, keywords, arguments))
    ]

    assert unknown == []


@pytest.mark.parametrize("page", PAGES)
def test_names_below_a_package_can_be_imported(page: str) -> None:
    """`lifecycle.aio.AsyncLifecycle`; records of a log and attributes of a span have names of their own."""
    others = {name for name in dotted_in("audit-log.md") if is_a_record(name)} | set(SPANS)

    assert [name for name in dotted_in(page) if name not in others and not can_be_imported(name)] == []


SPANS: Final = tuple(name for name in dotted_in("metrics.md") if name.count(".") == 1)
"""`lifecycle.edge` and so on; tests/metrics and tests/test_tracing.py look at them."""


def is_a_record(name: str) -> bool:
    """Whether records of a log are called so."""
    records = {"opened", "began", "moved", "failed", "refused", "unchanged", "noted"}
    return name.removeprefix("lifecycle.") in records


def can_be_imported(name: str) -> bool:
    """Whether it is a module, or an attribute of one."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return bool(module) and can_be_imported(module) and hasattr(importlib.import_module(module), attribute)
    return True


@pytest.mark.parametrize("page", PAGES)
def test_options_exist(page: str) -> None:
    """`--figure` is an option of some command of ours."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    ours = {
        opt for command in group.commands.values() for one in command.params for opt in (*one.opts, *one.secondary_opts)
    }
    named = {option for span in spans_of(page) for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", span)}

    assert named - ours - THEIR_OPTIONS - OTHER_OPTIONS == set()


@pytest.mark.parametrize("page", PAGES)
def test_metrics_have_the_names_and_labels_that_are_exported(page: str) -> None:
    """With their prefix, wherever they stand; of a histogram there are more."""
    for name, selectors in METRIC.findall(text_of(page)):
        family = re.sub(r"_(sum|count|bucket)$", "", name) if name not in LABELS else name
        assert family in LABELS, name
        assert set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)", selectors)) <= LABELS[family], name


def test_what_is_to_be_watched_is_a_metric() -> None:
    """The table of the guide to operating, whose names have no prefix."""
    watched = [re.split(r"[{]", one)[0] for one in first_cells("operating.md", "metric")]

    assert len(watched) >= 6
    assert set(watched) <= LABELS.keys()


def test_alerts_are_rules_that_say_what_to_do() -> None:
    """A rule file as Prometheus reads it: each has an expression over one of our metrics, and a sentence."""
    (text,) = code_of("operating.md", "yaml")
    rules = [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]

    assert len({rule["alert"] for rule in rules}) == len(rules) >= 6
    for rule in rules:
        assert METRIC.search(rule["expr"]), rule["alert"]
        assert rule["expr"].count("(") == rule["expr"].count(")"), rule["alert"]
        assert rule["annotations"]["do"], rule["alert"]
        assert rule.keys() <= {"alert", "expr", "for", "annotations"}
        assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m")), rule["alert"]


def test_every_guard_that_refuses_has_its_line_and_no_other() -> None:
    """What to look at first, and what to do."""
    told = first_cells("operating.md", "guard")

    assert sorted(told) == sorted(set(told))
    assert set(told) == REFUSING | CALLS_ALONE | ADMITTING


@pytest.mark.parametrize("page", PAGES)
def test_what_a_sentence_calls_a_guard_is_one(page: str) -> None:
    """Of the table, of the calls on named copies, or of no row."""
    named = re.findall(r"\bguard\s+`([a-z-]+)`", prose_of(page)) + re.findall(r"`([a-z-]+)`\s+guard\b", prose_of(page))

    assert set(named) - GUARDS - CALLS_ALONE == set()


def test_a_guard_stands_beside_events_that_ask_it() -> None:
    """The second column; words that are no event say more than one call."""
    lines = [line.strip("|").split(" | ") for line in prose_of("operating.md").splitlines() if line.startswith("| `")]
    asks = {(guard.name, str(row.event)) for row in TABLE for guard in row.guards}
    told = [(cells[0].strip().strip("`"), re.findall(r"`(\w+)`", cells[1])) for cells in lines if len(cells) > 1]
    named = [(name, event) for name, events in told if name in REFUSING for event in events if event in {*TrainerEvent}]

    assert len(named) > len(REFUSING) / 2
    assert set(named) - asks == set()


def test_effects_in_the_guide_to_operating_exist() -> None:
    """By the names of the log."""
    assert set(first_cells("operating.md", "effect")) <= {str(effect) for effect in Effect}


def test_what_is_looked_for_is_found_where_it_is_wrong() -> None:
    """A name that is gone, an argument that nobody takes, an attribute of a class above."""
    small = Known()
    small.read("class A:\n    x: int\n    def __init__(self, y):\n        self.z: int = y\nclass B(A):\n    pass\n")
    small.read("def f(a, *, b): ...\ndef g(**rest): ...\n")
    small.inherit()

    assert small.members["B"] == {"x", "z", "__init__"}
    assert "y" in small.arguments["B"]
    assert unknown_keywords("f", ("b", "c"), small.arguments) == ["c"]
    assert unknown_keywords("g", ("c",), small.arguments) == []
    assert can_be_imported("lifecycle.TrainerLifecycle")
    assert not can_be_imported("lifecycle.TrainerDeathcycle")
    assert not can_be_imported("lifecycle.nothing.here")
