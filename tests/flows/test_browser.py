"""The Prefect UI, used with mouse and keyboard: blocks, forms, questions, Pause, and what a run has left.

`make pictures` takes the pictures of docs/prefect.md anew.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from httpx import codes
from playwright.sync_api import Locator, Page, Response, expect

from docs.take_pictures import PICTURES, shrink
from flows.generate import generate_batch
from tasks.service_block import CallsheetService
from tests.conftest import Project, images
from tests.flows.test_suspend import suspended
from tests.servers.browser import Browser, aside
from tests.servers.prefect import ROOT, PrefectServer
from tests.steps.test_stopping import make_quick
from tests.waiting import wait_until

ROWS = [{"id": f"shoe-{n}", "prompt": f"a red shoe, view {n}", "model": "still-1"} for n in range(4)]
WIDTH, HEIGHT = 1280, 1000
PRICE = Decimal("0.0400")


class Ui:
    """The pages of the Prefect UI.

    Args:
        page: where they are opened.
        url: of the server.
    """

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url

    def click(self, name: str) -> None:
        """Clicks what is called so: a button, a link, a tab or what a menu offers."""
        roles = ("button", "link", "tab", "menuitem", "option")
        self.page.bring_to_front()  # a tab in the background never stands still
        named = [self.page.get_by_role(role, name=name, exact=True) for role in roles]
        functools.reduce(Locator.or_, named).last.click()

    def field(self, label: str) -> Locator:
        """What is labelled so; of several the last one, which a dialog has."""
        return self.page.get_by_label(re.compile(rf"^{label}( \(Optional\))?$")).last

    def open_form(self, deployment: str) -> None:
        self.page.goto(f"{self.url}/deployments")
        self.click(deployment)
        self.click("Run")
        self.click("Custom run")
        self.page.get_by_text("Enforce Parameter Schema").wait_for()

    def resume(self, question: str) -> None:
        """Opens the dialog, which asks this, and fills it with a yes."""
        self.click("Open menu")
        self.click("Resume")
        self.page.get_by_text(question).wait_for()
        self.click("Select Decision")
        self.click("approve")
        self.field("Your name").fill("Ada")

    def press(self, button: str, path: str) -> Response:
        """Presses a button, again where the server says that its database is busy; returns its answer.

        Args:
            button: what it says.
            path: how the address ends to which it sends something.
        """
        while True:
            with self.page.expect_response(
                lambda answer: answer.request.method == "POST" and answer.url.endswith(path)
            ) as answered:
                self.click(button)
            if answered.value.status != codes.SERVICE_UNAVAILABLE:
                return answered.value

    def until_it_says(self, text: str) -> None:
        self.page.get_by_text(text, exact=True).first.wait_for()

    def picture(self, name: str, *, height: int = HEIGHT, part: str = "", without: str = "") -> None:
        """Takes a picture for the documentation, where that is asked for.

        Args:
            name: of its file.
            height: of the window meanwhile.
            part: a selector of what is shown, in place of the window.
            without: a text that is not shown in it.
        """
        if os.environ.get("CALLSHEET_DRAW"):
            file = PICTURES / "prefect" / f"{name}.png"
            file.parent.mkdir(exist_ok=True)
            self.page.set_viewport_size({"width": WIDTH, "height": height})
            self.page.wait_for_timeout(3_000)  # what slides in has arrived
            if without:
                shorten = """(page, text) => {
                    const texts = document.createTreeWalker(page, NodeFilter.SHOW_TEXT)
                    while (texts.nextNode())
                        texts.currentNode.data = texts.currentNode.data.replace(text, "")
                }"""
                self.page.locator("body").evaluate(shorten, without)
            shown = self.page.locator(part).last if part else self.page
            shown.screenshot(path=file)
            shrink(file)
            self.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})


@pytest.fixture
def made(crew: PrefectServer, project: Callable[..., Project]) -> Project:
    """A batch that must be approved, whose worker knows neither the service's address nor its key."""
    made = project(ROWS, api_key="sk_studio", image_seconds=2)  # that one sees the steps on the timeline
    made.set(
        batch="autumn-catalogue",
        service={"base_url": "${NO_SUCH_VARIABLE}"},
        budget={"approve_above": "0.10"},
    )
    made.at_absolute_paths()
    asyncio.run(CallsheetService.aregister_type_and_schema())
    return made


