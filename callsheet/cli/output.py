"""Printing: results on stdout, all else on stderr; streams that cannot be written; and shared options."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shlex
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
)
from contextlib import asynccontextmanager, suppress
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

import typer
from rich.console import Console, ConsoleDimensions
from typing_extensions import Buffer

from callsheet.errors import CallsheetError, ConfigError, LedgerError, OutputError
from callsheet.files import with_home
from callsheet.present.console import print_page
from callsheet.present.page import Line, Tone
from callsheet.records import as_json

_WIDEST = 10_000  # columns

T = TypeVar("T")


class _Output(Console):
    """Tables have the width that they need where there is no terminal: no name is broken into pieces."""

    @property  # type: ignore[misc]  # nobody sets it
    def size(self) -> ConsoleDimensions:
        is_limited = self.is_terminal or "COLUMNS" in os.environ
        return super().size if is_limited else ConsoleDimensions(_WIDEST, 25)


out = _Output(highlight=False, soft_wrap=True)
err = _Output(stderr=True, highlight=False, soft_wrap=True)

_WINDOWS = sys.platform == "win32"
_STDERR = 2
_CLOSED_PIPE = 141  # the shell's exit code for a program that SIGPIPE ends


def show_error(error: CallsheetError) -> None:
    """Prints an error and its hint to stderr."""
    first, *other_lines = error.message.split("\n")
    hints = filter(None, (*other_lines, *error.hint.split("\n")))
    beginning = Line(f" {first}", strong="error:", tone=Tone.BAD)
    print_page(err, [beginning, *(Line(hint, indent=2) for hint in hints)])


def print_json(value: Any) -> None:
    """Prints one JSON object on stdout; money, times and records as `records.as_json` has them."""
    if sys.stdout is not None:  # it is None where the shell has closed it
        sys.stdout.write(json.dumps(as_json(value)) + "\n")


def print_json_list(values: dict[str, Any], name: str, items: Iterable[Any]) -> None:
    """Prints one JSON object on stdout that ends with a list, of any length, one item after the other."""
    if sys.stdout is None:
        return
    sys.stdout.write(json.dumps(values)[:-1] + f", {json.dumps(name)}: [")
    for number, item in enumerate(items):
        sys.stdout.write((", " if number else "") + json.dumps(as_json(item)))
    sys.stdout.write("]}\n")


def check_streams() -> None:
    """Lets this process handle a stdout or stderr that cannot be written; call it first of all.

    A full disk behind stdout raises `OutputError`. A reader that has gone (`callsheet models | head -1`) ends
    the command quietly with 141. A broken stderr is ignored: a run that buys must not end because nobody
    reads its progress any more.
    """
    for name, number in (("stdout", 1), ("stderr", _STDERR)):
        stream: Any = getattr(sys, name)
        if stream is None or stream is not getattr(sys, f"__{name}__"):
            continue
        if _WINDOWS and stream.isatty():  # bytes would be read in an old code page there
            stream.reconfigure(errors="backslashreplace")
        else:
            wrapped = io.TextIOWrapper(
                io.BufferedWriter(_Stream(number, "w", closefd=False)),
                encoding=stream.encoding,
                errors="backslashreplace",  # what the encoding does not have
                line_buffering=stream.line_buffering,
            )
            setattr(sys, name, wrapped)


def flush() -> None:
    """Writes what is still buffered for stdout, so that an error comes now and not when Python exits."""
    if sys.stdout is not None:
        sys.stdout.flush()


class _Stream(io.FileIO):
    def write(self, data: Buffer) -> int:
        try:
            return super().write(data)
        except OSError as error:
            fd = self.fileno()
            nowhere = os.open(os.devnull, os.O_WRONLY)  # so that Python can flush the stream when it exits
            os.dup2(nowhere, fd)
            os.close(nowhere)
            if fd == _STDERR:
                return memoryview(data).nbytes
            if isinstance(error, BrokenPipeError) or (_WINDOWS and error.errno == errno.EINVAL):
                raise SystemExit(_CLOSED_PIPE) from None
            raise OutputError(
                f"the result cannot be written to stdout: {error.strerror}",
                hint="What the command did is done: repeating it prints the result again.",
            ) from None


# ---- what the shell completes after `--set`: it waits, so nothing is imported but the schema, and only then


_WIDTH = 64  # typer breaks longer help, and fish takes what follows for another completion
_EXAMPLE = re.compile(r"""(?::|, for example) `[^`]*["{(][^`]*`""")


