"""Rules about the code itself: layers, imports, sizes, and the public lists."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from states import TrainerMachine, TrainerState

ROOT = Path(__file__).parents[1]
MODULES = sorted((*(ROOT / "states").rglob("*.py"), *(ROOT / "lifecycle").rglob("*.py")))
LINES_MAX = 300
FUNCTION_LINES_MAX = 38
LONGER_FUNCTIONS: dict[str, int] = {}
HEAVY = (
    "peft",
    "transformers",
    "safetensors",
    "torch_memory_saver",
    "ray",
    "matplotlib",
    "megatron",
    "typer",
    "rich",
    "httpx",
    "opentelemetry",
    "prometheus_client",
)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _imported_by(statement: str) -> set[str]:
    program = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_a_module_can_be_read_in_one_sitting(path: Path) -> None:
    """At most 300 lines."""
    assert len(path.read_text().splitlines()) <= LINES_MAX


def _function_lines() -> dict[str, int]:
    """Lines of every function, its docstring included and its decorators not; of equal names the longest."""
    found: dict[str, int] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{_name(path)}:{node.name}"
                found[name] = max(found.get(name, 0), (node.end_lineno or 0) - node.lineno + 1)
    return found


def test_a_function_is_as_short_as_the_longest_one_so_far() -> None:
    """The bound is only ever lowered; what is longer is named, with its own bound."""
    lines = _function_lines()
    allowed = {name: LONGER_FUNCTIONS.get(name, FUNCTION_LINES_MAX) for name in lines}

    assert {name: count for name, count in lines.items() if count > allowed[name]} == {}
    assert max(count for name, count in lines.items() if name not in LONGER_FUNCTIONS) == FUNCTION_LINES_MAX


def test_an_exception_that_is_no_longer_needed_is_gone() -> None:
    """Each of them exists and is still longer than the bound."""
    lines = _function_lines()

    assert [name for name in LONGER_FUNCTIONS if lines.get(name, 0) <= FUNCTION_LINES_MAX] == []


def test_states_imports_neither_torch_nor_lifecycle_nor_structlog() -> None:
    """Decisions are pure: looked at in a fresh interpreter, with every module, pages and pictures too."""
    modules = sorted(f"states.{path.stem}" for path in (ROOT / "states").glob("*.py") if path.stem != "__init__")
    imported = _imported_by(f"import states, {', '.join(modules)}")

    assert imported & {"torch", "lifecycle", "structlog", "numpy", *HEAVY} == set()
    assert "transitions" in imported


def test_importing_lifecycle_needs_torch_transitions_and_structlog_only() -> None:
    """What is heavy is imported where it is used; structlog itself brings rich where it is installed."""
    needed = _imported_by("import torch, transitions, structlog")
    imported = _imported_by("import lifecycle; lifecycle.TrainerLifecycle")

    assert (imported - needed) & {*HEAVY, "msgspec", "psutil", "hypothesis", "pytest", "yaml"} == set()
    assert {"torch", "transitions", "structlog"} <= imported


def test_importing_lifecycle_alone_brings_no_package() -> None:
    """A public name brings them, when it is used: the doctor begins where one of them is broken."""
    assert _imported_by("import lifecycle") & {"torch", "transitions", "structlog", "states", *HEAVY} == set()


@pytest.mark.parametrize("package", ["states", "lifecycle"])
def test_the_public_names_are_a_sorted_list_of_what_exists(package: str) -> None:
    """``__all__`` names what there is, once, capitals first, then classes, then functions."""
    module = importlib.import_module(package)
    names = list(module.__all__)

    assert names == sorted(names, key=_kind_and_name)
    assert [name for name in names if not hasattr(module, name)] == []


def _kind_and_name(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


def test_no_trigger_walks_past_a_guard() -> None:
    """The library makes a ``to_*`` method for each state unless it is told not to."""
    machine = TrainerMachine(TrainerState.AWAKE)

    assert [name for name in dir(machine) if re.match(r"(may_)?to_", name)] == []


@pytest.mark.parametrize("package", ["states", "lifecycle"])
def test_a_package_says_that_it_is_typed(package: str) -> None:
    """``py.typed`` is shipped."""
    assert (ROOT / package / "py.typed").exists()


def test_the_code_names_no_path_of_a_machine() -> None:
    """No absolute path of somebody's home or scratch directory in shipped code."""
    found = [_name(path) for path in MODULES if re.search(r"[\"'](/home/|/root/|/work/|/tmp/)", path.read_text())]

    assert found == []


def test_torch_is_pinned_so_that_everyone_gets_the_same_build() -> None:
    """And every pin is exact."""
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]

    assert "torch==2.13.0" in pins
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9-]+==[\w.]+", pin)] == []
