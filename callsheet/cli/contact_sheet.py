"""`open`: a batch's contact sheet, in the browser."""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from typing import TYPE_CHECKING

from callsheet.cli.options import Config, Json, Sets
from callsheet.cli.streams import print_json
from callsheet.errors import InputError

if TYPE_CHECKING:
    from callsheet.config.settings import BatchSettings


def open_(config: Config, set_: Sets = None, json: Json = False) -> None:
    """Open the batch's contact sheet in the browser, and print its address.

    Where the report is on S3, the page can be opened if its links are signed (report.links_valid_for).
    """
    from callsheet.cli.output import err, out, safe
    from callsheet.config.load import load_without_service

    settings = load_without_service(config, set_ or ())
    address, how = asyncio.run(_address(settings))
    opened = not how and _open_in_browser(address)
    if json:
        print_json({"batch": settings.batch, "contact_sheet": address, "opened": opened})
    else:
        out.print(safe(address))
    if not opened:
        err.print(safe(how or "No browser could be opened here: open this address in yours."))


async def _address(settings: BatchSettings) -> tuple[str, str]:
    """The page's address, and what to do where a browser cannot open that."""
    from callsheet.report.contact_sheet.links import Links, browser_address
    from callsheet.report.contact_sheet.page import INDEX
    from callsheet.storage.store import Store

    store = Store(settings.report.url, endpoint_url=settings.storage.endpoint_url)
    url = store.url_of(INDEX)
    if await store.read(INDEX) is None:
        hint = "callsheet run CONFIG or callsheet collect CONFIG makes it, from its first seconds on."
        if not settings.report.contact_sheet:
            hint = f"report.contact_sheet is 0, so none is made. With another number, {hint}"
        raise InputError(f"{url}: there is no contact sheet yet", hint=hint)
    if not url.startswith("s3://"):
        return browser_address(url), ""
    links = Links(settings)
    if links.signs_own_files:
        return links.to_own(INDEX), ""
    folder = url.removesuffix("/index.html")
    return url, (
        f"A browser cannot open it there. aws s3 sync {folder} contact-sheet copies the page to this "
        "machine; a run with --set report.links_valid_for=86400 signs its links for a day, and then it opens."
    )


def _open_in_browser(address: str) -> bool:
    """Whether a browser was told to open it. A browser for text would take the terminal, so none is used."""
    graphical = sys.platform in ("darwin", "win32") or {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & {
        *os.environ
    }
    return bool(graphical) and webbrowser.open(address)
