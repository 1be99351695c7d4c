"""axe-core, which finds in a page what those who cannot see it well stumble over."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.browser.chromium import Tab

AXE = os.environ.get("ADAPTER_LIFECYCLE_AXE", "")
"""A file of JavaScript."""
_RUN = """axe.run(document, {options}).then((found) => ({{
  violations: found.violations.map((one) => [one.id, one.help, one.nodes.slice(0, 5).map(
    (node) => node.html.slice(0, 160) + " " + node.failureSummary)]),
  passes: found.passes.map((one) => one.id),
}}))"""


def axe(tab: Tab, *rules: str) -> dict[str, list[Any]]:
    """What it finds in the page of a tab: ``violations``, and the names of rules with something that ``passes``.

    Args:
        tab: a page that is drawn.
        rules: the ones to hold it against; without any, all.
    """
    assert AXE, "ADAPTER_LIFECYCLE_AXE names no file: make test-browser gets one"
    tab.value(Path(AXE).read_text(encoding="utf-8"))
    options = {"resultTypes": ["violations", "passes"]} | ({"runOnly": rules} if rules else {})
    asked = _RUN.format(options=json.dumps(options))
    told = tab.ask("Runtime.evaluate", expression=asked, awaitPromise=True, returnByValue=True)
    assert "exceptionDetails" not in told, told
    found: dict[str, list[Any]] = told["result"]["value"]
    return found
