"""``adapter-lifecycle demo``: options in, a table or one JSON object out."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from lifecycle.demo.report import log_name
from lifecycle.errors import ConfigError, LifecycleError

if TYPE_CHECKING:
    from lifecycle.demo.options import DemoOptions
    from lifecycle.demo.report import DemoReport

BAD_OPTION: Final = 2
INTERRUPTED: Final = 130
TERMINATED: Final = 143
FAILED: Final = 1

_Model = Annotated[
    Path | None, typer.Option(help="Directory of a Hugging Face causal language model. A small Llama without it.")
]
_Adapter = Annotated[
    list[str] | None, typer.Option(metavar="NAME=DIR", help="A PEFT adapter to begin with. Can be repeated.")
]
_Adapters = Annotated[
    int | None, typer.Option(help="Make this many adapters. Those that do not fit wait for a free slot.")
]
_Slots = Annotated[int | None, typer.Option(help="How many of --adapters fit at a time. 4 at most without it.")]
_Reconcile = Annotated[str, typer.Option(help="Change adapters while the trainer is awake or offloaded.")]
_Turns = Annotated[
    int | None,
    typer.Option(help="Turns to the engine and back. 12; with --adapters 4 for each that follows another in a slot."),
]
_Target = Annotated[str, typer.Option(help="cpu, disk or none.")]
_WithRef = Annotated[bool, typer.Option("--with-ref", help="The same as --ref snapshot.")]
_Ref = Annotated[
    str | None, typer.Option(help="Stay near a reference: adapter_off (the base) or snapshot (a kept model).")
]
_Strategy = Annotated[str, typer.Option(help="When a second host copy is made: lean, reference or duplicate.")]
_Engine = Annotated[str, typer.Option(help="Who generates: local (in this process) or vllm (a server).")]
_Url = Annotated[
    str | None, typer.Option(help="The server's http://HOST:PORT; a token is read from ADAPTER_LIFECYCLE_ENGINE_TOKEN.")
]
_WriteModel = Annotated[
    Path | None, typer.Option(help="Write the small Llama to this directory, for a server to load, and end.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
_Out = Annotated[Path, typer.Option(help="Folder of the audit log and of disk backups.")]
_Ranks = Annotated[
    int, typer.Option(help="Data-parallel processes on this machine, each with a trainer and an engine of its own.")
]
_Seed = Annotated[int, typer.Option(help="Of weights, prompts and samples.")]


def demo(
    *,
    model: _Model = None,
    adapter: _Adapter = None,
    adapters: _Adapters = None,
    slots: _Slots = None,
    reconcile: _Reconcile = "awake",
    turns: _Turns = None,
    offload_target: _Target = "cpu",
    with_ref: _WithRef = False,
    ref: _Ref = None,
    strategy: _Strategy = "lean",
    engine: _Engine = "local",
    engine_url: _Url = None,
    write_model: _WriteModel = None,
    json_output: _Json = False,
    out: _Out = Path("demo-out"),
    seed: _Seed = 0,
    ranks: _Ranks = 1,
) -> None:
    """Train adapters and roll them out in turns on one shared device memory.

    Two adapters learn a reward; halfway the first retires and a third joins. With --adapters many of them share
    a few slots, one after the other. Needs no network and no GPU.
    """
    if write_model is not None:
        with _errors_told(out / log_name()):
            _write_model(write_model, seed)
        return
    queue = {"count": adapters, "slots": slots, "reconcile": reconcile}
    memory = {"offload_target": None if offload_target == "none" else offload_target, "strategy": strategy}
    others = {"model": model, "with_ref": with_ref, "ref": ref, "out": out, "seed": seed, "engine": engine}
    with _errors_told(out / log_name(None if ranks == 1 else 0)):
        report = _run(_options(adapter or [], turns, engine_url=engine_url, ranks=ranks, **queue, **memory, **others))
    _show(report, as_json=json_output)
    _need_agreement(report)


@contextmanager
def _errors_told(log: Path) -> Iterator[None]:
    """What goes wrong inside is one line, and an exit code; so is a request to end."""
    try:
        with _terminates_cleanly():
            yield
    except ConfigError as error:
        _stop(f"error: {error}", BAD_OPTION, error)
    except LifecycleError as error:
        _stop(f"error: {error}", FAILED, error)
    except KeyboardInterrupt as error:
        done = f"what was done is in {log}" if log.exists() else "nothing was begun"
        if isinstance(error, _Terminated):
            _stop(f"terminated; {done}", TERMINATED, error)
        _stop(f"interrupted; {done}", INTERRUPTED, error)


class _Terminated(KeyboardInterrupt):
    """SIGTERM came: the run ends as it does on Ctrl-C."""


@contextmanager
def _terminates_cleanly() -> Iterator[None]:
    """Inside, SIGTERM is an exception. Only a main thread can ask for that; elsewhere the signal is its owner's."""
    if current_thread() is not main_thread():
        yield
        return

    def end(_number: int, _frame: object) -> NoReturn:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _options(adapters: list[str], turns: int | None, **given: Any) -> DemoOptions:
    from lifecycle.demo.options import DemoOptions, default_turns, parse_adapter  # noqa: PLC0415 - heavy, for this alone

    chosen = default_turns(given["count"], given["slots"]) if turns is None else turns
    return DemoOptions(adapters=tuple(parse_adapter(one) for one in adapters), turns=chosen, **given)


def _write_model(directory: Path, seed: int) -> None:
    from lifecycle.demo.model import write_tiny_llama  # noqa: PLC0415 - heavy, for this alone

    write_tiny_llama(directory, seed)
    typer.echo(f"the model of seed {seed} is in {directory}")


def _run(options: DemoOptions) -> DemoReport:
    from rich.console import Console  # noqa: PLC0415 - heavy, and only this command needs it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_interactive) as progress:
        task = progress.add_task("building the model", total=options.turns)
        run = _runner(options)
        return run(options, lambda what, turns: progress.update(task, description=what, completed=turns))


def _runner(options: DemoOptions) -> Callable[[DemoOptions, Callable[[str, int], None]], DemoReport]:
    """Of a run in this process, or of one in many."""
    if options.ranks > 1:
        from lifecycle.demo.ranks import run_ranks  # noqa: PLC0415 - these do not need what the other needs

        return run_ranks
    from lifecycle.demo.run import run_demo  # noqa: PLC0415 - heavy, for this alone

    return run_demo


def _show(report: DemoReport, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(report.as_json()))
        return
    from rich.console import Console  # noqa: PLC0415 - heavy, and only this command needs it

    from lifecycle.demo.table import adapter_table, notes, turn_table  # noqa: PLC0415

    Console().print(turn_table(report), "", adapter_table(report), "", sep="\n")
    typer.echo(notes(report))


def _need_agreement(report: DemoReport) -> None:
    """Of engines with their trainers, and of the ranks with each other."""
    if report.disagreeing:
        where = ", ".join(str(one.turn) for one in report.disagreeing)
        typer.echo(f"error: engine and trainer did not agree on the rollouts of turn {where}", err=True)
    elif report.ranks is not None and report.ranks.difference is not None:
        typer.echo(f"error: {report.ranks}", err=True)
    else:
        return
    raise typer.Exit(FAILED)


def _stop(message: str, code: int, cause: BaseException) -> NoReturn:
    typer.echo(" ".join(message.split()), err=True)
    raise typer.Exit(code) from cause
