"""Whether a pause gave back what it should, and whether what stays behind grows from cycle to cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from states.verdict import Verdict

TOLERANCE_BYTES: Final = 2 * 2**20
"""What may be missing of a tag: the granularity in which a device maps memory."""

TOLERANCE_SHARE: Final = 0.02
"""What may be missing of a large tag, as a share of it: others allocate meanwhile."""

RESIDUE_MARGIN_BYTES: Final = 512 * 2**10
"""What residue may have grown by, in all the cycles in which it grew without a break."""

CYCLES_IN_A_ROW: Final = 3
"""So many readings, each larger than the one before, are a trend."""


def tolerance_bytes(expected: Mapping[str, int]) -> int:
    """What may be missing of these tags together.

    Never more than half of a tag: of a small one, too, something must have been freed.

    Args:
        expected: bytes by tag.
    """
    return sum(min(size // 2, max(TOLERANCE_BYTES, int(size * TOLERANCE_SHARE))) for size in expected.values())


def freed_enough(expected: Mapping[str, int], used_before: int | None, used_after: int | None) -> Verdict:
    """Whether the device has as many bytes less in use as the books expected to free.

    Args:
        expected: bytes of the tags that were paused.
        used_before: bytes in use before the pause, None when it cannot be asked.
        used_after: bytes in use after it, None when it cannot be asked.

    Returns:
        A verdict that does not hold when too little was freed. What cannot be measured passes.
    """
    name, wanted = "freed-enough", sum(expected.values())
    if used_before is None or used_after is None:
        return Verdict(name, holds=True, because=f"{wanted} bytes were to be freed; the device cannot be asked")
    freed, spare = used_before - used_after, tolerance_bytes(expected)
    because = f"{wanted} bytes were to be freed, {freed} were (measured on the device, {spare} may be missing)"
    if freed >= wanted - spare:
        return Verdict(name, holds=True, because=because)
    remedy = (
        "see that the saver's hook is loaded (torch_memory_saver.configure_subprocess), that the driver gives pages "
        "back and that nobody else allocates meanwhile; the engine must not count on this memory"
    )
    return Verdict(name, holds=False, because=because, remedy=remedy)


def residue_is_steady(readings: Sequence[int]) -> Verdict:
    """Whether what stays in use after a pause, beyond what the books know, has stopped growing.

    Args:
        readings: residue in bytes after each offload, the oldest first.

    Returns:
        A verdict that does not hold when the last three readings or more grew without a break, by more than
        :data:`RESIDUE_MARGIN_BYTES` in all. A residue that stays the same is that of the device's own runtime.
    """
    name, first = "residue-is-steady", len(readings) - 1
    while first > 0 and readings[first - 1] < readings[first]:
        first -= 1
    rising = readings[max(first, 0) :]
    if len(rising) < CYCLES_IN_A_ROW or rising[-1] - rising[0] <= RESIDUE_MARGIN_BYTES:
        return Verdict(name, holds=True, because=f"{readings[-1] if readings else 0} bytes stay in use, not growing")
    because = f"{rising[-1]} bytes stay in use after a pause, {rising[-1] - rising[0]} more than {len(rising) - 1} "
    remedy = "find who keeps device memory from cycle to cycle; output may become wrong long before memory runs out"
    return Verdict(name, holds=False, because=because + "cycles before, and more in each", remedy=remedy)
