"""What every test shares: fixed seeds, few threads, and no skip that nobody notices."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

SKIPPED: list[str] = []


@pytest.fixture(autouse=True)
def seeds() -> Iterator[None]:
    """Every test starts from the same random numbers, on one thread, whatever ran before it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - seeds libraries that use the global generator
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a skipped test, unless it needs a GPU."""
    if report.skipped and "gpu" not in report.keywords:
        SKIPPED.append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a skipped module."""
    if report.skipped:
        SKIPPED.append(report.nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker process has noted: skipped modules it tells nobody by itself."""
    told = getattr(node, "workeroutput", {})  # a worker that died has none, and is a failure of its own
    SKIPPED.extend(set(told.get("skipped", ())) - set(SKIPPED))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where ADAPTER_LIFECYCLE_NO_SKIPS is set, a skip without the mark ``gpu`` fails the run."""
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["skipped"] = SKIPPED
    elif SKIPPED and os.environ.get("ADAPTER_LIFECYCLE_NO_SKIPS"):
        print("\nskipped without the mark gpu:", *SKIPPED, sep="\n  ")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
