"""``adapter-lifecycle docs``: the pages of docs/ that are drawn from the tables that run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lifecycle.adapters.peft_kinds import peft_page
from lifecycle.audit.schema import schema_page
from lifecycle.cli.docs_cli import cli_page
from lifecycle.cli.docs_errors import errors_page
from lifecycle.cli.docs_events import events_page, events_raising
from lifecycle.memory.attachable import attach_page
from states.draw_adapters import adapters_drawing
from states.draw_engine import engine_drawing, tag_drawing
from states.draw_run import run_svg
from states.draw_svg import svg
from states.draw_trainer import trainer_drawing
from states.examples import RUN
from states.render import states_page
from states.render_adapters import adapters_page
from states.render_decisions import decisions_page
from states.render_engine import engine_page
from states.render_placement import placement_page
from states.render_snapshots import snapshots_page


def pages() -> dict[str, str]:
    """The generated pages: file name to text."""
    from lifecycle.cli.app import app  # noqa: PLC0415 - which has this command too

    return {
        "adapters.md": adapters_page(),
        "attach.md": attach_page(),
        "audit-record.schema.json": schema_page(),
        "cli.md": cli_page(app),
        "decisions.md": decisions_page(),
        "diagrams/adapters.svg": svg(adapters_drawing()),
        "diagrams/engine-tag.svg": svg(tag_drawing()),
        "diagrams/engine.svg": svg(engine_drawing()),
        "diagrams/run.svg": run_svg(RUN, standalone=True, title="An example of a run"),
        "diagrams/trainer.svg": svg(trainer_drawing()),
        "engine-memory.md": engine_page(),
        "errors.md": errors_page(events_raising()),
        "events.md": events_page(),
        "peft.md": peft_page(),
        "placement.md": placement_page(),
        "snapshots.md": snapshots_page(),
        "states.md": states_page(),
    }


def docs(
    out: Annotated[Path, typer.Option(help="The directory to write to.")] = Path("docs"),
    *,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if a page is not up to date.")] = False,
) -> None:
    """Write the generated pages: diagrams and tables, every error, every command."""
    written = pages()
    if check:
        stale = [name for name, text in written.items() if _text_of(out / name) != text]
        if stale:
            typer.echo(f"out of date in {out}: {', '.join(stale)}. Run: adapter-lifecycle docs --out {out}", err=True)
            raise typer.Exit(1)
        typer.echo(f"{len(written)} pages in {out} are up to date")
        return
    try:
        for name, text in written.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        typer.echo(f"cannot write to {out}: {error}. Choose another directory with --out", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"wrote {', '.join(written)} to {out}")


def _text_of(path: Path) -> str | None:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return None
