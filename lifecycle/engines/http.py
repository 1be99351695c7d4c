"""Calls to a rollout engine over HTTP: bounded in time, repeated only where that is safe, and silent about secrets.

An answer is one of three things, and the books of an engine depend on which:

- it was done: 2xx that is no web page, the response is returned;
- nothing was done there: any other answer below 500, :class:`~lifecycle.errors.EngineRefused`;
- nobody knows: a timeout, a dropped connection, 5xx, :class:`~lifecycle.errors.EngineUnanswered`.

A connection that was never made did nothing, so that is tried again for every call; the rest only for calls that are
*repeatable*.
"""

from __future__ import annotations

import base64
import json as json_format
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit, urlunsplit

from lifecycle.errors import ConfigError, EngineRefused, EngineUnanswered

try:
    import httpx
except ImportError as missing:
    raise ConfigError("an engine over HTTP needs httpx; install the extra: adapter-lifecycle[engines]") from missing

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
"""An answer is never longer; what is, is not read on."""
SAID_CHARACTERS_MAX: Final = 400
BACKOFF_S: Final = 0.1
"""Wait before the second try; it doubles with each further one."""
SERVER_FAULT: Final = 500
NOT_FOUND: Final = 404
NEVER_CONNECTED: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)

Params = Mapping[str, str | int | float | bool | list[str]]


