"""A folder of images, or a glob of them, as a table: a row for each image, sorted by name.

The id of a row is the image's name without its ending, and its prompt may stand in a text file of that name
beside it. It lists files and reads texts; the images themselves are looked at while pricing
(`pricing/references.py`). Every other path names batch files, which `formats.py` reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath

import polars as pl

from callsheet.batches import formats
from callsheet.batches.formats import find_files, is_batch_file, is_glob, local_copy, objects
from callsheet.batches.tables import Table
from callsheet.batches.texts import read_text
from callsheet.config.settings import Input, Settings
from callsheet.errors import InputError
from callsheet.plain_text import and_more, counted

ENDINGS = (
    *(".png", ".jpg", ".jpeg", ".webp"),  # which the service takes
    *(".avif", ".bmp", ".gif", ".heic", ".heif", ".tif", ".tiff"),
)
"""How the names of images end, in any case."""

FILE = "file"
"""The column with the path or URL of each image."""

_TEXT = ".txt"
_NAMED = 3  # files that are no images
_AT_ONCE = 8  # texts that are read at the same time


@dataclass(frozen=True, slots=True)
class _Images:
    """Images, the text file of each that has one, other files, and the folder that they are below."""

    images: Sequence[str]
    texts: Mapping[str, str]
    others: Sequence[str]
    folder: str


def read_tables(settings: Settings) -> Iterator[Table]:
    """The table of a batch's images, or the tables of its batch files, in order.

    Raises:
        InputError: a file is missing, empty, of an unknown type, in another encoding or broken; or no image
            has a prompt.
        StorageError: the temporary copy of a file on S3 cannot be written.
    """
    found = _find(settings)
    if found is None:
        yield from formats.read_tables(settings.input, settings.storage.endpoint_url)
    else:
        yield _table(found, settings.input, settings.storage.endpoint_url)


def names_images(settings: Settings) -> bool:
    """Whether `input.path` is a folder or a glob of images, or one image.

    Raises:
        InputError: the disk or S3 cannot be read, or a glob matches nothing.
    """
    return _find(settings) is not None


def is_image(name: str) -> bool:
    """Whether a file is an image, by its name."""
    return name.lower().endswith(ENDINGS)


def _find(settings: Settings) -> _Images | None:
    """The images that `input.path` names; None where it names batch files, or a folder without images."""
    path, endpoint_url = settings.input.source, settings.storage.endpoint_url
    own = [settings.storage.url.rstrip("/"), settings.report.url.rstrip("/")]
    if path.startswith("s3://") and path.endswith("/"):
        names = objects(path, endpoint_url)
        return _sorted(_without(names, own), names, path.rstrip("/"))
    if _is_folder(path):
        names = [*_walk(path)]
        return _sorted(_without(names, own), names, str(Path(path)))
    if not is_glob(path) and not is_image(path):
        return None
    names = _without(find_files(path, endpoint_url), own)
    folder = re.split(r"[*?\[]", path)[0].rpartition("/")[0]
    found = _sorted(names, _beside(names, folder, endpoint_url), folder)
    batch_files = [each for each in found.others if is_batch_file(each)] if found else []
    return None if batch_files and not is_image(path) else found


def _is_folder(path: str) -> bool:
    with suppress(OSError, ValueError):  # reading it says why
        return Path(path).is_dir()
    return False


def _walk(folder: str) -> Iterator[str]:
    """The files of a folder and of those below it; hidden ones are left out."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith(".")]
        yield from (str(Path(parent, name)) for name in names)


def _without(names: Collection[str], own: Sequence[str]) -> list[str]:
    """The files without hidden ones, and without what the batch itself has stored and reported there."""
    inside = tuple(f"{_from_the_root(each)}/" for each in own)
    return [
        name
        for name in names
        if not name.rpartition("/")[2].startswith(".") and not _from_the_root(name).startswith(inside)
    ]


def _from_the_root(name: str) -> str:
    return name if "://" in name else os.path.normpath(Path.cwd() / name)


def _beside(names: Collection[str], folder: str, endpoint_url: str | None) -> list[str]:
    """The text files that may stand beside images: those of a glob need not match it."""
    if folder.startswith("s3://"):
        return objects(f"{folder}/", endpoint_url)
    texts = (f"{each.rpartition('.')[0]}{_TEXT}" for each in names if is_image(each))
    return [text for text in texts if Path(text).is_file()]


def _sorted(names: Collection[str], beside: Collection[str], folder: str) -> _Images | None:
    """What files are; None where none is an image. `beside` has their text files, and may have others."""
    images = sorted(each for each in names if is_image(each))
    known = set(beside)
    texts = {each: text for each in images if (text := f"{each.rpartition('.')[0]}{_TEXT}") in known}
    others = sorted(set(names) - {*images, *texts.values()})
    return _Images(images, texts, others, folder) if images else None


def _table(found: _Images, config: Input, endpoint_url: str | None) -> Table:
    """The rows of images, with the columns `id`, `prompt` (where an image has a text file) and `FILE`."""
    read = partial(_prompt, encoding=config.encoding, endpoint_url=endpoint_url)
    with ThreadPoolExecutor(_AT_ONCE, "texts") as readers:
        prompts = dict(zip(found.texts, readers.map(read, found.texts.values()), strict=True))
    has_prompt = bool(config.template) or "prompt" in {*config.columns, *config.defaults, *config.matrix}
    if not has_prompt and not any(prompts.values()):
        raise InputError(
            f"{config.source}: {counted(len(found.images), 'image')}, and no prompt",
            hint='Give one for all in input.defaults ({prompt: "..."}) or input.template, or write that of '
            "each image into a text file beside it: cup.jpg, cup.txt.",
        )
    rows = [
        {"id": _id(image, found.folder), "prompt": prompts.get(image), FILE: image} for image in found.images
    ]
    cells = pl.DataFrame(rows, dict.fromkeys(("id", "prompt", FILE), pl.String))
    lines = pl.int_range(1, cells.height + 1, eager=True)
    lacking = pl.repeat(False, cells.height, eager=True) if has_prompt else cells["prompt"].is_null()
    ragged = tuple(
        (line, image, f"{image} has no prompt: there is no text in {_text_of(image)}, and none in the config")
        for line, image in zip(lines.filter(lacking), cells[FILE].filter(lacking), strict=True)
    )
    table = Table(
        cells=cells.filter(~lacking) if prompts else cells.drop("prompt"),
        lines=lines.filter(~lacking),
        header=config.source,
        ragged=ragged,
        file=config.source,
        placed=FILE,
    )
    return table.noted(_note(found))


def _prompt(text: str, *, encoding: str | None, endpoint_url: str | None) -> str | None:
    with local_copy(text, endpoint_url) as path:
        content, _ = read_text(path, text, encoding)
    return content.decode().strip() or None


def _id(image: str, folder: str) -> str:
    """An image's name without its ending, with its folder below the given one."""
    below = image if folder in ("", ".") else image.removeprefix(f"{folder}/")
    return str(PurePath(below).with_suffix(""))


def _text_of(image: str) -> str:
    return str(PurePath(image).with_suffix(_TEXT).name)


def _note(found: _Images) -> str:
    """Which files are no images."""
    count = len(found.others)
    if not count:
        return ""
    names = [each.removeprefix(f"{found.folder}/") for each in found.others[:_NAMED]]
    are = "is no image, and left out" if count == 1 else "are no images, and left out"
    return f"{counted(count, 'file')} of {found.folder or '.'} {are}: {and_more(names, count)}"
