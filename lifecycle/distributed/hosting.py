"""The store outside the ranks, and its address. It holds a few hundred bytes a rank and generation."""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any, Final, Self

import torch.distributed as dist

from lifecycle.errors import ConfigError

LOOPBACK: Final = "127.0.0.1"
_BACKLOG: Final = 4096
_PORT_MAX: Final = 65535
_dist: Any = dist  # its type stubs leave its stores out


class StoreServer:
    """Hosts the store in this process, until it is closed.

    Args:
        host: the address to listen on; loopback unless told otherwise.
        port: 0 takes one that is free.

    Attributes:
        address: ``HOST:PORT``, for the ranks.

    Raises:
        ConfigError: it cannot listen there.
    """

    def __init__(self, host: str = LOOPBACK, port: int = 0) -> None:
        if not 0 <= port <= _PORT_MAX:  # left to the look-up, a larger one becomes another one
            raise ConfigError(
                f"the store cannot listen on port {port}; use 1 to {_PORT_MAX}, or 0 for one that is free"
            )
        try:
            family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = socket.socket(family, socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # a name that no host can have is of the second kind
            raise ConfigError(
                f"the store cannot listen on {host!r}: {error}; use an address of this machine"
            ) from error
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise ConfigError(f"the store cannot listen on {host}:{port}: {error}; use another address") from error
        port = listener.getsockname()[1]
        self.address = f"{host}:{port}"
        # Handed over open: left to itself, the store listens on every interface. It closes the socket when it goes.
        self._store: Any = _dist.TCPStore(
            host,
            port,
            is_master=True,
            master_listen_fd=listener.detach(),
            wait_for_workers=False,
            timeout=timedelta(seconds=60),
        )

    def close(self) -> None:
        """Stop listening. Idempotent."""
        self._store = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``.

    Raises:
        ConfigError: it is no such address.
    """
    host, _, port = str(address).rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= _PORT_MAX:
        raise ConfigError(f"{address!r} is no address of a store; use HOST:PORT, as the store prints it")
    return host, int(port)