@pytest.mark.soak
def test_a_batch_is_bought_and_approved_with_the_mouse(
    crew: PrefectServer, browser: Browser, made: Project
) -> None:
    with browser.page(width=WIDTH, height=HEIGHT) as page:
        ui = Ui(page, crew.api.removesuffix("/api") + "/v2")
        page.goto(f"{ui.url}/blocks/catalog")
        page.get_by_placeholder("Search").fill("callsheet")
        page.get_by_text("1 Block", exact=True).wait_for()
        ui.click("Create")
        ui.field("Name").fill("studio")
        ui.field("Base URL").fill(made.backlot.base_url)
        ui.field("API key").fill(made.backlot.api_key)
        ui.picture("block", height=640)
        assert ui.press("Save", "/block_documents/").ok
        page.wait_for_url("**/blocks/block/*")
        expect(page.locator("input[type=password]")).to_have_count(0)
        assert made.backlot.api_key not in page.content()
        browser.forget()  # the logos of that page's other blocks, which it can do without

        ui.open_form("by-hand")
        ui.field("block").fill("studio")
        ui.field("limit").fill(str(PRICE * 3))
        page.get_by_role("button", name="Select Choose from configs/").get_by_text("example.yaml").wait_for()
        ui.picture("form", height=1250)
        page.get_by_text("overrides (Optional)").scroll_into_view_if_needed()
        ui.picture("form-end", height=1250)
        ui.click("Path")
        page.get_by_role("tabpanel", name="Path").get_by_role("textbox").fill(str(made.config))
        ui.field("limit").fill("a lot")
        assert ui.press("Submit", "/create_flow_run").status == codes.CONFLICT
        wrong = page.get_by_text("'an amount in USD, for example 20.00' was expected", exact=True)
        wrong.wait_for()
        ui.field("limit").fill(str(PRICE * 3))
        ui.click("Submit")  # which looks at the value again, and sends nothing yet
        wrong.wait_for(state="hidden")
        run = ui.press("Submit", "/create_flow_run").json()["id"]
        page.goto(f"{ui.url}/runs/flow-run/{run}")

        ui.until_it_says("Suspended")
        assert made.charged == 0
        waits = f"/runs/flow-run/{run})"
        wait_until(lambda: waits in morning(crew), "the morning has no link to it")
        page.goto(f"{ui.url}/artifacts/key/morning")
        page.locator("a[href*='/artifacts/artifact/']").first.click()
        ui.click("autumn-catalogue: 4 jobs, 0.1600 USD, Suspended")
        page.wait_for_url(f"{ui.url}/runs/flow-run/{run}**")
        ui.resume("Buy 4 jobs of autumn-catalogue for 0.1600 USD?")
        ui.field("Note").fill("for the autumn issue")
        ui.picture("approve", height=1760, part="[role=dialog]")
        assert ui.press("Resume", "/resume").ok

        ui.until_it_says("StoppedAtBudget")
        assert made.charged == PRICE * 3
        page.reload()  # the timeline of a page that was open before has not all steps
        ui.click("Details")
        page.get_by_text("1 of 4 jobs not bought: 3 stored; 0.1200 USD spent").first.wait_for()
        ui.picture("run")
        ui.click("Artifacts")
        page.get_by_text("costs-autumn-catalogue").first.click()
        page.get_by_text("3 stored").first.wait_for()
        page.get_by_text("approved by Ada (ui)").first.wait_for()
        ui.picture("costs", height=1450, without=f"{made.folder}/")
        page.get_by_role("link", name="Look at the images").click()
        expect(page.locator("article img")).to_have_count(3)
        page.goto(f"{ui.url}/artifacts")
        for artifact in ("quote-autumn-catalogue", "progress-autumn-catalogue", "costs-autumn-catalogue"):
            ui.until_it_says(artifact)
        hosts = {urlsplit(address).hostname for address in browser.outside}
        assert hosts <= {"sr-client-cfg.amplitude.com"}, "asked for settings; no usage data is sent"
    ended = crew.now({"id": run})
    assert ended["parameters"]["budget"] == {"limit": str(PRICE * 3)}
    assert made.backlot.api_key not in str(ended)


def morning(crew: PrefectServer) -> str:
    """The morning page, as Markdown; empty where no run has made it."""
    pages = crew.ask("artifacts/latest", artifacts={"key": {"any_": ["morning"]}})
    return "".join(page["data"] for page in pages)


