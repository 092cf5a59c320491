"""Serves the contact sheets of all batches of a project on this machine, while `callsheet up` runs.

`/CONFIG/batches/BATCH/` is the page that `callsheet review` serves, opened when somebody first asks for it;
`/` is a list.

The address stays the same, token included, so that the links in artifacts open after the next start too. Who
reads such a link on the Prefect server of this machine is let in by its token. That gives away nothing more:
that server asks nobody to sign in, and whoever reaches it can have the worker carry out any command. Beyond
this machine nobody reaches these pages; `callsheet up` gives the link to its runs only with such a server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from callsheet.config.form import FOLDER
from callsheet.config.load import load_without_service
from callsheet.config.settings import BatchSettings
from callsheet.errors import CallsheetError, ConfigError
from callsheet.files import make_private, open_private
from callsheet.ledger.ledger import Ledger
from callsheet.locks import lock
from callsheet.present.status import counts_of, reviewed
from callsheet.records import dollars
from callsheet.report.contact_sheet.sheet import asset
from callsheet.report.summary import read_status
from callsheet.reviewing.server import WhenReviewed, listening, opened

logger = logging.getLogger("callsheet")

LINK = Path("out/sheets.link")
"""The link to the list in a project's folder: whoever has it can look and mark."""

ENVIRONMENT = "CALLSHEET_SHEETS"
"""The variable with the link, for the runs of `callsheet up`."""

MOST_OPEN = 20
"""How many sheets are open at once: one more closes that which was asked for the longest time ago."""

_LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]+)")

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{title}</title><link rel="icon" href="data:,">
<style>
{style}
main {{ padding: 20px clamp(12px, 2vw, 28px); overflow-wrap: break-word }}
table {{ border-collapse: collapse; margin-top: 12px }}
th {{ color: var(--quiet); font-size: 11px; font-weight: normal }}
th, td {{ padding: 7px 24px 7px 0; text-align: start; vertical-align: top }}
td {{ border-bottom: 1px solid var(--line) }}
.sum {{ text-align: end; font-variant-numeric: tabular-nums }}
</style>
<main>
<h1>{title}</h1>
{body}
</main>
</html>
"""


def link_to(settings: BatchSettings, config: str) -> str | None:
    """The link to a batch's page in the `callsheet up` that has started this run with this config.

    None where none serves it: the run was started otherwise, or its settings have another ledger or report
    than its config.
    """
    if not (link := os.environ.get(ENVIRONMENT)):
        return None
    try:
        served = load_without_service(Path(config), values={"batch": settings.batch})
    except CallsheetError:
        return None
    if _places(served) != _places(settings):
        return None
    address, _, token = link.partition("?")
    return f"{address}{_path(Path(config), settings.batch)}?{token}"


def _places(settings: BatchSettings) -> tuple[object, ...]:
    return settings.ledger.url, settings.report.url, settings.storage.endpoint_url


def _path(config: Path, batch: str) -> str:
    path, folder = config.resolve(), Path.cwd()
    shown_path = path.relative_to(folder) if path.is_relative_to(folder) else path
    return f"{quote(shown_path.as_posix())}/batches/{quote(batch)}/"


@asynccontextmanager
async def serving(reviewed: WhenReviewed) -> AsyncIterator[str]:
    """Serves the sheets of the project in this folder; yields the link to the list of them.

    `reviewed` is called when all files of a batch are marked (`server.opened`).

    Where another `callsheet up` of the folder serves them, nothing is started: the link is the same.

    Raises:
        ConfigError: the link cannot be kept.
    """
    try:
        LINK.parent.mkdir(exist_ok=True)
        descriptor = open_private(LINK, os.O_RDWR)
        make_private(descriptor)
    except OSError as error:
        raise ConfigError(f"{LINK}: cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "r+") as file:
        last_link = file.read().strip()
        try:
            lock(file.fileno())
        except BlockingIOError:
            yield last_link
            return
        sheets = _Sheets(reviewed)
        try:
            with _listening_as(last_link, sheets.app) as (link, server, listener):
                file.seek(0)
                file.truncate()
                file.write(f"{link}\n")
                file.flush()
                served = asyncio.create_task(server.serve(sockets=[listener]))
                try:
                    yield link
                finally:
                    server.should_exit = True
                    await served
        finally:
            await sheets.aclose()


@contextmanager
def _listening_as(last_link: str, app: ASGIApp) -> Iterator[tuple[str, uvicorn.Server, socket.socket]]:
    """`listening` at the link of the last time; at a new one where that is none, or its port is taken.

    Then the token is new too: what has the port may have been sent the old one.
    """
    match = _LINK.fullmatch(last_link)
    with ExitStack() as stack:
        try:
            served = stack.enter_context(listening(app, int(match[1]), match[2])) if match else None
        except ConfigError:
            served = None
        yield served or stack.enter_context(listening(app, 0))


@dataclass(eq=False, slots=True)
class _Sheet:
    """A sheet that is open, with its ledger. Closed is only one that no request uses."""

    settings: BatchSettings
    app: ASGIApp
    parts: AsyncExitStack
    requests: int = 0  # that use it
    is_current: bool = True

    async def close_if_unused(self) -> None:
        """Closes it where it is not current any more, and no request uses it. Its marks are in the ledger."""
        if self.is_current or self.requests:
            return
        try:
            await self.parts.aclose()
        except CallsheetError as error:  # a sidecar cannot be written
            logger.warning("%s. %s", error.message, error.hint)


class _Sheets:
    """The sheets that are open, those that were asked for last at the end; `app` is what is served."""

    def __init__(self, reviewed: WhenReviewed) -> None:
        self._reviewed = reviewed
        self._open: dict[tuple[str, str], _Sheet] = {}
        self._lock = asyncio.Lock()
        self.app = Starlette(
            routes=[Route("/", _list), Mount("/{config:path}/batches/{batch}", self._sheet)],
            exception_handlers={CallsheetError: _problem},
        )

    async def _sheet(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path_params"]["config"], scope["path_params"]["batch"]
        async with self._lock:
            if name not in self._open or scope["path"] == f"{scope['root_path']}/":
                await self._reopen(*name)
            sheet = self._open[name] = self._open.pop(name)
            sheet.requests += 1
        try:
            await sheet.app(scope, receive, send)
        finally:
            sheet.requests -= 1
            await sheet.close_if_unused()

    async def _reopen(self, config: str, batch: str) -> None:
        """Opens a sheet, anew where its config has changed; then closes that of before, and the oldest."""
        settings = await asyncio.to_thread(load_without_service, Path(config), values={"batch": batch})
        old_sheet = self._open.get((config, batch))
        if old_sheet and old_sheet.settings == settings:
            return
        async with AsyncExitStack() as stack:
            app, _ = await stack.enter_async_context(opened(settings, config, self._reviewed))
            self._open[config, batch] = _Sheet(settings, app, stack.pop_all())
        oldest = [self._open.pop(name) for name in [*self._open][:-MOST_OPEN]]
        for sheet in filter(None, (old_sheet, *oldest)):
            sheet.is_current = False
            await sheet.close_if_unused()

    async def aclose(self) -> None:
        """Closes all of them: marks go into the sidecars."""
        async with AsyncExitStack() as stack:
            for sheet in self._open.values():
                stack.push_async_callback(sheet.parts.aclose)


async def _list(_: Request) -> Response:
    rows = [await _row(path) for path in sorted(FOLDER.glob("*.yaml"))]
    head = '<tr><th>batch<th>config<th>jobs<th>reviewed<th class="sum">USD spent'
    table = "\n".join(["<table>", head, *rows, "</table>"])
    return _page("Contact sheets", table if rows else f"<p>There is no config in {FOLDER}/.</p>")


async def _row(path: Path) -> str:
    """A config's row of the list: its batch as a link with its counts, or why it cannot be read."""
    try:
        settings = await asyncio.to_thread(load_without_service, path)
        async with await Ledger.open(settings.ledger.url, settings.batch, looks=True) as ledger:
            status = await read_status(ledger, settings)
    except CallsheetError as error:
        return f"<tr><td><td>{escape(str(path))}<td colspan=3>{escape(error.message)}"
    cells = [
        f'<a href="{escape(_path(path, settings.batch))}">{escape(settings.batch)}</a>',
        escape(str(path)),
        counts_of(status) or "nothing bought yet",
        reviewed(status) or "nothing yet",
    ]
    return f'<tr><td>{"<td>".join(cells)}<td class="sum">{dollars(status.spent)}'


def _page(title: str, body: str, status_code: int = 200) -> Response:
    return HTMLResponse(_PAGE.format(title=title, body=body, style=asset("style.css").decode()), status_code)


async def _problem(_: Request, error: Any) -> Response:
    """What is wrong with a config or its ledger (a CallsheetError). The other sheets are still served."""
    body = f"<p>{escape(error.message)}</p>\n<p>{escape(error.hint)}</p>"
    return _page("This sheet cannot be shown", body, 503)
