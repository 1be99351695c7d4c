"""Started with a library in LD_PRELOAD: whether it was loaded, and else what the loader says."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path


def loads(library: str) -> dict[str, str]:
    """Nothing when this process has the library; why not, when it has not."""
    if library in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace"):
        return {"why": ""}
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return {"why": str(error)}
    return {"why": f"{library} can be loaded, and was not preloaded"}


if __name__ == "__main__":
    print(json.dumps(loads(sys.argv[1])))  # noqa: T201 - the answer
