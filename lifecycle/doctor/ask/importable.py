"""Which modules can be imported, one after another in one process: what they share is imported once.

Told after each of them: a module that ends the process, or that never ends, takes nothing away from those before it.
"""

from __future__ import annotations

import json
import os
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
    found: dict[str, str] = {}
    with os.fdopen(os.dup(1), "w") as told:  # a module may close or replace standard output
        for module in sys.argv[1:]:
            found[module] = why_not(module)
            told.write(f"\n{json.dumps(found)}\n")
            told.flush()