@dataclass(frozen=True, slots=True)
class _Call:
    method: str
    path: str
    params: Params | None
    json: Any
    timeout_s: float

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class EngineHttp:
    """One engine's address.

    Credentials in the URL become basic authentication. Neither they nor the token are in any message, ``repr`` or log
    line. Proxies and ``.netrc`` of the environment are not used; pass your own client for those, or for certificates.

    Args:
        engine: the engine's name, for messages.
        url: ``http://`` or ``https://``, host, port and perhaps a path prefix.
        token: bearer token, None for none.
        timeout_s: a call ends within this many seconds, its answer read to the end.
        retries: how often a call is tried again where that is safe.
        client: an ``httpx.Client`` of the caller, who closes it. None: one of its own, a new connection for each call,
            since a pooled one may be closed by the server at the very moment of a call that must not be repeated.
        pause: sleeps between tries (tests pass their own).

    Raises:
        ConfigError: a URL, token or number that cannot work.
    """

    def __init__(
        self,
        engine: str,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 3,
        client: httpx.Client | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        _need(isinstance(engine, str) and engine != "", "an engine needs a name; pass a string")
        _need(
            isinstance(timeout_s, int | float) and timeout_s > 0,
            f"timeout_s is {timeout_s!r}; it is a number of seconds above 0",
        )
        _need(isinstance(retries, int) and retries >= 0, f"retries is {retries!r}; it is 0 or more")
        self._engine = engine
        self.url, self._auth, secrets = _address(url)
        self._headers = _bearer(token)
        _need(not (self._auth and token), "credentials in the URL and a token exclude each other; pass one of them")
        self._secrets = tuple(secret for secret in (*secrets, token) if secret)
        self._timeout_s = timeout_s
        self._tries = retries + 1
        self._own = client is None
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = client or httpx.Client(trust_env=False, follow_redirects=False, limits=limits)
        self._pause = pause

    def __repr__(self) -> str:
        return f"EngineHttp({self._engine!r}, {self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client, if it is its own. Twice is once."""
        if self._own:
            self._client.close()

    def get(self, path: str, params: Params | None = None, *, timeout_s: float | None = None) -> httpx.Response:
        """Ask. Asking changes nothing, so it is always repeatable.

        Raises:
            EngineRefused: it answered below 500, and not 2xx.
            EngineUnanswered: no answer, or 5xx, at every try.
        """
        return self._call(_Call("GET", path, params, None, timeout_s or self._timeout_s), repeatable=True)

    def post(
        self,
        path: str,
        params: Params | None = None,
        json: Any = None,
        *,
        repeatable: bool = False,
        timeout_s: float | None = None,
    ) -> httpx.Response:
        """Tell it to do something.

        Args:
            path: begins with ``/``.
            params: the query.
            json: the body, None for none.
            repeatable: doing it twice is doing it once.
            timeout_s: in place of the engine's own, for a call that takes long.

        Raises:
            EngineRefused: it answered below 500, and not 2xx: nothing was done there.
            EngineUnanswered: no answer, or 5xx: what was done there is unknown.
        """
        return self._call(_Call("POST", path, params, json, timeout_s or self._timeout_s), repeatable=repeatable)

    def has(self, path: str) -> bool:
        """Whether there is such an endpoint. It is not called: OPTIONS does nothing, and is answered 404 where none is.

        Raises:
            EngineUnanswered: no answer, or 5xx, at every try.
        """
        try:
            self._call(_Call("OPTIONS", path, None, None, self._timeout_s), repeatable=True)
        except EngineRefused as error:
            return error.status != NOT_FOUND
        return True

    def _call(self, call: _Call, *, repeatable: bool) -> httpx.Response:
        for tried in range(1, self._tries + 1):
            last = tried == self._tries
            try:
                response = self._once(call)
            except NEVER_CONNECTED as error:
                if last:
                    why = (
                        f"{call} at {self.url} found nobody, {tried} time(s): {self._said(str(error))}; is it running?"
                    )
                    raise EngineUnanswered(self._engine, why, reached=False) from error
            except httpx.HTTPError as error:
                if last or not repeatable:
                    what = f"{type(error).__name__} {self._said(str(error))}".strip()
                    why = f"{call} at {self.url} got no answer within {call.timeout_s:g} s: {what}"
                    raise EngineUnanswered(self._engine, f"{why}; what it did is unknown, ask it") from error
            else:
                if response.status_code < SERVER_FAULT:
                    return self._accepted(call, response)
                if last or not repeatable:
                    said = self._said(response.text)
                    why = f"{call} failed there with {response.status_code}: {said}; what it did is unknown, ask it"
                    raise EngineUnanswered(self._engine, why, status=response.status_code)
            self._pause(BACKOFF_S * 2 ** (tried - 1))
        raise AssertionError("the last try returns or raises")

    def _once(self, call: _Call) -> httpx.Response:
        """One try. httpx bounds each read, not the sum of them: an answer that drips is given up here."""
        deadline_s = time.monotonic() + call.timeout_s
        body = bytearray()
        with self._client.stream(
            call.method,
            self.url + call.path,
            params=call.params,
            json=call.json,
            headers=self._headers,
            auth=self._auth,
            timeout=call.timeout_s,
        ) as response:
            for chunk in response.iter_bytes():
                body += chunk
                if time.monotonic() > deadline_s:
                    raise httpx.ReadTimeout("the answer did not end")
                if len(body) > ANSWER_BYTES_MAX:
                    raise httpx.DecodingError(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
        kind = response.headers.get("content-type", "")
        return httpx.Response(response.status_code, content=bytes(body), headers={"content-type": kind})

    def _accepted(self, call: _Call, response: httpx.Response) -> httpx.Response:
        if response.is_success:
            if response.headers["content-type"].lower().startswith("text/html"):
                why = (
                    f"{call} was answered with a web page: something in between has answered; what was done is unknown"
                )
                raise EngineUnanswered(self._engine, why, status=response.status_code)
            return response
        answer = self._said(response.text)
        why = f"{call} was refused with {response.status_code}: {answer}; nothing was done there"
        raise EngineRefused(self._engine, why, status=response.status_code, answer=answer)

    def _said(self, text: str) -> str:
        """What it said, on one line, not for ever, and without our secrets, should it repeat them."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        line = " ".join(text.split())
        return line if len(line) <= SAID_CHARACTERS_MAX else f"{line[:SAID_CHARACTERS_MAX]}..."


def said_object(engine: str, what: str, response: httpx.Response) -> dict[str, Any]:
    """The JSON object that it answered.

    Raises:
        EngineUnanswered: it is something else; this is then not the server that was meant, or another version of it.
    """
    try:
        found = json_format.loads(response.content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        why = f"{what} answered no JSON object; is this the server that was meant, in a version that is supported?"
        raise EngineUnanswered(engine, why, status=response.status_code)
    return found


def _address(url: str) -> tuple[str, tuple[str, str] | None, tuple[str, ...]]:
    """The address without credentials, the credentials, and what must not be shown."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except (ValueError, AttributeError, TypeError):
        raise ConfigError("the engine's URL cannot be read; give http://HOST:PORT") from None
    _need(parts.scheme in {"http", "https"} and bool(parts.hostname), "the engine's URL is not http://HOST:PORT")
    _need(not parts.query and not parts.fragment, "the engine's URL has a query or fragment; leave it away")
    _need(
        url.isprintable() and _is_host(str(parts.hostname)), "the engine's URL has characters or a host that none has"
    )
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else str(parts.hostname)
    netloc = host if port is None else f"{host}:{port}"
    plain = urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", ""))
    if parts.username is None and parts.password is None:
        return plain, None, ()
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    sent = base64.b64encode(f"{user}:{password}".encode()).decode()
    key = () if password else (user, parts.username or "")  # a name without a password is the secret itself
    return plain, (user, password), (sent, password, parts.password or "", *key)


def _is_host(name: str) -> bool:
    """Whether a name can be looked up; what the system says otherwise is no error of the connection."""
    try:
        return name.encode("idna") != b"" and " " not in name
    except UnicodeError:
        return False


def _bearer(token: str | None) -> dict[str, str]:
    if token is None:
        return {}
    fits = isinstance(token, str) and token.isascii() and token.isprintable() and " " not in token and token != ""
    _need(fits, "the token has characters that no header can carry, or none; give it without line ends and spaces")
    return {"authorization": f"Bearer {token}"}


def _need(holds: bool, why: str) -> None:  # noqa: FBT001 - one check a line reads best so
    if not holds:
        raise ConfigError(why)
