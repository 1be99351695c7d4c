"""Who answers at an engine's URL is found out without telling it to do anything."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from lifecycle.doctor.findings import Engine
from lifecycle.doctor.judge_engine import ENDPOINTS, engine_line
from lifecycle.doctor.lines import Status
from lifecycle.doctor.look_engine import engine

VLLM_INFO = {
    "vllm_config": {
        "instance_id": "i",
        "device_config": {"device": "cuda"},
        "lora_config": {"max_loras": 4},
        "model_config": {"enable_sleep_mode": True},
        "parallel_config": {"_api_process_count": 1},
    }
}
SGLANG_INFO = {"version": "0.5.23", "random_seed": 1, "enable_lora": True, "enable_memory_saver": True}


class Server(ThreadingHTTPServer):
    """Answers GET of some paths, has some more, and notes every method that it is called with."""

    def __init__(self, answers: Mapping[str, Any], has: tuple[str, ...] = (), status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers, self.has, self.status = dict(answers), {*answers, *has}, status
        self.says: int | None = None
        self.methods: set[str] = set()
        self.tokens: set[str | None] = set()
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_OPTIONS(self) -> None:
        self._answer(405 if self._path() in self.server.has else 404, {"detail": "no"})

    def do_GET(self) -> None:
        if self.server.says is not None:
            self._answer(self.server.says, {})
            return
        found = self.server.answers.get(self._path())
        self._answer(404 if found is None else self.server.status, found)

    def do_POST(self) -> None:
        self._answer(200, {})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""

    def _path(self) -> str:
        return self.path.partition("?")[0]

    def _answer(self, status: int, body: Any) -> None:
        self.server.methods.add(self.command)
        self.server.tokens.add(self.headers.get("authorization"))
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@pytest.fixture
def serve() -> Iterator[Any]:
    """Starts servers, and ends them."""
    running: list[tuple[Server, Thread]] = []

    def start(*args: Any, **keywords: Any) -> Server:
        server = Server(*args, **keywords)
        thread = Thread(target=server.serve_forever)
        thread.start()
        running.append((server, thread))
        return server

    yield start
    for server, thread in running:
        server.shutdown()
        server.server_close()
        thread.join()


def _vllm(info: Any = VLLM_INFO) -> dict[str, Any]:
    return {"/version": {"version": "0.32.1"}, "/server_info": info, "/v1/models": {"data": [{"id": "base"}]}}


def test_a_vllm_server_with_everything(serve: Any) -> None:
    """Its version and what it was started with are read; it is asked only, with the token."""
    server = serve(_vllm(), ENDPOINTS["vLLM"])

    assert engine(server.url, "a-token") == Engine(server.url, "vLLM", "0.32.1")
    assert server.methods == {"GET", "OPTIONS"}
    assert server.tokens == {"Bearer a-token"}


def test_a_vllm_server_without_its_switches_lacks_endpoints(serve: Any) -> None:
    """Those that it was not started with."""
    served = {"/version": {"version": "0.32.1"}}
    found = engine(serve(served).url, None)

    assert found.missing == ENDPOINTS["vLLM"]
    assert "VLLM_SERVER_DEV_MODE=1" in engine_line(found).todo
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1" in engine_line(found).todo


def test_what_a_client_would_refuse_is_said_in_its_words(serve: Any) -> None:
    """Such as a server without LoRA."""
    info = {"vllm_config": {**VLLM_INFO["vllm_config"], "lora_config": None}}

    found = engine(serve(_vllm(info), ENDPOINTS["vLLM"]).url, None)

    assert "it serves no adapters" in found.why
    assert engine_line(found).status is Status.BROKEN


def test_a_vllm_server_that_cannot_sleep_is_said_to(serve: Any) -> None:
    """It can be used where it shares no device."""
    config = {**VLLM_INFO["vllm_config"], "model_config": {"enable_sleep_mode": False}}

    found = engine(serve(_vllm({"vllm_config": config}), ENDPOINTS["vLLM"]).url, None)

    assert not found.sleeps
    assert engine_line(found).status is Status.WARNING


def test_an_sglang_server_with_everything(serve: Any) -> None:
    """It is told from vLLM by an endpoint of its own. A GET there would release its memory: it is not sent."""
    server = serve({"/server_info": SGLANG_INFO}, ENDPOINTS["SGLang"])

    assert engine(server.url, None) == Engine(server.url, "SGLang", "0.5.23")
    assert server.methods == {"GET", "OPTIONS"}


@pytest.mark.parametrize(
    ("change", "why", "sleeps"),
    [
        ({"enable_lora": False}, "it takes no adapters", True),
        ({"dp_size": 2}, "several replicas", True),
        ({"enable_memory_saver": False}, "", False),
        ({"random_seed": None}, "names neither startup_time nor random_seed", True),
    ],
)
def test_an_sglang_server_that_was_started_otherwise(
    change: dict[str, Any],
    why: str,
    sleeps: bool,  # noqa: FBT001
    serve: Any,
) -> None:
    """What its client would refuse."""
    found = engine(serve({"/server_info": SGLANG_INFO | change}, ENDPOINTS["SGLang"]).url, None)

    assert why in found.why
    assert bool(found.why) is bool(why)
    assert found.sleeps is sleeps


def test_an_sglang_server_that_says_nothing_of_itself_lacks_that(serve: Any) -> None:
    """An old one."""
    found = engine(serve({}, ("/release_memory_occupation",)).url, None)

    assert found.kind == "SGLang"
    assert "/server_info" in found.missing


def test_another_server_is_no_engine(serve: Any) -> None:
    """It answers, and has nothing of either."""
    server = serve({"/index.html": {}})

    assert engine(server.url, None) == Engine(server.url)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (200, "it answers whatever it is asked"),
        (401, "it wants a token (401); set ADAPTER_LIFECYCLE_ENGINE_TOKEN"),
        (403, "it wants a token (403)"),
        (307, "it answers 307, look elsewhere"),
    ],
)
def test_who_answers_every_path_alike_is_not_taken_for_an_engine(serve: Any, status: int, why: str) -> None:
    """Nothing follows from what it has; what is in the way is said."""
    server = serve({}, (*ENDPOINTS["SGLang"], *ENDPOINTS["vLLM"]))
    server.says = status

    line = engine_line(engine(server.url, None))

    assert line.status is Status.BROKEN
    assert line.found.startswith(f"{server.url}: {why}")
    assert "SGLang at" not in line.found


def test_an_engine_that_fails_says_how(serve: Any) -> None:
    """Its answer is an error."""
    found = engine(serve(_vllm(), ENDPOINTS["vLLM"], status=500).url, None)

    assert "failed there with 500" in found.why


def test_nobody_is_there_and_no_credentials_are_told(serve: Any) -> None:
    """The URL is shown without them."""
    server = serve({})
    port = server.server_port
    server.socket.close()

    found = engine(f"http://user:hunter2@127.0.0.1:{port}", None)

    assert found.url == f"http://127.0.0.1:{port}"
    assert found.why
    assert "hunter2" not in f"{found} {engine_line(found)}"


@pytest.mark.parametrize(
    "url",
    [
        *("", "ftp://host", "http://user:hunter2@host:port", "http://user:hunter2/@host:1", "http://[::1"),
        *("http://a b:1", "http://a\x00:1", "http://host:1/\x1b[2J", f"http://{'a' * 300}:1"),
    ],
)
def test_a_url_that_is_none_is_a_line_too(url: str) -> None:
    """Without its text, which may hold a secret."""
    line = engine_line(engine(url, None))

    assert line.status is Status.BROKEN
    assert "the engine's URL" in line.found
    assert "HOST:PORT" in line.found + line.todo
    assert "hunter2" not in line.found


def test_without_httpx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked."""
    monkeypatch.setitem(sys.modules, "httpx", None)
    monkeypatch.delitem(sys.modules, "lifecycle.engines.http", raising=False)

    assert "adapter-lifecycle[engines]" in engine("http://127.0.0.1:1", None).why
