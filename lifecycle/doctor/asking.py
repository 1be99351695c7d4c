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

from lifecycle.redaction import redact

PROGRAMS: Final = Path(__file__).parent / "ask"
ASK_S: Final = 120.0
_WHY_CHARACTERS_MAX: Final = 300
_at_once = BoundedSemaphore(2)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program said.

    Attributes:
        said: the last JSON object that it printed, empty when it printed none.
        why: why it did not come to its end, or said none; empty when all is well.
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
    except subprocess.TimeoutExpired as late:
        return Answer(_said(late.stdout), f"it did not end within {timeout_s:g} s")
    except (OSError, ValueError) as error:  # ValueError: a null byte in the environment or an argument
        return Answer(why=f"no process could be started: {error}")
    said = _said(done.stdout)
    if done.returncode:
        return Answer(said, f"{_ended(done.returncode)}: {_last_line(done.stderr)}".removesuffix(": "))
    return Answer(said, "" if said else "it gave no answer")


def _run(command: list[str], env: Mapping[str, str], timeout_s: float) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # noqa: S603 - a program of our own
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )


def _ended(code: int) -> str:
    """How it ended, as a shell's user knows it."""
    return f"its process was ended by {signal.Signals(-code).name}" if code < 0 else f"its process ended with {code}"


def _said(printed: bytes | None) -> dict[str, Any]:
    """The last object among what it printed; packages print what they like before and after it."""
    for line in reversed((printed or b"").splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return {}


def _last_line(printed: bytes) -> str:
    lines = [line for line in printed.decode(errors="replace").splitlines() if line.strip()]
    return shown(lines[-1]) if lines else ""


def shown(text: str) -> str:
    """What somebody else said, as it may be shown: on one line, not for ever, without secrets."""
    line = redact(" ".join(text.split()))
    return line if len(line) <= _WHY_CHARACTERS_MAX else f"{line[:_WHY_CHARACTERS_MAX]}..."