def settings_like(incomplete: str) -> list[tuple[str, str]]:
    """The settings that begin like this, `budget.limit=` and so on, with the first sentence about each."""
    from callsheet.config.settings import Settings

    settings = _settings(Settings, incomplete)
    return [(f"{name}=", text) for name, text in settings if name.startswith(incomplete)]


def changeable_like(incomplete: str) -> list[tuple[str, str]]:
    """The same of those that a run at work can be given."""
    from callsheet.config.load import CHANGEABLE

    return [setting for setting in settings_like(incomplete) if setting[0].removesuffix("=") in CHANGEABLE]


def _settings(section: type[Section], incomplete: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The settings of a section, and those of its sections; of a mapping by column each column, where the
    mapping is named.
    """
    from callsheet.config.settings import Section

    for name, field in section.model_fields.items():
        path, kind = prefix + name, field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            yield from _settings(kind, incomplete, f"{path}.")
            continue
        meaning = _first_sentence(field.description or "")
        yield path, meaning
        if incomplete.startswith(f"{path}."):
            yield from ((f"{path}.{column}", meaning) for column in _columns(kind))


def _columns(kind: Any) -> tuple[str, ...]:
    """The keys of a mapping from columns; none of any other type, nor of a mapping with free keys."""
    return get_args(get_args(kind)[0]) if get_origin(kind) is dict else ()


def _first_sentence(text: str) -> str:
    """It, as far as it fits on a line, without examples: their quotes and brackets are no text to a shell."""
    sentence = " ".join(text.split()).partition(". ")[0].removesuffix(".")
    return shorten(re.sub(_EXAMPLE, "", sentence).replace("`", ""), _WIDTH, placeholder=" ...")


# ---- files of Callsheet itself


SKILL = Path(__file__).with_name("SKILL.md")
"""What agents are told: `docs skill` prints it, a project has it as AGENTS.md, and `mcp` begins with it."""


def docs_folder() -> Path:
    """The folder of the documentation's pages."""
    folder = Path(__file__).parents[1] / "docs"
    # An installation has it; here the pages are in the root of the repository.
    return folder if folder.exists() else folder.parents[1] / "docs"


# ---- options that commands share


if TYPE_CHECKING:
    from callsheet.config.settings import BatchSettings, Section, Settings
    from callsheet.ledger.ledger import Ledger
    from callsheet.service.client import Client


def at_home(url: str) -> str:
    """A path or URL of the command line, where `~` is the home folder: no shell sees it in `--to=~/copy.db`.

    Raises:
        typer.BadParameter: no such home folder is known.
    """
    try:
        return with_home(url)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def path_at_home(path: str | Path) -> Path:
    """The same of a path; Typer gives a default as it is.

    Raises:
        typer.BadParameter: it is empty, or an address: `Path` makes a folder `s3:` of that.
    """
    if not str(path) or "://" in str(path):
        raise typer.BadParameter(f"'{path}' is not a file of this machine")
    return Path(at_home(str(path)))


Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="The config file (YAML).", show_default=False)]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="A.B=VALUE",
        help="Change one setting of the config; repeatable.",
        autocompletion=settings_like,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else there.")
]


