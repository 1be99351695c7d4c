"""The page: one file, in which a log cannot write markup."""

from __future__ import annotations

import base64
import json
import re
from datetime import timedelta
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import lifecycle.report
from lifecycle.report import Outputs, write_report
from lifecycle.report.charts import charts
from lifecycle.report.model import Lane
from lifecycle.report.named import names
from tests.report.logs import ADAPTERS, BASE, ENGINE, MIB, Log, write_run
from tests.report.test_summary import report_of, run

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\"'"
VOID = {"meta", "input"}


class Page(HTMLParser):
    """The elements of a page, its texts and the open elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one that is closed at once, as in SVG."""
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Elements are closed in the order in which they were opened."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.texts.append(data)


def page_of(tmp_path: Path, *logs: Log) -> str:
    """The page of these logs."""
    paths = [log.write(tmp_path / f"audit.rank{at}.jsonl") for at, log in enumerate(logs)]
    write_report(paths, Outputs(page=tmp_path / "report.html"))
    return (tmp_path / "report.html").read_text()


def evil_log() -> Log:
    """Every text that a log chooses is markup."""
    log = Log()
    log.opened()
    what = {"trigger": EVIL, "edge": EVIL, "source": "awake", "target": "awake"}
    held = {"device": {EVIL: 5}, EVIL: {EVIL: 6}, "saver_host": {EVIL: 7}}
    more = {"held": held, "moved": {EVIL: 7}, "versions": {f"adapter/{EVIL}": 1}, "duration_s": 1.0}
    log.add("moved", transition=1, **what, **more)
    push = {"engines": {EVIL: {"committed": True, "sent": [f"adapter/{EVIL}"]}}}
    log.add("moved", transition=2, **what, details=push, duration_s=1.0)
    log.refused(EVIL)
    log.add("failed", transition=4, **what, effect=EVIL, error=EVIL)
    log.add("noted", transition=4, note=EVIL)
    for record in log.records:
        record["run"] = record["model"] = EVIL
    return log


def test_no_text_of_a_log_is_markup(tmp_path: Path) -> None:
    """Its elements are those of a log of harmless texts, and its texts are shown as they are."""
    page = Page(page_of(tmp_path, evil_log()))

    assert [tag for tag, _ in page.elements if tag == "script"] == ["script", "script"]
    assert [tag for tag, _ in page.elements if tag == "img"] == []
    assert [name for _, attributes in page.elements for name in attributes if name.startswith("on")] == []
    assert page.open == []
    assert EVIL in page.texts


def test_a_text_of_a_log_ends_no_attribute(tmp_path: Path) -> None:
    """Names of ranks are early in what went wrong, of which links tell the beginning to those who listen."""
    model = '" onfocus="alert(1)'
    logs = [Log(rank) for rank in range(2)]
    for at, log in enumerate(logs):
        what = log.began("sleep", "quiesces", "awake", "faulted")
        log.add("failed", 2.0, transition=1, **what, effect=model, error=model)
        for record in log.records:
            record["model"] = model * (at + 1)

    page = Page(page_of(tmp_path, *logs))

    assert [attributes for _, attributes in page.elements if "onfocus" in attributes] == []
    told = [attributes.get("aria-label") or "" for _, attributes in page.elements]
    assert any(one.startswith(f"More on: Faulted at the end of the log: rank 0, {model}"[:50]) for one in told)


def test_what_was_there_for_a_moment_is_drawn() -> None:
    """A millisecond in a day is far less than a point of the screen."""
    log = Log()
    log.turn(1)
    log.now += timedelta(days=1)
    log.turn(2)
    data: Any = charts(report_of(log))

    assert data["width"] > 60
    states = data["lanes"][0]["states"]
    assert {state for state, shares in states.items() if "1" in shares} == set(states) - {"awake"}


def test_a_life_that_begins_at_the_end_lies_in_its_picture(tmp_path: Path) -> None:
    """And is seen there."""
    log = run(200)
    log.add("moved", transition=9999, trigger="reconcile_adapters", edge="e", source="awake", target="awake",
            versions={"adapter/late": 1}, duration_s=0.0)  # fmt: skip

    lives = re.findall(r'<rect class="s0" x="([\d.]+)" y="2" width="([\d.]+)"', page_of(tmp_path, log))

    assert len(lives) > 1
    assert [(left, width) for left, width in lives if float(left) + float(width) > 1000 or float(width) < 12] == []


def test_data_cannot_end_its_element(tmp_path: Path) -> None:
    """And is the same JSON."""
    text = page_of(tmp_path, evil_log())
    data = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)

    assert data is not None
    assert not {"<", ">", "&"} & set(data[1])
    assert EVIL in json.loads(data[1])["lanes"][0]["amounts"]["device"]["names"]


def test_nothing_is_loaded_and_only_the_script_of_the_page_may_run(tmp_path: Path) -> None:
    """The policy names the hashes of what stands in the page; no element asks for another file."""
    text = page_of(tmp_path, run(1))
    style, script = (
        re.search(r"<style>(.*?)</style>", text, re.DOTALL),
        re.findall(r"<script>(.*?)</script>", text, re.DOTALL),
    )
    assert style is not None
    digests = [base64.b64encode(sha256(one.encode()).digest()).decode() for one in (style[1], *script)]

    own = f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'"
    assert f"{own}; base-uri 'none'; form-action 'none'\">" in text
    assert len(script) == 1
    page = Page(text)
    assert [one for _, one in page.elements if {"src", "style"} & set(one)] == []
    assert {str(one["href"])[0] for _, one in page.elements if "href" in one} == {"#"}
    assert "url(http" not in text
    assert "@import" not in text


