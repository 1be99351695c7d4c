"""How long a call takes."""

from __future__ import annotations

import time
from collections.abc import Callable


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
