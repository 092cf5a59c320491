"""The contact sheet in a real browser, from the disk and from S3."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from callsheet.records import State
from tests.conftest import Project
from tests.report.contact_sheets import BEGAN, card, with_sheet, written
from tests.servers.browser import Browser
from tests.servers.chromium import Page, driven
from tests.servers.s3 import Server

Make = Callable[..., Project]
IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1"}
VIDEO = {"model": "dailies-1", "aspect_ratio": "16:9", "duration": 1}
ARABIC = "قطة صغيرة تجلس على نافذة في ضوء المساء"
CHINESE = "秋天的落叶中一只手工制作的陶杯"
HOSTILE = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"
READY = "document.documentElement.dataset.ready === ''"
SHOWN = "[...document.querySelectorAll('article')].map(each => each.dataset.rowId)"


@pytest.fixture
def project(project: Make) -> Make:
    """Projects with a contact sheet."""
    return lambda rows, **service: with_sheet(project(rows, **service))


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """The page in which all tests open theirs: a window for each would cost most of their time."""
    with driven(browser.address) as running, running.page("about:blank") as opened:
        yield opened


@pytest.fixture(scope="module")
def bought(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """The page of a real batch, once it is there: the first test that needs it buys the batch."""
    yield []


@pytest.fixture
def page(tab: Page, bought: list[Path], project: Make, tmp_path_factory: Any) -> Iterator[Page]:
    """The open page of a batch with images, a video, a refusal, and texts of every kind."""
    if not bought:
        rows = [
            {"id": "mug", "prompt": "a red mug", "shot": "hero", **IMAGE},
            {"id": "arabic", "prompt": ARABIC, "shot": "grid", **IMAGE},
            {"id": "chinese", "prompt": CHINESE, "shot": "grid", **IMAGE},
            {"id": HOSTILE, "prompt": HOSTILE, "shot": HOSTILE, **IMAGE},
            {"id": "refused", "prompt": "a forbidden-test-word", "shot": "hero", **IMAGE},
            {"id": "video", "prompt": "waves", "shot": "loop", **VIDEO},
        ]
        made = project(rows)
        made.run("report.plots=true")
        folder = tmp_path_factory.mktemp("bought")
        shutil.copytree(made.folder / "out", folder / "out")  # it still works where it is moved to
        bought.append(folder / "out/report/contact-sheet/index.html")
    tab.open(bought[0].as_uri())
    tab.until(READY)
    yield tab
    assert tab.complaints == []
    assert tab.failures == []


def rows(page: Page) -> list[str]:
    """The row ids of the cards, in their order."""
    return page.evaluate(SHOWN)


def choose(page: Page, label: str, value: str) -> None:
    """Chooses a value in the list with this label."""
    page.evaluate(f"""(() => {{
        const label = [...document.querySelectorAll('.choice')]
            .find((each) => each.textContent.startsWith({json.dumps(label)}));
        const select = label.querySelector('select');
        select.selectedIndex = [...select.options].findIndex((each) => each.text === {json.dumps(value)});
        select.dispatchEvent(new Event('change'));
    }})()""")


def test_every_job_is_a_card_with_its_picture_and_nothing_comes_from_elsewhere(page: Page) -> None:
    assert rows(page) == ["mug", "arabic", "chinese", HOSTILE, "refused", "video"]
    page.until(
        "[...document.querySelectorAll('.frame img')].filter((each) => each.naturalWidth).length === 5"
    )
    text = page.evaluate("document.querySelector('[data-row-id=refused]').innerText")
    for part in ("refused", "Failed", "safety check", "0.0000", "sketch-1"):
        assert part in text
    header = page.evaluate("document.querySelector('header').innerText")
    for part in ("test", "partial", "5 of 6 stored", "USD"):
        assert part in header
    assert {request.partition(":")[0] for request in page.requests} <= {"file", "data"}


def test_states_have_a_word_a_colour_and_a_shape_of_their_own(tab: Page, tmp_path: Path) -> None:
    path = written(tmp_path, [card(number, state) for number, state in enumerate(State)])
    tab.open(path.as_uri())
    tab.until(READY)
    for part in ("innerText", "querySelector('.mark').innerHTML"):
        shown = tab.evaluate(f"[...document.querySelectorAll('.card .state')].map((each) => each.{part})")
        assert len(set(shown)) == len(State), part
    colours = tab.evaluate(
        "[...document.querySelectorAll('.card .state')].map((each) => getComputedStyle(each).color)"
    )
    assert len(set(colours)) == len(State)


def test_filters_search_and_sorting(page: Page) -> None:
    page.point("#states [data-state=failed]", click=True)
    assert rows(page) == ["refused"]
    page.point("#clear", click=True)
    assert len(rows(page)) == 6
    choose(page, "Model", "dailies-1")
    assert rows(page) == ["video"]
    choose(page, "Model", "all")
    choose(page, "shot", "grid")
    assert rows(page) == ["arabic", "chinese"]
    page.point("#clear", click=True)
    choose(page, "Sort", "Most expensive")
    assert rows(page)[0] == "video"
    assert rows(page)[-1] == "refused"  # which cost nothing
    choose(page, "Sort", "Newest first")
    ended = dict(page.evaluate("callsheet.jobsOf(0, 1).map((job) => [job.row, job.ended])"))
    assert rows(page) == sorted(ended, key=lambda row: ended[row], reverse=True)
    choose(page, "Sort", "Batch order")
    page.press("/")
    for text, found in (("RED mug", "mug"), ("قطة", "arabic"), ("陶杯", "chinese"), ("safety", "refused")):
        page.evaluate("document.activeElement.select()")
        page.type(text)
        page.until(f"{SHOWN}.join() === {json.dumps(found)}")
    page.type(" nothing like that")
    page.until("!document.getElementById('empty').hidden")
    assert page.evaluate("document.getElementById('count').textContent") == "0 of 6 jobs"


def test_a_video_plays_while_the_pointer_is_on_it_and_in_the_viewer(page: Page) -> None:
    video = "document.querySelector('[data-row-id=video] video')"
    page.evaluate("document.querySelector('[data-row-id=video]').scrollIntoView({block: 'center'})")
    page.point("[data-row-id=video]")
    page.until(f"{video}?.currentTime > 0.1 && !{video}.paused && {video}.muted")
    page.point("#search")
    page.until(f"!{video}")
    page.point("[data-row-id=video]", click=True)
    page.until("document.querySelector('#viewer video')?.currentTime > 0")
    assert page.evaluate("document.querySelector('#viewer video').controls")


def test_nothing_moves_where_the_system_asks_for_less_motion(page: Page) -> None:
    page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    page.evaluate("document.querySelector('[data-row-id=video]').scrollIntoView({block: 'center'})")
    page.point("[data-row-id=video]")
    page.evaluate("new Promise((done) => setTimeout(done, 400))")  # twice what the pointer has to rest
    assert page.evaluate("document.querySelectorAll('video').length") == 0


def test_what_users_write_is_text_everywhere(page: Page) -> None:
    hostile = next(
        card
        for card in page.evaluate("[...document.querySelectorAll('.card')].map((each) => each.innerText)")
        if "onerror" in card
    )
    assert "<script>" in hostile
    page.evaluate(
        "[...document.querySelectorAll('.card')].find((one) => one.dataset.rowId.includes('onerror')).click()"
    )
    shown = page.evaluate("document.querySelector('#viewer').innerText")
    assert shown.count("onerror") == 3  # the row, the prompt and the column
    assert page.evaluate("document.title") == "test: contact sheet"
    assert page.evaluate("document.querySelectorAll('#viewer script, .cards script, [onerror]').length") == 0


DIFFERENT = """((font, text) => {
    const context = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    context.font = font;
    return new Set([...text].map((character) => {
        context.clearRect(0, 0, 300, 150);
        context.fillText(character, 20, 60);
        return context.getImageData(0, 0, 100, 100).data.join();
    })).size;
})"""  # how many of these characters do not look the same, as they all do in a font that does not have them


def test_arabic_and_chinese_prompts_are_legible(page: Page) -> None:
    has_chinese = subprocess.run(["fc-list", ":lang=zh"], capture_output=True, check=False).stdout
    for row_id, prompt, direction in (("arabic", ARABIC, "rtl"), ("chinese", CHINESE, "ltr")):
        selector = f"document.querySelector('[data-row-id={row_id}] .prompt')"
        assert page.evaluate(f"{selector}.textContent") == prompt
        assert page.evaluate(f"getComputedStyle({selector}).direction") == direction
        assert page.evaluate(f"{selector}.scrollWidth <= {selector}.clientWidth")
        if row_id == "arabic" or has_chinese:
            letters = prompt.replace(" ", "")
            font = f"'40px ' + getComputedStyle({selector}).fontFamily"
            assert page.evaluate(f"{DIFFERENT}({font}, {json.dumps(letters)})") == len({*letters})


def test_the_keyboard_reaches_everything_and_the_focus_is_kept(page: Page) -> None:
    focused = "document.activeElement.dataset.rowId"
    page.evaluate("document.querySelector('.skip').focus()")
    page.press("Enter")
    page.until("document.activeElement.id === 'cards'")
    page.press("ArrowRight")
    assert page.evaluate(focused) == "arabic"
    page.press("End")
    assert page.evaluate(focused) == "video"
    page.press("Home")
    page.press("Enter")
    assert page.evaluate("document.querySelector('#viewer h2').textContent") == "mug"
    page.press("ArrowRight")
    assert page.evaluate("document.querySelector('#viewer h2').textContent") == "arabic"
    page.press("Escape")
    page.until(f"!document.querySelector('#viewer').open && {focused} === 'arabic'")


def test_a_screen_reader_hears_names_states_and_places(page: Page) -> None:
    page.send("Accessibility.enable")
    nodes = page.send("Accessibility.getFullAXTree")["nodes"]
    page.send("Accessibility.disable")
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"]
    ]
    assert ("feed", "Jobs") in named
    assert [name for role, name in named if role == "article"] == [
        *("mug", "arabic", "chinese", HOSTILE, "refused", "video")
    ]
    assert [name for role, name in named if role in ("button", "combobox", "searchbox") and not name] == []
    assert (
        page.evaluate("document.querySelector('[data-row-id=chinese]').getAttribute('aria-posinset')") == "3"
    )
    assert page.evaluate("document.querySelector('[data-row-id=mug]').getAttribute('aria-setsize')") == "6"
    progress = page.evaluate("document.getElementById('progress').getAttribute('aria-label')")
    assert progress == "Jobs by state: 5 stored, 1 failed"


def test_light_and_dark_at_every_width(page: Page, bought: list[Path]) -> None:
    brightness = "getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g).map(Number)[0]"
    for theme, is_right in (("light", lambda value: value > 200), ("dark", lambda value: value < 50)):
        for width in (400, 1280, 1920):
            page.open(bought[0].as_uri(), width=width, prefers_color_scheme=theme)
            page.until(READY)
            assert is_right(page.evaluate(brightness))
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate("document.querySelector('.card').getBoundingClientRect().width") > 120


@pytest.mark.soak
def test_ten_thousand_cards_are_there_and_few_are_in_the_document(tab: Page, tmp_path: Path) -> None:
    states = [State.STORED] * 99 + [State.FAILED]
    path = written(tmp_path, [card(number, states[number % 100]) for number in range(10_000)])
    tab.open(path.as_uri())
    tab.until(READY)
    assert tab.evaluate("document.getElementById('count').textContent") == "10,000 jobs"
    assert len(rows(tab)) < 200
    tab.evaluate("scrollTo(0, document.documentElement.scrollHeight / 2)")
    tab.until("[...document.querySelectorAll('.frame img')].some((each) => each.naturalWidth)")
    middle = tab.evaluate("document.elementFromPoint(300, 500).closest('article').dataset.rowId")
    assert 4_900 < int(middle.removeprefix("row-")) < 5_100
    tab.evaluate("document.querySelector('.card').focus()")
    tab.press("End")
    assert tab.evaluate("document.activeElement.dataset.rowId") == "row-09999"
    assert len(rows(tab)) < 200
    tab.point("#states [data-state=failed]", click=True)
    assert len(rows(tab)) == 100
    assert tab.evaluate("document.querySelectorAll('[aria-setsize=\"100\"]').length") == 100
    assert tab.complaints == []


def test_a_batch_without_jobs_says_so(tab: Page, project: Make) -> None:
    made = project([{"id": "empty", "prompt": "", **IMAGE}])
    made.run()
    tab.open((made.folder / "out/report/contact-sheet/index.html").as_uri())
    tab.until(READY)
    assert tab.evaluate("document.getElementById('empty').textContent") == "This batch has no jobs."
    assert "1 row of the batch file rejected" in tab.evaluate("document.querySelector('header').innerText")
    assert (tab.complaints, rows(tab)) == ([], [])


def test_more_than_ten_thousand_are_shown_in_sections(tab: Page, tmp_path: Path) -> None:
    cards = [card(number, State.PLANNED) for number in range(10_400)]
    cards[10_100] = card(10_100, State.FAILED)
    path = written(tmp_path, cards)
    tab.open(path.as_uri())
    tab.until(READY)
    assert tab.evaluate(
        "[...document.querySelector('#sections select').options].map((each) => each.text)"
    ) == [
        "Jobs 1 to 10,000",
        "Jobs 10,001 to 10,400: 1 failed",
    ]
    tab.point("#sections button:last-of-type", click=True)
    tab.until("document.querySelector('article')?.dataset.rowId === 'row-10000'")
    assert tab.evaluate("document.getElementById('count').textContent") == "400 jobs"
    assert len(rows(tab)) == 400


def test_the_page_updates_by_itself_and_keeps_filters_and_focus(tab: Page, tmp_path: Path) -> None:
    cards = [card(number) for number in range(4)] + [card(4, State.PENDING), card(5, State.PLANNED)]
    path = written(tmp_path, cards)
    tab.open(path.as_uri())
    tab.until(READY)
    assert tab.evaluate("document.getElementById('news').textContent").startswith("updates by itself")
    tab.point("#states [data-state=stored]", click=True)
    tab.evaluate("document.querySelector('[data-row-id=row-00002]').focus()")
    tab.evaluate("document.querySelector('[data-row-id=row-00002]').kept = true")
    cards[4] = replace(card(4), finished_at=BEGAN)
    written(tmp_path, cards, "complete")
    tab.until(f"{SHOWN}.length === 5")
    assert rows(tab)[-1] == "row-00004"
    tab.until("document.querySelector('[data-row-id=row-00004] img')?.naturalWidth")
    assert tab.evaluate("document.activeElement.dataset.rowId") == "row-00002"
    assert tab.evaluate("document.activeElement.kept")  # it is the same element: nothing flickers
    assert tab.evaluate("document.getElementById('outcome').textContent") == "complete"
    tab.evaluate("performance.clearResourceTimings()")
    tab.evaluate("new Promise((done) => setTimeout(done, 400))")  # four times as long as it waited before
    assert tab.evaluate("performance.getEntriesByType('resource').length") == 0
    assert tab.complaints == []


def open_plots(page: Page) -> list[str]:
    """Opens the plots and waits for the pictures; their addresses."""
    page.point("#plots summary", click=True)
    page.evaluate("document.querySelectorAll('#plots img').forEach((each) => { each.loading = 'eager' })")
    images = "[...document.querySelectorAll('#plots img')]"
    page.until(f"{images}.filter((each) => each.naturalWidth === 1152).length === 4")
    found: list[str] = page.evaluate(f"{images}.map((each) => each.currentSrc)")
    return found


def test_the_plots_are_shown_in_words_too_and_for_a_light_and_a_dark_page(
    page: Page, bought: list[Path]
) -> None:
    names = ["spending", "submissions", "latency", "costs"]
    assert [Path(address.partition("?")[0]).name for address in open_plots(page)] == [
        f"{name}.png" for name in names
    ]
    words = page.evaluate("[...document.querySelectorAll('#plots img')].map((each) => each.alt)")
    assert words[0] == "Spending over time: 0.0140 USD"
    page.open(bought[0].as_uri(), prefers_color_scheme="dark")
    page.until(READY)
    assert [Path(address.partition("?")[0]).name for address in open_plots(page)] == [
        f"{name}-dark.png" for name in names
    ]
    assert (page.complaints, page.failures) == ([], [])


def test_signed_links_open_the_page_and_the_files_of_a_private_bucket(
    tab: Page, project: Make, s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    from callsheet.config.load import load
    from callsheet.report.contact_sheet.links import Links
    from callsheet.report.contact_sheet.page import INDEX

    made = project(
        [{"id": "mug", "prompt": "a red mug", **IMAGE}, {"id": "video", "prompt": "waves", **VIDEO}]
    )
    made.set(
        storage={"url": f"s3://{s3.bucket}/signed/media", "endpoint_url": s3.endpoint_url},
        report={"url": f"s3://{s3.bucket}/signed/report", "links_valid_for": 600},
    )
    made.run("report.plots=true")
    address = Links(load(made.config, ())).to_own(INDEX)
    tab.open(address)
    tab.until(READY)
    assert rows(tab) == ["mug", "video"]
    tab.until("[...document.querySelectorAll('.frame img')].filter((each) => each.naturalWidth).length === 2")
    tab.point("[data-row-id=video]")
    tab.until("document.querySelector('[data-row-id=video] video')?.currentTime > 0.1")
    tab.point("[data-row-id=mug]", click=True)
    tab.until("document.querySelector('#viewer img').naturalWidth === 256")
    tab.press("Escape")
    open_plots(tab)
    assert (tab.complaints, tab.failures) == ([], [])
    assert all(request.startswith((s3.endpoint_url, "data:")) for request in tab.requests)
