"""The dashboard and the media in Chromium, while clients of the interface use the same backlot."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from backlot.server import Backlot
from tests.backlot.conftest import client, make_image, make_video
from tests.backlot.test_dashboard import HOSTILE
from tests.conftest import Project
from tests.servers import http
from tests.servers.browser import Browser, aside, until

Start = Callable[..., Backlot]
SKETCH = {"model": "sketch-1"}


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """The page in which all tests open theirs."""
    with browser.page() as opened:
        yield opened


@pytest.fixture
def page(tab: Page, browser: Browser, start_backlot: Start) -> Iterator[Page]:
    """An empty page; at its end it has complained of nothing, and asked no other machine.

    It is closed before the backlots stop.
    """
    browser.empty(tab)
    yield tab
    tab.goto("about:blank")
    assert (browser.complaints, browser.outside) == ([], [])


def sign_in(page: Page, lot: Backlot) -> None:
    """Opens the dashboard by its link."""
    page.goto(lot.dashboard or "")
    page.wait_for_url(f"{lot.base_url}/")


def test_a_balance_that_has_run_dry_is_topped_up_and_the_batch_goes_on(
    page: Page, project: Callable[..., Project]
) -> None:
    rows = [{"id": f"r{n}", "prompt": f"a fox, {n}", **SKETCH} for n in range(4)]
    made = project(rows, balance="0.0030")
    dry = aside(made.run)
    assert (dry.stop_reason, dry.stored) == ("balance", 2)
    sign_in(page, made.backlot)
    expect(page.locator("#balance")).to_contain_text("0.0000")
    page.get_by_label("US dollars").fill("1")
    page.get_by_role("button", name="Add to the balance").click()
    expect(page.locator("#balance")).to_contain_text("1.0000")
    bought = aside(made.run)
    assert (bought.stored, bought.exit_code) == (4, 0)
    expect(page.locator("#balance")).to_contain_text("0.9970")


def test_generations_appear_and_videos_play_and_a_script_in_a_prompt_does_nothing(
    page: Page, start_backlot: Start
) -> None:
    lot = start_backlot(video_seconds=0.5)
    api = client(lot.base_url)
    sign_in(page, lot)
    expect(page.locator("#latest")).to_have_text("Nothing has been generated yet.")
    assert make_image(api, prompt=HOSTILE, **SKETCH).status_code == 200
    expect(page.locator("#latest .prompt")).to_have_text(HOSTILE)
    until(page, "document.querySelector('#latest img')?.naturalWidth > 100")
    page.get_by_role("link", name="Generations", exact=True).click()
    make_video(api, model="dailies-1", prompt=HOSTILE)
    page.get_by_role("link", name="1 newer").click()
    expect(page.locator("[data-state=completed] video")).to_be_visible()
    assert page.locator("video").get_attribute("src")
    page.evaluate("document.querySelector('video').play()")
    until(page, "document.querySelector('video').currentTime > 0.1")
    expect(page.locator("td.prompt > span").first).to_have_text(HOSTILE)
    assert page.evaluate("document.querySelectorAll('main script').length") == 0


def test_the_interface_can_be_tried_without_the_internet(page: Page, start_backlot: Start) -> None:
    lot = start_backlot()
    sign_in(page, lot)
    page.get_by_role("link", name="API").click()
    expect(page.locator(".opblock")).to_have_count(9)
    page.get_by_role("button", name="Authorize").first.click()
    page.locator("#api_key_value, .auth-container input").first.fill(lot.api_key)
    page.locator(".auth-btn-wrapper .authorize").click()
    page.locator(".auth-btn-wrapper .btn-done").click()
    page.locator(".opblock-summary-path", has_text="balance").click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    expect(page.locator(".live-responses-table .response .highlight-code")).to_contain_text("100.0000")


def test_the_keyboard_reaches_the_content_and_pages_fit_in_light_and_dark(
    page: Page, start_backlot: Start
) -> None:
    lot = start_backlot()
    make_image(client(lot.base_url), **SKETCH)
    brightness = "getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g).map(Number)[0]"
    sign_in(page, lot)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#content"
    for path in ("/", "/generations", "/costs", "/keys", "/models", "/limits", "/faults"):
        page.goto(lot.base_url + path)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        expect(page.get_by_role("navigation").locator("[aria-current=page]")).to_have_count(1)
        for width in (400, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        unnamed = "input:not([type=hidden]), select, meter"
        has_no_name = "all => all.filter((one) => !one.labels?.length && !one.ariaLabel)"
        assert page.locator(unnamed).evaluate_all(has_no_name) == []
        assert (
            page.locator("button, a, summary").evaluate_all(
                "all => all.filter((one) => !one.textContent.trim() && !one.querySelector('img[alt]'))"
            )
            == []
        )
    page.emulate_media(color_scheme="light")
    assert page.evaluate(brightness) > 200
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(brightness) < 50


def test_a_page_that_nobody_sees_asks_for_nothing_and_a_server_that_is_gone_is_said(
    page: Page, browser: Browser, start_backlot: Start
) -> None:
    lot = start_backlot()
    sign_in(page, lot)
    expect(page.get_by_role("alert")).to_have_count(0)
    hidden = "Object.defineProperty(document, 'hidden', {value: true, configurable: true})"
    page.evaluate(f"{hidden}; performance.clearResourceTimings(); window.beats = 0;")
    page.evaluate("htmx.on('htmx:beforeRequest', () => { window.beats += 1; })")
    until(page, "window.beats > 2")
    assert page.evaluate("performance.getEntriesByType('resource').length") == 0
    page.evaluate("Object.defineProperty(document, 'hidden', {value: false, configurable: true})")
    http.post(
        f"{lot.base_url}/sign-out",
        headers={"Origin": lot.base_url, "Accept": "text/html"},
        cookies={each["name"]: each["value"] for each in page.context.cookies()},
    )
    expect(page.get_by_role("alert")).to_contain_text("what you see may be old")
    browser.forget()  # it has complained of the answer 401
