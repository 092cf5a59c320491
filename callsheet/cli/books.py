"""`resolve`, `reconcile`, `claim` and `ledger`: doubts and how a person settles them, the ledger beside the
account, and what the service owes.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Collection, Sequence
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callsheet.cli.output import (
    Config,
    Json,
    Sets,
    amount_of,
    ask_service,
    at_home,
    load_batch,
    load_settings,
    open_client,
    open_ledger,
    out,
    path_at_home,
    print_json,
    utc_day,
)
from callsheet.errors import CallsheetError
from callsheet.plain_text import printable
from callsheet.present.console import print_page
from callsheet.present.page import Line, Tone
from callsheet.processes import user_name
from callsheet.records import State

if TYPE_CHECKING:
    from callsheet.config.settings import BatchSettings, Settings
    from callsheet.records import Doubt


def resolve(
    config: Config,
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY", help="Row ids, or how a job's key or row id begins.", show_default=False
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
    why: Annotated[str | None, typer.Option(metavar="TEXT", help="The reason, for the ledger.")] = None,
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
    from callsheet.ledger import queries, sums
    from callsheet.present import accounts
    from callsheet.pricing.plan import lines_of_last_plan
    from callsheet.report.evidence import gather

    async with open_ledger(settings.ledger.url, settings.batch) as ledger:
        all_doubts, totals = await ledger.read(
            lambda connection, batch: (queries.doubts(connection, batch), sums.of_batch(connection, batch))
        )
        doubts, accepted = _apart(all_doubts)
        evidence = None
        if doubts:
            evidence = await gather(ledger, doubts, lambda: open_client(settings))
    if json:
        print_json(
            {
                "batch": settings.batch,
                "in_doubt": doubts,
                "accepted": accepted,
                "in_doubt_exposure": totals.in_doubt_exposure,
                "evidence": evidence and accounts.evidence_figures(evidence),
                "currency": "USD",
            }
        )
        return len(all_doubts)
    lines = lines_of_last_plan(settings, [doubt.job_key for doubt in all_doubts])
    name = shlex.quote(str(config))
    if evidence:
        print_page(out, accounts.doubts_screen(settings.batch, doubts, evidence, lines, name))
    if accepted:
        print_page(out, accounts.accepted_screen(settings.batch, accepted, lines, name))
    if not all_doubts:
        print_page(out, [Line(f"{settings.batch}: nothing is in doubt.", tone=Tone.GOOD)])
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
    from callsheet.present.accounts import settled_screen
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
        settled = {"settled": chosen, "charged": charged, "settled_by": by}
        unsettled = {"left": len(left), "left_out": left_out}
        print_json({"batch": settings.batch, **settled, "why": why, **unsettled, "currency": "USD"})
    else:
        page = settled_screen(settings.batch, chosen, charged=charged, left=len(left), left_out=left_out)
        print_page(out, page)
    return len(left)


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
    days = utc_day("--start", start), utc_day("--end", end)
    from callsheet.present import accounts
    from callsheet.report.against_account import reconcile

    result = ask_service(open_client(settings), lambda client: reconcile(settings, client, *days))
    if json:
        print_json(accounts.figures(result, str(config)))
    else:
        print_page(out, accounts.screen(result, str(config)))
    raise typer.Exit(3 if result.is_over else 0)


def claim(
    config: Config,
    *,
    since: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="The first UTC day of submission. Without it: all days."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Also what was in a claim that was sent.")] = False,
    sent: Annotated[
        str | None,
        typer.Option(metavar="NOTE", help="The claim that was written last was sent: when, to whom."),
    ] = None,
    credit: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="So much came back, in USD, for this batch.")
    ] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Of a credit: what it was for.")] = None,
    set_: Sets = None,
    json: Json = False,
) -> None:
    """Write what the service owes: charged and never delivered, other than ordered, or above its quote.

    claim.csv and claim.md in the report are for the service; nothing in them is secret. It buys nothing. With
    --sent, the next claim leaves out what the last one names. With --credit, money that came back is entered:
    it counts in what a kept file costs, and makes no room in a budget.
    """
    day = utc_day("--since", since)
    said = [option for option in (sent, credit) if option is not None]
    if len(said) > 1 or (said and (since or all_)):
        raise CallsheetError(
            "--sent and --credit exclude each other, and --since and --all",
            hint="Write the claim first; mark it as sent, or enter what came back, by a command of its own.",
        )
    if note is not None and credit is None:
        raise CallsheetError("--note says what a credit was for", hint="Add --credit AMOUNT.")
    if sent is not None:
        asyncio.run(_mark_sent(load_batch(config, set_), sent, json=json))
    elif credit is not None:
        asyncio.run(_enter_credit(load_batch(config, set_), amount_of(credit), note, json=json))
    else:
        asyncio.run(_write_claim(load_settings(config, set_), day, config, with_sent=all_, json=json))


async def _write_claim(
    settings: Settings, since: date | None, config: Path, *, with_sent: bool, json: bool
) -> None:
    from callsheet.present import owed
    from callsheet.present.markdown import markdown
    from callsheet.report.claim import make_claim, write_claim

    made = await make_claim(settings, lambda: open_client(settings), since, with_sent=with_sent)
    await write_claim(settings, made, markdown(owed.document(made)))
    if json:
        print_json(made)
    else:
        print_page(out, owed.screen(made, shlex.quote(str(config))))


async def _mark_sent(settings: BatchSettings, note: str, *, json: bool) -> None:
    from callsheet.present import owed
    from callsheet.report.claim import mark_sent

    by = user_name()
    async with open_ledger(settings.ledger.url, settings.batch) as ledger:
        count = await mark_sent(settings, ledger, by=by, note=note)
    if json:
        print_json({"batch": settings.batch, "sent": count, "note": note, "said_by": by})
    else:
        typer.echo(printable(f"{settings.batch}: {owed.marked(count)}"))


async def _enter_credit(settings: BatchSettings, amount: Decimal, note: str | None, *, json: bool) -> None:
    from callsheet.ledger import paid_back
    from callsheet.present import owed

    by = user_name()
    async with open_ledger(settings.ledger.url, settings.batch) as ledger:
        total = await ledger.write(paid_back.enter_credit, amount, by=by, note=note)
    if json:
        said = {"credit": amount, "credits": total, "note": note, "said_by": by}
        print_json({"batch": settings.batch, **said, "currency": "USD"})
    else:
        typer.echo(printable(f"{settings.batch}: {owed.entered(amount, total)}"))


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
