"""The dashboard and the media in Chromium, while clients of the interface use the same backlot."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from backlot.server import Backlot
from tests.backlot.conftest import client, make_image, make_video
from tests.backlot.test_dashboard import HOSTILE
from tests.conftest import Project
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
    make_video(api, model="dailies-1", prompt=HOSTILE)
    page.get_by_role("link", name="Generations", exact=True).click()
    expect(page.locator("[data-state=completed] video")).to_be_visible()
    assert page.locator("video").get_attribute("src")
    page.evaluate("document.querySelector('video').play()")
    until(page, "document.querySelector('video').currentTime > 0.1")
    expect(page.locator("td.prompt > span").first).to_have_text(HOSTILE)
    assert page.evaluate("document.querySelectorAll('main script').length") == 0


def test_on_a_phone_no_page_scrolls_sideways_and_a_thumb_hits_every_button(
    page: Page, start_backlot: Start
) -> None:
    lot = start_backlot(faults={"rules": [{"prompt": "storm", "do": "error", "status": 500}]})
    api = client(lot.base_url)
    for prompt in ("a fox", "a storm", "a-word-without-end" * 20):
        make_image(api, prompt=prompt, **SKETCH)
    sign_in(page, lot)
    page.set_viewport_size({"width": 390, "height": 844})
    for path in ("", "generations", "costs", "keys", "models", "limits", "faults"):
        page.goto(f"{lot.base_url}/{path}")
        assert page.evaluate("document.documentElement.scrollWidth") == 390, path
        heights = page.locator("button:visible, nav a, input:visible").evaluate_all(
            "all => all.map((each) => each.offsetHeight)"
        )
        assert min(heights) >= 44, path
    expect(page.get_by_role("button", name="Switch off").first).to_be_in_viewport(ratio=1)
