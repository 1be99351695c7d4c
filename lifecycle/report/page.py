"""The page: one file that needs nothing else. Texts of the log are escaped, and only its own script runs."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Final

from lifecycle.report.charts import HATCHES_SVG, charts, count
from lifecycle.report.human import lasted_text, when_text
from lifecycle.report.named import names
from lifecycle.report.overview import answers, verdict
from lifecycle.report.summary import Report
from lifecycle.report.tables import adapters, copies, failures, guards, peaks, ranks, refusals, slowest
from states.draw_run import run_svg

SECTIONS: Final = {
    "states": "States",
    "bytes": "Bytes held",
    "copies": "Time and copies",
    "failed": "Failed",
    "refused": "Refused",
    "slowest": "Slowest transitions",
    "diagram": "The way through the states",
    "adapters": "Adapters",
    "ranks": "Ranks",
}


def page(report: Report) -> str:
    """The page as HTML. Its size does not depend on the length of the logs."""
    style, script = _asset("page.css"), _asset("page.js")
    title = f"Run {', '.join(dict.fromkeys(one.lane.run for one in report.lanes))}"
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            *_body(report, title),
            f'<script type="application/json" id="data">{inline_json(charts(report))}</script>',
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def inline_json(value: object) -> str:
    """JSON that may stand in an element of HTML: it cannot end it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return files("lifecycle.report").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"


def _body(report: Report, title: str) -> Sequence[str]:
    return [
        '<a class="skip" href="#main">Skip to the charts</a>',
        f"<header><h1>{escape(title)}</h1>",
        f'<p class="quiet">{_told(report)}</p>',
        verdict(report),
        answers(report),
        "</header>",
        HATCHES_SVG,
        '<nav aria-label="Sections"><ul>',
        *(f'<li><a href="#{name}">{what}</a></li>' for name, what in SECTIONS.items()),
        "</ul></nav>",
        _bar(report),  # at the bottom of the screen, and for the keyboard before the charts that it changes
        '<main id="main">',
        "<noscript><p>The charts are drawn by a script of the page, which is off. The tables need none.</p></noscript>",
        *_charts(report),
        *_section("failed", "What went wrong, and what was begun and has no end.", failures(report)),
        *_section("refused", _refused_told(report), guards(report) + refusals(report)),
        *_section("slowest", "Of those that moved or failed.", slowest(report)),
        *_section("diagram", "Of all ranks together.", _diagram(report)),
        *_section("adapters", "As the first rank of each model tells it.", adapters(report)),
        *_section("ranks", "What became of each, and the most that it held.", ranks(report)),
        "</main>",
    ]


def _told(report: Report) -> str:
    """What was read, in a line."""
    lanes, moved = len(report.lanes), sum(kind.times for kind in report.kinds.values())
    counted = (
        f"{lanes:,} rank{'' if lanes == 1 else 's'}, {report.records:,} records, {moved:,} transitions, "
        f"{report.lived:,} {'stay' if report.lived == 1 else 'stays'} of adapters"
    )
    times = f"{when_text(report.began_s)} to {when_text(report.ended_s)} UTC"
    return f"{times}, {lasted_text(report.ended_s - report.began_s)}; {counted}"


def _diagram(report: Report) -> str:
    """The drawing, which brings its own text for those who do not see it."""
    picture = run_svg(report.diagram, title="The states of this run")
    label = 'aria-label="The drawing of the states, which scrolls"'
    return f'<div class="diagram scroll" role="region" {label} tabindex="0">{picture}</div>'


def _charts(report: Report) -> Sequence[str]:
    return [
        *_section(
            "states",
            "A row a state. A bar is as high as the share of that moment that was spent in the state. "
            "What was refused or failed is marked where it happened.",
            '<div id="lanes"></div><div class="lanes-times" id="lanes-times"></div>',
        ),
        *_section(
            "bytes",
            "Of the rank that is chosen in the bar at the bottom; of each moment what was held when it was the most.",
            '<h3>Device</h3><div class="stack" id="device"></div>'
            '<h3>Host memory</h3><div class="stack" id="host"></div>'
            '<h3>Files and buffers</h3><div class="stack" id="files"></div>'
            f"{peaks(report)}",
        ),
        *_section(
            "copies",
            "Bytes that transitions copied, by kind: over time those of the chosen rank, in the table those of all.",
            f'<div class="stack" id="moved"></div>{copies(report)}',
        ),
    ]


def _section(name: str, told: str, content: str) -> Sequence[str]:
    heading = f'<h2 id="{name}-heading">{SECTIONS[name]}</h2>'
    return [
        f'<section id="{name}" aria-labelledby="{name}-heading">{heading}<p class="quiet">{told}</p>',
        content,
        "</section>",
    ]


def _refused_told(report: Report) -> str:
    told = "Events that a guard did not let pass, which changed nothing; those that are alike are one row."
    return f"{told} {report.refused:,} in all." if report.refused else told


def _bar(report: Report) -> str:
    called = names(one.lane for one in report.lanes)
    options = "".join(f"<option>{escape(called[one.lane])}</option>" for one in report.lanes)
    most = count(report) - 1
    return (
        '<aside class="bar" aria-label="What the charts show"><form>'
        f'<label>Rank <select id="lane">{options}</select></label>'
        '<label class="moment">Moment '
        f'<input type="range" id="moment" min="0" max="{most}" value="{most // 2}"></label>'
        '</form><output id="now" for="lane moment"></output></aside>'
    )
