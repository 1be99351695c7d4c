"""``adapter-lifecycle bench``: strategies side by side in one run; a table, a picture, or one JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from lifecycle.errors import ConfigError, LifecycleError

if TYPE_CHECKING:
    from lifecycle.bench.findings import Finding, Session
    from lifecycle.bench.measure import Measured
    from lifecycle.bench.options import BenchOptions

FAILED: Final = 1
BAD_OPTION: Final = 2
INTERRUPTED: Final = 130

_BaseMib = Annotated[int, typer.Option(help="Bytes of the frozen base, in MiB.")]
_Tensors = Annotated[int, typer.Option(help="Frozen tensors it is split into.")]
_Adapters = Annotated[int, typer.Option(help="Adapters that are loaded.")]
_LoraRank = Annotated[int, typer.Option(help="Their LoRA rank.")]
_Ranks = Annotated[int, typer.Option(help="Processes that hold the same shard.")]
_Kept = Annotated[int, typer.Option(help="Kept models, 0 to 3: ref, old actor, rollout actor.")]
_Cycles = Annotated[int, typer.Option(help="Turns from awake to offloaded and back in each process.")]
_Repetitions = Annotated[int, typer.Option(help="Fresh processes of each strategy, interleaved.")]
_Strategies = Annotated[
    list[str] | None,
    typer.Option("--strategy", help="duplicate, reference or lean, or one of them with +file. Can be repeated."),
]
_Target = Annotated[str, typer.Option(help="cpu or disk.")]
_Figures = Annotated[
    list[str] | None, typer.Option("--figure", metavar="NAME", help="Measure this figure only. Can be repeated.")
]
_Check = Annotated[bool, typer.Option("--check", help="Measure every figure; exit code 1 if one misses its limit.")]
_Out = Annotated[Path | None, typer.Option(help="Folder for the picture and the numbers. Needs the extra bench.")]
_Format = Annotated[str, typer.Option("--plot-format", help="png or svg.")]
_Verify = Annotated[str, typer.Option(help="How closely bytes are compared: off, sampled or always.")]
_WorkDir = Annotated[Path | None, typer.Option(help="Folder on a disk for base files. The system's without it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def bench(
    *,
    base_mib: _BaseMib = 1024,
    tensors: _Tensors = 64,
    adapters: _Adapters = 4,
    rank: _LoraRank = 8,
    ranks: _Ranks = 1,
    kept_models: _Kept = 0,
    cycles: _Cycles = 2,
    repetitions: _Repetitions = 3,
    strategy: _Strategies = None,
    offload_target: _Target = "cpu",
    verify: _Verify = "sampled",
    figure: _Figures = None,
    check: _Check = False,
    out: _Out = None,
    plot_format: _Format = "png",
    work_dir: _WorkDir = None,
    json_output: _Json = False,
) -> None:
    """Measure what each strategy holds, copies and takes, on a synthetic model of a chosen size.

    Every strategy runs in fresh processes on an emulated device. Needs no network and no GPU.
    """
    sizes = {"base_mib": base_mib, "tensors": tensors, "adapters": adapters, "rank": rank, "ranks": ranks}
    repeated = {"kept_models": kept_models, "cycles": cycles, "repetitions": repetitions}
    others = {"offload_target": offload_target, "verify": verify, "work_dir": work_dir}
    with _errors_told():
        options = _options(strategy, **sizes, **repeated, **others)
        names = _figures(figure or [], check=check)
        picture = _picture(out, plot_format)
        found, findings = _measure(options, names, compares=not figure)
        _write(found, findings, picture)
    _show(found, findings, as_json=json_output)
    if check and not all(one.ok for one in findings):
        raise typer.Exit(FAILED)


def _options(strategy: list[str] | None, **settings: Any) -> BenchOptions:
    from lifecycle.bench.options import DEFAULT_STRATEGIES, BenchOptions  # noqa: PLC0415 - only this command needs it

    return BenchOptions(strategies=tuple(strategy or DEFAULT_STRATEGIES), **settings)


def _figures(asked: list[str], *, check: bool) -> tuple[str, ...]:
    """The figures to measure: those that were asked for, else all of them for a check."""
    from lifecycle.bench.catalogue import FIGURES, named  # noqa: PLC0415 - heavy, and only this command needs it

    return named(asked) or (tuple(FIGURES) if check else ())


def _picture(out: Path | None, plot_format: str) -> Path | None:
    """Where the picture goes, None when none was asked for."""
    from lifecycle.bench.plot import FORMATS, check_can_draw  # noqa: PLC0415 - only this command needs it

    if plot_format not in FORMATS:
        raise ConfigError(f"--plot-format is {plot_format!r}; use one of {', '.join(FORMATS)}")
    if out is None:
        return None
    check_can_draw()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out is {out}, which cannot be made: {error}") from error
    return out / f"bench.{plot_format}"


def _measure(options: BenchOptions, names: tuple[str, ...], *, compares: bool) -> tuple[list[Measured], list[Finding]]:
    from rich.console import Console  # noqa: PLC0415 - heavy, and only this command needs it

    from lifecycle.bench.catalogue import find  # noqa: PLC0415
    from lifecycle.bench.findings import Session  # noqa: PLC0415

    console = Console(stderr=True)
    with console.status("measuring") as status:
        session: Session = Session(options, status.update)
        found = session.measured(options.cases()) if compares else []
        return found, find(session, names)


def _object(found: Sequence[Measured], findings: Sequence[Finding]) -> dict[str, Any]:
    from lifecycle.bench.measure import machine  # noqa: PLC0415 - heavy, and only this command needs it

    rows = [row for one in found for row in one.rows()]
    return {"machine": machine(), "rows": rows, "figures": [one.as_json() for one in findings]}


def _write(found: Sequence[Measured], findings: Sequence[Finding], picture: Path | None) -> None:
    if picture is None:
        return
    from lifecycle.bench.plot import draw  # noqa: PLC0415 - only this command needs it

    try:
        text = json.dumps(_object(found, findings), indent=2)
        picture.with_suffix(".json").write_text(text, encoding="utf-8")
        if found:
            draw(found, picture)
    except OSError as error:
        raise LifecycleError(f"{picture.parent} cannot be written to: {error}; name another folder") from error


def _show(found: Sequence[Measured], findings: Sequence[Finding], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(_object(found, findings)))
        return
    from rich.console import Console  # noqa: PLC0415 - heavy, and only this command needs it

    from lifecycle.bench.measure import machine  # noqa: PLC0415
    from lifecycle.bench.report import WIDTH, findings_table, machine_line, rows_table  # noqa: PLC0415

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    console.print(machine_line(machine()), highlight=False)
    if found:
        console.print(rows_table(found))
    if findings:
        console.print(findings_table(findings))


@contextmanager
def _errors_told() -> Iterator[None]:
    """What goes wrong inside is one line, and an exit code."""
    try:
        yield
    except ConfigError as error:
        _stop(f"error: {error}", BAD_OPTION, error)
    except LifecycleError as error:
        _stop(f"error: {error}", FAILED, error)
    except KeyboardInterrupt as error:
        _stop("interrupted; nothing was written", INTERRUPTED, error)


def _stop(message: str, code: int, cause: BaseException) -> NoReturn:
    typer.echo(" ".join(message.split()), err=True)
    raise typer.Exit(code) from cause
