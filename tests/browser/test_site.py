"""The documentation site, opened from its files as by somebody without a network. `make test-browser` builds it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.axe import axe
from tests.browser.chromium import Chromium, Tab

SITE = Path(os.environ.get("ADAPTER_LIFECYCLE_SITE", "site")).resolve()
PAGES = sorted(path for path in SITE.glob("*.html") if path.name != "404.html")
PICTURED = ("index", "start", "states", "embedding", "faq")
PHONE = 360
WAIT_S = 30
COMPLAINTS = ("Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")


def until(tab: Tab, expression: str, is_it: Callable[[object], bool]) -> object:
    """The value of an expression, once it is what is waited for: a page draws and searches after it is loaded."""
    until_s = time.monotonic() + WAIT_S
    while not is_it(value := tab.value(expression)):
        assert time.monotonic() < until_s, f"{expression} is still {value!r}"
        time.sleep(0.05)
    return value


def drawn(tab: Tab) -> None:
    """Wait until every diagram of the page is drawn: its text is then gone, and it takes up room."""
    is_drawn = "(one) => one.clientHeight > 50 && !one.innerText"
    until(tab, f"[...document.querySelectorAll('.mermaid')].every({is_drawn})", bool)


@pytest.fixture(scope="module")
def phone(chromium: Chromium) -> dict[str, tuple[list[str], list[object], int]]:
    """What each page asks for and complains of on a phone, and how wide it is."""
    found = {}
    for page in PAGES:
        tab = Tab(chromium, PHONE, 780)
        tab.open(page)
        drawn(tab)
        asked = [one["request"]["url"] for one in tab.events("Network.requestWillBeSent")]
        found[page.stem] = (asked, tab.events(*COMPLAINTS), tab.value("document.documentElement.scrollWidth"))
        tab.close()
    return found


def test_there_is_a_site() -> None:
    """With all of its pages; without one nothing below would be looked at."""
    assert {"index", *PICTURED} <= {page.stem for page in PAGES}


def test_a_page_asks_for_nothing_from_elsewhere(phone: dict[str, tuple[list[str], list[object], int]]) -> None:
    """All that it loads lies beside it."""
    near = (SITE.as_uri() + "/", "data:")
    elsewhere = {name: [one for one in asked if not one.startswith(near)] for name, (asked, _, _) in phone.items()}

    assert {name: one for name, one in elsewhere.items() if one} == {}


def test_a_page_is_loaded_without_complaint(phone: dict[str, tuple[list[str], list[object], int]]) -> None:
    """No error of a script, and no file that is not there."""
    assert {name: one for name, (_, one, _) in phone.items() if one} == {}


def test_a_page_is_never_wider_than_a_phone(phone: dict[str, tuple[list[str], list[object], int]]) -> None:
    """Tables and code that are scroll for themselves."""
    assert {name: wide for name, (_, _, wide) in phone.items() if wide > PHONE} == {}


def test_the_search_finds_without_a_server(chromium: Chromium) -> None:
    """A word, on the page that explains it, from the files."""
    tab = Tab(chromium)
    tab.open(SITE / "index.html")
    tab.value("document.querySelector('label[for=__search]').click()")
    # It is typed again and again: what comes before the index is loaded is not listened to.
    typed = "input.value = 'lease'; input.dispatchEvent(new Event('input')); input.dispatchEvent(new Event('keyup'))"
    links = "[...document.querySelectorAll('.md-search-result__link')].map((one) => one.href).join(' ')"
    expression = f"(() => {{ const input = document.querySelector('.md-search__input'); {typed}; return {links}; }})()"
    found = str(until(tab, expression, bool))
    tab.close()

    assert "concepts.html" in found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["index", "engines", "embedding", "operating", "errors"])
def test_what_is_written_is_seen_by_those_who_see_little(chromium: Chromium, name: str, *, dark: bool) -> None:
    """Text and code have the contrast of WCAG AA in both schemes, and a link is more than another colour."""
    tab = Tab(chromium, dark=dark)
    tab.open(SITE / f"{name}.html")
    found = axe(tab, "color-contrast", "link-in-text-block", "image-alt")
    tab.close()

    assert found["violations"] == []
    assert "color-contrast" in found["passes"]


@pytest.mark.parametrize("name", PICTURED)
def test_pictures_of_the_site_are_taken_in_light_in_dark_and_on_a_phone(
    chromium: Chromium, screenshots: Path, name: str
) -> None:
    """They are for people to look at; that dark is dark is looked at here."""
    kinds: dict[str, tuple[int, bool]] = {"light": (1280, False), "dark": (1280, True), "phone": (PHONE, False)}
    schemes = {}
    for kind, (width, dark) in kinds.items():
        tab = Tab(chromium, width, 900, dark=dark)
        tab.open(SITE / f"{name}.html")
        drawn(tab)
        tab.picture(screenshots / f"site-{name}-{kind}.png")
        schemes[kind] = tab.value("document.body.dataset.mdColorScheme")
        tab.close()

    assert schemes == {"light": "default", "dark": "slate", "phone": "default"}
