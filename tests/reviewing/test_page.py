"""The review in a real browser: the served page, and the same page from the disk."""

from __future__ import annotations

import csv
import io
import json
import signal
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import polars as pl
import pytest
from playwright.sync_api import Locator, Page, expect

import callsheet
from tests.cli.test_rows import printed
from tests.conftest import Project
from tests.report.contact_sheets import card, with_sheet, written
from tests.reviewing.served import Review, card_of, figure, filter_button, marks, press, served, visit
from tests.servers.browser import Browser, aside
from tests.servers.forks import forks
from tests.servers.prefect import free_port
from tests.servers.s3 import Server
from tests.waiting import wait_until

Make = Callable[..., Project]
IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1", "resolution": "0.5K"}
HOSTILE = '<img src=x onerror="document.title = \'owned\'">, "six" fingers'


def test_a_batch_is_marked_by_keyboard_alone_and_the_ledger_agrees(
    page: Page, browser: Browser, review: Review
) -> None:
    visit(page, review.link)
    assert page.url == f"{review.address}/"  # without the token
    expect(card_of(page, "mug")).to_be_focused()
    expect(card_of(page, "mug", 2)).to_contain_text("2 of 4")
    press(page, "k x")
    expect(card_of(page, "mug", 3)).to_be_focused()
    press(page, "c k")  # of the four side by side, the first without a mark is chosen
    tiles = page.get_by_role("dialog", name="mug").get_by_role("figure")
    expect(tiles).to_have_count(4)
    expect(tiles.nth(3)).to_be_focused()
    press(page, "ArrowLeft x ArrowLeft Escape")
    expect(card_of(page, "mug", 3)).to_be_focused()
    press(page, "ArrowRight n")
    page.keyboard.insert_text(HOSTILE)
    press(page, "Enter")
    expect(card_of(page, "mug", 4)).to_contain_text(HOSTILE)
    press(page, "x")
    expect(card_of(page, "lamp")).to_be_focused()
    press(page, "Space k")
    expect(page.get_by_role("dialog", name="chair (1 of 2)")).to_be_visible()  # the next one, at full size
    press(page, "x ArrowLeft u x Space")
    expect(card_of(page, "chair", 2)).to_be_focused()
    press(page, "k")
    expect(page.get_by_role("alert")).to_have_text("Every stored file is marked.")
    press(page, "z z")  # chair is not kept, nor rejected
    expect(card_of(page, "chair")).to_be_focused()
    expect(figure(page, "Reviewed")).to_have_text("2 kept · 3 rejected · 2 to review")
    expect(figure(page, "Cost per kept")).to_have_text("0.012250 USD")
    known = {
        "mug/1": ("kept", None),
        "mug/2": ("rejected", None),
        "mug/3": ("rejected", None),
        "mug/4": ("rejected", HOSTILE),
        "lamp/1": ("kept", None),
    }
    wait_until(lambda: review.marks() == known, "the ledger has other marks")
    expect(page).to_have_title("test: contact sheet")
    assert (browser.complaints, browser.failures, browser.outside) == ([], [], [])
    review.process.send_signal(2)
    assert review.process.wait() == 0
    for text in ("2 kept, 3 rejected", "To review  2"):
        assert text in review.log.read_text()


def test_the_page_asks_once_who_marks_and_the_ledger_has_that_name(page: Page, batch: Path) -> None:
    """Also on the page of the next review, which has another port."""
    for row_id in ("mug", "lamp"):
        with served(batch) as review:
            visit(page, review.link)
            name = page.get_by_role("textbox", name="Your name")
            if row_id == "mug":
                name.fill("Ada Ł.")
                name.press("Tab")
            expect(name).to_have_value("Ada Ł.")
            card_of(page, row_id).focus()
            press(page, "k")
            wait_until(lambda row_id=row_id: f"{row_id}/1" in review.marks(), "it is not marked")
    table = aside(lambda: callsheet.reviews(batch / "batch.yaml", as_arrow=True))
    assert {row["decided_by"] for row in table.to_pylist() if row["decision"]} == {"Ada Ł."}


