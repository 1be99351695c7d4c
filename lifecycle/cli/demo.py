"""``adapter-lifecycle demo``: options in, a table or one JSON object out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lifecycle.errors import ConfigError, LifecycleError

if TYPE_CHECKING:
    from lifecycle.demo.options import DemoOptions
    from lifecycle.demo.report import DemoReport

BAD_OPTION: Final = 2
INTERRUPTED: Final = 130
FAILED: Final = 1
LOG_NAME: Final = "audit.jsonl"


def demo(
    model: Annotated[
        Path | None, typer.Option(help="Directory of a Hugging Face causal language model. A small Llama without it.")
    ] = None,
    adapter: Annotated[
        list[str] | None, typer.Option(metavar="NAME=DIR", help="A PEFT adapter to begin with. Can be repeated.")
    ] = None,
    turns: Annotated[int, typer.Option(help="Turns from the trainer to the engine and back.")] = 12,
    offload_target: Annotated[str, typer.Option(help="cpu, disk or none.")] = "cpu",
    with_ref: Annotated[bool, typer.Option("--with-ref", help="The same as --ref snapshot.")] = False,  # noqa: FBT002 - a flag
    ref: Annotated[
        str | None, typer.Option(help="Stay near a reference: adapter_off (the base) or snapshot (a kept model).")
    ] = None,
    strategy: Annotated[
        str, typer.Option(help="When a second host copy is made: lean, reference or duplicate.")
    ] = "lean",
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,  # noqa: FBT002 - a flag
    out: Annotated[Path, typer.Option(help="Folder of the audit log and of disk backups.")] = Path("demo-out"),
    seed: Annotated[int, typer.Option(help="Of weights, prompts and samples.")] = 0,
) -> None:
    """Train adapters and roll them out in turns on one shared device memory.

    Two adapters learn a reward; halfway the first retires and a third joins. Needs no network and no GPU.
    """
    try:
        options = _options(model, adapter or [], turns, offload_target, with_ref, ref, strategy, out, seed)
        report = _run(options)
    except ConfigError as error:
        _stop(f"error: {error}", BAD_OPTION, error)
    except LifecycleError as error:
        _stop(f"error: {error}", FAILED, error)
    except KeyboardInterrupt as error:
        log = out / LOG_NAME
        _stop(
            f"interrupted; {f'what was done is in {log}' if log.exists() else 'nothing was begun'}", INTERRUPTED, error
        )
    _show(report, as_json=json_output)


def _options(
    model: Path | None,
    adapters: list[str],
    turns: int,
    offload_target: str,
    with_ref: bool,  # noqa: FBT001 - as the command takes it
    ref: str | None,
    strategy: str,
    out: Path,
    seed: int,
) -> DemoOptions:
    from lifecycle.demo.options import DemoOptions, parse_adapter  # noqa: PLC0415 - heavy, and only this command needs it

    return DemoOptions(
        model=model,
        adapters=tuple(parse_adapter(one) for one in adapters),
        turns=turns,
        offload_target=None if offload_target == "none" else offload_target,
        with_ref=with_ref,
        ref=ref,
        strategy=strategy,
        out=out,
        seed=seed,
    )


def _run(options: DemoOptions) -> DemoReport:
    from rich.console import Console  # noqa: PLC0415 - heavy, and only this command needs it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    from lifecycle.demo.run import run_demo  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_interactive) as progress:
        task = progress.add_task("building the model", total=options.turns)
        return run_demo(options, lambda what, turns: progress.update(task, description=what, completed=turns))


def _show(report: DemoReport, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(report.as_json()))
        return
    from rich.console import Console  # noqa: PLC0415 - heavy, and only this command needs it

    from lifecycle.demo.table import turn_table  # noqa: PLC0415

    Console().print(turn_table(report))


def _stop(message: str, code: int, cause: BaseException) -> None:
    typer.echo(" ".join(message.split()), err=True)
    raise typer.Exit(code) from cause
