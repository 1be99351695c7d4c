"""The tables of the picture: ranks, transitions, bytes, adapters and engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.table import Table

from lifecycle.places import PLACES
from lifecycle.report.human import bytes_text, lasted_text, when_text
from lifecycle.report.model import Outcome
from lifecycle.watch.alike import Alike, in_a_row
from lifecycle.watch.attention import who
from lifecycle.watch.grid import Cell, Column, grid
from lifecycle.watch.picture import AdapterSeen, EngineSeen, Picture, RankSeen, Serving
from states import TrainerState

STATES: Final[Mapping[TrainerState, str]] = {
    TrainerState.AWAKE: "green",
    TrainerState.SLEEPING: "cyan",
    TrainerState.OFFLOADED_CPU: "blue",
    TrainerState.OFFLOADED_DISK: "blue",
    TrainerState.ADAPTER_RECONCILING: "magenta",
    TrainerState.FAULTED: "bold white on red",
}
_OUTCOMES: Final = {Outcome.MOVED: "", Outcome.REFUSED: "yellow", Outcome.FAILED: "bold red",
                    Outcome.UNFINISHED: "bold red", Outcome.UNCHANGED: "dim"}  # fmt: skip
_SERVING: Final = {Serving.CURRENT: "green", Serving.BEHIND: "yellow", Serving.IN_DOUBT: "bold red"}
_WIDE, _MIDDLE = 100, 76
_VERSION_DIGITS: Final = 6
_TIME: Final = slice(11, 19)


def ranks_table(picture: Picture, most: int, width: int) -> Table:
    """A row a rank; where there is no room for all, those in trouble, and then the first ones."""
    columns = (
        Column("rank", shrinks=True), Column("state", most=20), Column("for", is_number=True),
        Column("now", most=34, shrinks=True),
        Column("device", _MIDDLE, is_number=True), Column("host", _WIDE, is_number=True),
        Column("records", _WIDE, is_number=True), Column("written"),
    )  # fmt: skip
    usual = _usual_state(picture.ranks)
    ranks = sorted(picture.ranks, key=lambda one: one.state is usual)[:most] if len(picture.ranks) > most else None
    shown_ranks = picture.ranks if ranks is None else sorted(ranks, key=lambda one: one.whose.index)
    left = len(picture.ranks) - len(shown_ranks)
    title = "Ranks" + (f", and {left} more, {usual}" if left and usual else "")
    return grid(title, columns, (_rank(one, picture) for one in shown_ranks), width)


def _usual_state(ranks: Sequence[RankSeen]) -> TrainerState | None:
    states = [one.state for one in ranks]
    return max(states, key=states.count, default=None)


def _rank(rank: RankSeen, picture: Picture) -> Sequence[Cell | str]:
    several = len({one.whose.model for one in picture.ranks}) > 1
    name = f"{rank.whose.rank} {rank.whose.model}" if several else str(rank.whose.rank)
    state = "unknown" if rank.state is None else rank.state.value
    style = "" if rank.state is None else STATES[rank.state]
    now_s, running = picture.now_s, rank.running
    doing = "at rest" if running is None else f"{running.trigger} for {_since(running.began_s, now_s)}"
    totals = {place: sum(tags.values()) for place, tags in (rank.held or {}).items()}
    host = sum(size for place, size in totals.items() if place in ("saver_host", "snapshots", "kept_gradients"))
    return (
        name,
        Cell(state.upper() if rank.state is TrainerState.FAULTED else state, style),
        _since(rank.since_s, now_s) if rank.since_s is not None else "-",
        Cell(doing, "bold" if running is not None else "dim"),
        bytes_text(totals.get("device", 0)) if rank.held is not None else "-",
        bytes_text(host) if rank.held is not None else "-",
        f"{rank.records:,}, {rank.records_per_s:.1f}/s",
        f"{_since(rank.seen_s, now_s)} ago" if rank.seen_s is not None else "-",
    )


def recent_table(picture: Picture, most: int, width: int) -> Table:
    """The last things that were asked, newest last.

    What several ranks did alike is one row, with the slowest; so is what was done several times in a row. A step that
    was begun and committed is one row.
    """
    columns = (
        Column("ended"), Column("ranks", most=24), Column("event", shrinks=True),
        Column("edge", _WIDE, shrinks=True), Column("state", most=44, shrinks=True),
        Column("took", is_number=True), Column("moved", _MIDDLE, is_number=True), Column("outcome"),
    )  # fmt: skip
    is_wide = width >= _MIDDLE
    rows = (_recent(picture, one, is_wide=is_wide) for one in in_a_row(picture)[-most:])
    return grid("Last transitions", columns, rows, width)


def _recent(picture: Picture, them: Alike, *, is_wide: bool) -> Sequence[Cell | str]:
    one = max((each for _, each in them.done), key=lambda each: each.duration_s)
    where = f"{one.source} -> {one.target}" if is_wide and one.source is not one.target else str(one.target)
    moved = sum(one.moved.values())
    outcome = "no end" if one.outcome is Outcome.UNFINISHED else one.outcome.value
    return (
        when_text(them.ended_s)[_TIME],
        _numbers(picture, them.ranks()),
        one.trigger + (f" x{them.times}" if them.times > 1 else ""),
        one.edge,
        where,
        lasted_text(one.duration_s) if one.outcome in {Outcome.MOVED, Outcome.FAILED} else "-",
        bytes_text(moved) if moved else "-",
        Cell(outcome, _OUTCOMES[one.outcome]),
    )


def bytes_table(picture: Picture, most: int, width: int) -> Table:
    """The most that a rank holds, by place and tag."""
    columns = (Column("place"), Column("tag", shrinks=True), Column("bytes", is_number=True), Column("ranks", _MIDDLE))
    found: dict[tuple[str, str], tuple[int, list[RankSeen]]] = {}
    for rank in picture.ranks:
        for place, tags in (rank.held or {}).items():
            for tag, size in tags.items():
                most_bytes, ranks = found.get((place, tag), (0, []))
                if size >= most_bytes:
                    found[place, tag] = size, [*ranks, rank] if size == most_bytes else [rank]
    order = [*PLACES, *sorted({place for place, _ in found} - set(PLACES))]
    largest = sorted(found.items(), key=lambda one: -one[1][0])[:most]
    rows = sorted(largest, key=lambda one: (order.index(one[0][0]), -one[1][0]))
    several = len(picture.ranks) > 1
    title = "Bytes held" + (", the most of a rank" if several else "")
    cells = (
        (place, tag, bytes_text(size), _numbers(picture, ranks) if several else "")
        for (place, tag), (size, ranks) in rows
    )
    return grid(title, columns, cells, width)


def moved_text(ranks: Sequence[RankSeen]) -> str:
    """What was moved in the last turn by the rank that moved most; empty where no turn has ended."""
    turns = [one.moved_before for one in ranks if one.moved_before]
    if not turns:
        return ""
    most = max(turns, key=lambda one: sum(one.values()))
    kinds = ", ".join(f"{kind} {bytes_text(size)}" for kind, size in most.items() if size)
    return f"Moved in the last turn: {kinds or 'nothing'}"


def adapters_table(picture: Picture, most: int, width: int) -> Table:
    """Those that changed last, as the rank tells it that has come furthest."""
    columns = (
        Column("adapter", shrinks=True), Column("version", _WIDE), Column("changes", is_number=True),
        Column("changed", is_number=True), Column("engines", most=60, shrinks=True),
    )  # fmt: skip
    models = {one.whose.model: one for one in sorted(picture.ranks, key=lambda one: one.number)}
    several = len(models) > 1
    rows = [
        _adapter(one, picture.now_s, f"{model}: " if several else "")
        for model, rank in models.items()
        for one in rank.adapters[:most]
    ]
    left = sum(rank.adapters_count for rank in models.values()) - len(rows[:most])
    return grid("Adapters" + (f", and {left} more" if left else ""), columns, rows[:most], width)


def _adapter(one: AdapterSeen, now_s: float, model: str) -> Sequence[Cell | str]:
    version = str(one.version)
    is_behind = any(behind != 0 for behind in one.behind.values())
    return (
        model + one.name,
        f"…{version[-_VERSION_DIGITS:]}" if len(version) > _VERSION_DIGITS else version,
        str(one.changes),
        f"{_since(one.changed_s, now_s)} ago" if one.changed_s is not None else "-",
        Cell(", ".join(_standings(one.behind)) or "sent to none", "yellow" if is_behind else ""),
    )


def _standings(behind: Mapping[str, int | None]) -> Iterator[str]:
    """Engines that stand alike are counted where they are many."""
    alike: dict[str, list[str]] = {}
    for name, by in behind.items():
        standing = "lacks it" if by is None else "current" if by == 0 else f"{by} behind"
        alike.setdefault(standing, []).append(name)
    for standing, names in alike.items():
        few = len(names) <= 2  # noqa: PLR2004 - names that fit beside each other
        yield f"{' and '.join(names) if few else f'{len(names)} engines'} {standing}"


def engines_table(picture: Picture, most: int, width: int) -> Table:
    """Engines, those in doubt and behind first; ranks that have one of the same name and standing share a row."""
    columns = (
        Column("engine", shrinks=True), Column("ranks", most=24), Column("serves"),
        Column("behind", most=32),
        Column("last push", _MIDDLE, is_number=True), Column("pushes took", _WIDE, most=44, shrinks=True),
    )  # fmt: skip
    together: dict[object, list[tuple[RankSeen, EngineSeen]]] = {}
    for rank in picture.ranks:
        for one in rank.engines:
            key = rank.whose.model, one.name, one.serving, one.versions_behind, one.lacks, one.because
            together.setdefault(key, []).append((rank, one))
    order = [Serving.IN_DOUBT, Serving.BEHIND, Serving.CURRENT]
    groups = sorted(together.values(), key=lambda them: (order.index(them[0][1].serving), them[0][1].name))
    left = len(groups) - len(groups[:most])
    title = "Engines" + (f", and {left} more" if left else "")
    return grid(title, columns, (_engine(picture, them) for them in groups[:most]), width)


def _engine(picture: Picture, them: Sequence[tuple[RankSeen, EngineSeen]]) -> Sequence[Cell | str]:
    rank, one = max(them, key=lambda each: each[0].syncs_s[-1:] or (0.0,))
    versions = "unknown" if one.versions_behind is None else _counted(one.versions_behind, "version")
    behind = "-" if one.serving is Serving.CURRENT else f"{versions}, {_counted(one.lacks, 'group')}"
    return (
        one.name,
        _numbers(picture, [each for each, _ in them]),
        Cell(one.serving.value, _SERVING[one.serving]),
        behind,
        f"{_since(one.pushed_s, picture.now_s)} ago" if one.pushed_s is not None else "-",
        ", ".join(map(lasted_text, rank.syncs_s)),
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _numbers(picture: Picture, ranks: Sequence[RankSeen]) -> str:
    """Who it is, under the heading that says that these are ranks."""
    return who(picture, ranks).replace("ranks ", "").replace("rank ", "")


def _since(then_s: float | None, now_s: float) -> str:
    """How long ago, as roughly as somebody reads it who looks at a clock that goes on."""
    lasted_s = max(0.0, now_s - (then_s if then_s is not None else now_s))
    for unit, size_s in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if lasted_s >= 2 * size_s:
            return f"{lasted_s / size_s:.0f} {unit}"
    return f"{lasted_s:.1f} s" if lasted_s < 10 else f"{lasted_s:.0f} s"  # noqa: PLR2004 - places that are read