def test_filters_and_an_open_image_are_in_the_address(page: Page, review: Review) -> None:
    visit(page, review.link)
    press(page, "k x")
    filter_button(page, "rejected").click()
    expect(page.locator("article")).to_have_count(1)
    filter_button(page, "rejected").click()
    filter_button(page, "unmarked").click()
    expect(page.locator("article")).to_have_count(5)
    page.get_by_role("combobox", name="shot").select_option(label="grid")
    expect(page.locator("article")).to_have_count(3)
    card_of(page, "chair").click()
    expect(page.get_by_role("dialog", name="chair (1 of 2)")).to_be_visible()
    address = page.url
    page.goto("about:blank")
    visit(page, address)  # as a colleague opens it
    expect(page.get_by_role("dialog", name="chair (1 of 2)")).to_be_visible()
    press(page, "Escape")
    expect(page.locator("article")).to_have_count(3)
    expect(card_of(page, "chair")).to_be_focused()
    press(page, "k")  # what is marked leaves the filter, and the next takes its place
    expect(page.locator("article")).to_have_count(2)
    expect(card_of(page, "chair")).to_be_focused()
    page.get_by_role("button", name="Clear filters").click()
    expect(page.locator("article")).to_have_count(8)
    assert page.url == f"{review.address}/"


def test_on_a_phone_buttons_do_what_keys_do(page: Page, review: Review) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    touch = page.context.new_cdp_session(page)
    touch.send("Emulation.setTouchEmulationEnabled", {"enabled": True})

    def tap(target: Locator) -> None:
        target.scroll_into_view_if_needed()
        box = target.bounding_box()
        assert box
        point = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [point]})
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    try:
        visit(page, review.link)
        tap(card_of(page, "mug"))
        viewer, compared = page.get_by_role("dialog", name="mug"), page.locator("#compare")
        tap(viewer.get_by_role("button", name="Keep"))
        expect(viewer.get_by_role("heading")).to_have_text("mug (2 of 4)")
        tap(viewer.get_by_role("button", name="Compare"))
        tap(compared.get_by_role("figure").nth(2))
        tap(compared.get_by_role("button", name="Reject"))
        tap(compared.get_by_role("button", name="Close"))
        tap(card_of(page, "lamp"))
        tap(page.locator("#viewer").get_by_role("button", name="Note"))
        page.get_by_role("textbox", name="Note").fill("too dark")
        tap(page.get_by_role("button", name="Save"))
        expect(page.locator("#viewer")).to_contain_text("too dark")
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        sizes = page.locator("#viewer .acts button:not([hidden])").evaluate_all(
            "all => all.map((each) => each.offsetHeight)"
        )
        assert min(sizes) >= 44
    finally:
        touch.send("Emulation.setTouchEmulationEnabled", {"enabled": False})
    known = {
        "mug/1": ("kept", None),
        "mug/3": ("rejected", None),
        "lamp/1": (None, "too dark"),
    }
    wait_until(lambda: review.marks() == known, "the ledger has other marks")


def test_two_browsers_see_each_others_marks_and_a_browser_without_the_link_sees_nothing(
    page: Page, review: Review
) -> None:
    visit(page, review.link)
    running = page.context.browser
    assert running
    other = running.new_context()
    try:
        second = other.new_page()
        answer = second.goto(f"{review.address}/")
        assert answer
        assert (answer.status, "mug" in second.content()) == (403, False)
        visit(second, review.link)
        press(second, "x n")
        second.keyboard.insert_text("of the other")
        press(second, "Enter")
        expect(card_of(page, "mug")).to_contain_text("rejected")
        press(page, "ArrowRight k")
        expect(card_of(second, "mug", 2)).to_contain_text("kept")
        expect(figure(second, "Reviewed")).to_have_text("1 kept · 1 rejected · 5 to review")
    finally:
        other.close()


