"""The store outside the ranks: a small process of its own, so that no rank's end takes it along.

A launcher starts it before the ranks and gives them its address::

    python -m lifecycle.distributed.store --host 127.0.0.1     # prints HOST:PORT, runs until it is ended

Everybody who can connect can read and write it. It listens on the loopback interface unless it is told otherwise;
across nodes, give it an address of a network that only the job can reach.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

from lifecycle.distributed.hosting import LOOPBACK, StoreServer
from lifecycle.errors import ConfigError


def main(arguments: Sequence[str] | None = None) -> None:
    """Host the store until SIGTERM or SIGINT, or with ``--until-eof`` until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m lifecycle.distributed.store", description=main.__doc__)
    parser.add_argument("--host", default=LOOPBACK, help="address to listen on (default: loopback)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: one that is free)")
    parser.add_argument("--until-eof", action="store_true", help="end with the launcher that holds the other end")
    given = parser.parse_args(arguments)
    ended = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        ended.set()

    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, end)
    try:
        server = StoreServer(given.host, given.port)
    except ConfigError as error:
        parser.exit(2, f"{error}\n")
    with server:
        print(server.address, flush=True)  # noqa: T201 - what the launcher reads
        if given.until_eof:
            threading.Thread(target=_wait_for_eof, args=(ended,), daemon=True).start()
        ended.wait()


def _wait_for_eof(ended: threading.Event) -> None:
    sys.stdin.buffer.read()
    ended.set()


if __name__ == "__main__":
    main()
