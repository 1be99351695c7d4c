"""A proxy in front of the server that fails on request: with 500, by hanging, by dropping the connection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

FAULTS = ("500-before", "500-after", "hang", "drop-before", "drop-after")
"""Before or after the server has heard the request."""


class FaultyProxy:
    """Forwards everything, but for the calls that are to fail.

    Attributes:
        heard: path of each call.
        before: called with the path of each call before it is forwarded.
    """

    def __init__(self, upstream: str) -> None:
        self.heard: list[str] = []
        self.before: Callable[[str], None] = lambda _: None
        self._fault: tuple[str, str, int] | None = None
        self.let_go = threading.Event()
        self.upstream = httpx.Client(base_url=upstream, timeout=120)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *how: _Handler(self, *how))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def fail(self, path: str, fault: str, *, at: int = 0) -> None:
        """The call number *at* of this path fails so, once."""
        self._fault = (path, fault, at)

    def close(self) -> None:
        """End it; what hangs is let go."""
        self.let_go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.upstream.close()

    def fault_of(self, path: str) -> str:
        """How this call fails, empty when it does not."""
        if self._fault is None or self._fault[0] != path:
            return ""
        _, fault, at = self._fault
        self._fault = (path, fault, at - 1) if at else None
        return "" if at else fault


class _Handler(BaseHTTPRequestHandler):
    """One call."""

    def __init__(self, proxy: FaultyProxy, *how: Any) -> None:
        self._proxy = proxy
        super().__init__(*how)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self._proxy.heard.append(path)
        self._proxy.before(path)
        fault = self._proxy.fault_of(path)
        if fault == "hang":
            self._proxy.let_go.wait(60)
        elif fault == "500-before":
            self._answer(500, b"a gateway's own trouble", "text/plain")
        elif fault != "drop-before":
            self._pass_on(body, fault)

    def _pass_on(self, body: bytes, fault: str) -> None:
        kind = {"content-type": self.headers.get("content-type", "application/json")}
        try:
            found = self._proxy.upstream.request(self.command, self.path, content=body, headers=kind)
        except httpx.HTTPError:
            return
        if fault == "500-after":
            self._answer(500, b"a gateway's own trouble", "text/plain")
        elif fault != "drop-after":
            self._answer(found.status_code, found.content, found.headers.get("content-type", ""))

    def _answer(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
