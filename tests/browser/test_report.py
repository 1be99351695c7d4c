"""The page of a report in a browser: what it draws, loads, says and costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lifecycle.report import Outputs, write_report
from tests.browser.chromium import Chromium, Tab
from tests.report.logs import write_run
from tests.report.test_page import evil_log
from tests.report.test_summary import run

LONG = 100_000
BUSY_S_MAX = 3.0
PHONE = 360


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of a short run, of one of 100,000 records of four ranks, and of a log that is markup."""
    folder = tmp_path_factory.mktemp("reports")
    logs = {
        "short": [run(4, rank).write(folder / f"short.rank{rank}.jsonl") for rank in range(4)],
        "long": write_run(folder, ranks=4, records=LONG),
        "evil": [evil_log().write(folder / "evil.jsonl")],
    }
    written = {name: folder / f"{name}.html" for name in logs}
    for name, path in written.items():
        write_report(logs[name], Outputs(page=path))
    return written


@contextmanager
def opened(chromium: Chromium, path: Path, *args: int, **kwargs: bool) -> Iterator[Tab]:
    """A page that is open in a tab."""
    tab = Tab(chromium, *args, **kwargs)
    tab.open(path)
    yield tab
    tab.close()


@pytest.mark.parametrize("name", ["short", "long", "evil"])
def test_a_page_is_drawn_without_complaint_and_without_another_file(
    chromium: Chromium, pages: dict[str, Path], name: str
) -> None:
    """No error, no breach of its policy, no dialog; the only request is for the page itself."""
    with opened(chromium, pages[name]) as tab:
        assert tab.value("document.documentElement.dataset.drawn") == "yes"
        asked = [one["request"]["url"] for one in tab.events("Network.requestWillBeSent")]
        assert asked == [pages[name].as_uri()]
        complaints = ("Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")
        assert tab.events(*complaints) == []


def test_a_run_of_100000_records_opens_in_three_seconds(chromium: Chromium, pages: dict[str, Path]) -> None:
    """Of processor time, so that it does not hang on what else the machine does."""
    with opened(chromium, pages["long"]) as tab:
        busy_s = tab.busy_s()
        print(f"{LONG} records: {busy_s:.2f} s of processor time")

        assert 0 < busy_s < BUSY_S_MAX


def test_every_rank_and_every_memory_is_drawn(chromium: Chromium, pages: dict[str, Path]) -> None:
    """A lane each, and paths or bars in each chart that has something."""
    with opened(chromium, pages["long"]) as tab:
        assert tab.value("document.querySelectorAll('.lane').length") == 4
        shapes = tab.value("[...document.querySelectorAll('.lane svg')].every((one) => one.querySelector('rect'))")
        assert shapes is True
        for chart, series in (("device", 4), ("host", 2), ("moved", 4)):
            assert tab.value(f"document.querySelectorAll('#{chart} .legend li').length") in {series, series - 1}
            assert tab.value(f"document.querySelectorAll('#{chart} .plot path').length") >= series - 1


@pytest.mark.parametrize("name", ["short", "long", "evil"])
@pytest.mark.parametrize("width", [PHONE, 1280])
def test_a_page_is_never_wider_than_its_screen(
    chromium: Chromium, pages: dict[str, Path], name: str, width: int
) -> None:
    """Tables that are scroll for themselves."""
    with opened(chromium, pages[name], width, 780) as tab:
        assert tab.value("document.documentElement.scrollWidth") <= width


def test_all_that_can_be_done_can_be_done_with_the_keyboard(chromium: Chromium, pages: dict[str, Path]) -> None:
    """Tab reaches links, tables, the rank and the moment; arrows move the moment, and the page says what was then."""
    with opened(chromium, pages["short"]) as tab:
        focused = []
        for _ in range(40):
            tab.press("Tab")
            focused.append(tab.value("document.activeElement.id || document.activeElement.className"))
            if focused[-1] == "moment":
                break
        assert focused[0] == "skip"
        assert focused[-2:] == ["lane", "moment"]
        assert focused.count("scroll") == tab.value("document.querySelectorAll('.scroll').length")

        before = tab.value("document.getElementById('now').textContent")
        tab.press("Home")
        at_home = tab.value("document.getElementById('now').textContent")
        tab.press("ArrowRight")

        assert tab.value("Number(document.getElementById('moment').value)") == 1
        assert before != at_home
        assert "rank 0" in at_home


def test_everything_that_is_used_or_seen_has_a_name(chromium: Chromium, pages: dict[str, Path]) -> None:
    """For those who listen to the page: pictures, controls, regions and tables; the moment says its time."""
    with opened(chromium, pages["short"]) as tab:
        nodes: list[dict[str, Any]] = tab.ask("Accessibility.getFullAXTree")["nodes"]
        named = {"image", "img", "slider", "combobox", "link", "region", "table", "navigation"}
        found = [one for one in nodes if not one["ignored"] and one["role"]["value"] in named]

        roles = {one["role"]["value"] for one in found}
        assert {"slider", "combobox", "link", "region", "table"} <= roles
        assert [one["role"]["value"] for one in found if not one.get("name", {}).get("value")] == []
        assert tab.value("document.getElementById('moment').getAttribute('aria-valuetext')")


def test_another_rank_is_shown_when_it_is_chosen(chromium: Chromium, pages: dict[str, Path]) -> None:
    """In the charts and in what the page says."""
    with opened(chromium, pages["short"]) as tab:
        choose = (
            "const one = document.getElementById('lane'); one.selectedIndex = 2; one.dispatchEvent(new Event('change'))"
        )
        tab.value(choose)

        assert str(tab.value("document.getElementById('now').textContent")).startswith("rank 2,")


def test_tables_are_there_without_scripts(chromium: Chromium, pages: dict[str, Path]) -> None:
    """And the page says why charts are not."""
    with opened(chromium, pages["short"], scripts=False) as tab:
        nodes: list[dict[str, Any]] = tab.ask("Accessibility.getFullAXTree")["nodes"]
        texts = " ".join(str(one.get("name", {}).get("value", "")) for one in nodes)

        assert "The slowest transitions" in texts
        assert "which is off" in texts


@pytest.mark.parametrize("name", ["short", "long"])
def test_pictures_are_taken_in_light_in_dark_and_on_a_phone(
    chromium: Chromium, pages: dict[str, Path], screenshots: Path, name: str
) -> None:
    """They are for people to look at; that dark is dark is looked at here."""
    kinds: dict[str, tuple[int, bool]] = {"light": (1280, False), "dark": (1280, True), "phone": (PHONE, False)}
    papers = {}
    for kind, (width, dark) in kinds.items():
        with opened(chromium, pages[name], width, 900, dark=dark) as tab:
            tab.picture(screenshots / f"report-{name}-{kind}.png")
            papers[kind] = tab.value("getComputedStyle(document.body).backgroundColor")

    assert papers == {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 20, 25)", "phone": "rgb(255, 255, 255)"}
