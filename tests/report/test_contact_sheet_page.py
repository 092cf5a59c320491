"""The contact sheet in a real browser, from the disk and from S3."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from callsheet.records import State
from callsheet.report.contact_sheet import sheet as contact_sheet
from callsheet.report.contact_sheet.cards import Card
from callsheet.report.contact_sheet.thumbnails import thumbnail_name
from tests.conftest import Project
from tests.report.contact_sheets import BEGAN, card, with_sheet, written
from tests.servers.browser import Browser, aside, until
from tests.servers.s3 import Server
from tests.waiting import wait_until

Make = Callable[..., Project]
IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1"}
VIDEO = {"model": "dailies-1", "aspect_ratio": "16:9", "duration": 1}
ARABIC = "قطة صغيرة تجلس على نافذة في ضوء المساء"
CHINESE = "秋天的落叶中一只手工制作的陶杯"
HOSTILE = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"
PLAYING = "[...document.querySelectorAll('video')].some((each) => each.currentTime > 0.1 && !each.paused)"


@pytest.fixture
def project(project: Make) -> Make:
    """Projects with a contact sheet."""
    return lambda rows, **service: with_sheet(project(rows, **service))


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """The page in which all tests open theirs."""
    with browser.page() as opened:
        yield opened


@pytest.fixture
def page(tab: Page, browser: Browser) -> Iterator[Page]:
    """An empty page, where motion is welcome; at its end it has complained of nothing, and lacks nothing."""
    browser.empty(tab)
    tab.emulate_media(reduced_motion="no-preference")
    yield tab
    assert (browser.complaints, browser.failures) == ([], [])


@pytest.fixture(scope="module")
def bought(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """The page of a real batch, once it is there: the first test that needs it buys the batch."""
    yield []


@pytest.fixture
def sheet(page: Page, bought: list[Path], project: Make, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The open page of a batch with images, a video, a refusal, and texts of every kind."""
    if not bought:
        rows = [
            {"id": "mug", "prompt": "a red mug", "shot": "hero", **IMAGE},
            {"id": "arabic", "prompt": ARABIC, "shot": "grid", **IMAGE},
            {"id": "chinese", "prompt": CHINESE, "shot": "grid", **IMAGE},
            {"id": HOSTILE, "prompt": HOSTILE, "shot": HOSTILE, **IMAGE},
            {"id": "refused", "prompt": "a forbidden-test-word", "shot": "hero", **IMAGE},
            {"id": "video", "prompt": "waves", "shot": "loop", **VIDEO},
            {"id": "empty", "prompt": "", **IMAGE},  # is rejected
        ]
        made = project(rows)
        made.set(storage={"url": "out/50 % #1?"})  # an address needs another spelling
        aside(lambda: made.run("report.plots=true"))
        folder = tmp_path_factory.mktemp("bought")
        shutil.copytree(made.folder / "out", folder / "out")  # it still works where it is moved to
        bought.append(folder / "out/report/contact-sheet/index.html")
    visit(page, bought[0].as_uri())
    return page


def visit(page: Page, address: str) -> None:
    """Opens a contact sheet and waits until it is drawn."""
    page.goto("about:blank")  # otherwise the same address is scrolled as it was
    page.goto(address)
    page.locator("html[data-ready]").wait_for()


def visit_cards(page: Page, folder: Path, cards: Sequence[Card]) -> None:
    """Opens a contact sheet with these cards, which is written into `folder`."""
    visit(page, aside(lambda: written(folder, cards)).as_uri())


def cards_of(page: Page) -> Locator:
    """The cards in the document."""
    return page.locator("article")


def card_of(page: Page, row_id: str) -> Locator:
    """The card of a row."""
    return page.locator(f"article[data-row-id={row_id}]")


def rows(page: Page) -> list[str]:
    """The row ids of the cards, in their order."""
    found: list[str] = cards_of(page).evaluate_all("all => all.map((each) => each.dataset.rowId)")
    return found


def choose(page: Page, label: str, value: str) -> None:
    """Chooses a value in the list with this label."""
    page.get_by_role("combobox", name=label, exact=True).select_option(label=value)


def state_button(page: Page, state: str) -> Locator:
    """The button that shows the jobs in this state."""
    return page.get_by_role("group", name="State").get_by_role("button", name=state)


