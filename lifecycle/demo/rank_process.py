"""The process of one rank, as the command holds it."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Final

from lifecycle.children import child_environment
from lifecycle.demo.messages import Failure, Message, Start, decoded, encoded

_READ_BYTES: Final = 1 << 16
_END_S: Final = 10.0
_TOLD: Final = 400


class RankProcess:
    """One rank. It is ended whatever happens: by :meth:`close`, or with the pipe that this process holds.

    Args:
        start: what it is to do.

    Attributes:
        rank: its number.
        pid: of its process.
        end: what it ended with, a message with a report or a failure; None as long as it runs.
    """

    def __init__(self, start: Start) -> None:
        self.rank = start.seat.rank
        self.end: Message | None = None
        self._read = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lifecycle.demo.rank"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=child_environment(GLOO_SOCKET_IFNAME="lo"),
            bufsize=0,
            process_group=0,  # Ctrl-C in a terminal is for the command, which ends its ranks
        )
        self.pid = self._process.pid
        self._tell(start)

    def fileno(self) -> int:
        """The descriptor that can be read when the rank has said something, or has ended."""
        assert self._process.stdout is not None  # it is a pipe
        return self._process.stdout.fileno()

    def hear(self) -> Iterator[Message]:
        """What the rank has said since the last call; blocks when that is nothing."""
        assert self._process.stdout is not None  # it is a pipe
        data = self._process.stdout.read(_READ_BYTES)
        *lines, self._read = (self._read + data).split(b"\n")
        for line in lines:
            message = decoded(line, Message)
            if message.progress is None:
                self.end = message
            yield message
        if not data and self.end is None:
            self.end = Message(failure=self._without_a_word())
            yield self.end

    def close(self) -> None:
        """End the process if it has not ended, and wait for it. Idempotent."""
        if self.end is not None and self.end.report is not None:
            self._wait()
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._errors.close()

    def _tell(self, start: Start) -> None:
        assert self._process.stdin is not None  # it is a pipe
        try:
            self._process.stdin.write(encoded(start))
        except BrokenPipeError:
            return  # it has ended already; reading says how

    def _wait(self) -> int | None:
        try:
            return self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return None

    def _without_a_word(self) -> Failure:
        code = self._wait()
        if code is not None and code < 0:
            return Failure(self.rank, f"it was ended by {_signal_told(-code)}")
        self._errors.seek(0)
        said = " ".join(self._errors.read().decode(errors="replace").split())[-_TOLD:] or "it said nothing"
        return Failure(self.rank, f"it ended with code {code}: {said}")


def _signal_told(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    hint = "; memory may have run out, try fewer --ranks" if number == signal.SIGKILL else ""
    return f"signal {number} ({name}){hint}"
