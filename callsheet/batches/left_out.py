"""Files that are no input, though they lie where images or batch files are looked for.

What Callsheet has made is never read by chance: a batch would buy edits of its own edits, again and again. It
is known by its place (an owner file or an export's mark is there; or it is this config's own `storage.url` or
`report.url`, wherever links lead), and by its bytes, which the ledger has stored. It is read where it is
named: by `input.kept` and `input.stored`, or as one file. Folders that systems keep for themselves are left
out too, and what is hidden.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from callsheet.config.settings import Settings
from callsheet.files import path_of
from callsheet.plain_text import and_more, counted
from callsheet.storage.names import EXPORT_MARK, OWNER_FILE

_OF_SYSTEMS = {
    *("@eadir", "#recycle", "#snapshot", "@recycle", "@recently-snapshot"),  # of a NAS
    *("$recycle.bin", "recycler", "system volume information", "__macosx", "lost+found"),
}
_NAMED = 3  # places and files that a note names


StoredFiles = Mapping[int, Collection[str]]
"""The sha256 of the files that a ledger has stored, by their size in bytes."""

NOTHING: StoredFiles = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SortedOut:
    """Files that are input, and a note of those that are not.

    Attributes:
        inputs: the others are hidden, made by Callsheet, or lie in folders that systems keep.
        note: how many are left out, in a sentence for each reason, and where Callsheet makes some; empty
            where there is nothing to say.
        has_left_out: whether the note counts any.
    """

    inputs: frozenset[str]
    note: str
    has_left_out: bool


def sort_out(
    names: Iterable[str],
    folder: str,
    settings: Settings,
    *,
    around: Iterable[str],
    is_wanted: Callable[[str], bool],
    is_stored: Callable[[str], bool],
) -> SortedOut:
    """Tells input from other files.

    Args:
        names: the files, by path or URL.
        folder: what a person has named and the files are in. It is no place of Callsheet itself, unless it
            belongs to a report: beside what was stored or exported there may be originals.
        around: all files of the folders of these files, and of those above them up to `folder`.
        is_wanted: whether a file is of the kind that is looked for, which alone is counted.
        is_stored: whether the ledger has stored the bytes of a file.
    """
    below = f"{folder}/" if folder else ""
    parts = {name: name.removeprefix(below).split("/") for name in names}
    visible = [name for name in parts if not any(part.startswith(".") for part in parts[name])]
    of_systems = {name for name in visible if any(map(_is_of_system, parts[name][:-1]))}
    real_folder = cache(_real_folder)
    places = _places(folder, settings, around, real_folder)
    inside = tuple(f"{place}/" for place in places)
    in_places = {
        name
        for name in visible
        if f"{real_folder(name.rpartition('/')[0])}/".startswith(inside) and name not in of_systems
    }
    copies = {name for name in visible if is_wanted(name) and name not in in_places | of_systems}
    copies = {name for name in copies if is_stored(name)}

    made, kept_by_systems = (
        [name for name in sorted(left) if is_wanted(name)] for left in (in_places | copies, of_systems)
    )
    shown_places = sorted(places.values())
    sentences = []
    if made:
        shown = [*shown_places, *sorted(copies)]
        sentences.append(f"{_of(made, folder)} made by Callsheet, and left out: {_first(shown)}")
    elif shown_places:
        sentences.append(f"what Callsheet makes in {_first(shown_places)} is left out")
    if kept_by_systems:
        shown = sorted({part for name in kept_by_systems for part in parts[name][:-1] if _is_of_system(part)})
        sentences.append(f"{_of(kept_by_systems, folder)} kept by a system, and left out: {_first(shown)}")
    inputs = frozenset(visible) - of_systems - in_places - copies
    return SortedOut(inputs, "; ".join(sentences), has_left_out=bool(made or kept_by_systems))


def _places(
    folder: str, settings: Settings, around: Iterable[str], real_folder: Callable[[str], str]
) -> dict[str, str]:
    """The places of Callsheet in a folder, by where links lead; and of each how a person finds it."""
    root, below = real_folder(folder), f"{folder}/" if folder else ""
    reports, others = {_real_url(settings.report.url)}, {_real_url(settings.storage.url)}
    for file in around:
        parent, _, name = file.rpartition("/")
        if name == OWNER_FILE:
            reports.add(real_folder(parent))
        elif name == EXPORT_MARK:
            others.add(real_folder(parent))
        elif (batch := name.removeprefix(f"{OWNER_FILE}-")) != name:
            # In the folder itself the files of another batch are known by its name, as storage.key has it;
            # of this batch the ledger knows them.
            place = real_folder(parent)
            others.add(f"{place}/{batch}" if place == root and batch != settings.batch else place)
    places = {
        place: f"{below}{place.removeprefix(f'{root}/')}"
        for place in reports | others
        if place.startswith(f"{root}/")
    }
    is_in_report = any(f"{root}/".startswith(f"{report}/") for report in reports)
    return {root: folder or "."} if is_in_report else places


def _real_folder(folder: str) -> str:
    return folder if "://" in folder else os.path.realpath(folder or ".")


def _real_url(url: str) -> str:
    return url.rstrip("/") if url.startswith("s3://") else os.path.realpath(path_of(url))


def _is_of_system(name: str) -> bool:
    return name.casefold() in _OF_SYSTEMS


def _of(names: Sequence[str], folder: str) -> str:
    return f"{counted(len(names), 'file')} of {folder or '.'} {'is' if len(names) == 1 else 'are'}"


def _first(names: Sequence[str]) -> str:
    return and_more(names[:_NAMED], len(names))
