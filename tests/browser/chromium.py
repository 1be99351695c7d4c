"""A headless Chromium, spoken to over two pipes: no port is opened, and no library is needed."""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from fcntl import F_DUPFD, fcntl
from pathlib import Path
from typing import Any

ANSWER_S = 60
"""How long the browser may take for an answer."""
READS, WRITES = 3, 4
"""Where the browser has its pipes."""
_FIRST_FREE = 10
_START = (
    f"import os, sys; os.dup2(int(sys.argv[1]), {READS}); os.dup2(int(sys.argv[2]), {WRITES}); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)

Message = dict[str, Any]


class Chromium:
    """A browser without a window.

    Args:
        program: its program.
        profile: a folder of its own.
    """

    def __init__(self, program: str, profile: Path) -> None:
        theirs_in, self._out = _pipe()
        self._in, theirs_out = _pipe()
        flags = ["--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        flags += ["--no-sandbox"] if os.geteuid() == 0 else []  # it has no sandbox for root
        start = [sys.executable, "-c", _START, str(theirs_in), str(theirs_out)]
        self._process = subprocess.Popen(
            [*start, program, *flags, f"--user-data-dir={profile}"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._asked = 0
        self._buffer = b""
        self.events: list[Message] = []

    def ask(self, method: str, session: str = "", **params: object) -> Message:
        """Ask for something, and return the answer. What comes before it is kept in ``events``."""
        self._asked += 1
        message = {"id": self._asked, "method": method, "params": params} | ({"sessionId": session} if session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        answer = self._until(lambda one: one.get("id") == self._asked)
        assert "error" not in answer, f"{method}: {answer.get('error')}"
        result: Message = answer["result"]
        return result

    def wait_for(self, method: str, session: str) -> Message:
        """The next event of this name of a session."""
        return self._until(lambda one: one.get("method") == method and one.get("sessionId") == session)

    def _until(self, is_it: Callable[[Message], bool]) -> Message:
        until_s = time.monotonic() + ANSWER_S
        while True:
            one = self._next(until_s)
            if is_it(one):
                return one
            self.events.append(one)

    def _next(self, until_s: float) -> Message:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until_s - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        one, self._buffer = self._buffer.split(b"\0", 1)
        message: Message = json.loads(one)
        return message

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)


class Tab:
    """A page that is open.

    Args:
        chromium: the browser.
        width: of the screen, in pixels of CSS.
        height: the same.
        dark: the user likes it dark.
        scripts: they run.
    """

    def __init__(
        self, chromium: Chromium, width: int = 1280, height: int = 900, *, dark: bool = False, scripts: bool = True
    ) -> None:
        self._chromium = chromium
        self._target = chromium.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = chromium.ask("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.ask(f"{domain}.enable")
        self.ask("Performance.enable", timeDomain="threadTicks")
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Emulation.setScriptExecutionDisabled", value=not scripts)

    def ask(self, method: str, **params: object) -> Message:
        """Ask the page for something."""
        return self._chromium.ask(method, self._session, **params)

    def open(self, path: Path) -> None:
        """Open a file, and wait until it is loaded and its scripts have run."""
        self.ask("Page.navigate", url=path.as_uri())
        self._chromium.wait_for("Page.loadEventFired", self._session)

    def events(self, *methods: str) -> list[Message]:
        """What this page has told of these names."""
        self.value("1")
        return [
            one["params"]
            for one in self._chromium.events
            if one.get("sessionId") == self._session and one.get("method") in methods
        ]

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key and let it go."""
        codes = {"Tab": 9, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35}
        told: dict[str, object] = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        self.ask("Input.dispatchKeyEvent", type="rawKeyDown", **told)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **told)

    def busy_s(self) -> float:
        """Processor seconds that the page's main thread has worked."""
        found = {one["name"]: one["value"] for one in self.ask("Performance.getMetrics")["metrics"]}
        return float(found["TaskDuration"])

    def resize(self, width: int, height: int) -> None:
        """Give the screen another size, in pixels of CSS."""
        size: dict[str, object] = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **size)

    def picture(self, path: Path) -> None:
        """A PNG of all of the page, on a screen that is as high as it is."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        self.resize(size["width"], size["height"])
        data = self.ask("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(data["data"]))

    def close(self) -> None:
        """Close it."""
        self._chromium.ask("Target.closeTarget", targetId=self._target)


def _pipe() -> tuple[int, int]:
    """Both ends, on numbers that are not those that the browser wants."""
    ends = os.pipe()
    moved = tuple(fcntl(end, F_DUPFD, _FIRST_FREE) for end in ends)
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
