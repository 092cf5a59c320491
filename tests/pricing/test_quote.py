"""The quote: what a plan costs beside what is bought already, the balance, the limits and the last plan."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from callsheet.batches.read import read
from callsheet.cli.show import show_quote
from callsheet.config.settings import Settings
from callsheet.errors import Stop
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import Policy
from callsheet.pricing.plan import Plan, make_plan
from callsheet.pricing.quote import Quote, make
from callsheet.records import Catalogue
from tests.pricing.test_plan import CATALOGUE, Maker

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
MIXED = """\
id,model,prompt,resolution,duration,sound,samples
a,,a cat,2K,,,2
b,reel-1,a sea,,10,yes,
c,,a dog,,,,
d,proof-1,a proof,,,,
e,,an owl,,,,
"""
Quoter = Callable[..., Quote]


@pytest.fixture
def quote(tmp_path, monkeypatch) -> Quoter:
    """Quotes a batch file's text against a ledger in which some rows have met their fate already."""
    monkeypatch.chdir(tmp_path)

    def quote(
        text: str = MIXED,
        *,
        fates: dict[str, str] | None = None,
        balance: str = "100",
        catalogue: Catalogue = CATALOGUE,
        now: datetime = NOON,
        learned: dict[str, int] | None = None,
        batch: str = "shots",
        **sections: object,
    ) -> Quote:
        (tmp_path / "shots.csv").write_text(text)
        base = Maker(tmp_path).settings(tmp_path / "shots.csv", batch=batch)
        settings = Settings.model_validate(base.model_dump() | sections)
        plan = make_plan(read(settings), catalogue, settings, tmp_path / "plan.parquet", now=now)

        async def quoted() -> Quote:
            ledger = await Ledger.open(f"sqlite:///{tmp_path}/ledger.db", settings.batch)
            try:
                await meet(ledger, plan, fates or {})
                if learned:
                    windows = {kind: {"limit": limit} for kind, limit in learned.items()}
                    await ledger.learn(settings.service.base_url, {"windows": windows})
                return await make(plan, ledger, Decimal(balance), settings)
            finally:
                await ledger.close()

        return asyncio.run(quoted())

    return quote


async def meet(ledger: Ledger, plan: Plan, fates: dict[str, str]) -> None:
    await ledger.begin_run()
    jobs = [job for job in plan.jobs_in_order() if job.row_id in fates]
    reserved, _ = await ledger.reserve(jobs, Policy(), limit=Decimal(99))
    for job, attempt in reserved:
        if fates[job.row_id] == "reserved":
            continue
        await ledger.intend(attempt)
        if fates[job.row_id] == "failed":
            await ledger.failed(attempt, "invalid_parameter", "no")
        if fates[job.row_id] == "doubt":
            await ledger.doubt(attempt, "cut off")


def facts(quote: Quote) -> dict[str, str]:
    return dict(quote.facts())


def test_lines_say_what_sets_the_price_what_is_bought_and_what_is_left(quote):
    made = quote(fates={"c": "bought"})
    columns = ("model", "resolution", "duration", "sound", "jobs", "bought", "to_buy", "each", "total")
    assert made.lines.select(columns).rows() == [
        ("reel-1", "720p", 10, True, 1, 0, 1, Decimal("0.771"), Decimal("0.771")),
        ("still-1", "1K", None, None, 2, 1, 1, Decimal("0.0407"), Decimal("0.0407")),
        ("still-1", "2K", None, None, 2, 0, 2, Decimal("0.0833"), Decimal("0.1666")),
    ]
    assert (made.to_buy, made.already_bought, made.held) == (4, 1, 0)
    assert made.quoted == Decimal("0.9783")
    assert made.table()[1] == {
        "model": "still-1", "resolution": "1K", "duration": "", "sound": "", "jobs": "2", "bought": "1",
        "to buy": "1", "each": "0.0407", "USD": "0.0407",
    }  # fmt: skip


def test_failed_and_doubtful_jobs_are_held_unless_the_config_buys_them_again(quote):
    fates = {"a": "failed", "b": "doubt", "c": "bought"}
    held = quote(fates=fates)
    assert (held.to_buy, held.already_bought, held.held, held.quoted) == (1, 1, 3, Decimal("0.0407"))
    assert "3 failed or in doubt and left so" in facts(held)["Jobs"]
    again = quote(retry_failed=True, on_doubt="retry")
    assert (again.to_buy, again.already_bought, again.held) == (4, 1, 0)


def test_what_a_run_has_reserved_counts_once_and_what_is_in_flight_is_paid_from_the_balance(quote):
    total = Decimal("1.0190")

    def objection(made: Quote, **budget: object) -> Stop | None:
        given = {"batch": "shots", "service": {"base_url": "http://127.0.0.1:1"}, "input": {"path": "x.csv"}}
        return made.objection(Settings.model_validate(given | {"budget": {"on_exceed": "refuse"} | budget}))

    reserved = quote(fates={"a": "reserved", "b": "reserved"})
    assert reserved.quoted == total
    assert objection(reserved, limit=total) is None
    assert objection(reserved, limit=total - Decimal("0.0001"))
    in_flight = quote(fates={"b": "bought"}, balance="0.2480", batch="other")
    assert in_flight.totals.exposure == Decimal("0.771")
    assert in_flight.quoted == Decimal("0.2480")
    assert objection(in_flight) is None