def test_from_the_disk_marks_are_kept_and_saved_for_review_from(page: Page, batch: Path) -> None:
    for command in (("claim", "batch.yaml", "--credit", "0.0045"), ("report", "batch.yaml")):
        aside(partial(printed, *command))
    sheet = (batch / "out/report/contact-sheet/index.html").as_uri()
    visit(page, sheet)
    card_of(page, "mug").focus()
    press(page, "k x z x n")
    page.keyboard.insert_text(HOSTILE)
    press(page, "Shift+Enter")
    page.keyboard.insert_text("second line")
    press(page, "Enter")
    expect(figure(page, "Came back")).to_have_text("0.0045 USD")
    expect(figure(page, "Cost per kept")).to_have_text("0.0200 USD")
    visit(page, sheet)  # anew
    expect(card_of(page, "mug", 2)).to_contain_text("rejected")
    expect(figure(page, "Reviewed")).to_have_text("1 kept · 1 rejected · 5 to review")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save marks.csv (3)").click()
    assert download.value.suggested_filename == "marks.csv"
    download.value.save_as(batch / "marks.csv")
    page.evaluate("localStorage.clear()")
    done = forks().run("-m", "callsheet", "review", "batch.yaml", "--from", "marks.csv", cwd=batch)
    assert done.returncode == 0, done.stderr
    assert marks(batch) == {
        "mug/1": ("kept", None),
        "mug/2": ("rejected", None),
        "mug/3": (None, f"{HOSTILE}\nsecond line"),
    }


def test_a_browser_that_keeps_nothing_says_so_and_saves_marks_with_the_number_of_each(
    page: Page, tmp_path: Path
) -> None:
    """A row may ask for several things: its id and sample do not say which file is meant."""
    jobs = [card(0, row_id="mug"), replace(card(1, row_id="mug"), number=2), card(2, row_id="lamp")]
    address = aside(lambda: written(tmp_path, jobs, "complete")).as_uri()
    running = page.context.browser
    assert running
    other = running.new_context()
    try:
        strict = other.new_page()
        strict.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw Error() }})")
        visit(strict, address)
        expect(strict.get_by_role("alert")).to_contain_text("This browser keeps no marks")
        card_of(strict, "mug", 2).focus()
        press(strict, "k")
        with strict.expect_download() as download:
            with strict.expect_event("dialog") as asked:
                strict.close(run_before_unload=True)
            asked.value.dismiss()
            strict.get_by_role("button", name="Save marks.csv (1)").click()
        with strict.expect_event("close"):
            strict.close(run_before_unload=True)
        rows = [*csv.reader(io.StringIO(Path(download.value.path()).read_text()))]
    finally:
        other.close()
    assert rows == [
        ["row_id", "sample", "index", "decision", "note", "file_number"],
        ["mug", "1", "0", "kept", "", "2"],
    ]


def test_the_table_by_model_has_each_mark_at_once(page: Page, compared: Project) -> None:
    """Those of the command line too; and a page from the disk counts its own besides."""
    with served(compared.folder) as review:
        visit(page, review.link)
        page.get_by_text("By model").click()  # it stays open after a reload
        card_of(page, "mug").focus()
        press(page, "k")
        expect(page.get_by_role("row", name="sketch-1 2 1 0 1 0.0030 0.0030", exact=True)).to_be_visible()
        words = ("-m", "callsheet", "review", "batch.yaml", "--reject", "lamp")
        assert forks().run(*words, cwd=compared.folder).returncode == 0
        expect(page.get_by_role("row", name="sketch-1 2 1 1 0 0.0030 0.0030", exact=True)).to_be_visible()
        expect(page.get_by_role("row", name="still-1 2 0 1 1 0.0800", exact=True)).to_be_visible()
        expect(page.locator("#shares table")).to_have_count(1)  # the ratio has one value
        visit(page, f"{review.address}/")
        expect(page.get_by_role("row", name="still-1 2 0 1 1 0.0800", exact=True)).to_be_visible()
    review.process.wait()
    visit(page, (compared.folder / "out/report/contact-sheet/index.html").as_uri())
    page.get_by_text("By model").click()
    card_of(page, "mug").focus()
    expect(page.get_by_role("row", name="sketch-1 2 1 1 0 0.0030 0.0030", exact=True)).to_be_visible()
    press(page, "c x Escape")
    expect(page.get_by_role("row", name="sketch-1 2 0 2 0 0.0030", exact=True)).to_be_visible()


def test_what_checks_found_is_shown_as_text_and_is_a_filter(page: Page, tmp_path: Path) -> None:
    flagged = card(1)
    flagged = replace(flagged, files=[replace(flagged.files[0], flags=[HOSTILE, "blank"], score=0.25)])
    visit(page, aside(lambda: written(tmp_path, [card(0), flagged], "complete")).as_uri())
    filter_button(page, "flagged").click()
    expect(page.locator("article")).to_have_count(1)
    expect(page.locator("article")).to_contain_text("2 flags")
    page.locator("article").click()
    for text in (HOSTILE, "blank", "0.25"):
        expect(page.get_by_role("dialog")).to_contain_text(text)


