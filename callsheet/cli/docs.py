"""`docs`: the pages of the documentation, which an installation has too."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from callsheet.cli.output import out, print_line, safe
from callsheet.errors import ConfigError


def docs(
    page: Annotated[
        str | None,
        typer.Argument(
            help="A page to print, such as configuration. Without it: a list.", show_default=False
        ),
    ] = None,
) -> None:
    """List the pages of the documentation, or print one.

    They are Markdown files, in the folder that the list ends with.
    """
    pages = {file.stem: file for file in sorted(_folder().glob("*.md"))}
    if page is None:
        for name, file in pages.items():
            print_line(out, f"  [bold]{name:<17}[/] {safe(_title(file))}")
        print_line(out, f"callsheet docs PAGE prints one; the files are in {safe(str(_folder()))}")
        return
    if not (found := pages.get(Path(page).stem)):
        raise ConfigError(f"the documentation has no page {page}", hint="`callsheet docs` lists the pages.")
    with out.pager() if out.is_terminal else nullcontext():
        out.print(found.read_text("utf-8"), markup=False, end="")


def _folder() -> Path:
    package = Path(__file__).parents[1]
    installed = package / "docs"  # otherwise the pages are in the root of the repository
    return installed if installed.exists() else package.parent / "docs"


def _title(file: Path) -> str:
    with file.open(encoding="utf-8") as lines:
        return next((line[2:].strip() for line in lines if line.startswith("# ")), "")
