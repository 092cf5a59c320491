"""Choosing among files in a real browser: several at once, one of a row, blind, beside their originals."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, Route, expect

from callsheet.report.contact_sheet import sheet as contact_sheet
from tests.conftest import Project
from tests.report.contact_sheets import card, with_sheet, written
from tests.reviewing.served import Review, card_of, figure, filter_button, press, served, visit
from tests.servers.browser import Browser, aside
from tests.servers.forks import forks
from tests.servers.s3 import Server
from tests.waiting import wait_until

Make = Callable[..., Project]


def selection(page: Page) -> Locator:
    """The bar that says how many jobs are selected, and marks them."""
    return page.get_by_role("group", name="Mark what is selected")


def centre(card: Locator) -> tuple[float, float]:
    """The middle of a card's picture."""
    box = card.locator(".frame").bounding_box()
    assert box
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_several_are_selected_by_click_keys_and_rectangle_and_marked_together(
    page: Page, browser: Browser, review: Review
) -> None:
    """One request takes them all, and one undo takes them back."""
    visit(page, review.link)
    card_of(page, "mug", 3).click(modifiers=["Shift"])
    expect(selection(page)).to_contain_text("3 selected")
    card_of(page, "mug", 2).click(modifiers=["Control"])
    card_of(page, "lamp").click(modifiers=["Control"])
    expect(selection(page)).to_contain_text("3 selected")
    expect(card_of(page, "lamp")).to_have_accessible_description("selected")
    browser.forget()
    with page.expect_request(lambda request: request.method == "POST") as sent:
        press(page, "x")
    assert len(sent.value.post_data_json["marks"]) == 3
    rejected = dict.fromkeys(("mug/1", "mug/3", "lamp/1"), ("rejected", None))
    wait_until(lambda: review.marks() == rejected, "the ledger has other marks")
    press(page, "n")
    page.get_by_role("textbox", name="Note on 3 files").fill("too dark")
    press(page, "Enter")
    noted = dict.fromkeys(rejected, ("rejected", "too dark"))
    wait_until(lambda: review.marks() == noted, "the ledger has other marks")
    press(page, "Control+z Control+z")
    wait_until(lambda: review.marks() == {}, "the marks are not taken back")
    press(page, "Escape")
    expect(selection(page)).to_be_hidden()

    (left, top), (right, bottom) = centre(card_of(page, "mug", 2)), centre(card_of(page, "mug", 4))
    page.mouse.move(left, top)
    page.mouse.down()
    page.mouse.move(right, bottom + 20, steps=4)
    page.mouse.up()
    expect(selection(page)).to_contain_text("3 selected")
    expect(page.get_by_role("dialog")).to_be_hidden()  # it was no click
    card_of(page, "mug", 2).focus()
    press(page, "ArrowLeft Shift+ArrowRight")
    expect(selection(page)).to_contain_text("2 selected")
    selection(page).get_by_role("button", name="Keep").click()
    kept = dict.fromkeys(("mug/1", "mug/2"), ("kept", None))
    wait_until(lambda: review.marks() == kept, "the ledger has other marks")
    filter_button(page, "unmarked").click()
    expect(selection(page)).to_be_hidden()  # what is not shown is not selected
    press(page, "Control+a")
    expect(selection(page)).to_contain_text("5 selected")
    press(page, "x")
    expect(figure(page, "Reviewed")).to_have_text("2 kept · 5 rejected · 0 to review")
    press(page, "z")
    expect(figure(page, "Reviewed")).to_have_text("2 kept · 0 rejected · 5 to review")
    assert (browser.complaints, browser.failures) == ([], [])


