"""Every page and picture of docs/ that is generated."""

from __future__ import annotations

from lifecycle.adapters.peft_kinds import peft_page
from lifecycle.audit.schema import schema_page
from lifecycle.cli.app import app
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


def generated() -> dict[str, str]:
    """The generated pages: file name to text."""
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
