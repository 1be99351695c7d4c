"""Calls to an engine over HTTP: what is tried again, what each answer means, and that no secret is ever shown."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from lifecycle.engines.http import BACKOFF_S, EngineHttp, said_object
from lifecycle.errors import ConfigError, EngineError, EngineRefused, EngineUnanswered

TOKEN = "s3cret"  # noqa: S105 - nobody else's
URL = "http://engine.test:8000"
Answer = Callable[[httpx.Request], httpx.Response]


def _http(answer: Answer, **how: Any) -> tuple[EngineHttp, list[float]]:
    """An engine that answers so, and the waits between tries."""
    waits: list[float] = []
    client = httpx.Client(transport=httpx.MockTransport(answer))
    return EngineHttp("e0", how.pop("url", URL), client=client, pause=waits.append, **how), waits


def _failing(*failures: Exception | int) -> tuple[Answer, list[httpx.Request]]:
    """Fails so, one after the other, then answers."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if len(asked) > len(failures):
            return httpx.Response(200, json={"ok": True})
        failure = failures[len(asked) - 1]
        if isinstance(failure, int):
            return httpx.Response(failure, text="it broke")
        raise failure

    return answer, asked


@contextmanager
def _server(serve: Callable[[socket.socket], None]) -> Iterator[tuple[str, list[bytes]]]:
    """A real socket: each connection is read once and then served so."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    heard.append(connection.recv(65536))
                    if not heard[-1]:
                        return
                    serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        port = listening.getsockname()[1]
        yield f"http://127.0.0.1:{port}", heard
        socket.create_connection(("127.0.0.1", port)).close()
        thread.join()


def test_an_answer_of_the_server_is_returned() -> None:
    """Path, query, body and token arrive; the path prefix of the URL is kept."""
    answer, asked = _failing()
    http, _ = _http(answer, url=f"{URL}/proxied/", token=TOKEN)
    response = http.post("/sleep", params={"level": 1}, json={"a": 1})

    assert said_object("e0", "POST /sleep", response) == {"ok": True}
    assert str(asked[0].url) == f"{URL}/proxied/sleep?level=1"
    assert asked[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert asked[0].content == b'{"a":1}'


@pytest.mark.parametrize("failure", [httpx.ConnectError("refused"), httpx.ConnectTimeout("slow")], ids=repr)
def test_a_connection_that_was_never_made_is_tried_again_for_every_call(failure: Exception) -> None:
    """Nothing was asked, so nothing was done."""
    answer, asked = _failing(failure, failure)
    http, waits = _http(answer)
    http.post("/v1/load_lora_adapter", json={})

    assert len(asked) == 3
    assert waits == [BACKOFF_S, 2 * BACKOFF_S]


@pytest.mark.parametrize("failure", [httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("dropped"), 500, 503])
def test_what_may_have_been_done_is_not_asked_for_twice(failure: Exception | int) -> None:
    """A push that was perhaps applied is unknown, never repeated by itself."""
    answer, asked = _failing(failure)
    http, _ = _http(answer)

    with pytest.raises(EngineUnanswered, match="what it did is unknown") as raised:
        http.post("/v1/load_lora_adapter", json={})

    assert len(asked) == 1
    assert raised.value.reached
    assert raised.value.status == (failure if isinstance(failure, int) else None)


@pytest.mark.parametrize("failure", [httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("dropped"), 500, 503])
def test_what_may_be_repeated_is_repeated(failure: Exception | int) -> None:
    """Questions always, other calls where the caller says that twice is once."""
    answer, asked = _failing(failure, failure)
    http, _ = _http(answer)
    http.get("/is_sleeping")
    again, asked_again = _failing(failure)
    _http(again)[0].post("/pause", repeatable=True)

    assert len(asked) == 3
    assert len(asked_again) == 2


def test_nobody_there_is_an_error_that_says_that_nothing_was_asked() -> None:
    """After as many tries as were allowed."""
    answer, asked = _failing(*[httpx.ConnectError("refused")] * 9)
    http, _ = _http(answer, retries=2)

    with pytest.raises(EngineUnanswered, match="found nobody, 3 time") as raised:
        http.post("/pause")

    assert len(asked) == 3
    assert not raised.value.reached


@pytest.mark.parametrize("status", [302, 400, 401, 404, 422])
def test_an_answer_below_500_that_is_no_yes_is_a_refusal(status: int) -> None:
    """Nothing changed there; it carries the status and what was said, and is not tried again."""
    answer, asked = _failing(status, status)
    http, _ = _http(answer)

    with pytest.raises(EngineRefused, match="nothing was done there") as raised:
        http.post("/v1/load_lora_adapter", json={}, repeatable=True)

    assert (raised.value.status, raised.value.answer) == (status, "it broke")
    assert len(asked) == 1


def test_a_web_page_is_no_answer_of_an_engine() -> None:
    """A gateway's own page, with 200: whether the engine has heard of the call is unknown."""
    http, _ = _http(lambda _: httpx.Response(200, html="<html>sign in</html>"))

    with pytest.raises(EngineUnanswered, match="web page"):
        http.post("/pause", repeatable=True)


