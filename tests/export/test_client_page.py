"""The page for a client: looked at and marked from a disk in a real browser, and what comes back of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

import callsheet
from tests.cli.test_rows import printed
from tests.conftest import Make, Project
from tests.servers.browser import Browser, aside

HOSTILE = "</script><img src=x onerror=\"document.title = 'owned'\">"
NOTE = 'too dark, "really"\n=1+1'
ROWS = [
    {"id": "mug", "prompt": "a secret glaze", "model": "sketch-1", "samples": 3, "shelf": "a secret place"},
    {"id": "50 % #1?", "prompt": "a secret lamp", "model": "sketch-1"},
    {"id": HOSTILE, "prompt": "a secret text", "model": "sketch-1"},
    {"id": "waves", "prompt": "a secret sea", "model": "dailies-1", "duration": 1},
]


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    with browser.page() as opened:
        yield opened


@pytest.fixture
def page(tab: Page, browser: Browser) -> Iterator[Page]:
    """An empty page; at its end it has complained of nothing, and asked no network for anything."""
    browser.empty(tab)
    yield tab
    assert (browser.complaints, browser.failures) == ([], [])
    assert {urlsplit(request).scheme for request in browser.requests} <= {"file", "blob"}


@pytest.fixture
def made(project: Make) -> Project:
    """A batch of which one file is kept, one rejected, and one has a note."""
    made = project(ROWS)
    aside(made.run)
    review(made, "--reject", "mug/2")
    review(made, "--keep", HOSTILE, "--note", HOSTILE)
    return made


def review(made: Project, *words: str) -> str:
    return aside(lambda: printed("review", str(made.config), *words))


def exported(made: Project, *words: str) -> Path:
    aside(lambda: printed("export", str(made.config), "--to", "out/page", "--as", "page", *words))
    return made.folder / "out/page"


def visit(page: Page, folder: Path) -> None:
    page.goto("about:blank")
    page.goto((folder / "index.html").as_uri())


def card_of(page: Page, title: str) -> Locator:
    return page.get_by_role("article", name=title, exact=True)


def button(page: Page, title: str, name: str) -> Locator:
    return card_of(page, title).get_by_role("button", name=name)


def saved(page: Page, made: Project, marked: str | re.Pattern[str]) -> Path:
    """`marks.csv`, by the button; the page says how many files are `marked`."""
    expect(page.get_by_role("status")).to_have_text(marked)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save marks.csv").click()
    assert download.value.suggested_filename == "marks.csv"
    download.value.save_as(made.folder / "marks.csv")
    return made.folder / "marks.csv"


def said(made: Project) -> dict[tuple[str, int], tuple[str | None, str | None, str | None]]:
    """What was decided about each file that has a mark, why and by whom."""
    reviews = aside(lambda: callsheet.reviews(made.config, as_arrow=True)).to_pylist()
    return {
        (row["row_id"], row["sample"]): (row["decision"], row["note"], row["decided_by"])
        for row in reviews
        if row["decided_by"]
    }


def test_a_client_marks_by_keys_and_buttons_and_review_takes_the_marks_with_the_client_s_name(
    page: Page, made: Project
) -> None:
    before = said(made)
    folder = exported(made)
    visit(page, folder)
    titles = page.get_by_role("article").evaluate_all("all => all.map((card) => card.ariaLabel)")
    assert titles == ["mug 1", "mug 3", "50 % #1?", HOSTILE, "waves"], "what is rejected is not shown"
    for image in page.locator("article img").all():
        image.scroll_into_view_if_needed()
        expect(image).not_to_have_js_property("naturalWidth", 0)
    expect(page.locator("article video")).not_to_have_js_property("videoWidth", 0)
    page.keyboard.press("k")  # the first, and on to the next
    page.keyboard.press("x")
    page.keyboard.press("n")
    page.keyboard.insert_text(NOTE)
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")  # into the card, where arrows move to the next one, too
    page.keyboard.press("ArrowRight")
    expect(card_of(page, HOSTILE)).to_be_focused()
    note = page.get_by_label(f"Note on {HOSTILE}")
    expect(note).to_have_value(HOSTILE)
    note.fill("for the cover")
    button(page, "waves", "Reject").click()
    expect(button(page, "waves", "Reject")).to_have_attribute("aria-pressed", "true")
    button(page, "waves", "Reject").click()  # takes it back
    visit(page, folder)
    expect(button(page, "mug 3", "Reject")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Save marks.csv").click()
    expect(page.get_by_label("Your name")).to_be_focused()  # nothing is saved without a name
    page.get_by_label("Your name").fill("Ada, the client")
    path = saved(page, made, "4 of 5 marked")
    assert "4 files marked" in review(made, "--from", str(path))
    assert "0 files marked" in review(made, "--from", str(path))
    assert said(made) == before | {
        ("mug", 1): ("kept", None, "Ada, the client"),
        ("mug", 3): ("rejected", None, "Ada, the client"),
        ("50 % #1?", 1): (None, NOTE, "Ada, the client"),
        (HOSTILE, 1): ("kept", "for the cover", "Ada, the client"),
    }, "a note alone takes no decision back"


def test_a_client_sees_nothing_of_money_models_prompts_or_places(made: Project) -> None:
    folder = exported(made)
    texts = {
        path.name: path.read_text() for path in folder.iterdir() if path.suffix in (".html", ".csv", ".json")
    }
    assert texts.keys() == {"index.html", "files.csv", "callsheet-export.json"}
    words = ["secret", "shelf", "sketch-1", "dailies-1", "cost", "USD", "quote", "model", "prompt", "http:"]
    words += ["callsheet review", "callsheet export", "rejected_by", "sqlite", "ledger.db", str(made.folder)]
    words += made.manifest()["generation_id"].to_list()
    words += [f"{cost:f}".rstrip("0") for cost in made.manifest()["cost"]]
    assert [(name, word) for name, text in texts.items() for word in words if word in text] == []
    for path in folder.iterdir():
        assert not [word for word in (b"secret", b"sketch-1", b"dailies-1") if word in path.read_bytes()]


def test_a_page_is_brought_up_to_date_and_what_a_client_keeps_too_has_the_client_s_name(
    page: Page, made: Project
) -> None:
    folder = exported(made, "--kept")
    assert len([*folder.iterdir()]) == 4
    review(made, "--clear", HOSTILE)
    review(made, "--keep", "mug/3")
    review(made, "--keep", "waves", "--note", "the calm one")
    exported(made, "--kept")
    assert {path.name for path in folder.iterdir()} == {
        *("index.html", "files.csv", "callsheet-export.json"),
        *("mug.jpeg", "waves.mp4"),
    }
    visit(page, folder)
    expect(page.get_by_label("Note on waves")).to_have_value("the calm one")
    button(page, "waves", "Keep").click()
    page.get_by_label("Your name").fill("Ada")
    review(made, "--from", str(saved(page, made, "1 of 2 marked")))
    assert said(made)["waves", 1] == ("kept", "the calm one", "Ada")


def test_a_client_marks_by_touch_on_a_phone_and_hears_that_the_browser_keeps_nothing(
    page: Page, made: Project
) -> None:
    folder = exported(made)
    running = page.context.browser
    assert running
    phone = running.new_context(
        viewport={"width": 390, "height": 800}, has_touch=True, color_scheme="dark", accept_downloads=True
    )
    try:
        strict = phone.new_page()
        strict.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw Error() }})")
        visit(strict, folder)
        button(strict, "waves", "Keep").tap()
        assert strict.evaluate("document.documentElement.scrollWidth") == 390
        parts = strict.locator("button, input, textarea")
        assert min(parts.evaluate_all("all => all.map((part) => part.offsetHeight)")) >= 44
        assert strict.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 22, 22)"
        expect(strict.get_by_role("status")).to_contain_text("This browser keeps no marks")
        strict.get_by_label("Your name").fill("Ada")
        path = saved(strict, made, re.compile("1 of 5 marked"))
    finally:
        phone.close()
    review(made, "--from", str(path))
    assert said(made)["waves", 1] == ("kept", None, "Ada")