def until_drawn(images: Locator, count: int) -> None:
    """Waits until there are so many images, and each is loaded."""
    expect(images).to_have_count(count)
    for each in images.all():
        expect(each).not_to_have_js_property("naturalWidth", 0)


def test_every_job_is_a_card_with_its_picture_and_nothing_comes_from_elsewhere(
    sheet: Page, browser: Browser
) -> None:
    assert rows(sheet) == ["mug", "arabic", "chinese", HOSTILE, "refused", "video"]
    until_drawn(sheet.locator(".frame img"), 5)
    for part in ("refused", "Failed", "safety check", "0.0000", "sketch-1"):
        expect(card_of(sheet, "refused")).to_contain_text(part)
    for part in ("test", "partial", "Stored5 of 6", "USD"):
        expect(sheet.get_by_role("banner")).to_contain_text(part)
    assert {urlsplit(request).scheme for request in browser.requests} == {"file"}


def test_states_have_a_word_a_colour_and_a_shape_of_their_own(page: Page, tmp_path: Path) -> None:
    visit_cards(page, tmp_path, [card(number, state) for number, state in enumerate(State)])
    states = page.locator(".card .state")
    for part in ("innerText", "querySelector('.mark').innerHTML"):
        assert len(set(states.evaluate_all(f"all => all.map((each) => each.{part})"))) == len(State), part
    colours = states.evaluate_all("all => all.map((each) => getComputedStyle(each).color)")
    assert len(set(colours)) == len(State)


def test_filters_search_and_sorting(sheet: Page) -> None:
    state_button(sheet, "failed").click()
    assert rows(sheet) == ["refused"]
    clear, search = sheet.get_by_role("button", name="Clear filters"), sheet.get_by_role("searchbox")
    clear.click()
    assert len(rows(sheet)) == 6
    choose(sheet, "Model", "dailies-1")
    assert rows(sheet) == ["video"]
    choose(sheet, "Model", "all")
    choose(sheet, "shot", "grid")
    assert rows(sheet) == ["arabic", "chinese"]
    clear.click()
    choose(sheet, "Sort", "Most expensive")
    assert rows(sheet)[0] == "video"
    assert rows(sheet)[-1] == "refused"  # which cost nothing
    choose(sheet, "Sort", "Newest first")
    ended = dict(cards_of(sheet).evaluate_all("all => all.map(({job}) => [job.row_id, job.finished_at])"))
    assert rows(sheet) == sorted(ended, key=lambda row: ended[row], reverse=True)
    choose(sheet, "Sort", "Batch order")
    cards_of(sheet).first.focus()
    sheet.keyboard.press("/")
    expect(search).to_be_focused()
    headings = cards_of(sheet).get_by_role("heading")
    for text, found in (("RED mug", "mug"), ("قطة", "arabic"), ("陶杯", "chinese"), ("safety", "refused")):
        search.select_text()
        sheet.keyboard.insert_text(text)
        expect(headings).to_have_text([found])
    sheet.keyboard.insert_text(" nothing like that")
    expect(sheet.get_by_text("No job matches these filters.")).to_be_visible()
    expect(sheet.get_by_role("search").get_by_role("status")).to_have_text("0 of 6 jobs")


def test_an_address_that_0_1_0_gave_a_colleague_opens_the_same(sheet: Page) -> None:
    """Words and addresses outlive a version: these are as that version wrote them."""
    mug = card_of(sheet, "mug").evaluate("(each) => each.job.job_key")
    base = sheet.url.partition("#")[0]
    for address, shown in {
        "state=stored&column+shot=grid": ["arabic", "chinese"],
        "state=stored&state=failed&column+shot=hero&sort=Most+expensive": ["mug", "refused"],
        "search=waves&review=unmarked": ["video"],
        "sort=Newest+first&review=flagged": [],
    }.items():
        visit(sheet, f"{base}#{address}")
        assert rows(sheet) == shown, address
    visit(sheet, f"{base}#search=mug&job={mug[:16]}")
    expect(sheet.locator("#viewer")).to_be_visible()
    expect(sheet.locator("#stage img")).to_have_count(1)


