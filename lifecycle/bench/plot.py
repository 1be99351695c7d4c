"""The run as a picture: bytes held by strategy and state, and the time of each event."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lifecycle.bench.measure import Measured
from lifecycle.bench.options import MIB
from lifecycle.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS: Final = ("png", "svg")
_STATES: Final = {"awake": "wake_up", "sleeping": "sleep", "offloaded": "offload"}
"""State to the event after which it is measured."""
_WIDTH: Final = 0.8


def check_can_draw() -> None:
    """Refuse before hours of measuring what could not be drawn.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise ConfigError("--out draws with matplotlib; install the extra: adapter-lifecycle[bench]") from error


def draw(found: Sequence[Measured], path: Path) -> Path:
    """Write the picture.

    Args:
        found: what was measured.
        path: ends with one of :data:`FORMATS`.

    Returns:
        The path.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    figure = Figure(figsize=(13, 5.5), layout="constrained")
    held, took = figure.subplots(1, 2)
    _draw_held(held, found)
    _draw_seconds(took, found)
    first = found[0]
    figure.suptitle(
        f"base {first.base_bytes / MIB:,.0f} MiB, {first.case.adapters} adapters, {first.case.ranks} rank(s), "
        f"{first.case.kept_models} kept model(s), offload target {first.case.offload_target}"
    )
    figure.savefig(path, dpi=120)
    return path


def _draw_held(axes: Axes, found: Sequence[Measured]) -> None:
    """Anonymous and shared memory as bars, file bytes hatched on top."""
    width = _WIDTH / len(found)
    for place, one in enumerate(found):
        rows = _by_event(one)
        at = [index + place * width for index in range(len(_STATES))]
        held = [rows[event]["held_bytes"] / MIB for event in _STATES.values()]
        files = [rows[event]["file_bytes"] / MIB for event in _STATES.values()]
        bars = axes.bar(at, held, width, label=one.case.name)
        if any(files):
            axes.bar(at, files, width, bottom=held, color="none", edgecolor="grey", hatch="///", linewidth=0.5)
        axes.bar_label(bars, fmt="%.0f", fontsize=7)
    if any(row["file_bytes"] for one in found for row in one.rows()):
        axes.bar([0], [0], width, color="none", edgecolor="grey", hatch="///", linewidth=0.5, label="file, once a node")
    axes.set_xticks([index + _WIDTH / 2 - width / 2 for index in range(len(_STATES))], list(_STATES))
    axes.set_ylabel("MiB")
    axes.set_title("host memory held, beyond the attached trainer")
    axes.legend()


def _draw_seconds(axes: Axes, found: Sequence[Measured]) -> None:
    """Medians with the spread from the fastest to the slowest, on a logarithmic scale."""
    events = [event for event, row in _by_event(found[0]).items() if row["seconds"]["max"] > 0]
    width = _WIDTH / len(found)
    for place, one in enumerate(found):
        times = [_by_event(one)[event]["seconds"] for event in events]
        at = [index + place * width for index in range(len(events))]
        middle = [time["median"] * 1e3 for time in times]
        below = [(time["median"] - time["min"]) * 1e3 for time in times]
        above = [(time["max"] - time["median"]) * 1e3 for time in times]
        axes.bar(at, middle, width, yerr=[below, above], label=one.case.name, error_kw={"elinewidth": 0.8})
    axes.set_yscale("log")
    axes.set_xticks(
        [index + _WIDTH / 2 - width / 2 for index in range(len(events))],
        [event.replace("_", " ") for event in events],
        rotation=40,
        ha="right",
    )
    axes.set_ylabel("ms")
    axes.set_title("time inside the controller: median, and fastest to slowest")


def _by_event(measured: Measured) -> dict[str, dict[str, Any]]:
    return {row["event"]: row for row in measured.rows()}