def load_settings(config: Path, overrides: list[str] | None) -> Settings:
    """The config file, checked, with the values of `--set`.

    Raises:
        ConfigError: see `callsheet.config.load.load`.
    """
    from callsheet.config.load import load

    with suppress(OSError):  # which `load` meets too, and says
        if config.suffix.lower() not in (".yaml", ".yml") and config.is_file():
            from callsheet.batches.formats import is_batch_file  # polars, which a config does not need

            if is_batch_file(config.name):
                hint = f"Make a config for it: callsheet init {shlex.quote(str(config))}"
                raise ConfigError(f"{config}: is a batch file, not a config", hint=hint)
    return load(config, overrides or ())


def load_batch(config: Path, overrides: list[str] | None) -> BatchSettings:
    """The same without the `service` section, for commands that ask no service and read no batch file.

    Raises:
        ConfigError: see `callsheet.config.load.load_without_service`.
    """
    from callsheet.config.load import load_without_service

    return load_without_service(config, overrides or ())


def ledger_url(command: str, config: Path | None, overrides: list[str] | None) -> str:
    """The ledger of a command's config; without one, that of `--set ledger.url`, or of the folder.

    Raises:
        LedgerError: without a config, there is none.
    """
    if config is not None:
        return load_batch(config, overrides).ledger.url
    from callsheet.config.load import load_ledger
    from callsheet.ledger.databases import check_exists, exists

    url = load_ledger(overrides or [])
    if not overrides and not exists(url):
        raise LedgerError(
            f"this folder has no ledger: there is no {url.removeprefix('sqlite:///')}",
            hint="The first run makes it. Go to the folder in which callsheet was run, or name one:\n"
            f"callsheet {command} CONFIG, or callsheet {command} --set ledger.url=sqlite:///PATH",
        )
    check_exists(url)
    return url


def amount_of(text: str) -> Decimal:
    """The US dollars that a person has typed.

    Raises:
        ConfigError: it is no amount above 0, to six decimals.
    """
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or amount <= 0 or amount >= 10**9 or amount != round(amount, 6):
        raise ConfigError(
            f"{text!r} is no amount of US dollars", hint="Give one above 0, to six decimals, as 5.00."
        )
    return amount


def utc_day(option: str, text: str | None) -> date | None:
    """The day that an option names; None without it.

    Raises:
        CallsheetError: it names none.
    """
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        hint = "Write a UTC day as 2026-01-31."
        raise CallsheetError(f"{option} {text!r} is not a date", hint=hint) from None


def ask_service(connect: Awaitable[Client], question: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """Connects and asks the service; a signal ends it at once."""
    import asyncio

    from callsheet import signals

    async def ask() -> T:
        with signals.cancelled_by_signals():
            async with await connect as client:
                return await question(client)

    return asyncio.run(ask())


async def open_client(settings: Settings) -> Client:
    """The service's client."""
    from callsheet.steps.connect import connect

    return await connect(settings)


async def client_of_environment(hint: str) -> Client:
    """The client of the service that `CALLSHEET_BASE_URL` names, with the key in `CALLSHEET_API_KEY`.

    Raises:
        ConfigError: a variable is not set, or the address is not one.
    """
    from callsheet.config.setting_types import WrongValue, service_address
    from callsheet.steps.connect import client_of

    base_url = os.environ.get("CALLSHEET_BASE_URL")
    if not base_url:
        raise ConfigError("which service? The environment variable CALLSHEET_BASE_URL is not set", hint=hint)
    try:
        base_url = service_address(base_url)
    except ValueError as error:
        hint = error.hint if isinstance(error, WrongValue) else ""
        raise ConfigError(f"CALLSHEET_BASE_URL {error}", hint=hint) from None
    return client_of(base_url, "CALLSHEET_API_KEY")


@asynccontextmanager
async def open_ledger(url: str, batch: str) -> AsyncIterator[Ledger]:
    """A batch's ledger, only to look (`Ledger.open`); it is closed at the end."""
    from callsheet.ledger.ledger import Ledger

    async with await Ledger.open(url, batch, looks=True) as ledger:
        yield ledger