def test_a_column_of_many_values_is_searched_by_a_part_of_them(page: Page, tmp_path: Path) -> None:
    """On a phone, too, where the filters scroll and the page does not."""
    page.set_viewport_size({"width": 390, "height": 844})
    states = [*State] * 5
    visit_cards(page, tmp_path, [card(n, states[n], carried=[("sku", f"Shop-{n:03d}")]) for n in range(40)])
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    field, shown = page.get_by_role("combobox", name="sku", exact=True), page.locator("#count")
    field.fill("shop-01")
    expect(shown).to_have_text("10 of 40 jobs")
    assert len(rows(page)) == 10
    offered = page.locator("datalist option")
    expect(offered).to_have_count(10)
    visit(page, page.url)  # the address has the filter
    expect(shown).to_have_text("10 of 40 jobs")
    page.get_by_role("button", name="Clear filters").click()
    expect(shown).to_have_text("40 jobs")
    assert page.locator("#choices select").count() == 1  # of the model, which has four values


def test_what_is_chosen_before_all_jobs_are_known_and_what_the_address_says_of_them_both_hold(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contact_sheet, "PER_PART", 4)
    cards = [card(n, carried=[("shot", "early" if n < 4 else f"late-{n % 2}")]) for n in range(8)]
    address = aside(lambda: written(tmp_path, cards)).as_uri()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/overview.js*", hold)
    page.goto(f"{address}#column+shot=late-1")
    page.locator("#search").fill("mug")
    until(page, "location.hash.includes('search=mug')")
    assert "column+shot=late-1" in page.url
    [overview] = held
    overview.continue_()
    page.locator("html[data-ready]").wait_for()
    expect(cards_of(page).get_by_role("heading")).to_have_text(["row-00005", "row-00007"])
    assert "search=mug" in page.url
    page.unroute_all()


def asked_for(browser: Browser) -> list[str]:
    """The names of the scripts and pictures that the page has asked for, in order."""
    names = [urlsplit(url).path.rpartition("/")[2] for url in browser.requests]
    own = {*contact_sheet.ASSETS, "index.html", "summary.js"}
    return [name for name in names if name not in own]


def test_the_first_pictures_come_before_anything_else_and_other_parts_as_they_are_looked_at(
    page: Page, browser: Browser, tmp_path: Path
) -> None:
    visit_cards(page, tmp_path, [card(number) for number in range(4_000)])
    first, *others = asked_for(browser)
    assert first == "jobs-0000.js"
    assert [others.pop(), others.pop()] == ["news.js", "overview.js"]
    assert {Path(name).suffix for name in others} == {".jpg"}
    browser.forget()
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight * 0.56)")
    expect(card_of(page, "row-02250")).to_be_in_viewport()
    expect(card_of(page, "row-02250").locator("img")).not_to_have_js_property("naturalWidth", 0)
    assert [name for name in asked_for(browser) if name.endswith(".js")] == ["jobs-0004.js"]


def test_parts_come_one_at_a_time_and_not_those_that_were_scrolled_past(
    page: Page, browser: Browser, tmp_path: Path
) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/jobs-0002.js*", hold)
    visit_cards(page, tmp_path, [card(number) for number in range(4_000)])
    browser.forget()
    for share in (0.31, 0.56, 0.81):
        page.evaluate(f"scrollTo(0, document.documentElement.scrollHeight * {share})")
        until(page, f"document.querySelector('.blank')?.ariaPosInSet > {3_600 * share}")
    wait_until(lambda: len(held) == 1, "the part is not asked for")
    assert [name for name in asked_for(browser) if name.endswith(".js")] == ["jobs-0002.js"]
    [part] = held
    part.continue_()
    expect(card_of(page, "row-03250")).to_be_in_viewport()
    assert [name for name in asked_for(browser) if name.endswith(".js")] == ["jobs-0002.js", "jobs-0006.js"]
    page.unroute_all()


