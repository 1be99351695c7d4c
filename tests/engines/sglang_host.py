"""The host that an SGLang server runs on: a real socket, faults on request, and a start after an end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.engines.sglang_rules import GETS, POSTS, Died, Refused, Sglang, Start

ADMIN = frozenset(POSTS) - {"/generate"} | {"/flush_cache"}


@dataclass(frozen=True)
class Heard:
    """One request as it came in."""

    method: str
    path: str
    query: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Fault:
    """How a request fails: a status, ``drop`` (the connection ends) or ``hang``; before or after it was done."""

    how: int | str
    done: bool = False


class SglangHost:
    """A server at one address.

    Args:
        start: what it is started with, each time.

    Attributes:
        process: the process that runs, or has ended.
        heard: every request, in order.
        faults: path to the faults of the next requests to it, one each.
        starts_anew_at: the next request to this path is the first that a new process gets.
    """

    def __init__(self, start: Start) -> None:
        self.start = start
        self.process = Sglang(start)
        self.heard: list[Heard] = []
        self.faults: dict[str, list[Fault]] = {}
        self.starts_anew_at = ""
        self._patient = threading.Event()
        self._listen(0)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._port}"

    def asked(self, *paths: str) -> list[str]:
        """Paths of what it was told, in order: all but questions and marks, or only these."""
        quiet = {*GETS, "/ready", "/update_weight_version", "/flush_cache"}
        return [one.path for one in self.heard if (one.path in paths if paths else one.path not in quiet)]

    def bodies(self, path: str) -> list[Any]:
        """What came with each request to *path*."""
        return [one.body for one in self.heard if one.path == path]

    def kill(self) -> None:
        """The process ends."""
        self._patient.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def restart(self, **changes: Any) -> None:
        """A new process at the same address, started with the same options, or others."""
        self.kill()
        self.start = replace(self.start, **changes)
        self.process = Sglang(self.start)
        self._listen(self._port)

    def _listen(self, port: int) -> None:
        self._patient.clear()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.005,), daemon=True)
        self._thread.start()

    def answer(self, heard: Heard, token: str | None) -> tuple[int, Any] | None:
        """Status and body; None: the connection ends."""
        self.heard.append(heard)
        if heard.path == self.starts_anew_at:
            self.process, self.starts_anew_at = Sglang(self.start), ""
        fault = next(iter(self.faults.get(heard.path, [])), None)
        if fault is not None:
            self.faults[heard.path].pop(0)
            if fault.done:
                self._done(heard, token)
            if fault.how == "hang":
                self._patient.wait(10)
            return (fault.how, "fault") if isinstance(fault.how, int) else None
        return self._done(heard, token)

    def _done(self, heard: Heard, token: str | None) -> tuple[int, Any] | None:
        process = self.process
        if not self._allows(heard.path, token):
            return 401, {"error": "Unauthorized"}
        try:
            return _route(process, heard)
        except Refused as refused:
            return refused.status, refused.body
        except KeyError as missing:
            return 400, {"error": {"message": f"Field required: {missing}"}}
        except Died:
            threading.Thread(target=self.kill, daemon=True).start()
            return None

    def _allows(self, path: str, token: str | None) -> bool:
        if path.startswith("/ready"):
            return True
        if path in ADMIN and self.start.admin_api_key:
            return token == self.start.admin_api_key
        return self.start.api_key is None or token == self.start.api_key


def _route(process: Sglang, heard: Heard) -> tuple[int, Any]:
    if heard.path == "/ready":
        return (503 if process.is_pause else 200), ""
    if heard.path == "/flush_cache":
        return 200, process.flush_cache(float(heard.query.get("timeout", 0)))
    if heard.method == "GET" and heard.path in GETS:
        return 200, GETS[heard.path](process)
    if heard.method == "POST" and heard.path in POSTS:
        return 200, POSTS[heard.path](process, heard.body)
    return 404, {"detail": "Not Found"}


def _handler(host: SglangHost) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            parts = urlsplit(self.path)
            query = {key: found[-1] for key, found in parse_qs(parts.query).items()}
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
            body = json.loads(content) if content else None
            token = (self.headers.get("authorization") or "").removeprefix("Bearer ") or None
            answer = host.answer(Heard(self.command, parts.path, query, body), token)
            if answer is None:
                self.close_connection = True
                return
            status, said = answer
            sent = said.encode() if isinstance(said, str) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "text/plain" if isinstance(said, str) else "application/json")
            self.send_header("content-length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    return Handler


@contextmanager
def sglang(start: Start) -> Iterator[SglangHost]:
    """A server that runs inside the block."""
    host = SglangHost(start)
    try:
        yield host
    finally:
        host.process.busy.clear()
        with host.process.changed:
            host.process.aborted += 1
            host.process.is_pause = False
            host.process.changed.notify_all()
        host.kill()
