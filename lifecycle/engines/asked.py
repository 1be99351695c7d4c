"""What a request to generate may ask, checked before it is sent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index

from lifecycle.errors import EngineError


def checked_prompts(
    engine: str, prompts: Sequence[Sequence[int]], max_new_tokens: int, temperature: float
) -> list[list[int]]:
    """The prompts as plain integers, where they and the numbers are a request.

    Args:
        engine: its name, for messages.
        prompts: token ids; integers of numpy and integer tensors are also those.
        max_new_tokens: at least 1.
        temperature: not negative.

    Raises:
        EngineError: no prompts, an empty one, something else than token ids, or a number that cannot be.
    """
    try:
        ids = [[index(token) for token in one] for one in prompts]
    except (TypeError, ValueError):  # no sequence, or no integers
        ids = []
    if not ids or not all(ids) or min(map(min, ids)) < 0:
        raise EngineError(engine, "prompts are token ids, one sequence each, none of them empty; give at least one")
    counts = isinstance(max_new_tokens, int) and max_new_tokens >= 1
    if not counts or not isinstance(temperature, int | float) or not 0 <= temperature < math.inf:
        raise EngineError(engine, "max_new_tokens must be at least 1, temperature a number and not negative")
    return ids
