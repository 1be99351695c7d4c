"""What is said of who answers at an engine's URL."""

from __future__ import annotations

import pytest

from lifecycle.doctor.findings import Engine
from lifecycle.doctor.judge_engine import ENDPOINTS, engine_line
from lifecycle.doctor.lines import Status

URL = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("engine", "status", "found", "todo"),
    [
        (Engine(URL, "vLLM", "0.32.0"), Status.OK, f"vLLM 0.32.0 at {URL}", ""),
        (Engine(URL, "vLLM", ""), Status.OK, f"vLLM at {URL}", ""),
        (Engine(URL, "SGLang", "0.5.23"), Status.OK, "SGLang 0.5.23", ""),
        (Engine(URL, "vLLM", "0.320.1"), Status.WARNING, "0.320.1", "tried against 0.32"),
        (Engine(URL, "SGLang", "0.5.9"), Status.WARNING, "0.5.9", "tried against 0.5.23"),
        (Engine(URL, "vLLM", "0.32.0", sleeps=False), Status.WARNING, "memory back", "--enable-sleep-mode"),
        (Engine(URL, "SGLang", "0.5.23", sleeps=False), Status.WARNING, "memory back", "--enable-memory-saver"),
        (Engine(URL, "vLLM", "0.32.0", why="it serves no adapters"), Status.BROKEN, "no adapters", "docs/engines.md"),
        (Engine(URL), Status.BROKEN, "neither vLLM nor SGLang", "start the server"),
        (Engine(URL, why="found nobody"), Status.BROKEN, "found nobody", "start the server"),
    ],
)
def test_an_engine_answers_and_is_one_that_is_known(engine: Engine, status: Status, found: str, todo: str) -> None:
    """What is wrong with it, and how it is started right."""
    line = engine_line(engine)

    assert line.status is status
    assert found in line.found
    assert todo in line.todo
    assert bool(line.todo) is (status is not Status.OK)


@pytest.mark.parametrize(
    ("missing", "todo"),
    [
        (("/sleep",), "start it with VLLM_SERVER_DEV_MODE=1"),
        (("/v1/load_lora_adapter",), "start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"),
        (("/sleep", "/v1/load_lora_adapter"), "DEV_MODE=1, --enable-lora"),
    ],
)
def test_endpoints_that_are_missing_say_what_the_server_was_started_without(
    missing: tuple[str, ...], todo: str
) -> None:
    """Each is named."""
    line = engine_line(Engine(URL, "vLLM", "0.32.0", missing))

    assert line.status is Status.BROKEN
    assert f"lacks {', '.join(missing)}" in line.found
    assert todo in line.todo


def test_every_endpoint_of_an_older_sglang_asks_for_the_tested_one() -> None:
    """It has no switches for them."""
    line = engine_line(Engine(URL, "SGLang", "0.4", ENDPOINTS["SGLang"]))

    assert line.todo == "start it with SGLang 0.5.23"
