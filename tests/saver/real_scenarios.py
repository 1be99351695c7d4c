"""Plays every scenario on the real library, each in a fork, and prints what was seen. Started by test_scenarios."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.saver.play import ENDS, Player
from tests.saver.proc import PAGE_BYTES
from tests.saver.real_port import Host, RealLibrary, RealPort
from tests.saver.scenarios import SCENARIOS, Scenario

HOSTS: tuple[Host, ...] = ("pinned", "mmap")
DEATHS = (1, -signal.SIGSEGV)  # it exits; for an unknown address it reads there to print it


def in_a_fork(work: Callable[[], Iterator[str]]) -> list[str]:
    """What the work yields, in a process of its own; ``ends`` when that did not end by itself."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 2
        try:
            for line in work():
                os.write(writer, f"{line}\n".encode())
            code = 0
        except BaseException:  # noqa: BLE001  # whatever it is, it must not end as this process would
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as lines:
        seen = lines.read().splitlines()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return [*seen, *([ENDS] if code in DEATHS else [] if code == 0 else [f"failed {code}"])]


def play(library: RealLibrary, scenario: Scenario, host: Host, folder: Path) -> Iterator[str]:
    """One scenario, on a device of its size."""
    library.driver.stub_leave_at_once()
    library.driver.stub_set_granularity(PAGE_BYTES)
    if scenario.device_bytes is not None:
        library.driver.stub_set_capacity(scenario.device_bytes)
    yield from Player(RealPort(library, str(folder), host), folder, PAGE_BYTES).play(scenario)


def main(stub: str) -> None:
    """One line of JSON a scenario and kind of host memory: the pictures, and the files left behind."""
    library = RealLibrary(Path(stub))
    for scenario in SCENARIOS.values():
        for host in HOSTS:
            with TemporaryDirectory() as folder:
                seen = in_a_fork(lambda s=scenario, h=host, f=folder: play(library, s, h, Path(f)))  # type: ignore[misc]
                left = len(list(Path(folder).iterdir()))
            print(json.dumps({"name": scenario.name, "host": host, "seen": seen, "left": left}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
