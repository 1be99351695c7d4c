"""The page of a report in a browser: what it draws, loads, says and costs."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lifecycle.report import Outputs, write_report
from tests.browser.axe import axe
from tests.browser.chromium import Chromium, Tab
from tests.report.logs import write_run
from tests.report.test_page import evil_log
from tests.report.test_summary import run
from tests.report.test_trace import broken

LONG = 100_000
BUSY_S_MAX = 3.0
PHONE = 360
MANY = 24


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of a short run, of 100,000 records, of what broke, of many ranks, and of a log that is markup."""
    folder = tmp_path_factory.mktemp("reports")
    logs = {
        "broken": [broken().write(folder / "broken.jsonl")],
        "many": [run(6, rank).write(folder / f"many.rank{rank}.jsonl") for rank in range(MANY)],
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


@pytest.mark.parametrize("name", ["short", "long", "broken", "many", "evil"])
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
        opened_s = tab.value("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000
        print(f"{LONG} records: drawn {opened_s:.2f} s after it was asked for, {busy_s:.2f} s of processor time")

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


@pytest.mark.parametrize("name", ["short", "long", "broken", "many", "evil"])
@pytest.mark.parametrize("width", [PHONE, 1280])
def test_a_page_is_never_wider_than_its_screen(
    chromium: Chromium, pages: dict[str, Path], name: str, width: int
) -> None:
    """Tables that are scroll for themselves."""
    with opened(chromium, pages[name], width, 780) as tab:
        assert tab.value("document.documentElement.scrollWidth") <= width


def test_all_that_can_be_done_can_be_done_with_the_keyboard(chromium: Chromium, pages: dict[str, Path]) -> None:
    """Tab reaches the rank and the moment soon, then all tables; arrows move the moment, and the page says what was."""
    with opened(chromium, pages["short"]) as tab:
        focused: list[str] = []
        while not focused or focused[-1] != "BODY":
            tab.press("Tab")
            focused.append(
                tab.value("(({id, className, tagName}) => id || className || tagName)(document.activeElement)")
            )
        assert focused[0] == "skip"
        assert focused.index("moment") == focused.index("lane") + 1 < 30
        assert sum("scroll" in one for one in focused) == tab.value("document.querySelectorAll('.scroll').length")

        tab.value("document.getElementById('moment').focus()")
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


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["short", "broken", "many"])
def test_axe_finds_nothing(chromium: Chromium, pages: dict[str, Path], name: str, *, dark: bool) -> None:
    """Of WCAG 2.2 A and AA, and of what its makers hold to be good practice; contrasts are measured in both schemes."""
    with opened(chromium, pages[name], dark=dark) as tab:
        found = axe(tab)

    assert found["violations"] == []
    assert "color-contrast" in found["passes"]
    assert len(found["passes"]) > 20


def test_what_went_wrong_is_said_first(chromium: Chromium, pages: dict[str, Path]) -> None:
    """In what is seen before one scrolls, also on a phone."""
    for name, told in (("short", "All is well"), ("broken", "Something went wrong")):
        with opened(chromium, pages[name], PHONE, 640) as tab:
            assert told in tab.value("document.querySelector('.verdict h2').textContent")
            assert tab.value("document.querySelector('.verdict li').getBoundingClientRect().bottom") < 640


def test_a_time_in_a_table_shows_its_moment(chromium: Chromium, pages: dict[str, Path]) -> None:
    """And its rank: a click leads to the charts, as they were then."""
    with opened(chromium, pages["short"]) as tab:
        link = "[...document.querySelectorAll('#slowest a[data-lane=\"3\"]')].pop()"
        tab.value(f"{link}.click()")

        assert tab.value(f"{link}.dataset.at") == tab.value("document.getElementById('moment').value")
        assert str(tab.value("document.getElementById('now').textContent")).startswith("rank 3,")
        assert tab.value("location.hash") == "#states"


def test_a_moment_of_a_failure_says_that_it_failed(chromium: Chromium, pages: dict[str, Path]) -> None:
    """It is marked in the lane, which is drawn in another colour, and told in words."""
    with opened(chromium, pages["broken"]) as tab:
        tab.value("[...document.querySelectorAll('#ranks a[data-at]')].pop().click()")

        assert "failed" in tab.value("document.getElementById('now').textContent")
        assert tab.value("document.querySelectorAll('.lane rect.failed').length") >= 1


def test_of_many_ranks_each_is_a_row_and_the_chosen_one_is_drawn_in_full(
    chromium: Chromium, pages: dict[str, Path]
) -> None:
    """A click into a row chooses it."""
    with opened(chromium, pages["many"]) as tab:
        assert tab.value("document.querySelectorAll('.lane.row').length") == MANY
        assert tab.value("document.querySelectorAll('.lane:not(.row)').length") == 1
        press = "dispatchEvent(new PointerEvent('pointerdown', {clientX: 500}))"
        tab.value(f"document.querySelectorAll('.lane.row svg')[5].{press}")
        assert tab.value("document.querySelector('.lane:not(.row) h3').textContent") == "rank 5"


def test_the_same_tag_has_the_same_colour_on_the_device_and_on_the_host(
    chromium: Chromium, pages: dict[str, Path]
) -> None:
    """Or a base that is offloaded would look like another one."""
    with opened(chromium, pages["short"]) as tab:
        colours = [
            tab.value(
                f"[...document.querySelectorAll('#{memory} .legend li')].find((one) => "
                "one.textContent.includes('actor/base')).querySelector('rect').className.baseVal"
            )
            for memory in ("device", "host")
        ]

    assert colours[0] == colours[1]


def test_the_way_through_the_states_is_drawn_and_told(chromium: Chromium, pages: dict[str, Path]) -> None:
    """How often each edge was taken, also for those who do not see it; it is read on a phone by scrolling."""
    with opened(chromium, pages["short"], PHONE, 780) as tab:
        nodes: list[dict[str, Any]] = tab.ask("Accessibility.getFullAXTree")["nodes"]
        told = " ".join(
            str(one.get("name", {}).get("value", "")) + str(one.get("description", {}).get("value", ""))
            for one in nodes
        )
        height = tab.value("document.querySelector('.diagram svg text').getBoundingClientRect().height")

    assert "quiesces" in told
    assert "refused" in told
    assert height > 7


def test_on_paper_everything_is_there_and_nothing_is_cut(chromium: Chromium, pages: dict[str, Path]) -> None:
    """Dark colours, the bar and scrolling are of a screen."""
    with opened(chromium, pages["short"], dark=True) as tab:
        dark = {"name": "prefers-color-scheme", "value": "dark"}
        tab.ask("Emulation.setEmulatedMedia", media="print", features=[dark])

        assert tab.value("getComputedStyle(document.querySelector('.bar')).display") == "none"
        assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        clipped = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollHeight > one.clientHeight + 1)"
        assert tab.value(f"{clipped}.length") == 0
        paper: str = tab.ask("Page.printToPDF")["data"]

    assert base64.b64decode(paper).startswith(b"%PDF")


def test_nothing_moves_by_itself(chromium: Chromium, pages: dict[str, Path]) -> None:
    """So there is nothing to be reduced for those who ask for it."""
    with opened(chromium, pages["short"]) as tab:
        moves = (
            "[...document.querySelectorAll('*')].filter((one) => { const style = getComputedStyle(one); "
            "return style.animationName !== 'none' || parseFloat(style.transitionDuration) > 0 "
            "|| style.scrollBehavior !== 'auto'; }).length"
        )
        assert tab.value(moves) == 0


@pytest.mark.parametrize("name", ["short", "long", "broken", "many"])
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
