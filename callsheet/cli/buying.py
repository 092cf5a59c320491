"""`quote`, `run`, `collect`, `status`; `set`, `pause` and `resume`: the commands that a batch needs."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from callsheet.cli import STARTED
from callsheet.cli.output import (
    Config,
    Json,
    Sets,
    ask_service,
    changeable_like,
    ledger_url,
    load_batch,
    load_settings,
    open_client,
    open_ledger,
    out,
    print_json,
)
from callsheet.errors import ConfigError
from callsheet.present.console import print_page

if TYPE_CHECKING:
    from callsheet.config.settings import BatchSettings, Settings
    from callsheet.pricing.choice import Choice
    from callsheet.pricing.downstream import Downstream
    from callsheet.records import Doubt, Totals
    from callsheet.report.summary import Status, Summary

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Approve what budget.approve_above or a pilot asks.")]
Purse = Annotated[
    str | None,
    typer.Option(
        "--purse",
        metavar="NAME",
        help="Buy by the purse that a person has given to NAME (`callsheet purse`), and ask nobody here.",
        show_default=False,
    ),
]
Pilot = Annotated[
    int | None,
    typer.Option("--pilot", metavar="N", min=1, help="Buy N jobs of all kinds, then ask about the rest."),
]
First = Annotated[
    int | None,
    typer.Option("--first", metavar="N", min=1, help="Only the first N jobs that are not bought yet."),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="ROW", help="Only the row with this id (or 'line 4' without one); repeatable."
    ),
]
Again = Annotated[
    bool,
    typer.Option(
        "--again",
        help="One more sample of each row of which every file is rejected, up to review.samples.",
    ),
]
NewLedger = Annotated[
    bool,
    typer.Option("--new-ledger", help="Buy by this ledger, whatever another one has bought of the batch."),
]
NewPlace = Annotated[
    bool,
    typer.Option("--new-place", help="Store in storage.url, although what was stored there is gone."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no quote and no progress on stderr.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print a line for each job that is bought, stored or fails.")
]
ProgressAs = Annotated[
    Literal["bars", "jsonl"],
    typer.Option("--progress", help="bars: for people. jsonl: a JSON object a line, for programs."),
]
_BUY_AGAIN = ["review.buy_again=true"]


def run(
    config: Config,
    set_: Sets = None,
    *,
    yes: Yes = False,
    purse: Purse = None,
    pilot: Pilot = None,
    first: First = None,
    only: Only = None,
    again: Again = False,
    new_ledger: NewLedger = False,
    new_place: NewPlace = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be bought, as `quote` does, and buy nothing.")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    progress: ProgressAs = "bars",
    json: Json = False,
) -> None:
    """Buy every job of a batch that is not bought yet, and store its media.

    Any stop is a pause: the same command goes on where the last one ended, and pays for nothing twice.

    Exit codes: 0 all stored; 2 bad config or input, nothing spent; 3 finished or broken off, and some jobs
    failed, are in doubt, lost or pending; 4 stopped before everything was tried, as by a budget, the key, the
    service or for want of a yes; 130 interrupted before anything was bought.

    callsheet run batch.yaml --pilot 6 --set budget.limit=20.00

    callsheet run batch.yaml --only lamp --only "line 4"
    """
    set_ = [*(set_ or []), *([f"budget.pilot={pilot}"] if pilot else [])]
    set_ += ["ledger.new=true"] if new_ledger else []
    set_ += ["storage.new=true"] if new_place else []
    set_ += _BUY_AGAIN if again else []
    choice = _choice(first, only, pilot)
    if purse is not None and yes:
        raise ConfigError(
            "--purse and --yes exclude each other", hint="Who buys by a purse answers no question."
        )
    if dry_run:
        quote([config], set_, json, first, only)
        return
    settings = load_settings(config, set_)  # what is wrong in it is said before the imports, which take long
    from callsheet.cli.terminal import run_watched, screen_of
    from callsheet.steps.batch import generate

    screen = screen_of(progress, quiet=quiet, verbose=verbose)
    summary = run_watched(generate(settings, approved=yes, choice=choice, purse=purse, began=STARTED), screen)
    _print(summary, settings, config, json)


def collect(
    config: Config,
    set_: Sets = None,
    *,
    quiet: Quiet = False,
    verbose: Verbose = False,
    progress: ProgressAs = "bars",
    json: Json = False,
) -> None:
    """Poll and download what is paid for already. Never buys."""
    settings = load_settings(config, set_)
    from callsheet.cli.terminal import run_watched, screen_of
    from callsheet.steps import batch

    screen = screen_of(progress, quiet=quiet, verbose=verbose)
    _print(run_watched(batch.collect(settings, began=STARTED), screen), settings, config, json)


def quote(
    configs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="CONFIG", help="The config file (YAML).", show_default=False),
    ] = None,
    set_: Sets = None,
    json: Json = False,
    first: First = None,
    only: Only = None,
    *,
    again: Again = False,
    show: Annotated[
        str | None,
        typer.Option(
            "--show",
            metavar="N or ROW",
            help="Show the first N requests, or those of a row (its id, or 'line 4').",
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Price the same rows on each model that can take them, too.")
    ] = False,
    if_: Annotated[
        str | None,
        typer.Option(
            "--if",
            metavar="CONFIG#ROW",
            help="Price what would be bought again if that kept file were another: in the configs that are "
            "named, or in all beside its own.",
        ),
    ] = None,
) -> None:
    """Price a batch exactly, show the first rows, and list what is wrong with which line. Buys nothing.

    callsheet quote batch.yaml --show 2

    callsheet quote --if cast.yaml#nova

    callsheet quote batch.yaml --compare --set input.path=more.csv
    """
    from callsheet.present import as_read, catalogue, priced
    from callsheet.pricing.compare import compare_models
    from callsheet.pricing.from_rows import quote_batch

    if if_ is not None:
        _quote_downstream(if_, configs or [], set_ or [], json)
        return
    if not configs:
        raise ConfigError("Missing argument 'CONFIG'.", hint="callsheet quote --help says what there is.")
    if len(configs) > 1:
        raise ConfigError("quote takes one config", hint="Several go with --if, as --if cast.yaml#nova.")
    settings = load_settings(configs[0], [*(set_ or []), *(_BUY_AGAIN if again else [])])
    choice = _choice(first, only)
    batch_quote = ask_service(open_client(settings), lambda client: quote_batch(settings, client, choice))
    comparisons = asyncio.run(compare_models(batch_quote.plan, settings)) if compare else []
    if json:
        fields = priced.figures(batch_quote).as_json()
        if comparisons:
            fields["compare"] = list(map(catalogue.comparison_figures, comparisons))
        if show is not None:
            fields["requests"] = [request for _, request in as_read.requests(batch_quote.table, show)]
        print_json(fields)
    else:
        print_page(out, [*priced.screen(batch_quote, show), *catalogue.comparison_screen(comparisons)])


def _quote_downstream(file: str, configs: list[Path], overrides: list[str], json: bool) -> None:
    """Prints what hangs on a kept file, and what that would cost again."""
    from callsheet import signals
    from callsheet.present import priced
    from callsheet.pricing.downstream import price_downstream

    async def price() -> Downstream:
        with signals.cancelled_by_signals():
            return await price_downstream(file, configs, overrides, open_client)

    downstream = asyncio.run(price())
    if json:
        print_json(downstream)
    else:
        print_page(out, priced.downstream_screen(downstream))


def status(
    configs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="CONFIG",
            help="The config file; without it, all of a ledger (out/ledger.db, or --set ledger.url=...). "
            "Those of a production, stills and then films: what each finished shot has cost.",
            show_default=False,
        ),
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Print the jobs that are in doubt, and what was said of them."),
    ] = False,
    set_: Sets = None,
    json: Json = False,
) -> None:
    """Say how a batch stands, or all batches of a ledger, from the ledger alone.

    callsheet status stills.yaml films.yaml
    """
    from callsheet.ledger import queries, sums
    from callsheet.ledger.tables import SCHEMA_VERSION
    from callsheet.present.status import batches_screen, figures, screen
    from callsheet.report.summary import check_totals, read_status

    async def read_one(settings: BatchSettings) -> tuple[Status, list[Doubt]]:
        async with open_ledger(settings.ledger.url, settings.batch) as ledger:
            doubts = await ledger.read(queries.doubts) if verbose else []
            return await read_status(ledger, settings), doubts

    async def read_all(url: str) -> tuple[dict[str, Totals], list[str]]:
        async with open_ledger(url, "") as ledger:
            differences = await ledger.read(lambda connection, _: sums.differences(connection))
            return await ledger.read(lambda connection, _: sums.of_ledger(connection)), differences

    if configs and len(configs) > 1:
        _print_production(configs, set_, json)
        return
    if configs:
        config = configs[0]
        status, doubts = asyncio.run(read_one(load_batch(config, set_)))
        if json:
            print_json(status.as_json() | {"ledger_version": SCHEMA_VERSION})  # no other one is opened
        else:
            print_page(out, screen(status, shlex.quote(str(config)), doubts))
        return
    batches, differences = asyncio.run(read_all(ledger_url("status", None, set_)))
    check_totals(differences)
    if json:
        entries = [figures(name, totals) for name, totals in batches.items()]
        print_json({"ledger_version": SCHEMA_VERSION, "batches": entries})
    else:
        print_page(out, batches_screen(batches))


def _print_production(configs: list[Path], overrides: list[str] | None, json: bool) -> None:
    """Prints what the shots of several batches have cost."""
    from callsheet.present.status import production_screen
    from callsheet.report.production import read_production

    production = asyncio.run(read_production([load_batch(config, overrides) for config in configs]))
    if json:
        print_json(production)
    else:
        print_page(out, production_screen(production))


def _choice(first: int | None, rows: list[str] | None, pilot: int | None = None) -> Choice:
    """The jobs that `--first` and `--only` name; they exclude a pilot."""
    from callsheet.pricing.choice import Choice

    choice = Choice(first, tuple(rows or ()))
    if choice and pilot:
        raise ConfigError(
            "--pilot cannot be combined with --first or --only", hint="A run of chosen jobs has no pilot."
        )
    return choice


def _print(summary: Summary, settings: Settings, config: Path, json: bool) -> None:
    """Prints a run's summary, and ends with its exit code."""
    from callsheet.present import results

    if json:
        print_json(summary)
    else:
        print_page(out, results.screen(summary, shlex.quote(str(config)), media=settings.storage.url))
    raise typer.Exit(summary.exit_code)


