"""``adapter-lifecycle docs``: the pages of docs/ that are drawn from the tables that run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def pages() -> dict[str, str]:
    """The generated pages: file name to text."""
    from lifecycle.cli.docs_pages import generated  # noqa: PLC0415 - brings torch, which other commands do without

    return generated()


def docs(
    out: Annotated[Path, typer.Option(help="The directory to write to.")] = Path("docs"),
    *,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if a page is not up to date.")] = False,
) -> None:
    """Write the generated pages: diagrams (Mermaid and SVG) and tables, every event, error and command."""
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
