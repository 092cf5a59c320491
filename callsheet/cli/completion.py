"""What the shell completes after `--set`, and for `callsheet set`: settings, each with its meaning.

A shell waits for it, so nothing is imported but the schema, and that only when it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import shorten
from typing import TYPE_CHECKING, Any, get_args, get_origin

if TYPE_CHECKING:
    from callsheet.config.settings import Section

_WIDTH = 64  # typer breaks longer help, and fish takes what follows for another completion
_EXAMPLE = re.compile(r"""(?::|, for example) `[^`]*["{(][^`]*`""")


def settings_like(incomplete: str) -> list[tuple[str, str]]:
    """The settings that begin like this, `budget.limit=` and so on, with the first sentence about each."""
    from callsheet.config.settings import Settings

    found = _settings(Settings, incomplete)
    return [(f"{name}=", text) for name, text in found if name.startswith(incomplete)]


def changeable_like(incomplete: str) -> list[tuple[str, str]]:
    """The same of those that a run at work can be given."""
    from callsheet.config.load import CHANGEABLE

    return [found for found in settings_like(incomplete) if found[0].removesuffix("=") in CHANGEABLE]


def _settings(section: type[Section], incomplete: str, before: str = "") -> Iterator[tuple[str, str]]:
    """The settings of a section, and those of its sections; of a mapping by column each column, where the
    mapping is named.
    """
    from callsheet.config.settings import Section

    for name, field in section.model_fields.items():
        whole, kind = before + name, field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            yield from _settings(kind, incomplete, f"{whole}.")
            continue
        meaning = _first_sentence(field.description or "")
        yield whole, meaning
        if incomplete.startswith(f"{whole}."):
            yield from ((f"{whole}.{column}", meaning) for column in _columns(kind))


def _columns(kind: Any) -> tuple[str, ...]:
    """The keys of a mapping from columns; none of any other type, nor of a mapping with free keys."""
    return get_args(get_args(kind)[0]) if get_origin(kind) is dict else ()


def _first_sentence(text: str) -> str:
    """It, as far as it fits on a line, without examples: their quotes and brackets are no text to a shell."""
    sentence = " ".join(text.split()).partition(". ")[0].removesuffix(".")
    return shorten(re.sub(_EXAMPLE, "", sentence).replace("`", ""), _WIDTH, placeholder=" ...")