_Values = Annotated[
    list[str],
    typer.Argument(
        metavar="A.B=VALUE",
        help="What to change.",
        show_default=False,
        autocompletion=changeable_like,
    ),
]


def set_values(config: Config, values: _Values, *, overrides: Sets = None, json: Json = False) -> None:
    """Change settings of the runs of a batch that are at work, within seconds.

    budget.limit, budget.per_day, budget.ledger, limits.image_rpm, limits.video_rpm, limits.concurrency,
    stop_after, poll.interval and poll.timeout can be changed. A budget below what is spent stops the buying
    politely. The config file stays as it is, and the next run has what it says.

    callsheet set batch.yaml budget.limit=20.00 limits.image_rpm=30
    """
    from callsheet.config.load import changed_values

    settings, changed = changed_values(config, values, overrides or ())
    _change(settings, changed, json)


def pause(config: Config, set_: Sets = None, json: Json = False) -> None:
    """Hold the buying of the runs of a batch that are at work. What is sent is stored all the same."""
    _change(load_batch(config, set_), {"paused": True}, json)


def resume(config: Config, set_: Sets = None, json: Json = False) -> None:
    """Let the runs of a batch go on that hold their buying."""
    _change(load_batch(config, set_), {"paused": False}, json)


def _change(settings: BatchSettings, values: Mapping[str, Any], json: bool) -> None:
    from callsheet.present.allowances import changed, without_limit
    from callsheet.present.page import Facts, Line
    from callsheet.steps.steer import change_setting

    done = asyncio.run(change_setting(settings, values))
    if json:
        print_json({"batch": settings.batch, "changed": values, "runs": done.runs})
        return
    facts = [("Changed", changed(name, value)) for name, value in values.items()]
    facts += [("Allowed", without_limit(done.allowed)), *(("At work", run.line()) for run in done.runs)]
    print_page(out, [Line(strong=settings.batch), Facts(facts)])