@pytest.mark.soak
def test_a_run_is_paused_and_resumed_and_a_doubt_is_settled_by_its_link_with_the_mouse(
    crew: PrefectServer, browser: Browser, project: Callable[..., Project]
) -> None:
    cut_off = {"endpoint": "images", "prompt": "image 0", "do": "drop", "when": "after_charging"}
    made = project(images(60), image_seconds=1, faults={"rules": [cut_off]})
    tag = made.folder.name
    made.set(batch=tag, limits={"concurrency": 1})
    made.at_absolute_paths()
    crew.start("generate-batch/by-hand", tag=tag, config=str(made.config))
    wait_until(lambda: len(made.sold) > 2, "it does not buy")
    run = crew.run(tag)
    with browser.page(width=WIDTH, height=HEIGHT) as page:
        ui = Ui(page, crew.api.removesuffix("/api") + "/v2")
        page.goto(f"{ui.url}/runs/flow-run/{run['id']}")
        ui.until_it_says("Running")
        ui.click("Open menu")
        ui.click("Pause")
        assert ui.press("Pause Flow Run", "/set_state").ok
        [question] = re.findall(r"Buy \d+ jobs of", suspended(crew, made)["description"])
        make_quick(made)
        page.reload()
        ui.resume(question)
        assert ui.press("Resume", "/resume").ok
        ui.until_it_says("InDoubt")
        assert len(made.sold) == 60

        page.reload()
        ui.click("Artifacts")
        page.get_by_text(f"costs-{tag}".replace("_", "-")).first.click()
        ui.click("Settle the jobs in doubt")
        page.wait_for_url(f"{ui.url}/deployments/deployment/**")
        page.get_by_text("Enforce Parameter Schema").wait_for()
        expect(page.get_by_role("textbox").nth(1)).to_have_value(str(made.config))
        settles = ui.press("Submit", "/create_flow_run").json()["id"]
        page.goto(f"{ui.url}/runs/flow-run/{settles}")
        ui.until_it_says("Suspended")
        ui.click("Open menu")
        ui.click("Resume")
        page.get_by_text("Row s0").first.wait_for()
        ui.field("Your name").fill("Ada")
        assert ui.press("Resume", "/resume").ok
        ui.until_it_says("Completed")
    assert crew.now({"id": settles})["name"] == f"{tag}: 1 settled as charged, by Ada"


@pytest.mark.soak
def test_an_automation_is_saved_as_it_was_and_switched_off_with_the_mouse(
    crew: PrefectServer, browser: Browser, tmp_path: Path
) -> None:
    content = yaml.safe_load((ROOT / "automations/dead-runs.yaml").read_text())
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(content | {"name": tmp_path.name}))
    crew.command("automation", "create", "--from-file", str(file))

    def on_server() -> dict[str, Any]:
        [automation] = [one for one in crew.ask("automations") if one["name"] == tmp_path.name]
        return automation

    def parts(automation: dict[str, Any]) -> list[Any]:
        trigger = automation["trigger"]
        lists = [sorted(trigger[name]) for name in ("expect", "after", "for_each")]
        return [
            *lists,
            *(trigger[name] for name in ("match", "match_related", "within")),
            automation["actions"],
        ]

    made = on_server()
    with browser.page(width=WIDTH, height=HEIGHT) as page:
        ui = Ui(page, crew.api.removesuffix("/api") + "/v2")
        page.goto(f"{ui.url}/automations")
        ui.click(tmp_path.name)
        page.get_by_text(content["description"]).wait_for()
        page.goto(f"{page.url}/edit")
        with page.expect_response(lambda answer: answer.request.method == "PUT") as saved:
            ui.click("Save & Exit")
        assert saved.value.ok
        page.goto(f"{ui.url}/automations/automation/{made['id']}")
        page.get_by_role("switch").click()
        wait_until(lambda: not on_server()["enabled"], "it is not switched off")
    assert parts(on_server()) == parts(made)


@pytest.mark.soak
def test_a_tab_that_shows_an_older_question_does_not_answer_the_newer_one(
    crew: PrefectServer, browser: Browser, made: Project
) -> None:
    made.set(batch=made.folder.name, service={"base_url": made.backlot.base_url})
    tag = made.folder.name
    run = crew.begin(generate_batch, "generate-batch/by-hand", tag=tag, config=str(made.config))
    with browser.page(width=WIDTH, height=HEIGHT) as page, page.context.new_page() as old_page:
        tab, old_tab = (Ui(each, crew.api.removesuffix("/api") + "/v2") for each in (page, old_page))
        for ui in (tab, old_tab):
            ui.page.goto(f"{ui.url}/runs/flow-run/{run['id']}")
            ui.resume(f"Buy 4 jobs of {tag} for 0.1600 USD?")
        assert tab.press("Resume", "/resume").json()["status"] == "ACCEPT"
        made.rows(*images(60, model="still-1"))
        aside(lambda: crew.go_on(generate_batch, tag))

        assert old_tab.press("Resume", "/resume").json()["status"] == "REJECT"
        old_page.get_by_text("'60 jobs, 2.4000 USD, question").first.wait_for()
        assert crew.now(run)["state"]["name"] == "Suspended"
        assert made.charged == 0

        page.reload()
        tab.resume(f"Buy 60 jobs of {tag} for 2.4000 USD?")
        assert tab.press("Resume", "/resume").json()["status"] == "ACCEPT"
        aside(lambda: crew.go_on(generate_batch, tag))
    assert made.charged == PRICE * 60