def test_what_is_marked_compared_and_undone_may_be_of_parts_that_are_not_here(
    page: Page, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row's jobs are in two parts; and the page has dropped the part of the mark that is undone."""
    monkeypatch.setattr(contact_sheet, "PER_PART", 10)
    cards = [card(number) for number in range(600)]
    cards[9:11] = [card(9 + n, row_id="pair", ordinal=n + 1, of=2) for n in range(2)]
    visit_cards(page, tmp_path, cards)
    cards_of(page).first.focus()
    page.keyboard.press("x")
    page.get_by_role("group", name="Review").get_by_role("button", name="rejected").click()
    expect(page.locator("#count")).to_have_text("1 of 600 jobs")
    page.get_by_role("button", name="Clear filters").click()
    for _ in range(8):
        last = rows(page)[-1]
        page.evaluate("scrollBy(0, 2 * innerHeight)")
        wait_until(lambda last=last: rows(page)[-1] != last, "nothing else is seen")
        expect(page.locator(".card.blank")).to_have_count(0)
    assert page.evaluate("callsheet.job(0) ?? null") is None
    cards_of(page).last.focus()
    page.keyboard.press("z")
    expect(card_of(page, "row-00000")).to_be_focused()
    expect(page.locator("[data-decision=rejected].card")).to_have_count(0)
    page.locator("#search").fill("pair")
    expect(cards_of(page)).to_have_count(2)
    cards_of(page).last.focus()
    page.keyboard.press("c")
    expect(page.locator("#compare").get_by_role("figure")).to_have_count(2)
    page.keyboard.press("Escape")
    browser.forget()  # of the files, which are not there


def test_a_job_without_a_file_is_shown_large_with_its_reason_its_request_and_the_command_that_mends_it(
    sheet: Page,
) -> None:
    """The arrow keys pass from a file to it, and on to the next file."""
    cards_of(sheet).filter(has_text="onerror").click()
    expect(sheet.get_by_role("dialog").get_by_role("img")).to_be_visible()
    sheet.keyboard.press("ArrowRight")
    shown = sheet.get_by_role("dialog", name="refused")
    expect(shown.locator("#stage")).to_contain_text("The prompt does not pass the safety check.")
    expect(shown.locator("#stage code")).to_have_text("callsheet failed CONFIG --csv")
    for part in ("a forbidden-test-word", "sketch-1", "output_format", "jpeg"):
        expect(shown.locator(".side")).to_contain_text(part)
    sheet.keyboard.press("ArrowRight")
    expect(sheet.get_by_role("dialog", name="video").locator("video")).to_be_visible()
    sheet.keyboard.press("ArrowLeft")
    expect(shown).to_be_visible()


def test_a_video_plays_while_the_pointer_is_on_it_and_in_the_viewer(sheet: Page) -> None:
    shown, video = card_of(sheet, "video"), card_of(sheet, "video").locator("video")
    shown.hover()
    until(sheet, PLAYING)
    expect(video).to_have_js_property("muted", True)
    sheet.get_by_role("searchbox").hover()
    expect(video).to_have_count(0)
    shown.click()
    expect(sheet.get_by_role("dialog").locator("video")).to_have_js_property("controls", True)
    until(sheet, "document.querySelector('#viewer video').currentTime > 0")


def test_nothing_moves_where_the_system_asks_for_less_motion(sheet: Page) -> None:
    sheet.emulate_media(reduced_motion="reduce")
    card_of(sheet, "video").hover()
    sheet.wait_for_timeout(400)  # twice what the pointer has to rest
    expect(sheet.locator("video")).to_have_count(0)


def test_what_users_write_is_text_everywhere_and_reads_in_its_own_direction(sheet: Page) -> None:
    for row_id, prompt, direction in (("arabic", ARABIC, "rtl"), ("chinese", CHINESE, "ltr")):
        shown = card_of(sheet, row_id).locator(".prompt")
        expect(shown).to_have_text(prompt)
        expect(shown).to_have_css("direction", direction)
        assert shown.evaluate("(each) => each.scrollWidth <= each.clientWidth")
    hostile = cards_of(sheet).filter(has_text="onerror")
    expect(hostile).to_contain_text("<script>")
    hostile.click()
    assert sheet.get_by_role("dialog").inner_text().count("onerror") == 3  # row, prompt and column
    expect(sheet).to_have_title("test: contact sheet")
    expect(sheet.locator("#viewer script, .cards script, [onerror]")).to_have_count(0)


def test_the_keyboard_reaches_everything_and_the_focus_is_kept(sheet: Page) -> None:
    sheet.keyboard.press("Tab")
    expect(sheet.get_by_role("link", name="Skip to the jobs")).to_be_focused()
    sheet.keyboard.press("Enter")
    expect(sheet.get_by_role("feed")).to_be_focused()
    sheet.keyboard.press("ArrowRight")
    expect(card_of(sheet, "arabic")).to_be_focused()
    sheet.keyboard.press("End")
    expect(card_of(sheet, "video")).to_be_focused()
    sheet.keyboard.press("Home")
    expect(card_of(sheet, "mug")).to_be_focused()
    sheet.keyboard.press("Enter")
    expect(sheet.get_by_role("dialog", name="mug")).to_be_visible()
    sheet.keyboard.press("ArrowRight")
    expect(sheet.get_by_role("dialog", name="arabic")).to_be_visible()
    sheet.keyboard.press("Escape")
    expect(sheet.locator("#viewer")).not_to_be_visible()
    expect(card_of(sheet, "arabic")).to_be_focused()


def test_a_screen_reader_hears_names_states_and_places(sheet: Page) -> None:
    articles = sheet.get_by_role("feed", name="Jobs", exact=True).get_by_role("article")
    names = ["mug", "arabic", "chinese", HOSTILE, "refused", "video"]
    expect(articles).to_have_count(len(names))
    for place, name in enumerate(names):
        expect(articles.nth(place)).to_have_accessible_name(name)
    places = articles.evaluate_all("all => all.map((each) => [each.ariaPosInSet, each.ariaSetSize])")
    assert places == [[str(place), "6"] for place in range(1, 7)]
    controls = re.findall(r"- (?:button|combobox|searchbox).*", sheet.locator("body").aria_snapshot())
    assert len(controls) > 5
    assert [each for each in controls if not re.match(r'- \w+ "\S', each)] == []
    expect(sheet.get_by_role("img", name="Jobs by state: 5 stored, 1 failed", exact=True)).to_be_visible()


def test_light_and_dark_at_every_width(sheet: Page) -> None:
    brightness = "getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g).map(Number)[0]"
    address = sheet.url
    for theme, is_right in (("light", lambda value: value > 200), ("dark", lambda value: value < 50)):
        sheet.emulate_media(color_scheme=theme)
        for width in (390, 1280, 1920):
            sheet.set_viewport_size({"width": width, "height": 900})
            visit(sheet, address)
            assert is_right(sheet.evaluate(brightness))
            assert sheet.evaluate("document.documentElement.scrollWidth") <= width
            box = cards_of(sheet).first.bounding_box()
            assert box
            assert box["width"] > 120


def test_the_header_is_one_line_and_a_figure_is_whole_or_not_seen(sheet: Page) -> None:
    title, keys = sheet.get_by_role("heading", level=1), sheet.get_by_role("button", name="Keys")
    figures = sheet.locator("#figures")
    for width, seen in ((1200, "Spent"), (1400, "Reviewed")):
        sheet.set_viewport_size({"width": width, "height": 900})
        expect(sheet.get_by_role("link", name="1 rejected row")).to_be_visible()
        [top, line, frame] = [each.bounding_box() for each in (title, keys, figures)]
        assert top and line and frame
        assert line["y"] < top["y"] + top["height"] / 2 < line["y"] + line["height"]
        for figure in figures.locator(".figure").all():
            box = figure.bounding_box()
            assert box
            is_seen = box["y"] < frame["y"] + frame["height"]
            assert not is_seen or box["x"] + box["width"] <= frame["x"] + frame["width"]
            assert is_seen or seen not in figure.inner_text()
    expect(figures).to_have_attribute("title", re.compile("^Stored: 5 of 6\n.*\nWritten: ", re.DOTALL))


def test_of_very_many_cards_few_are_in_the_document_and_all_are_found(page: Page, tmp_path: Path) -> None:
    states = [State.STORED] * 99 + [State.FAILED]
    visit_cards(page, tmp_path, [card(number, states[number % 100]) for number in range(2_100)])
    expect(page.locator("#count")).to_have_text("2,100 jobs")
    assert len(rows(page)) < 200
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight / 2)")
    expect(card_of(page, "row-01050")).to_be_in_viewport()
    expect(card_of(page, "row-01050").locator("img")).not_to_have_js_property("naturalWidth", 0)
    cards_of(page).first.focus()
    page.keyboard.press("End")
    expect(card_of(page, "row-02099")).to_be_focused()
    assert len(rows(page)) < 200
    state_button(page, "failed").click()
    expect(cards_of(page)).to_have_count(21)
    expect(page.locator("[aria-setsize='21']")).to_have_count(21)


