"""An object in a fork: calls are sent there, answers come back, and the end of the process is seen from outside."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any


class Ended(AssertionError):
    """The process with the object has ended in a call."""


class Worker:
    """A fork of this process in which an object is made.

    Args:
        make: makes it, in the fork. Its ``do`` is what :meth:`call` calls.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._here, there = Pipe()
        self._child = os.fork()
        if self._child == 0:
            self._here.close()  # or the end of the other process would never be seen
            try:
                _serve(make, there)
            finally:
                os._exit(3)
        there.close()

    def call(self, *call: object) -> object:
        """The answer.

        Raises:
            Ended: there will be none.
            AssertionError: what the object found to be wrong.
        """
        try:
            self._here.send(call)
            answer, trouble = self._here.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise Ended(f"{call} ended the process") from None
        if trouble:
            raise AssertionError(f"{call}: {trouble}")
        return answer

    def close(self) -> None:
        """End it."""
        self._here.close()
        os.waitpid(self._child, 0)


def _serve(make: Callable[[], Any], pipe: Connection) -> None:
    served = make()
    while True:
        try:
            call = pipe.recv()
        except EOFError:
            os._exit(0)
        try:
            answer, trouble = served.do(*call), ""
        except Exception:  # noqa: BLE001  # it is shown by the other process
            answer, trouble = None, traceback.format_exc()
        pipe.send((answer, trouble))
