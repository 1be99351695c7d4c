"""The page: one file that needs nothing else. Texts of the log are escaped, and only its own script runs."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Final

from lifecycle.report.charts import HATCHES_SVG, charts, count, names
from lifecycle.report.human import lasted_text, when_text
from lifecycle.report.summary import Report
from lifecycle.report.tables import adapters, copies, guards, peaks, refusals, slowest

SECTIONS: Final = {
    "states": "States",
    "bytes": "Bytes held",
    "copies": "Copies",
    "adapters": "Adapters",
    "refused": "Refused and failed",
    "slowest": "Slowest transitions",
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
        f'<p class="quiet">{when_text(report.began_s)} to {when_text(report.ended_s)} UTC</p>',
        _figures(report),
        _damage(report),
        '<nav aria-label="Sections"><ul>',
        *(f'<li><a href="#{name}">{what}</a></li>' for name, what in SECTIONS.items()),
        "</ul></nav></header>",
        '<main id="main">',
        "<noscript><p>The charts are drawn by a script of the page, which is off. The tables need none.</p></noscript>",
        HATCHES_SVG,
        *_charts(report),
        *_section("adapters", "As the first rank of each model tells it.", adapters(report)),
        *_section("refused", _refused_told(report), guards(report) + refusals(report)),
        *_section("slowest", "Of those that moved or failed.", slowest(report)),
        "</main>",
        _bar(report),
    ]


def _figures(report: Report) -> str:
    moved = sum(kind.times for kind in report.kinds.values())
    figures = {
        "ranks": f"{len(report.lanes):,}",
        "records": f"{report.records:,}",
        "lasted": lasted_text(report.ended_s - report.began_s),
        "transitions": f"{moved:,}",
        "refused or failed": f"{report.refused:,}",
        "adapters' stays": f"{report.lived:,}",
    }
    told = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in figures.items())
    return f'<dl class="figures">{told}</dl>'


def _damage(report: Report) -> str:
    called = names(one.lane for one in report.lanes)
    told = "; ".join(f"{called[lane]}: {count:,}" for lane, count in report.unreadable.items())
    if not told:
        return ""
    return f'<p class="bad">Lines that are torn or no records, and left out: {escape(told)}.</p>'


def _charts(report: Report) -> Sequence[str]:
    return [
        *_section(
            "states",
            "A row a state. A bar is as high as the share of that moment that was spent in the state.",
            '<div id="lanes"></div><div class="lanes-times" id="lanes-times"></div>',
        ),
        *_section(
            "bytes",
            "Of the rank that is chosen below; of each moment what was held when it was the most.",
            '<h3>Device</h3><div class="stack" id="device"></div>'
            '<h3>Host memory</h3><div class="stack" id="host"></div>'
            '<h3>Files and buffers</h3><div class="stack" id="files"></div>'
            f"{peaks(report)}",
        ),
        *_section(
            "copies",
            "Bytes that transitions copied, by kind: over time of the rank that is chosen below, in the table of all.",
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
    shown = len(report.refusals)
    cut = f" Of {report.refused:,} the first {shown:,} are shown, of each rank alike; <code>--csv</code> has all."
    cut = cut if shown < report.refused else ""
    return f"Events that a guard did not let pass, transitions that failed, and those that have no end.{cut}"


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