def test_a_thumbnail_that_is_not_there_any_more_is_a_card_without_a_picture(
    page: Page, browser: Browser, tmp_path: Path
) -> None:
    address = aside(lambda: written(tmp_path, [card(number) for number in range(2)]))
    (tmp_path / thumbnail_name(card(1).files[0].sha256)).unlink()
    visit(page, address.as_uri())
    expect(card_of(page, "row-00001")).to_contain_text("No preview")
    expect(card_of(page, "row-00001").locator("img")).to_have_count(0)
    expect(card_of(page, "row-00000").locator("img")).to_be_visible()
    browser.forget()  # of the file that is missing


def test_a_batch_without_jobs_says_so(page: Page, project: Make) -> None:
    made = project([{"id": "empty", "prompt": "", **IMAGE}])
    aside(made.run)
    visit(page, (made.folder / "out/report/contact-sheet/index.html").as_uri())
    expect(page.get_by_text("This batch has no jobs.")).to_be_visible()
    expect(page.get_by_role("banner")).to_contain_text("1 rejected row")
    expect(cards_of(page)).to_have_count(0)


def test_the_page_updates_by_itself_and_keeps_filters_and_focus(page: Page, tmp_path: Path) -> None:
    cards = [card(number) for number in range(4)] + [card(4, State.PENDING), card(5, State.PLANNED)]
    visit_cards(page, tmp_path, cards)
    expect(page.get_by_role("banner").get_by_role("status")).to_have_text(re.compile("^updates by itself"))
    state_button(page, "stored").click()
    kept = card_of(page, "row-00002")
    kept.focus()
    kept.evaluate("(each) => { each.kept = true }")
    cards[4] = replace(card(4), finished_at=BEGAN.isoformat())
    aside(lambda: written(tmp_path, cards, "complete"))
    expect(cards_of(page)).to_have_count(5)
    assert rows(page)[-1] == "row-00004"
    until_drawn(card_of(page, "row-00004").locator("img"), 1)
    expect(kept).to_be_focused()
    expect(kept).to_have_js_property("kept", True)  # it is the same element: nothing flickers
    expect(page.locator("#outcome")).to_have_text("complete")
    page.evaluate("performance.clearResourceTimings()")
    page.wait_for_timeout(400)  # four times as long as it waited before
    assert page.evaluate("performance.getEntriesByType('resource').length") == 0


