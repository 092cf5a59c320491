"""The contact sheets that `callsheet up` serves, in a real browser and by requests."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import expect

from callsheet.config.load import load_without_service
from callsheet.ledger import marks as ledger_marks
from callsheet.pricing.plan import ToBuyAgain
from callsheet.reviewing.sheets import ENVIRONMENT, LINK, MOST_OPEN, link_to, serving
from tests.conftest import Project
from tests.reviewing.served import marks
from tests.servers.browser import Browser
from tests.waiting import wait_until

CONFIG = "configs/batch.yaml"


@contextmanager
def sheets(reviewed: Callable[..., object] = lambda *_: None) -> Iterator[str]:
    """Serves the sheets of the project in the working directory, in a thread; yields the link."""
    said: SimpleQueue[str] = SimpleQueue()
    loop, over = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with serving(reviewed) as link:
            said.put(link)
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        yield said.get(timeout=60)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@pytest.fixture
def made(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> Project:
    """A batch of two rows, with its folder as working directory; beside its config is a broken one."""
    rows = [{"id": name, "prompt": f"a {name}", "model": "sketch-1"} for name in ("mug", "lamp")]
    made = project(rows)
    monkeypatch.chdir(made.folder)
    (made.folder / "configs").mkdir()
    shutil.copy("batch.yaml", CONFIG)
    (made.folder / "configs/new.yaml").write_text("batch: new\ninput: {path: new.csv}\n")
    (made.folder / "configs/broken.yaml").write_text("batch: other\nbudget: {limit: <b>many</b>}\n")
    return made


def test_who_follows_a_runs_link_sees_and_marks_what_it_bought(
    browser: Browser, made: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a browser that has seen nothing of it before, from a page of another site.

    And the end of the review is told, once, with what is to be bought again.
    """
    made.run()
    told: list[tuple[Any, ...]] = []
    settings = load_without_service(Path(CONFIG))
    with sheets(lambda *said: told.append(said)) as link, browser.page() as page:
        monkeypatch.setenv(ENVIRONMENT, link)
        mine = link_to(settings, CONFIG)
        page.set_content(f'<a href="{mine}">from an artifact</a>')
        browser.forget()
        page.get_by_text("from an artifact").click()
        page.locator("html[data-ready]").wait_for()
        assert page.url == f"{link.partition('?')[0]}{CONFIG}/batches/test/"
        expect(page.locator("article img")).to_have_count(2)  # this config has no sheet of its own
        for picture in page.locator("article img").all():
            expect(picture).not_to_have_js_property("naturalWidth", 0)
        page.keyboard.press("k")
        page.keyboard.press("Space")
        expect(page.locator("#viewer img.media")).not_to_have_js_property("naturalWidth", 0)
        page.keyboard.press("x")
        said = {"mug/1": ("kept", None), "lamp/1": ("rejected", None)}
        wait_until(lambda: marks(made.folder) == said, "the ledger has other marks")
        page.keyboard.press("Escape")
        expect(page.locator(".figure").filter(has_text="To buy again")).to_contain_text(
            f"1 job for 0.0015 USD: callsheet run {CONFIG} --again"
        )
        [(review, again)] = told
        assert (review.kept, review.rejected, again) == (1, 1, ToBuyAgain(1, Decimal("0.0015")))
        page.goto(link)
        said = ["test", CONFIG, "2 stored", "2 of 2 files: 1 kept, 1 rejected", "0.0030"]
        expect(page.locator("tr").filter(has_text=CONFIG).locator("td")).to_contain_text(said)
        expect(page.locator("tr").filter(has_text="broken")).to_contain_text("configs/broken.yaml, line 2")
        expect(page.locator("tr").filter(has_text="new.yaml")).to_contain_text("nothing bought yet")
        listed = page.get_by_role("link", name="test", exact=True)
        page.set_viewport_size({"width": 320, "height": 900})
        assert listed.evaluate("link => link.getClientRects().length") == 1, "no name is in pieces on a phone"
        page.set_viewport_size({"width": 1280, "height": 900})
        listed.click()
        expect(page.locator("article")).to_have_count(2)
        page.goto(f"{link.partition('?')[0]}configs/broken.yaml/batches/other/")
        expect(page.locator("p").first).to_contain_text("(it is '<b>many</b>')")
        assert browser.complaints == [
            "Failed to load resource: the server responded with a status of 503 (Service Unavailable)"
        ]


