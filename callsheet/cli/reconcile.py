"""`resolve`, `reconcile` and `ledger`: doubts with a person's decision, and the ledger beside the account."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callsheet.cli.output import (
    MOST_LISTED,
    Config,
    Json,
    Sets,
    ask_service,
    at_home,
    load_batch,
    load_settings,
    open_client,
    open_ledger,
    out,
    path_at_home,
    print_facts,
    print_json,
    print_line,
    print_more,
    print_table,
    safe,
)
from callsheet.errors import CallsheetError
from callsheet.plain_text import and_more, counted, printable, row_name
from callsheet.processes import user_name
from callsheet.records import State, dollars

if TYPE_CHECKING:
    from callsheet.config.settings import Settings
    from callsheet.records import Doubt
    from callsheet.report.evidence import Evidence
    from callsheet.report.reconcile import Reconciliation

_EVENTS = 10  # that left jobs in doubt
_ACCEPTED = "accepted video"


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
    all_: Annotated[
        bool, typer.Option("--all", help="Settle everything that is in doubt, but no accepted video.")
    ] = False,
    give_up: Annotated[
        bool,
        typer.Option(
            "--give-up",
            help="Settle accepted videos too: those of KEY that have an id, in doubt or pending. Every run "
            "asks the service for them. With --charged the price is spent and the video lost; with "
            "--not-charged it is bought again, and may be paid for twice.",
        ),
    ] = False,
    why: Annotated[str | None, typer.Option(help="The reason, for the ledger.")] = None,
    set_: Sets = None,
    json: Json = False,
) -> None:
    """List the jobs that may have been paid for, with the evidence; or settle them.

    A video that the service has accepted has an id. It is no doubt about money, because every run asks for it
    again: it is listed apart, and settled only with --give-up. What a run at work asks for is not settled.

    Exit codes: 0 nothing is in doubt (any more); 3 something is; 2 nothing was settled: bad use, or a run at
    work has it.
    """
    settings = load_settings(config, set_)
    settles = charged or not_charged
    unclear = settles != bool(keys or all_) or (charged and not_charged) or (keys and all_)
    if unclear or (why and not settles) or (give_up and not keys):
        ways = "KEY... or --all, with either --charged or --not-charged"
        raise CallsheetError(
            "to settle doubts, say which and how",
            hint=f"{ways}; --why goes with these, and --give-up with KEY... alone.",
        )
    work = (
        _settle(settings, keys, charged=charged, give_up=give_up, why=why, json=json)
        if settles
        else _list(settings, config, json)
    )
    raise typer.Exit(3 if asyncio.run(work) else 0)


async def _list(settings: Settings, config: Path, json: bool) -> int:
    """Prints what is in doubt, and the evidence; returns how many."""
    from callsheet.ledger import queries
    from callsheet.pricing.plan import lines_of_last_plan
    from callsheet.report.evidence import gather

    async with open_ledger(settings.ledger.url, settings.batch) as ledger:
        all_doubts = await ledger.read(queries.doubts)
        doubts, accepted = _apart(all_doubts)
        evidence = None
        if doubts:
            evidence = await gather(ledger, doubts, lambda: open_client(settings))
    if json:
        prices = (doubt.price or Decimal(0) for doubt in all_doubts if doubt.state is State.IN_DOUBT)
        print_json(
            {
                "batch": settings.batch,
                "in_doubt": [doubt.as_json() for doubt in doubts],
                "accepted": [doubt.as_json() for doubt in accepted],
                "in_doubt_exposure": dollars(sum(prices, Decimal(0))),
                "evidence": evidence and evidence.as_json(),
                "currency": "USD",
            }
        )
        return len(all_doubts)
    lines = lines_of_last_plan(settings, [doubt.job_key for doubt in all_doubts])
    name = shlex.quote(str(config))
    if evidence:
        _show_doubts(settings.batch, doubts, evidence, lines, f"callsheet resolve {name}")
    if accepted:
        out.print(
            f"[bold]{safe(settings.batch)}[/]: {counted(len(accepted), _ACCEPTED)}, no doubt about money"
        )
        print_jobs(accepted, lines)
        out.print()
        note = "The service has accepted them. A run with the key that bought them asks for them again."
        print_line(out, f"  {note}", 2)
        facts = [
            ("Ask now", f"callsheet collect {name}"),
            ("Give up", f"callsheet resolve {name} KEY... --give-up --charged | --not-charged --why ..."),
            ("", "--charged: its price is spent, and the video is lost"),
            ("", "--not-charged: the next run buys it again, and it may be paid for twice"),
        ]
        print_facts(out, facts)
    if not all_doubts:
        out.print(f"[green]{safe(settings.batch)}: nothing is in doubt.[/]")
    return len(all_doubts)


def _apart(doubts: Sequence[Doubt]) -> tuple[list[Doubt], list[Doubt]]:
    """What may have been paid for, and apart from it what the service has accepted."""
    in_doubt = [doubt for doubt in doubts if not doubt.is_accepted]
    return in_doubt, [doubt for doubt in doubts if doubt.is_accepted]


async def _settle(
    settings: Settings, keys: list[str] | None, *, charged: bool, give_up: bool, why: str | None, json: bool
) -> int:
    """Settles the doubts named, or all; returns how many are left."""
    from callsheet.ledger import queries, settling
    from callsheet.pricing.plan import last_plan

    async with open_ledger(settings.ledger.url, settings.batch) as ledger:
        all_doubts = await ledger.read(partial(queries.doubts, pending=True))
        if keys:
            rows = await ledger.read(partial(queries.row_ids, words=keys))
            plan = last_plan(settings)  # which has rows that were never sent, too
            rows |= {*keys}.intersection(plan.table["row_id"]) if plan else set()
            chosen = _chosen(all_doubts, keys, rows=rows, give_up=give_up)
        else:
            chosen = _apart(all_doubts)[0]
        by = user_name()
        await ledger.write(settling.settle, chosen, charged=charged, by=by, why=why)
        left = await ledger.read(queries.doubts)
    left_out = _apart(left)[1]
    if json:
        settled = {"settled": [doubt.as_json() for doubt in chosen], "charged": charged, "settled_by": by}
        unsettled = {"left": len(left), "left_out": [doubt.as_json() for doubt in left_out]}
        print_json({"batch": settings.batch, **settled, "why": why, **unsettled, "currency": "USD"})
    else:
        _show_settled(settings.batch, chosen, charged=charged, left=len(left), left_out=left_out)
    return len(left)


def _show_doubts(
    batch: str, doubts: Sequence[Doubt], evidence: Evidence, lines: Mapping[str, int], command: str
) -> None:
    """Prints the jobs in doubt, and the evidence whether they were charged; `lines` as `print_jobs`."""
    from callsheet.report.evidence import UNCERTAIN

    out.print(f"[bold]{safe(batch)}[/]: {len(doubts):,} in doubt")
    print_jobs(doubts, lines)
    out.print()
    print_facts(out, evidence.facts())
    print_line(out, f"  [dim]{UNCERTAIN}[/]")
    out.print()
    if proposed := _proposed(doubts, evidence):
        print_line(out, "To settle by this evidence:")
        for options in proposed:
            print_line(out, f"  {safe(command)} {options} --why 'by the balance'")
    print_line(out, f"To settle: {safe(command)} KEY... (or --all) --charged | --not-charged --why ...")


def _proposed(doubts: Sequence[Doubt], evidence: Evidence) -> list[str]:
    """What to add to `resolve` to settle all doubts, where it is plain which were charged."""
    if evidence.charged is None:
        return []
    is_charged = {doubt.job_key for doubt in evidence.charged}
    keys: dict[str, list[str]] = {"--charged": [], "--not-charged": []}
    for key in dict.fromkeys(doubt.job_key for doubt in doubts):
        keys["--charged" if key in is_charged else "--not-charged"].append(key[:12])
    (named_option, named_keys), (all_option, all_keys) = sorted(keys.items(), key=lambda group: len(group[1]))
    if len(named_keys) > MOST_LISTED:
        return []
    return [
        *([f"{' '.join(named_keys)} {named_option}"] if named_keys else []),
        *([f"--all {all_option}"] if all_keys else []),
    ]


def print_jobs(doubts: Sequence[Doubt], lines: Mapping[str, int]) -> None:
    """Prints the first of these jobs, with their ids where they have any, and what has happened to them.

    `lines` are those of the batch file, by key, where the last plan has them.
    """
    has_ids = any(doubt.generation_id for doubt in doubts)
    shown_lines: list[dict[str, str]] = []
    rows_by_event: dict[str, list[str]] = {}
    for doubt in doubts:
        row = row_name(doubt.row_id, doubt.sample, lines.get(doubt.job_key))
        rows_by_event.setdefault(doubt.what, []).append(row)
        if len(shown_lines) < MOST_LISTED:
            line = {"key": doubt.job_key[:12], "row": row, "model": doubt.model}
            line["submitted (UTC)"] = f"{doubt.submitted_at:%Y-%m-%d %H:%M:%S}"
            line["USD"] = "unpriced" if doubt.price is None else dollars(doubt.price)
            shown_lines.append(line | ({"id": doubt.generation_id or ""} if has_ids else {}))
    print_table(out, shown_lines, "row", "model", "submitted (UTC)", "id", limit=MOST_LISTED)
    print_more(len(doubts) - MOST_LISTED, "more: --json and costs.parquet have all\n")
    for event, rows in islice(rows_by_event.items(), _EVENTS):
        print_line(out, f"  [bold]{safe(_first_ten(rows))}[/]: {safe(event)}")
    print_more(len(rows_by_event) - _EVENTS, "more of what happened: see --json")


def _show_settled(
    batch: str, doubts: Sequence[Doubt], *, charged: bool, left: int, left_out: Sequence[Doubt]
) -> None:
    """Prints the doubts that were settled, and how many are left, some of them accepted videos."""
    if doubts:
        price = sum((doubt.price or Decimal(0) for doubt in doubts), Decimal(0))
        decision = "paid for, and lost" if charged else "free: the next run buys them again"
        out.print(f"[bold]{safe(batch)}[/]: {len(doubts)} settled ({dollars(price)} USD), {decision}")
        print_facts(
            out, [("Rows", _first_ten([doubt.row_id for doubt in doubts])), ("In doubt", f"{left} left")]
        )
    else:
        out.print(f"[bold]{safe(batch)}[/]: nothing is in doubt about money, so nothing was settled.")
    if given_up := [doubt.generation_id for doubt in doubts if doubt.generation_id]:
        twice = "" if charged else ". The service may charge for them: then they are paid for twice"
        generations = f"{counted(len(given_up), 'accepted generation')}, {safe(_first_ten(given_up))}"
        print_line(out, f"  [yellow]Given up: {generations}{twice}.[/]")
    if ids := [doubt.generation_id for doubt in left_out if doubt.generation_id]:
        asked = "a run with the key that bought them asks for them again"
        print_line(out, f"  Left out: {counted(len(ids), _ACCEPTED)}, {safe(_first_ten(ids))}: {asked}.")


def _first_ten(names: Sequence[str]) -> str:
    return and_more(names[:10], len(names))


_Start = Annotated[
    str | None,
    typer.Option(metavar="DATE", help="The first UTC day. Without it: the first day in the ledger."),
]
_End = Annotated[
    str | None, typer.Option(metavar="DATE", help="The last UTC day, inclusive. Without it: today.")
]


def reconcile(
    config: Config, start: _Start = None, end: _End = None, set_: Sets = None, json: Json = False
) -> None:
    """Compare quotes, answered costs and the service's own account, day by day. Buys and settles nothing.

    What is certain of each difference has a name; reconcile.parquet in the report keeps the result. Costs are
    of every key of the project, and lag; the balance is of the whole workspace.

    Exit codes: 0 nothing is unexplained, or not more than reconcile.threshold; 3 more is; 2 a wrong config or
    range; 4 the service cannot be asked.
    """
    settings = load_settings(config, set_)
    days = _day("--start", start), _day("--end", end)
    from callsheet.report.reconcile import reconcile

    result = ask_service(open_client(settings), lambda client: reconcile(settings, client, *days))
    if json:
        print_json(result.as_json(str(config)))
    else:
        _show(result, config)
    raise typer.Exit(3 if result.is_over else 0)


def _day(option: str, text: str | None) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        hint = "Write a UTC day as 2026-01-31."
        raise CallsheetError(f"{option} {text!r} is not a date", hint=hint) from None


def _show(result: Reconciliation, config: Path) -> None:
    colour, ending = ("red", "not reconciled") if result.is_over else ("green", "reconciled")
    out.print(f"[bold {colour}]{safe(result.batch)}: {ending}[/], {result.range()}")
    lines = result.table()
    days = [{name: line[name] for name in line if name != "reason"} for line in lines]
    print_table(out, days, "UTC day", limit=len(days))
    for day in lines:
        if day["reason"]:
            print_line(out, f"  {day['UTC day']}: {safe(day['reason'])}")
    print_facts(out, result.facts())
    if result.is_over:
        over = f"{dollars(result.total('unexplained'))} USD unexplained"
        print_facts(out, [("Over", f"{over}, and reconcile.threshold is {dollars(result.threshold)}")])
    for name, listed in (("Doubts", result.doubt_lines()), ("Accepted", result.accepted_lines())):
        print_facts(out, [(name, line) for line in listed[:1]])
        for line in listed[1:]:
            print_line(out, f"    {safe(line)}", 6)
    print_facts(out, [("File", result.file)])
    for command in result.resolving(str(config)):
        out.print(f"  [bold]{'Next':<10}[/] {safe(command)}")  # in one piece, to be copied
    note = "Costs are of all keys of the project, and lag; the balance is of the whole workspace."
    print_line(out, f"  [dim]{note}[/]", 2)


# ---- the ledger itself


ledger = typer.Typer(
    name="ledger",
    no_args_is_help=True,
    help="Back up or move the ledger, or change what it knows of a batch.",
)


@ledger.command()
def backup(
    config: Config,
    to: Annotated[
        Path,
        typer.Option(
            metavar="FILE", parser=path_at_home, help="The copy: a new SQLite file.", show_default=False
        ),
    ],
    set_: Sets = None,
    json: Json = False,
) -> None:
    """Copy the whole ledger, all its batches, into a new file, and compare the copy row for row.

    Runs may be under way: the copy is of one moment, and a ledger like any other (--set ledger.url=...).
    """
    from callsheet.ledger.copies import back_up

    counts = back_up(load_batch(config, set_).ledger.url, to)
    if json:
        print_json({"backup": str(to), "rows": counts})
    else:
        typer.echo(printable(f"{to}: {counts['attempts']:,} attempts, {counts['media']:,} files, compared"))


@ledger.command()
def move(
    config: Config,
    to: Annotated[
        str,
        typer.Option(
            metavar="URL",
            parser=at_home,
            help="An empty database: postgresql+psycopg://user:password@host/name, or sqlite:///new.db.",
            show_default=False,
        ),
    ],
    set_: Sets = None,
    json: Json = False,
) -> None:
    """Move the whole ledger, all its batches, into another database, and compare them row for row.

    No run may be at work. The old ledger cannot be opened any more: two that both go on would buy twice.
    Where the command is killed, the same one goes on.
    """
    from callsheet.ledger import copies

    counts = copies.move(load_batch(config, set_).ledger.url, to)
    if json:
        print_json({"moved": True, "rows": counts})
    else:
        moved = f"moved {counts['attempts']:,} attempts and {counts['media']:,} files, compared"
        typer.echo(printable(f"{moved}. Set ledger.url of every config to the new address."))


@ledger.command()
def upgrade(config: Config, set_: Sets = None, json: Json = False) -> None:
    """Upgrade a ledger that an older Callsheet has made; `run` and `collect` do so by themselves.

    No run may be at work. A SQLite ledger is copied before, into its folder. Older Callsheets cannot open it
    any more.
    """
    from callsheet.ledger import databases
    from callsheet.ledger.tables import SCHEMA_VERSION

    url, done = load_batch(config, set_).ledger.url, list[str]()
    databases.check_exists(url)
    databases.upgrade(url, done.append)
    if json:
        print_json({"upgraded": bool(done), "ledger_version": SCHEMA_VERSION})
    else:
        typer.echo(
            printable("".join(done) or f"the ledger has schema {SCHEMA_VERSION}, that of this Callsheet")
        )


@ledger.command("service-moved")
def service_moved(config: Config, set_: Sets = None, json: Json = False) -> None:
    """Record that the batch's service has a new address, service.base_url of the config.

    All batches of the ledger that belong to that service are at the new address then.
    Only for the same service: another one does not know what the batch has bought.
    """
    settings = load_settings(config, set_)
    service, batches = asyncio.run(rebind(settings))
    if not batches:
        raise CallsheetError(
            f"the ledger knows of no service of the batch {settings.batch}: nothing was sent yet",
            hint="Check batch and ledger.url. callsheet status CONFIG says what the ledger has.",
        )
    if json:
        print_json({"batch": settings.batch, "service": service, "batches": batches})
    else:
        typer.echo(printable(f"{', '.join(batches)}: the service is at {service} from now on"))


async def rebind(settings: Settings) -> tuple[str, list[str]]:
    """The service of the config's batch is the config's: its address, and all its batches in the ledger.

    There are none where nothing of the batch was sent yet: then it belongs to no service.
    """
    from callsheet.ledger import services
    from callsheet.steps.connect import address

    service = address(settings)
    async with open_ledger(settings.ledger.url, settings.batch) as opened:
        is_bound = await opened.read(services.of_batch) is not None
        return service, await opened.write(services.rebind, service) if is_bound else []


def _chosen(
    doubts: Sequence[Doubt], words: Sequence[str], *, rows: Collection[str], give_up: bool
) -> list[Doubt]:
    """The doubts that a person names, each once and in the list's order.

    Args:
        doubts: what is in doubt, and the accepted videos that have not ended.
        words: a row's id (then all its jobs are meant). Where no row has it, the beginning of a job's key or
            of a row's id that no other job in doubt has.
        rows: the ids of the batch's rows, as far as they are among the words; also of rows without a doubt.
        give_up: what was accepted counts, too. Otherwise it is left out.

    Raises:
        CallsheetError: a word names no job, or several, or only what was accepted; exit code 2.
    """
    open_ = [doubt for doubt in doubts if give_up or not doubt.is_accepted]
    chosen: set[str] = set()
    for word in words:
        matches = _matching(open_, word, rows)
        if not matches:
            raise _refusal(doubts, word, rows)
        keys = {doubt.job_key for doubt in matches}
        if len(keys) > 1 and any(doubt.row_id != word for doubt in matches):
            listed = ", ".join(f"{doubt.job_key[:12]} (row {doubt.row_id})" for doubt in matches[:5])
            raise CallsheetError(
                f"{word!r} may mean {len(keys)} jobs: {listed}", hint="Give more of the key."
            )
        chosen |= keys
    return [doubt for doubt in open_ if doubt.job_key in chosen]


def _matching(doubts: Sequence[Doubt], word: str, rows: Collection[str]) -> list[Doubt]:
    """The doubts of the row with this id; where no row has it, those whose key or row id begins so."""
    of_row = [doubt for doubt in doubts if doubt.row_id == word]
    if of_row or word in rows or not word:
        return of_row
    return [doubt for doubt in doubts if doubt.job_key.startswith(word) or doubt.row_id.startswith(word)]


def _refusal(doubts: Sequence[Doubt], word: str, rows: Collection[str]) -> CallsheetError:
    """Why a word names nothing that is settled without more."""
    accepted = _matching(doubts, word, rows)
    if not accepted:
        message = f"row {word} has nothing in doubt" if word in rows else f"{word!r} is not a job in doubt"
        return CallsheetError(
            f"{message}; nothing was settled", hint="`callsheet resolve CONFIG` lists what is in doubt."
        )
    doubt = accepted[0]
    state = "is pending" if doubt.state is State.PENDING else "is no doubt about money"
    return CallsheetError(
        f"row {doubt.row_id} {state}: the service accepted it as {doubt.generation_id}, and the next run "
        "with the right key asks for it again; nothing was settled",
        hint="`callsheet collect CONFIG` asks now, and buys nothing. To give the video up all the same, add "
        "--give-up: with --charged its price is spent and the file is lost; with --not-charged the next run "
        "buys it again, and it may be paid for twice.",
    )
