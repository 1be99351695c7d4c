"""What the environment says of torch's allocator and of the memory saver's hook. Imports neither."""

from __future__ import annotations

import os
from typing import Final

ALLOCATOR_VARIABLES: Final = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
"""Each sets torch's caching allocator; which of them counts depends on the version of torch."""


def sets_expandable_segments() -> str | None:
    """The environment variable that sets ``expandable_segments``, None when none does."""
    return next((name for name in ALLOCATOR_VARIABLES if _sets(os.environ.get(name, ""))), None)


def _sets(settings: str) -> bool:
    """Whether these settings do, as torch reads them: spaces do not count, and what is said last does."""
    said = [one for one in settings.replace(" ", "").lower().split(",") if one.startswith("expandable_segments:")]
    return bool(said) and said[-1].endswith(":true")


def is_preloaded() -> bool:
    """Whether this process was started with the hook, and only once."""
    return sum("torch_memory_saver" in path for path in os.environ.get("LD_PRELOAD", "").split(":")) == 1
