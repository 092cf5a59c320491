"""The command line: the roof over the flows, and the only file here that imports them.

A command imports Prefect only when it runs a flow, so that `--help` and `quote` are quick.
"""

from __future__ import annotations

import asyncio
import json as jsonlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from backlot.cli import app as backlot_app
from callsheet.errors import CallsheetError, ConfigError, Interrupted
from callsheet.records import dollars

if TYPE_CHECKING:
    from callsheet.config.settings import Settings
    from callsheet.pricing.quote import Quote
    from callsheet.report.report import Summary
    from callsheet.service.client import Client

T = TypeVar("T")

DEMO_KEY = "sk_demo"
DEMO_BACKLOT = (
    *("--state", "out/demo/backlot", "--api-key", DEMO_KEY, "--balance", "25.0000"),
    *("--image-seconds", "1.5", "--video-seconds", "6", "--concurrency", "8"),
)
DEMO_PORT = Path("out/demo/port")  # where files of an unfinished demo wait: the port is in their URLs

app = typer.Typer(
    name="callsheet",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Buy images and videos by the batch: priced before, paid once, never lost.",
    epilog="New here? `callsheet demo` runs a real batch on this machine, without an account.",
)
app.add_typer(backlot_app)

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="The config file (YAML).", show_default=False)]
OptionalConfig = Annotated[
    Path | None,
    typer.Argument(
        metavar="[CONFIG]",
        help="A config file; without it, the environment says which service.",
        show_default=False,
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=VALUE", help="Change one setting of the config; repeatable."),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else there.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Buy also above budget.approve_above.")]


def main() -> None:
    """The console script: every error that Callsheet knows becomes a message and an exit code."""
    try:
        app()
    except (CallsheetError, BaseExceptionGroup) as error:
        known = known_error(error)
        if known is None:
            raise
        _fail(known)


def known_error(error: BaseException) -> CallsheetError | None:
    """The error that a command ends with; of a group (steps run side by side) the first.

    None where one of them is not Callsheet's own: a bug.
    """
    if isinstance(error, BaseExceptionGroup):
        each = [known_error(one) for one in error.exceptions]
        return None if None in each else each[0]
    return error if isinstance(error, CallsheetError) else None


def _fail(error: CallsheetError) -> None:
    from callsheet.cli.show import show_error

    show_error(error)
    if "--json" in sys.argv:
        typer.echo(jsonlib.dumps({"error": error.message, "hint": error.hint}))
    sys.exit(error.exit_code)


@app.command()
def run(config: Config, set_: Sets = None, yes: Yes = False, json: Json = False) -> None:
    """Buy every job of a batch that is not bought yet, and store its media.

    Any stop is a pause: the same command goes on where the last one ended, and pays for nothing twice.

    Exit codes: 0 all stored; 2 bad config or input, nothing spent; 3 finished or broken off, and some jobs
    failed, are in doubt, lost or pending; 4 stopped early by budget, balance, key or for want of a yes.
    """
    _settings(config, set_)  # a bad config is told at once, before Prefect starts

    async def flow() -> Any:
        from flows.generate import generate_batch

        return await generate_batch(str(config), set_ or [], yes)

    raise typer.Exit(_report(_watched(flow), json))


@app.command()
def collect(config: Config, set_: Sets = None, json: Json = False) -> None:
    """Poll and download what is paid for already. Never buys."""
    _settings(config, set_)

    async def flow() -> Any:
        from flows.collect import collect_media

        return await collect_media(str(config), set_ or [])

    raise typer.Exit(_report(_watched(flow), json))


@app.command()
def quote(config: Config, set_: Sets = None, json: Json = False) -> None:
    """Price a batch exactly, and list what is wrong with which line. Buys nothing."""
    from callsheet.cli import show
    from callsheet.pricing.quote import quote_batch

    settings = _settings(config, set_)

    async def price() -> Quote:
        async with await _client(settings) as client:
            return await quote_batch(settings, client)

    made = asyncio.run(price())
    if json:
        typer.echo(jsonlib.dumps(made.as_json()))
    else:
        show.show_quote(made)


@app.command()
def status(config: Config, set_: Sets = None, json: Json = False) -> None:
    """Say how a batch stands, from the ledger alone."""
    from callsheet.cli import show
    from callsheet.ledger import queries
    from callsheet.ledger.ledger import Ledger

    settings = _settings(config, set_)

    async def read() -> Any:
        ledger = await Ledger.open(settings.ledger.url, settings.batch)
        try:
            return await ledger.read(queries.totals)
        finally:
            await ledger.close()

    totals = asyncio.run(read())
    if json:
        typer.echo(jsonlib.dumps({"batch": settings.batch} | totals.as_json()))
    else:
        show.show_status(settings.batch, totals)