def test_edits_of_a_config_leave_one_ledger_open_and_no_request_without_it(made: Project) -> None:
    """Also where a mark is on its way while its config is edited, and where an edit names another batch."""
    gc.collect()  # with the ledgers that other tests have left
    made.run()
    [mug, _] = made.read(ledger_marks.files).sort("row_id", descending=True).to_dicts()

    def edited(batch: str, limit: int) -> None:
        made.set(batch=batch, budget={"limit": limit})
        shutil.copy("batch.yaml", CONFIG)
        client.get(f"/{CONFIG}/batches/{batch}/").raise_for_status()

    def sent_slowly() -> Iterator[bytes]:
        said = {name: mug[name] for name in ledger_marks.FILE} | {"decision": "kept", "note": None}
        first, *others = json.dumps({"marks": [said]}).encode().partition(b",")
        yield first
        edited("test", 1)
        yield from others

    with sheets() as link, httpx.Client(base_url=link.partition("?")[0], trust_env=False) as client:
        client.get(link).raise_for_status()
        edited("test", 0)
        headers = {"Origin": str(client.base_url).rstrip("/"), "Content-Type": "application/json"}
        posted = client.post(f"/{CONFIG}/batches/test/marks", content=sent_slowly(), headers=headers)
        assert posted.status_code == 204
        for limit in range(2, 12):
            edited("test", limit)
        wait_until(lambda: open_ledgers() == 1, "the ledgers of before stay open")
        for limit in range(12, 12 + 2 * MOST_OPEN):
            edited(f"test{limit}", limit)
        wait_until(lambda: open_ledgers() <= MOST_OPEN, "the ledgers of before stay open")
    wait_until(lambda: open_ledgers() == 0, "ledgers stay open")
    made.set(batch="test")
    assert marks(made.folder) == {"mug/1": ("kept", None)}


def open_ledgers() -> int:
    """How many ledgers this process has open that were read: each has threads of its own for that."""
    return sum(thread.name == "ledger-reads_0" for thread in threading.enumerate())


@pytest.mark.usefixtures("made")
def test_the_link_stays_the_same_while_its_port_is_free() -> None:
    with sheets() as first, sheets() as beside:
        assert beside == first  # two of one folder share it
        assert LINK.stat().st_mode & 0o777 == 0o600
    with sheets() as second:
        assert second == first
        assert httpx.get(first, trust_env=False).is_success
        with httpx.Client(base_url=second.partition("?")[0], trust_env=False) as stranger:
            for path in ("/", f"/{CONFIG}/batches/test/", f"/{CONFIG}/batches/test/marks", "/?token=x"):
                assert stranger.get(path).status_code == 403
    port = urlsplit(first).port
    with socket.create_server(("127.0.0.1", port or 0)), sheets() as third:
        assert urlsplit(third).port != port
        assert urlsplit(third).query != urlsplit(first).query
    assert LINK.read_text().strip() == third


def test_a_run_has_a_link_only_to_what_is_served(made: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of its own for the ledger or the report are not in the config that is served."""
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    assert link_to(load_without_service(Path(CONFIG)), CONFIG) is None
    monkeypatch.setenv(ENVIRONMENT, "http://127.0.0.1:4/?token=t")
    absolute = made.folder.parent / "elsewhere.yaml"
    shutil.copy(CONFIG, absolute)
    assert (
        link_to(load_without_service(absolute), str(absolute))
        == f"http://127.0.0.1:4/{absolute}/batches/test/?token=t"
    )
    for override in ("ledger.url=sqlite:///other.db", "report.url=elsewhere"):
        assert link_to(load_without_service(Path(CONFIG), [override]), CONFIG) is None
    own = link_to(load_without_service(Path(CONFIG), ["batch=another"]), CONFIG)
    assert own == f"http://127.0.0.1:4/{CONFIG}/batches/another/?token=t"
