"""How the page reaches a file: by a relative path, by a signed address, by the server of the page, or not at
all. It opens no file.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from callsheet import s3
from callsheet.config.settings import BatchSettings
from callsheet.errors import StorageError

FOLDER = "contact-sheet"
"""The page's folder inside `report.url`."""

_SERVED = 600  # seconds: a file on S3 that the served page has asked for


class Links:
    """The links of a batch's contact sheet.

    Attributes:
        on_disk: whether the page is on this machine.
        signs_own_files: whether the page reaches its own files by signed addresses.
        may_end_early: whether temporary credentials have signed an address: it works no longer than these.
        marks: where the page sends and reads marks; None where the browser keeps them.
    """

    marks: str | None = None

    def __init__(self, settings: BatchSettings) -> None:
        self._seconds = settings.report.links_valid_for
        self._endpoint_url = settings.storage.endpoint_url
        self._report_url = settings.report.url.rstrip("/")
        report = local_path(settings.report.url)
        self._folder = (report / FOLDER).absolute() if report else None
        self._signed: dict[str, str] = {}  # so that a page that is written again does not change
        self.on_disk = report is not None
        self.signs_own_files = report is None and self._seconds is not None
        self.may_end_early = False

    def to_media(self, url: str, name: str) -> str | None:
        """The address in the page of the media file at `url`; None where a browser cannot open it.

        `name` says which file of the batch it is: `<job_key>/<attempt>/<index>`. Raises as `loaded_from`.
        """
        return self.loaded_from(url)

    def loaded_from(self, url: str) -> str | None:
        """Where a browser loads a media file from in the end; None where it cannot.

        A local file has a path that is relative to the page, so that both can be moved together.

        Raises:
            StorageError: the AWS settings of this machine cannot sign it.
        """
        path = local_path(url)
        if path is None:
            return self._sign(url) if self._seconds else None
        return quote(os.path.relpath(path, self._folder)) if self._folder else None

    def to_own(self, name: str, version: str = "") -> str:
        """The address of one of the page's own files, by its name inside `report.url`.

        `version` changes when the file does, so that a browser that has it reads it anew. A signed address
        cannot have it, and does not need it. Raises as `loaded_from`.
        """
        if self.signs_own_files:
            return self._sign(f"{self._report_url}/{name}")
        return os.path.relpath(name, FOLDER) + (f"?{version}" if version else "")

    def _sign(self, url: str) -> str:
        if url not in self._signed:
            with s3.errors_as(StorageError, url):
                address = s3.signed(url, self._endpoint_url, self._seconds or 0)
            self._signed[url] = address
            self.may_end_early |= s3.by_temporary_credentials(address)
        return self._signed[url]


class ServedLinks(Links):
    """The links of a served page, which has every file from its server. They are relative to its address."""

    marks = "marks"

    def __init__(self, settings: BatchSettings) -> None:
        super().__init__(settings)
        self.on_disk = self.signs_own_files = False

    def to_media(self, url: str, name: str) -> str | None:
        """See `Links`. The server answers for a file on S3 with the address that `loaded_from` signs."""
        return f"media/{name}"

    def loaded_from(self, url: str) -> str | None:
        """See `Links`. A signed address is good for some minutes."""
        if local_path(url):
            return None
        with s3.errors_as(StorageError, url):
            return s3.signed(url, self._endpoint_url, _SERVED)

    def to_own(self, name: str, version: str = "") -> str:
        """See `Links`."""
        return name + (f"?{version}" if version else "")


def browser_address(url: str) -> str:
    """The address of a local file for a browser and a terminal: `file:///...`; another URL stays as it is."""
    path = local_path(url)
    return path.absolute().as_uri() if path else url


def local_path(url: str) -> Path | None:
    """The path of a file or folder on this machine; None for one on S3."""
    if url.startswith("s3://"):
        return None
    return Path(unquote(urlsplit(url).path)) if url.startswith("file://") else Path(url)
