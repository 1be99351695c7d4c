"""Which modules can be imported, one after another in one process: what they share is imported once."""

from __future__ import annotations

import json
import sys
from importlib import import_module


def why_not(module: str) -> str:
    """Why it cannot be imported, empty when it can."""
    try:
        import_module(module)
    except BaseException as error:  # noqa: BLE001 - also one that would end this process
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    print(json.dumps({module: why_not(module) for module in sys.argv[1:]}))  # noqa: T201 - the answer
