"""The site: every page is in its navigation, and every link and anchor leads somewhere. `make site` builds it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.docs.blocks import PAGES, ROOT, prose_of, text_of

HEADING = re.compile(r"^#+ (.+?)\s*$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
OUTSIDE = re.compile(r"https://(?!example\.|localhost)[a-z0-9-]+(\.[a-z0-9-]+)*\.[a-z]{2,}(/|$)")


class Loader(yaml.SafeLoader):
    """Reads names of Python objects as their names, and imports nothing."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda loader, name, node: name)
SITE: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)  # noqa: S506 - a safe one


def in_navigation(entry: object, name: str = "") -> Iterator[tuple[str, str]]:
    """The pages below an entry, each with the name that it has there, or an empty one."""
    if isinstance(entry, str):
        yield entry, name
    elif isinstance(entry, list):
        for part in entry:
            yield from in_navigation(part)
    else:
        for title, part in entry.items():  # type: ignore[attr-defined]
            yield from in_navigation(part, title)


def anchors_of(page: str) -> set[str]:
    """What the links of other pages may name: headings, as they are slugged on the site and on code hosts."""
    found = set()
    for heading in HEADING.findall(prose_of(page)):
        plain = re.sub(r"[^\w\s-]", "", heading.replace("`", "").lower()).strip()
        found.add(re.sub(r"[-\s]+", "-", plain))
    return found


def test_every_page_is_in_the_navigation_once() -> None:
    """And nothing is in it that is not there."""
    pages = [page for page, _ in in_navigation(SITE["nav"])]

    assert sorted(pages) == sorted(set(pages))
    assert set(pages) == PAGES.keys() - {"README.md"}


def test_every_page_has_a_name_in_the_navigation() -> None:
    """Its title, where it begins with it; a generated one begins with a comment, and would be named after its file."""
    named = {page for page, name in in_navigation(SITE["nav"]) if name}
    titled = {page for page in PAGES if text_of(page).startswith("# ")}

    assert PAGES.keys() - titled - named == set()


def test_the_site_is_built_strictly() -> None:
    """What is not in the navigation, and links and anchors that lead nowhere, end `make site`."""
    assert SITE["validation"] == dict.fromkeys(
        ("omitted_files", "absolute_links", "unrecognized_links", "anchors"), "warn"
    )
    assert "mkdocs build --strict\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_site_needs_no_network() -> None:
    """No fonts from elsewhere; diagrams are drawn, and the search finds, by scripts that lie beside the pages."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    scripts = [*SITE["extra_javascript"], *SITE["extra"]["polyfills"]]

    assert SITE["theme"]["font"] is False
    assert SITE["plugins"] == ["search", "offline"]
    assert scripts == ["javascripts/mermaid.min.js", "javascripts/iframe-worker.js"]
    assert [one for one in scripts if f"\ndocs/{one}:" not in makefile] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings_that_exist(page: str) -> None:
    """Those inside of the project. Those to elsewhere are addresses that a reader can open: a host that is public."""
    broken = []
    for link in LINK.findall(prose_of(page)):
        if re.match(r"\w+:", link):
            broken += [] if OUTSIDE.match(link) else [link]
        else:
            path, _, anchor = link.partition("#")
            target = (PAGES[page].parent / path).resolve() if path else PAGES[page]
            if not target.is_file() or (anchor and anchor not in anchors_of(target.name)):
                broken.append(link)

    assert broken == []


@pytest.mark.parametrize("page", sorted(PAGES.keys() - {"README.md"}))
def test_a_page_has_one_title_at_its_top(page: str) -> None:
    """The navigation calls it that."""
    titles = re.findall(r"^# (.+)$", prose_of(page), re.MULTILINE)
    first = next(line for line in text_of(page).splitlines() if line and not line.startswith("<!--"))

    assert titles == [first.removeprefix("# ")]


def test_a_page_of_the_docs_is_named_where_it_is_meant() -> None:
    """In text too: `docs/NAME.md`."""
    named = {name for page in PAGES for name in re.findall(r"docs/([\w-]+\.md)", text_of(page))}

    assert named - PAGES.keys() == set()