def test_another_model_than_ordered_is_named_and_hidden_while_the_page_is_blind(
    page: Page, tmp_path: Path
) -> None:
    flags = ["model: still-1 ordered, poster-1 said", "length: 10 s ordered, 2 s came"]
    made = card(1)
    made = replace(made, model_delivered="poster-1", files=[replace(made.files[0], flags=flags)])
    visit(page, aside(lambda: written(tmp_path, [made], "complete")).as_uri())
    article = page.locator("article")
    expect(article).to_contain_text(f"poster-1 (ordered {made.model})")
    expect(article.locator(".names-model")).to_be_visible()
    article.focus()
    press(page, "b")
    expect(article.locator(".names-model")).to_be_hidden()
    expect(article.get_by_text("length: 10 s ordered")).to_be_visible()
    press(page, "Space")
    expect(page.locator("#viewer")).to_contain_text("length: 10 s ordered, 2 s came")
    expect(page.locator("#viewer .names-model")).to_be_hidden()
    expect(page.locator("#viewer dl")).not_to_contain_text("poster-1")


def test_files_on_s3_are_shown_and_what_a_run_buys_meanwhile_comes_by_itself(
    page: Page, browser: Browser, project: Make, s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    made = with_sheet(project([{"id": "mug", "prompt": "a red mug", **IMAGE}]))
    made.set(
        storage={"url": f"s3://{s3.bucket}/review/media", "endpoint_url": s3.endpoint_url},
        report={"url": f"s3://{s3.bucket}/review/report"},
    )
    aside(made.run)
    with served(made.folder) as running:
        visit(page, running.link)
        expect(card_of(page, "mug").locator("img")).not_to_have_js_property("naturalWidth", 0)
        press(page, "Space")
        expect(page.locator("#viewer img")).to_have_js_property("naturalWidth", 512)
        press(page, "k Space")
        made.rows(
            {"id": "mug", "prompt": "a red mug", **IMAGE}, {"id": "lamp", "prompt": "a brass lamp", **IMAGE}
        )
        aside(made.run)
        expect(card_of(page, "lamp").locator("img")).not_to_have_js_property("naturalWidth", 0)
        expect(card_of(page, "mug")).to_contain_text("kept")
        expect(figure(page, "Reviewed")).to_have_text("1 kept · 0 rejected · 1 to review")
    assert (browser.complaints, browser.failures) == ([], [])


def test_a_killed_server_loses_at_most_the_last_mark_and_the_page_goes_on_with_the_next(
    page: Page, batch: Path
) -> None:
    port = str(free_port())
    with served(batch, "--port", port) as first:
        visit(page, first.link)
        press(page, "k x")
        wait_until(lambda: len(first.marks()) == 2, "the marks are not taken")
        first.process.kill()
        first.process.wait()
        press(page, "k")
        expect(page.get_by_role("alert")).to_contain_text("Not marked: mug (3 of 4). The server is gone")
        expect(card_of(page, "mug", 3).locator(".decision")).to_have_count(0)  # it was not taken
    assert first.marks() == {"mug/1": ("kept", None), "mug/2": ("rejected", None)}
    with served(batch, "--port", port) as second:
        another = page.context.new_page()
        visit(another, second.link)
        another.close()
        expect(page.get_by_role("alert")).to_be_hidden()
        card_of(page, "mug", 3).focus()
        press(page, "k")
        expect(figure(page, "Reviewed")).to_have_text("2 kept · 1 rejected · 4 to review")
        wait_until(lambda: second.marks().get("mug/3") == ("kept", None), "it is not kept")


def test_a_tab_is_not_closed_unasked_before_the_server_has_taken_every_mark(
    page: Page, review: Review
) -> None:
    """Neither the mark that is on its way nor the one that waits behind it is lost."""
    with closing(page.context.new_page()) as tab:
        visit(tab, review.link)
        review.process.send_signal(signal.SIGSTOP)
        press(tab, "k x")
        try:
            with tab.expect_event("dialog") as asked:
                tab.close(run_before_unload=True)
            asked.value.dismiss()
        finally:
            review.process.send_signal(signal.SIGCONT)
        assert asked.value.type == "beforeunload"
        known = {"mug/1": ("kept", None), "mug/2": ("rejected", None)}
        wait_until(lambda: review.marks() == known, "the marks are not taken")
        tab.evaluate("marks.poll()")  # it is answered after the marks
        with tab.expect_event("close"):
            tab.close(run_before_unload=True)


def test_only_the_page_itself_can_mark_and_nothing_can_buy(review: Review) -> None:
    with review.client() as client:
        origin = {"Origin": review.address}
        [row] = [row for row in jobs_of(client) if row["row_id"] == "lamp"]
        file = row["files"][0]
        mark = {"job_key": row["job_key"], "attempt": file["attempt"], "index": 0}
        said = {"marks": [mark | {"decision": "kept", "note": None}]}
        paths = ["/", "/contact-sheet/data/jobs-0000.js", file["href"], file["thumbnail"], "/marks", "/x"]
        for path in paths[:-1]:
            assert client.get(path).status_code == 200, path
        with httpx.Client(base_url=review.address, trust_env=False) as stranger:
            for path in (*paths, "/?token=x", "/?token=é"):
                assert stranger.get(path).status_code == 403, path
            assert stranger.post("/marks", json=said, headers=origin).status_code == 403
        port = review.address.rpartition(":")[2]
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{int(port) + 1}"):
            for method in ("GET", "POST"):
                answer = client.request(method, "/marks", json=said, headers=origin | {"Host": host})
                assert answer.status_code == 403, host
        foreign = [{}, {"Origin": "http://evil.example"}, {"Origin": "null"}]
        foreign += [{"Origin": f"http://127.0.0.1:{int(port) + 1}"}, {"Origin": f"https://127.0.0.1:{port}"}]
        for headers in foreign:
            assert client.post("/marks", json=said, headers=headers).status_code == 403, headers
        wrong = [b"", b"[]", json.dumps(said | {"price": "0"}).encode(), b'{"marks":[]}', b"x" * 2_000_000]
        for body in wrong:
            headers = origin | {"Content-Type": "application/json"}
            assert client.post("/marks", content=body, headers=headers).status_code in (400, 413), body[:20]
        missing = {"marks": [mark | {"index": 7, "decision": "kept", "note": None}]}
        assert client.post("/marks", json=missing, headers=origin).status_code == 404
        assert client.get("/media/../../batch.yaml").status_code == 404
        assert review.marks() == {}
        assert client.post("/marks", json=said, headers=origin).status_code == 204
        assert review.marks() == {"lamp/1": ("kept", None)}


def test_the_manifest_has_a_mark_within_seconds_and_the_last_one_when_it_is_read(
    batch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For what reads it while a person reviews, such as a batch of what is kept."""

    def decisions() -> dict[str, str | None]:
        [path] = batch.rglob("manifest.parquet")
        table = pl.read_parquet(
            path.read_bytes()
        )  # polars opens a path twice, and it may be another file then
        return dict(table.filter(pl.col("sample") == 1).select("row_id", "decision").rows())

    with served(batch) as running, running.client() as client:
        [row] = [row for row in jobs_of(client) if row["row_id"] == "lamp"]
        mark = {"job_key": row["job_key"], "attempt": row["files"][0]["attempt"], "index": 0, "note": None}

        def says(decision: str) -> None:
            said = {"marks": [mark | {"decision": decision}]}
            client.post("/marks", json=said, headers={"Origin": running.address}).raise_for_status()

        assert decisions()["lamp"] is None
        says("kept")
        wait_until(lambda: decisions()["lamp"] == "kept", "the manifest does not have the mark")
        says("rejected")
    monkeypatch.chdir(batch)
    callsheet.manifest("batch.yaml")
    assert decisions()["lamp"] == "rejected"


def jobs_of(client: httpx.Client) -> list[dict[str, object]]:
    """The jobs that the page has."""
    script = client.get("/contact-sheet/data/jobs-0000.js").text
    return list(json.loads(script.partition(",")[2].rpartition(")")[0]))
