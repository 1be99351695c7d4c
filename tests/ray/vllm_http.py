"""The vLLM server of the engines' tests behind a real address of the loopback interface."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from tests.engines.vllm_server import FakeVllm


@contextmanager
def vllm_at_a_url(server: FakeVllm, token: str) -> Iterator[str]:
    """Its URL. Who does not give the token is turned away."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            held = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer = httpx.Response(401)
            if self.headers.get("Authorization") == f"Bearer {token}":
                answer = server(httpx.Request(self.command, f"http://fake{self.path}", content=held))
            self.send_response(answer.status_code)
            self.send_header("Content-Type", answer.headers.get("Content-Type", "text/plain"))
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = _serve  # noqa: N815 - the words of http.server

        def log_message(self, *_: Any) -> None:
            """Nothing is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()
        thread.join(10)
