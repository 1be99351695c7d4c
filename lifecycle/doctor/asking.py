"""Asks in another process, which may end as it likes; within a time, whatever it does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any, Final

from lifecycle.audit.plain import redact

PROGRAMS: Final = Path(__file__).parent / "ask"
ASK_S: Final = 120.0
_WHY_CHARACTERS_MAX: Final = 300
_at_once = BoundedSemaphore(2)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program said.

    Attributes:
        said: its JSON object, empty when it said none.
        why: why it said none.
    """

    said: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""


def ask(
    program: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    timeout_s: float = ASK_S,
    folder: Path = PROGRAMS,
) -> Answer:
    """Run a program of :mod:`lifecycle.doctor.ask` and take its answer. Never raises; two run at a time.

    Args:
        program: its name.
        arguments: of its command line.
        env: added to the environment.
        timeout_s: it is ended then.
        folder: where the programs lie.
    """
    command = [sys.executable, "-P", str(folder / f"{program}.py"), *arguments]
    try:
        with _at_once:
            done = _run(command, {**os.environ, **(env or {})}, timeout_s)
    except subprocess.TimeoutExpired:
        return Answer(why=f"it did not end within {timeout_s:g} s")
    except OSError as error:
        return Answer(why=f"no process could be started: {error}")
    if done.returncode:
        return Answer(why=f"{_ended(done.returncode)}: {_last_line(done.stderr)}".removesuffix(": "))
    try:
        said = json.loads(_last_line(done.stdout))
    except ValueError:
        said = None
    return Answer(said) if isinstance(said, dict) else Answer(why="it gave no answer")


def _run(command: list[str], env: Mapping[str, str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - a program of our own
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )


def _ended(code: int) -> str:
    """How it ended, as a shell's user knows it."""
    return f"its process was ended by {signal.Signals(-code).name}" if code < 0 else f"its process ended with {code}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return redact(lines[-1]) if lines else ""