@app.command()
def resolve(
    config: Config,
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY]...", help="Row ids, or how a job's key or row id begins.", show_default=False
        ),
    ] = None,
    *,
    charged: Annotated[bool, typer.Option("--charged", help="They were paid for, and are lost.")] = False,
    not_charged: Annotated[
        bool, typer.Option("--not-charged", help="They cost nothing; the next run buys them.")
    ] = False,
    all_: Annotated[bool, typer.Option("--all", help="Settle everything that is in doubt.")] = False,
    why: Annotated[str | None, typer.Option(help="The reason, for the ledger.")] = None,
    set_: Sets = None,
    json: Json = False,
) -> None:
    """List the jobs that may have been paid for, with the evidence; or settle them.

    Exit codes: 0 nothing is in doubt (any more); 3 something is; 2 bad use, nothing was settled.
    """
    settings = _settings(config, set_)
    settles = charged or not_charged
    if settles != bool(keys or all_) or (charged and not_charged) or (keys and all_) or (why and not settles):
        raise CallsheetError(
            "to settle doubts, say which and how",
            hint="KEY... or --all, with either --charged or --not-charged; --why goes with these.",
        )
    work = _settle(settings, keys, charged, why, json) if settles else _list_doubts(settings, json)
    raise typer.Exit(3 if asyncio.run(work) else 0)


async def _list_doubts(settings: Settings, json: bool) -> int:
    """Prints what is in doubt, and the evidence; returns how many."""
    from callsheet.cli import show
    from callsheet.ledger import doubts, queries
    from callsheet.ledger.ledger import Ledger

    ledger = await Ledger.open(settings.ledger.url, settings.batch)
    try:
        found = await ledger.read(queries.doubts)
        seen = await doubts.evidence(ledger, found, lambda: _client(settings)) if found else None
    finally:
        await ledger.close()
    if json:
        listed = [doubt.as_json() for doubt in found]
        exposure = dollars(sum((doubt.price or Decimal(0) for doubt in found), Decimal(0)))
        said = {"in_doubt": listed, "in_doubt_exposure": exposure, "evidence": seen and seen.as_json()}
        typer.echo(jsonlib.dumps({"batch": settings.batch, **said, "currency": "USD"}))
    else:
        show.show_doubts(settings.batch, found, seen)
    return len(found)


async def _settle(
    settings: Settings, keys: list[str] | None, charged: bool, why: str | None, json: bool
) -> int:
    """Settles the doubts named, or all; returns how many are left."""
    from callsheet.cli import show
    from callsheet.ledger import doubts, queries
    from callsheet.ledger.ledger import Ledger

    ledger = await Ledger.open(settings.ledger.url, settings.batch)
    try:
        found = await ledger.read(queries.doubts)
        chosen = doubts.named(found, keys) if keys else found
        by = doubts.login()
        await ledger.settle(chosen, charged=charged, by=by, why=why)
        left = len(await ledger.read(queries.doubts))
    finally:
        await ledger.close()
    if json:
        settled = [doubt.as_json() for doubt in chosen]
        said = {"settled": settled, "charged": charged, "settled_by": by, "why": why, "left": left}
        typer.echo(jsonlib.dumps({"batch": settings.batch, **said, "currency": "USD"}))
    else:
        show.show_settled(settings.batch, chosen, charged=charged, left=left)
    return left


@app.command()
def models(config: OptionalConfig = None, set_: Sets = None, json: Json = False) -> None:
    """List the service's models, what they take, and their prices."""
    from callsheet.cli import show

    catalogue = asyncio.run(_ask(config, set_, lambda client: client.models()))
    if json:
        typer.echo(jsonlib.dumps({"models": [model.model_dump(mode="json") for model in catalogue.values()]}))
    else:
        show.show_models(catalogue.values())


@app.command()
def balance(config: OptionalConfig = None, set_: Sets = None, json: Json = False) -> None:
    """Say what the workspace has to spend."""
    from callsheet.records import dollars

    amount = asyncio.run(_ask(config, set_, lambda client: client.balance()))
    if json:
        typer.echo(jsonlib.dumps({"balance": dollars(amount), "currency": "USD"}))
    else:
        typer.echo(f"{dollars(amount)} USD")