def test_a_selection_of_thousands_is_marked_and_taken_back_where_few_are_loaded(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More parts than a page keeps; as from a disk."""
    monkeypatch.setattr(contact_sheet, "PER_PART", 20)
    visit(page, aside(lambda: written(tmp_path, [card(n) for n in range(600)], "complete")).as_uri())
    card_of(page, "row-00000").focus()
    press(page, "Control+a k")
    expect(figure(page, "Reviewed")).to_have_text("600 kept · 0 rejected · 0 to review")
    expect(page.get_by_role("button", name="Save marks.csv (600)")).to_be_visible()
    press(page, "z")
    expect(figure(page, "Reviewed")).to_have_text("0 kept · 0 rejected · 600 to review")


def test_one_key_keeps_a_file_and_rejects_the_rest_of_its_row(page: Page, review: Review) -> None:
    """In the grid, in full size and in the comparison; then the next row comes."""
    visit(page, review.link)
    press(page, "ArrowRight Shift+K")
    only = {f"mug/{n}": ("kept" if n == 2 else "rejected", None) for n in range(1, 5)}
    wait_until(lambda: review.marks() == only, "the ledger has other marks")
    expect(card_of(page, "lamp")).to_be_focused()
    press(page, "z")
    wait_until(lambda: review.marks() == {}, "the marks are not taken back")
    expect(card_of(page, "mug")).to_be_focused()
    press(page, "c ArrowRight Shift+K")
    expect(page.get_by_role("dialog", name="lamp")).to_be_visible()
    wait_until(lambda: review.marks() == only, "the ledger has other marks")
    press(page, "Escape")
    expect(card_of(page, "lamp")).to_be_focused()
    press(page, "ArrowRight Space")
    page.locator("#viewer").get_by_role("button", name="Only this").click()
    only |= {"chair/1": ("kept", None), "chair/2": ("rejected", None)}
    wait_until(lambda: review.marks() == only, "the ledger has other marks")
    expect(page.get_by_role("dialog", name="lamp")).to_be_visible()


def test_a_page_from_the_disk_counts_what_a_command_and_a_served_page_have_marked(
    page: Page, browser: Browser, batch: Path
) -> None:
    """And what its own browser has marked meanwhile; arrows and Space work there at once."""
    address = (batch / "out/report/contact-sheet/index.html").as_uri()
    words = ("-m", "callsheet", "review", "batch.yaml", "--keep", "mug/1", "--reject", "lamp")
    assert forks().run(*words, cwd=batch).returncode == 0
    visit(page, address)
    expect(figure(page, "Reviewed")).to_have_text("1 kept · 1 rejected · 5 to review")
    expect(card_of(page, "lamp")).to_contain_text("rejected")
    press(page, "ArrowRight Space")
    expect(page.get_by_role("dialog", name="mug (2 of 4)")).to_be_visible()
    press(page, "x Space")
    expect(page.get_by_role("button", name="Save marks.csv (1)")).to_be_visible()
    with served(batch) as review:
        visit(page, review.link)
        press(page, "ArrowRight ArrowRight k")
        wait_until(lambda: review.marks().get("mug/3") == ("kept", None), "it is not marked")
    review.process.wait()
    visit(page, address)
    expect(figure(page, "Reviewed")).to_have_text("2 kept · 2 rejected · 3 to review")
    expect(card_of(page, "mug", 3)).to_contain_text("kept")
    page.evaluate("localStorage.clear()")
    assert (browser.complaints, browser.failures) == ([], [])


def captions(page: Page) -> Locator:
    """What is said below each file of a comparison."""
    return page.locator("#compare figcaption")


def files(page: Page) -> list[str]:
    """The addresses of the files of a comparison, in their order."""
    found: list[str] = page.locator("#compare img").evaluate_all("all => all.map((each) => each.src)")
    return [urlsplit(each).path for each in found]


TOLD = [
    "1 of 3sketch-1 · 0.25K · 0.0015 USD",
    "2 of 3still-1 · 1K · 0.0400 USD",
    "3 of 3poster-1 · 2K · 0.0615 USD",
]
TELLING = ("sketch-1", "still-1", "poster-1", "USD a kept", "256", "1024", "2048", "0.0615", "Open the file")


def test_blind_nothing_tells_models_apart_until_the_last_decision_and_then_how_sure_it_is(
    page: Page, compared: Project
) -> None:
    """Not a mark, not a filter, not a search; and the order of rows and of their files is another one."""
    with served(compared.folder) as review:
        visit(page, review.link)
        press(page, "c")
        expect(captions(page)).to_have_text(TOLD)
        plain = files(page)
        press(page, "Escape b")
        for word in TELLING:
            expect(page.locator("body")).not_to_contain_text(word, use_inner_text=True)
        expect(page.get_by_text("until the last decision.").first).to_be_visible()
        for name in ("Model", "Sort"):
            expect(page.get_by_role("combobox", name=name)).to_be_hidden()
        expect(page.get_by_role("table")).to_be_hidden()
        page.locator("#search").fill("poster")
        expect(page.get_by_text("No job matches these filters.")).to_be_visible()
        page.get_by_role("button", name="Clear filters").click()
        rows = page.locator("article").evaluate_all("all => all.map(({ job }) => [job.row_id, job.job_key])")
        assert [row for row, _ in rows] in (["lamp"] * 3 + ["mug"] * 3, ["mug"] * 3 + ["lamp"] * 3)
        assert [key for _, key in rows[:3]] == sorted(key for _, key in rows[:3])
        assert rows[0][1] < rows[3][1]
        card_of(page, "mug").focus()
        press(page, "c k")
        expect(captions(page)).to_have_text(["1 of 3", "2 of 3", "3 of 3"])
        assert files(page) == sorted(plain)
        press(page, "Home Space")
        for word in TELLING:
            expect(page.locator("#viewer")).not_to_contain_text(word)
        press(page, "Escape ArrowRight x ArrowRight x Escape")

    with served(compared.folder) as review:  # at another port, where it is still blind
        visit(page, review.link)
        page.locator("html.blind").wait_for()
        press(page, "Control+a")
        expect(page.get_by_role("dialog", name="What was hidden")).to_be_hidden()
        press(page, "x")
        revealed = page.get_by_role("dialog", name="What was hidden")
        expect(revealed).to_contain_text("Every stored file is decided.")
        expect(revealed.get_by_role("row", name="sketch-1 0 2 0 to 66 % 0.0030", exact=True)).to_be_visible()
        expect(revealed).to_contain_text("Kept: ")
        expect(revealed).to_contain_text("with 2 rows this may be chance.")
        press(page, "Escape")
        expect(page.get_by_text("until the last decision.").first).to_be_hidden()
        expect(page.locator("article").first).to_contain_text("sketch-1", use_inner_text=True)


def test_so_many_files_of_so_many_rows_say_that_it_is_hardly_chance_and_few_that_it_may_be(
    page: Page, tmp_path: Path
) -> None:
    """It is ended by hand here, in a page from the disk, which keeps it too."""
    for rows, kept, said in ((6, 2, "may be chance"), (12, 1, "is hardly chance")):
        cards = [
            card(2 * n + at, row_id=f"row-{n}", ordinal=at + 1, of=2, model=model)
            for n in range(rows)
            for at, model in enumerate(("good", "poor"))
        ]
        folder = tmp_path / str(rows)
        visit(page, aside(lambda folder=folder, cards=cards: written(folder, cards, compared=True)).as_uri())
        for number in range(rows):
            page.locator(f"article[data-row-id=row-{number}]").first.focus()
            press(page, "k k" if number < kept else "k x")
        press(page, "b")
        page.reload()
        page.locator("html[data-ready].blind").wait_for()
        press(page, "b")
        revealed = page.get_by_role("dialog", name="What was hidden")
        words = f"Kept: good {rows} of {rows} and poor {kept} of {rows}; with {rows} rows this {said}."
        expect(revealed).to_contain_text(words)
        page.evaluate("localStorage.clear()")


def photo(colour: str) -> bytes:
    """A PNG of one colour, 640 pixels wide."""
    content = io.BytesIO()
    Image.new("RGB", (640, 480), colour).save(content, "PNG")
    return content.getvalue()


def test_a_file_is_shown_beside_the_images_that_it_is_made_from_and_as_a_wipe(
    page: Page, browser: Browser, project: Make, s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of this machine, of S3 and of the network; none that has changed, and no signature is given away."""
    s3.sign_in(monkeypatch)
    s3.client().put_object(Bucket=s3.bucket, Key="photos/s3.png", Body=photo("blue"))
    secret = "https://photos.test/signed.png?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=5ec2e7"
    secret += "&X-Amz-Credential=k&X-Amz-Date=d&X-Amz-Expires=9&X-Amz-SignedHeaders=host"
    sources = {
        "local": ["lamp.png"],
        "pair": ["lamp.png", f"s3://{s3.bucket}/photos/s3.png"],
        "network": ["https://photos.test/cup.png"],
        "signed": [secret],
        "none": [],
    }
    rows = [
        {"id": name, "prompt": "on white", "model": "still-1", "images": json.dumps(images)}
        for name, images in sources.items()
    ]
    made = with_sheet(project(rows))
    made.set(storage={"url": "out/media", "endpoint_url": s3.endpoint_url})
    (made.folder / "lamp.png").write_bytes(photo("red"))
    aside(made.run)

    def network(route: Route) -> None:
        route.fulfill(body=photo("green"), content_type="image/png")

    page.route("https://photos.test/**", network)
    viewer, original = page.locator("#viewer"), page.locator("#stage .original")
    with served(made.folder) as review:
        visit(page, review.link)
        press(page, "o")
        expect(viewer.get_by_role("img", name="Original: lamp.png")).to_have_js_property("naturalWidth", 640)
        expect(viewer.get_by_role("img")).to_have_count(2)
        press(page, "o")
        line = viewer.get_by_role("slider", name="How much of the original is seen")
        line.focus()
        press(page, "Home")
        expect(original).to_have_css("clip-path", "inset(0px 100% 0px 0px)")
        press(page, "End")
        expect(original).to_have_css("clip-path", re.compile(r"^inset\(0px( 0%.*)?\)$"))
        expect(page.get_by_role("dialog", name="local")).to_be_visible()
        press(page, "k")  # the line takes no letters
        expect(page.get_by_role("dialog", name="pair")).to_be_visible()
        press(page, "o")
        expect(original).to_have_count(0)
        press(page, "o")
        expect(original).to_have_count(2)
        expect(original.nth(1)).to_have_js_property("naturalWidth", 640)
        press(page, "ArrowRight")
        expect(viewer.get_by_role("img", name="Original: cup.png")).to_have_js_property("naturalWidth", 640)
        press(page, "ArrowRight")
        expect(viewer).to_contain_text("signed.png cannot be shown here")
        assert "5ec2e7" not in page.content()
        press(page, "Escape")
        expect(card_of(page, "signed")).to_be_focused()
        press(page, "ArrowRight o")
        expect(page.get_by_role("alert")).to_have_text("This is not made from an image.")
        assert (browser.complaints, browser.failures) == ([], [])
        (made.folder / "lamp.png").write_bytes(photo("white"))
        with review.client() as client:
            answer = client.get(f"/originals/{key_of(page, 'pair')}/0")
            assert (answer.status_code, answer.text) == (404, "has changed since it was priced")
            assert client.get(f"/originals/{key_of(page, 'network')}/0").status_code == 404
    assert not [
        path for path in (made.folder / "out/report").rglob("*.[jh]*") if b"5ec2e7" in path.read_bytes()
    ]

    visit(page, (made.folder / "out/report/contact-sheet/index.html").as_uri())
    card_of(page, "pair").focus()
    press(page, "o")
    expect(original.first).to_have_js_property("naturalWidth", 640)
    expect(viewer).to_contain_text("s3.png cannot be shown here")
    page.unroute_all()


def key_of(page: Page, row_id: str) -> str:
    """The key of a row's job."""
    key: str = card_of(page, row_id).evaluate("(card) => card.job.job_key")
    return key


def test_a_click_shows_pixels_and_all_that_are_compared_move_together(page: Page, review: Review) -> None:
    visit(page, review.link)
    press(page, "c")
    images = page.locator("#compare img.media")
    expect(images).to_have_count(4)
    box = images.nth(2).bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2)
    for image in images.all():
        expect(image).to_have_css("object-fit", "none")
        expect(image).to_have_css(
            "object-position", re.compile(r"^(24\.\d+|25|25\.\d+)% (49\.\d+|50|50\.\d+)%$")
        )
    expect(page.locator("#compare").get_by_role("figure").nth(2)).to_be_focused()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    for image in images.all():
        expect(image).to_have_css("object-position", re.compile(r"^(49|50)(\.\d+)?% "))
    press(page, "1")
    expect(images.first).to_have_css("object-fit", "contain")
    press(page, "Space 1 Shift+ArrowRight Shift+ArrowDown")
    large = page.locator("#viewer img.media")
    expect(large).to_have_css("object-position", "60% 60%")
    expect(page.get_by_role("dialog", name="mug (3 of 4)")).to_be_visible()
    press(page, "k")  # what is marked comes with the next file
    expect(large).to_have_css("object-fit", "none")