def test_a_server_that_drops_the_connection_is_unanswered() -> None:
    """On a real socket: it heard the request and closed."""
    with _server(lambda connection: None) as (url, heard), EngineHttp("e0", url, retries=0) as http:
        with pytest.raises(EngineUnanswered) as raised:
            http.post("/resume")

        assert raised.value.reached
        assert heard[0].startswith(b"POST /resume ")


def test_a_server_that_breaks_off_its_answer_is_unanswered() -> None:
    """Half an answer is none, also where it begins with 200."""

    def half(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")

    with (
        _server(half) as (url, _),
        EngineHttp("e0", url) as http,
        pytest.raises(EngineUnanswered, match="what it did is unknown"),
    ):
        http.post("/resume")


def test_a_server_that_hangs_is_given_up_in_time() -> None:
    """On a real socket."""
    let_go = threading.Event()
    with _server(lambda connection: bool(let_go.wait(5))) as (url, _), EngineHttp("e0", url, timeout_s=0.2) as http:
        began_s = time.monotonic()
        with pytest.raises(EngineUnanswered, match=r"within 0\.2 s"):
            http.post("/resume")

        assert time.monotonic() - began_s < 3
        let_go.set()


def test_an_answer_that_drips_is_given_up_in_time() -> None:
    """Each byte comes soon enough; their sum does not."""

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n")
        for _ in range(20):
            time.sleep(0.05)
            try:
                connection.sendall(b" ")
            except OSError:
                return

    with _server(drip) as (url, _), EngineHttp("e0", url, timeout_s=0.3) as http:
        began_s = time.monotonic()
        with pytest.raises(EngineUnanswered, match="did not end"):
            http.post("/resume")

        assert time.monotonic() - began_s < 0.9


def test_an_answer_without_end_is_not_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server cannot fill the trainer's memory."""
    monkeypatch.setattr("lifecycle.engines.http.ANSWER_BYTES_MAX", 10)
    http, _ = _http(lambda request: httpx.Response(200, content=b"x" * 11), retries=0)

    with pytest.raises(EngineUnanswered, match="longer than 10 bytes"):
        http.get("/v1/models")


@pytest.mark.parametrize(
    ("url", "token", "secrets"),
    [
        ("http://user:pa%20ss@engine.test:8000", None, ("pa ss", "pa%20ss", "dXNlcjpwYSBzcw==")),
        ("http://a%20key@engine.test:8000", None, ("a key", "a%20key", "YSBrZXk6")),
        (URL, TOKEN, (TOKEN,)),
    ],
)
def test_no_secret_is_in_a_message_a_repr_or_a_log(
    url: str, token: str | None, secrets: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Not even when the server repeats what it was sent."""
    caplog.set_level(logging.DEBUG)

    def echo(request: httpx.Request) -> httpx.Response:
        return httpx.Response(400, text=f"bad header {request.headers['authorization']} {' '.join(secrets)}")

    http, _ = _http(echo, url=url, token=token)
    with pytest.raises(EngineError) as raised:
        http.post("/pause")
    shown = f"{raised.value} {raised.value.__cause__} {http!r} {http.url} {caplog.text}"

    assert [secret for secret in secrets if secret in shown] == []
    assert "engine.test:8000" in shown


def test_credentials_of_the_url_become_basic_authentication() -> None:
    """They leave the address."""
    answer, asked = _failing()
    http, _ = _http(answer, url="http://user:pa%20ss@engine.test:8000")
    http.get("/version")

    assert asked[0].headers["authorization"] == httpx.BasicAuth("user", "pa ss")._auth_header
    assert http.url == URL


@pytest.mark.parametrize(
    ("url", "how", "why"),
    [
        ("engine:8000", {}, "http://HOST:PORT"),
        ("ftp://engine", {}, "http://HOST:PORT"),
        ("http://", {}, "http://HOST:PORT"),
        ("http://e:port", {}, "cannot be read"),
        (None, {}, "http://HOST:PORT"),
        (f"{URL}?x=1", {}, "query"),
        (URL, {"token": "two words"}, "token"),
        (URL, {"token": "line\n"}, "token"),
        (URL, {"token": ""}, "token"),
        *((URL, {"timeout_s": one}, "timeout_s") for one in (0, None, "60", float("nan"))),
        *((URL, {"retries": one}, "retries") for one in (-1, 1.5, "3")),
        ("http://u:p@e", {"token": "t"}, "exclude"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_built(url: Any, how: dict[str, Any], why: str) -> None:
    """In the library's own words, and without the secret."""
    with pytest.raises(ConfigError, match=why) as raised:
        EngineHttp("e0", url, **how)

    assert "two words" not in str(raised.value)


def test_an_engine_without_a_name_is_refused() -> None:
    """Messages and books go by it."""
    with pytest.raises(ConfigError, match="name"):
        EngineHttp("", URL)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"", b"\xff"])
def test_an_answer_that_is_no_object_is_an_error(body: bytes) -> None:
    """Another server, or another version of it."""
    with pytest.raises(EngineUnanswered, match="no JSON object"):
        said_object("e0", "GET /version", httpx.Response(200, content=body))


def test_a_client_of_the_caller_stays_open() -> None:
    """Who made it closes it."""
    client = httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200)))
    with EngineHttp("e0", URL, client=client):
        pass

    assert not client.is_closed