def test_a_run_that_is_silent_is_said_to_be_with_the_command_that_writes_the_page(
    page: Page, tmp_path: Path
) -> None:
    aside(lambda: written(tmp_path, [card(number) for number in range(3)]))
    [summary] = tmp_path.rglob("summary.js")
    text = re.sub('"written":"[^"]+"', f'"written":"{BEGAN.isoformat()}"', summary.read_text())
    summary.write_text(text)
    visit(page, next(tmp_path.rglob("index.html")).as_uri())
    status = page.get_by_role("banner").get_by_role("status")
    expect(status).to_have_text(re.compile("^No word since .* callsheet report CONFIG writes this page anew"))
    expect(status).to_have_class(re.compile("silent"))
    expect(page.locator("#outcome")).to_have_text("silent")


def test_the_plots_are_shown_and_in_words_too(sheet: Page) -> None:
    sheet.get_by_text("Plots", exact=True).click()
    plots = sheet.locator("#plots img")
    plots.evaluate_all("all => all.forEach((each) => { each.loading = 'eager' })")
    expect(plots).to_have_js_property("naturalWidth", 1584)
    expect(plots).to_have_attribute("alt", re.compile("^Spent over time: 0.0140 USD; by model: "))


def test_signed_links_open_the_page_and_the_files_of_a_private_bucket(
    page: Page, browser: Browser, project: Make, s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    from callsheet.config.load import load
    from callsheet.report.contact_sheet.cards import Links
    from callsheet.report.contact_sheet.sheet import INDEX

    made = project(
        [{"id": "mug", "prompt": "a red mug", **IMAGE}, {"id": "video", "prompt": "waves", **VIDEO}]
    )
    made.set(
        storage={"url": f"s3://{s3.bucket}/signed/media", "endpoint_url": s3.endpoint_url},
        report={"url": f"s3://{s3.bucket}/signed/report", "links_valid_for": 600},
    )
    aside(made.run)
    visit(page, Links(load(made.config, ())).to_own(INDEX))
    assert rows(page) == ["mug", "video"]
    until_drawn(page.locator(".frame img"), 2)
    card_of(page, "video").hover()
    until(page, PLAYING)
    card_of(page, "mug").click()
    expect(page.get_by_role("dialog").get_by_role("img")).to_have_js_property("naturalWidth", 256)
    assert [url for url in browser.requests if not url.startswith(s3.endpoint_url)] == []