@pytest.mark.parametrize(("width", "height", "most"), [(1400, 800, 170), (700, 450, 230), (390, 844, 250)])
def test_the_header_is_low_and_the_first_mark_moves_nothing(
    page: Page, review: Review, width: int, height: int, most: int
) -> None:
    """On a screen, on one at 200 %, and on a phone; nothing is wider than the page."""
    page.set_viewport_size({"width": width, "height": height})
    visit(page, review.link)
    top = "document.querySelector('article').getBoundingClientRect().top + scrollY"
    before = page.evaluate(top)
    assert before < most
    press(page, "k")
    expect(figure(page, "Cost per kept")).to_have_text("0.0245 USD")
    press(page, "x")
    assert page.evaluate(top) == before
    press(page, "Shift+ArrowRight b")
    expect(selection(page)).to_be_visible()
    for control in page.get_by_role("button").all():
        box = control.bounding_box() if control.is_visible() else None
        inside = control.evaluate("(each) => !each.closest('.choosing')")  # which scrolls by itself
        assert not box or not inside or (box["x"] >= 0 and box["x"] + box["width"] <= width), control
    assert page.evaluate("document.documentElement.scrollWidth") == width
    press(page, "b Escape")
    card_of(page, "lamp").focus()
    for keys, dialog in (("Space", "#viewer"), ("c", "#compare")):
        press(page, keys)
        for button in page.locator(dialog).get_by_role("button").all():
            button.scroll_into_view_if_needed()
            expect(button).to_be_in_viewport()
    press(page, "Escape ?")
    help_dialog = page.get_by_role("dialog", name="Keys")
    help_dialog.get_by_role("button", name="Close").scroll_into_view_if_needed()
    expect(help_dialog.get_by_role("button", name="Close")).to_be_in_viewport()


def test_a_screen_reader_hears_what_is_selected_blind_and_decided(page: Page, review: Review) -> None:
    visit(page, review.link)
    press(page, "Shift+ArrowRight k")
    expect(card_of(page, "mug", 2)).to_have_accessible_description("selected, kept")
    expect(selection(page).get_by_role("status")).to_have_text("2 selected")
    press(page, "b")
    expect(page.get_by_role("alert")).to_contain_text("Blind: models, settings and costs are hidden")
    expect(page.get_by_role("search").get_by_role("button", name="End it")).to_have_attribute(
        "aria-pressed", "true"
    )
    controls = re.findall(r"- (?:button|combobox|searchbox|textbox).*", page.locator("body").aria_snapshot())
    assert [each for each in controls if not re.match(r'- \w+ "\S', each)] == []