def test_a_job_without_a_price_costs_nothing_that_can_be_told(quote):
    made = quote(budget={"allow_unpriced": True})
    unpriced = made.lines.filter(model="proof-1").select("jobs", "to_buy", "each", "total").rows()
    assert unpriced == [(1, 1, None, None)]
    assert made.quoted == Decimal("0.9783") + Decimal("0.0407")
    assert [line["each"] for line in made.table() if line["model"] == "proof-1"] == ["unpriced"]
    assert facts(made)["Rows"] == "5 read, 0 rejected, 1 without a price"


def test_the_dearest_rows_come_first_with_all_their_samples(quote):
    made = quote()
    assert made.dearest.rows() == [
        ("b", 3, 1, Decimal("0.771")),
        ("a", 2, 2, Decimal("0.1666")),
        ("c", 4, 1, Decimal("0.0407")),
        ("e", 6, 1, Decimal("0.0407")),
    ]
    assert facts(made)["Dearest"].startswith("b (line 3) 0.7710, a (line 2) 0.1666 for 2 jobs, c")
    assert quote(fates={"b": "bought"}).dearest["row_id"][0] == "a", "what is bought costs nothing more"


def test_the_balance_suffices_or_says_by_how_much_it_does_not(quote):
    total = Decimal("0.771") + 2 * Decimal("0.0833") + 2 * Decimal("0.0407")
    assert facts(quote(balance=str(total)))["Balance"] == "1.0190 USD, enough"
    assert facts(quote(balance="1.0189"))["Balance"] == "1.0189 USD, 0.0001 USD short"


def test_the_time_is_what_the_limits_a_minute_make_it_or_unknown(quote):
    assert facts(quote())["Time"].startswith("unknown: how many images a minute")
    assert facts(quote(limits={"image_rpm": 2}))["Time"].startswith("unknown: how many videos a minute")
    many = "prompt,samples\nx,201\n"
    assert facts(quote(many, limits={"image_rpm": 20}))["Time"].startswith("10 min at the least")
    assert facts(quote(many, limits={"image_rpm": 67}))["Time"].startswith("2 min at the least")
    assert facts(quote(many, learned={"image": 100}))["Time"].startswith("2 min at the least")
    assert facts(quote(many, limits={"image_rpm": 500}))["Time"] == "about a minute"
    assert facts(quote("id,prompt\n1,x\n", fates={"1": "bought"}))["Time"] == "none"


def dearer() -> Catalogue:
    model = CATALOGUE["still-1"]
    first, *others = model.pricing.rates
    rates = (first.model_copy(update={"unit_price": Decimal("0.05")}), *others)
    pricing = model.pricing.model_copy(update={"rates": rates})
    return {**CATALOGUE, "still-1": model.model_copy(update={"pricing": pricing})}


def test_rates_that_have_changed_since_the_last_plan_are_told(quote):
    assert "Changed" not in facts(quote())
    assert "Changed" not in facts(quote()), "the same rates again"
    assert facts(quote(catalogue=dearer()))["Changed"] == (
        "still-1 1K not_applicable image: 0.05, was 0.0407 (since the plan of 2026-05-01 12:00 UTC)"
    )
    assert "Changed" in facts(quote()), "and back"
    assert "Changed" not in facts(quote(catalogue=dearer(), batch="another")), "another batch's plan"


def test_only_models_that_the_batch_uses_are_told_of(quote):
    quote("prompt,model\nx,reel-1\n")
    assert "Changed" not in facts(quote("prompt,model\nx,reel-1\n", catalogue=dearer()))


def test_the_terminal_shows_table_facts_and_rejects(quote, capsys):
    from rich.console import Console

    show_quote(quote(MIXED + "f,,,,,,\nshort\n"), Console(width=80, highlight=False, soft_wrap=True))
    shown = capsys.readouterr().out
    assert "reel-1    720p, 10 s, sound on        0        1   0.7710   0.7710" in shown
    assert "To pay    1.0190 USD" in shown
    assert "line 7, prompt: the prompt is empty" in shown
    assert "line 8: the line has 1 cells, and the header has 7" in shown
    assert "…" not in shown, "money is never cut short"


def test_the_terminal_says_why_there_is_nothing_to_buy(quote, capsys):
    one = "id,prompt\n1,x\n"
    for text, fates, says in (
        (one, {}, None),
        ("prompt,model\nx,none\n", {}, "no row can be bought as it is"),
        (one, {"1": "failed"}, None),
        ("id,prompt\n2,x\n", {"2": "bought"}, "everything is bought already"),
    ):
        show_quote(quote(text, fates=fates))
        shown = capsys.readouterr().out
        assert (says in shown) if says else ("Nothing to buy" not in shown)