def test_every_place_in_the_page_that_is_named_is_there(tmp_path: Path) -> None:
    """Links, labels and what the script asks for; each name once."""
    text = page_of(tmp_path, run(1))
    page = Page(text)
    ids = [one["id"] for _, one in page.elements if "id" in one]
    asked = re.findall(r'(?:byId|getElementById|drawStack)\("([\w-]+)"', text)
    linked = [str(one["href"])[1:] for _, one in page.elements if "href" in one]
    labels = [one["aria-labelledby"] for _, one in page.elements if "aria-labelledby" in one]

    assert len(ids) == len(set(ids))
    assert {*asked, *linked, *labels} <= set(ids)


def test_tables_say_exact_values(tmp_path: Path) -> None:
    """Bytes to the byte, of every rank."""
    texts = Page(page_of(tmp_path, run(2), run(2, rank=1))).texts

    assert texts.count(f"{ENGINE:,}") == 2
    assert f"backup {4 * (BASE + ADAPTERS):,}" in texts
    assert "no-lease-over-live-weights: engine reads the live weights of adapter/a1" in texts
    assert "2.50 s" in texts


def test_the_page_of_a_long_run_is_as_large_as_that_of_a_shorter_one(tmp_path: Path) -> None:
    """It does not grow with the log."""
    sizes = []
    for records in (10_000, 20_000):
        folder = tmp_path / str(records)
        folder.mkdir()
        write_report(write_run(folder, ranks=2, records=records), Outputs(page=folder / "report.html"))
        sizes.append((folder / "report.html").stat().st_size)

    assert max(sizes) < 500_000
    assert sizes[1] < 1.6 * sizes[0]


def test_lanes_are_called_by_what_tells_them_apart() -> None:
    """The rank; the model, the run and the file where they differ."""
    ranks = [Lane(at, "r", at, "actor", "a.jsonl") for at in range(2)]
    models = [Lane(0, "r", 0, "actor", "a"), Lane(1, "r", 0, "critic", "b")]
    same = [Lane(0, "r", 0, "actor", "a"), Lane(1, "r", 0, "actor", "a")]

    assert list(names(ranks).values()) == ["rank 0", "rank 1"]
    assert list(names(models).values()) == ["rank 0, actor", "rank 0, critic"]
    assert list(names(same).values()) == ["rank 0, a (1)", "rank 0, a (2)"]


def test_a_chart_has_ten_series_at_most() -> None:
    """The small ones are drawn as one, and nothing is lost."""
    log = Log()
    what = {"trigger": "sleep", "edge": "quiesces", "source": "awake", "target": "awake"}
    held = {"device": {f"tag{size}": size * MIB for size in range(1, 31)}}
    log.add("moved", transition=1, **what, held=held, duration_s=1.0)
    data: Any = charts(report_of(log))

    device = data["lanes"][0]["amounts"]["device"]

    assert device["names"] == [*(f"tag{size}" for size in range(30, 21, -1)), "others"]
    assert sum(device["points"][0][1:]) == sum(range(1, 31)) * MIB


@pytest.mark.parametrize("turns", [1, 60])
def test_what_is_drawn_is_the_most_that_was_held(turns: int) -> None:
    """Also where a bucket is longer than a turn."""
    data: Any = charts(report_of(run(turns)))
    amounts = data["lanes"][0]["amounts"]

    most = {memory: max(sum(point[1:]) for point in amounts[memory]["points"]) for memory in ("device", "host")}

    assert most == {"device": BASE + 2 * ADAPTERS, "host": BASE + ADAPTERS}


def test_what_was_held_before_counts_in_the_bucket_in_which_it_goes() -> None:
    """More bytes in fewer tags are more."""
    log = Log()
    what = {"trigger": "sleep", "edge": "quiesces", "source": "awake", "target": "awake"}
    log.add("moved", transition=1, **what, held={"device": {"large": 9 * MIB}}, duration_s=0.0)
    log.add("moved", 1.0, transition=2, **what, held={"device": {"one": MIB, "other": MIB}}, duration_s=0.0)
    data: Any = charts(report_of(log))

    points = data["lanes"][0]["amounts"]["device"]["points"]

    assert [sum(point[1:]) for point in points] == [9 * MIB, 2 * MIB]
    assert points[1][0] == data["count"]


def test_states_are_drawn_as_shares_of_each_bucket() -> None:
    """A digit a bucket, of which there are as many as the run lasts; what was there for a moment is seen."""
    data: Any = charts(report_of(run(60)))
    (lane,) = data["lanes"]

    lengths = {len(shares) for shares in lane["states"].values()}

    assert lengths == {data["count"]}
    assert set(lane["states"]["sleeping"]) <= set("0123456789")
    assert all(any(int(shares[at]) for shares in lane["states"].values()) for at in range(data["count"]))


def colours(css: str) -> dict[str, str]:
    """The colours of a block by name."""
    return dict(re.findall(r"--([\w]+): (#[0-9a-f]{6});", css))


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG 2 defines it."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    """The relative luminance of a colour."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_charts_stand_out(scheme: str) -> None:
    """Texts by 4.5 and shapes by 3 from what is behind them, as WCAG AA asks for."""
    css = (Path(lifecycle.report.__file__).parent / "page.css").read_text()
    light, dark, _ = re.split(r"\}\n", css, maxsplit=2)
    found = colours(light if scheme == "light" else dark)

    low = {
        name: ground
        for ground in ("paper", "panel")
        for name, colour in found.items()
        if name not in {"paper", "panel", "line"}
        if contrast(colour, found[ground]) < (3 if name.startswith("s") or name == "cursor" else 4.5)
    }

    assert len(found) >= 18
    assert low == {}