@app.command()
def demo() -> None:
    """Run a real batch against a service on this machine: no account, no money, real images and videos."""
    from backlot.errors import SettingsError
    from backlot.server import spawn
    from callsheet.cli import show
    from callsheet.cli.demo import demo_config

    config = demo_config()
    port = DEMO_PORT.read_text() if DEMO_PORT.exists() else "0"
    try:
        with spawn(*DEMO_BACKLOT, "--port", port) as (base_url, _):
            DEMO_PORT.write_text(base_url.rpartition(":")[2])
            os.environ |= {"CALLSHEET_BASE_URL": base_url, "CALLSHEET_API_KEY": DEMO_KEY}
            show.err.print(f"The backlot, a service in a box, listens at {base_url}.")
            _settings(config, None)

            async def flow() -> Any:
                from flows.generate import generate_batch

                return await generate_batch(str(config))

            summary = _watched(flow)
    except SettingsError:
        raise ConfigError(
            "the demo's backlot did not start",
            hint="The line above says why. End what is in its way, or start afresh: rm -r out/demo",
        ) from None
    if not summary.pending:
        DEMO_PORT.unlink(missing_ok=True)
    show.show_summary(summary)
    show.show_demo(summary)
    # The demo has a row that the service refuses, on purpose.
    raise typer.Exit(0 if summary.outcome in ("complete", "partial") else summary.exit_code)


def _settings(config: Path, overrides: list[str] | None) -> Settings:
    from callsheet.config.load import load

    return load(config, overrides or ())


async def _client(settings: Settings) -> Client:
    """The service's client; Prefect is imported only where the key is in one of its blocks."""
    if settings.service.api_key_block:
        _quiet_prefect()
        from tasks.connect import connect

        return await connect(settings)
    from callsheet.service.client import Client
    from callsheet.session import api_key

    return Client(settings.service.base_url, api_key(settings.service.api_key_env))


async def _ask(
    config: Path | None, overrides: list[str] | None, question: Callable[[Client], Awaitable[T]]
) -> T:
    """Asks the service one thing, with a config or with the environment alone."""
    if config:
        client = await _client(_settings(config, overrides))
    elif overrides:
        raise ConfigError(
            "--set changes a setting of a config, and none is named", hint="Name it before --set."
        )
    else:
        from callsheet.service.client import Client
        from callsheet.session import api_key

        base_url = os.environ.get("CALLSHEET_BASE_URL")
        if not base_url:
            raise ConfigError(
                "which service? The environment variable CALLSHEET_BASE_URL is not set",
                hint="Set it, or name a config.",
            )
        client = Client(base_url, api_key("CALLSHEET_API_KEY"))
    async with client:
        return await question(client)


def _quiet_prefect() -> None:
    """Settles what Prefect does on this terminal; to be called before it is imported."""
    # What a person should know is told by the watcher, in our words.
    logging.disable(logging.ERROR)
    os.environ.setdefault("PREFECT_INTERNAL_LOGGING_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_CLIENT_MAX_RETRIES", "2")  # the default waits a minute for a lost server
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")  # offline, it prints stack traces


def _watched(flow: Callable[[], Awaitable[Any]]) -> Any:
    """Runs a flow in this process, with the terminal as its watcher and Prefect silent."""
    _quiet_prefect()
    from callsheet.cli import show
    from callsheet.watch import WATCHER

    terminal = show.Terminal()

    async def watched() -> Any:
        from flows.names import tagged

        WATCHER.set(terminal)
        with tagged():
            return await flow()

    # Before anything is bought SIGTERM is as Ctrl-C; a run that is open hears both itself.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        terminal.start()
        from flows.server import start_server

        start_server()
        return asyncio.run(watched())
    except CallsheetError:
        raise
    except Exception as error:
        if terminal.summary is None:
            raise
        # The batch is done and reported: only Prefect, by which people watch it, has lost sight of it.
        terminal.note(f"Prefect could not record the end of the run: {error}")
        return terminal.summary
    except BaseException:  # noqa: BLE001  # Ctrl-C; or SIGTERM as Prefect raises it, alone or in a group
        raise Interrupted("stopped", hint="Nothing is lost: the same command goes on from here.") from None
    finally:
        terminal.close()


def _report(summary: Summary, json: bool) -> int:
    """Prints a run's summary; returns the exit code."""
    if json:
        typer.echo(jsonlib.dumps(summary.as_json()))
    else:
        from callsheet.cli.show import show_summary

        show_summary(summary)
    return summary.exit_code
