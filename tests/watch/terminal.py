"""A terminal in which the command runs: its own pseudo-terminal, of a size that the test chooses."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[2]
PROGRAM = "from lifecycle.cli.start import main; main()"
_COMMANDS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
WAIT_S = 90.0


def command(*words: str) -> list[str]:
    """The command line, run by this Python."""
    return [sys.executable, "-c", PROGRAM, *words]


class Terminal:
    """A command in a terminal.

    Args:
        words: of the command.
        columns: of the terminal.
        lines: the same.
        environment: besides that of the test.
    """

    def __init__(self, words: Sequence[str], columns: int = 100, lines: int = 40, **environment: str) -> None:
        self.written = ""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            command(*words),
            cwd=ROOT,
            env=kept | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"} | environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 - a child of a test, without threads
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)

    @property
    def text(self) -> str:
        """What was written, without commands to the terminal."""
        return _COMMANDS.sub("", self.written)

    def until(self, is_there: Callable[[str], bool]) -> None:
        """Read until something was written."""
        ends_s = time.monotonic() + WAIT_S
        while not is_there(self.text):
            assert time.monotonic() < ends_s, self.text[-2_000:]
            self._read(0.2)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def end(self) -> int:
        """Read the rest. The exit code."""
        ends_s = time.monotonic() + WAIT_S
        while self.process.poll() is None or self._read(0.0):
            assert time.monotonic() < ends_s, self.text[-2_000:]
            self._read(0.1)
        return self.process.returncode

    def _read(self, wait_s: float) -> bool:
        if not select.select([self._ours], [], [], wait_s)[0]:
            return False
        try:
            found = os.read(self._ours, 65_536)
        except OSError:  # the other side is closed
            return False
        self.written += found.decode(errors="replace")
        return bool(found)


def _take_terminal() -> None:
    """Ctrl-C in this terminal is for this process."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
