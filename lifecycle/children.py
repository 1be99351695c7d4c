"""What processes that the library starts from the same package have in common."""

from __future__ import annotations

import os
from pathlib import Path


def child_environment(**more: str) -> dict[str, str]:
    """This process's environment, one thread a process, and the path under which a child finds the same package.

    Args:
        more: variables beside these.
    """
    import lifecycle  # noqa: PLC0415 - only its place

    root = str(Path(str(lifecycle.__file__)).parents[1])
    known = os.environ.get("PYTHONPATH", "")
    found = os.pathsep.join(one for one in (root, known) if one)
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": found, **more}
