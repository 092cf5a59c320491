"""The quote: what is bought, what is to buy, and what the budget and the balance allow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from decimal import Decimal

import pytest

from callsheet.batches.read import read_batch
from callsheet.config.settings import Settings
from callsheet.errors import BalanceTooLow, BudgetReached
from callsheet.ledger import services, states, words
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.states import End, FileEnd
from callsheet.ledger.tables import words as words_table
from callsheet.plain_text import time_in_words
from callsheet.present import priced
from callsheet.present.as_read import requests
from callsheet.present.asked import bought_so_far
from callsheet.present.priced import figures, line, submission_time, table
from callsheet.pricing.choice import ALL, Choice
from callsheet.pricing.plan import Plan, make_plan
from callsheet.pricing.quote import Quote, make, read_from_ledger
from callsheet.records import Generation, Media, ModelType, StoredFile, Usage
from callsheet.service.models import Catalogue
from callsheet.standing import ASKED_FOR, read_standing
from callsheet.steps.approve import objection
from tests.ledger.buying import intend, reserve, word
from tests.pricing.plans import CATALOGUE, NOW, Maker

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
    """Quotes a batch file's text, with a ledger in which some rows have a state already."""
    monkeypatch.chdir(tmp_path)

    def quote(
        text: str = MIXED,
        *,
        states: dict[str, str] | None = None,
        balance: str = "100",
        catalogue: Catalogue = CATALOGUE,
        learned: dict[str, int] | None = None,
        batch: str = "shots",
        choice: Choice = ALL,
        **sections: object,
    ) -> Quote:
        (tmp_path / "shots.csv").write_text(text)
        base = Maker(tmp_path).settings(tmp_path / "shots.csv", batch=batch)
        settings = Settings.model_validate(base.model_dump() | sections)
        path = tmp_path / "plan.parquet"

        async def quoted() -> Quote:
            async with await Ledger.open(f"sqlite:///{tmp_path}/ledger.db", settings.batch) as ledger:
                standing = await ledger.read(read_standing, of_attempts=ASKED_FOR)
                plan = make_plan(read_batch(settings), catalogue, settings, path, now=NOW, standing=standing)
                await enter(ledger, plan, states or {})
                service = str(settings.service.base_url)
                if learned:
                    windows = {kind: {"limit": limit} for kind, limit in learned.items()}
                    await ledger.write(services.learn, service, {"windows": windows})
                from_ledger = await read_from_ledger(ledger, settings, plan, service, Decimal(balance))
                return make(
                    *(plan, from_ledger, settings),
                    balance=Decimal(balance),
                    rejects="r.csv",
                    choice=choice,
                )

        return asyncio.run(quoted())

    return quote


async def enter(ledger: Ledger, plan: Plan, wanted: dict[str, str]) -> None:
    await ledger.begin_run()
    await ledger.write(words.enter_word, word(ledger, "1000000"))
    jobs = [job for job in plan.jobs_in_order() if job.row_id in wanted]
    reserved, _ = await reserve(ledger, *jobs)
    for job, attempt in reserved:
        if wanted[job.row_id] == "reserved":
            continue
        await intend(ledger, attempt)
        if wanted[job.row_id] == "failed":
            await ledger.transition(states.failed, End(attempt, "no", "invalid_parameter"))
        if wanted[job.row_id] in ("generated", "stored"):
            assert job.price
            usage = Usage(total_cost=job.quoted, **asdict(job.price))
            image = Media(url="http://x", mime_type="image/png", deletes_at=NOW)
            made = Generation(f"req-{job.key}", (image,), usage)
            [file] = await ledger.generated(attempt, made, [f"{job.key}.png"], "out/media")
            if wanted[job.row_id] == "stored":
                await ledger.transition(
                    states.stored, FileEnd(file, StoredFile("out/x", "ab" * 32, 7, NOW, "image/png"))
                )
        if wanted[job.row_id] == "pending":
            await ledger.pending(attempt, f"req-{job.key}")
        if wanted[job.row_id] == "doubt":
            await ledger.transition(states.in_doubt, End(attempt, "cut off"))
    await ledger.write(lambda connection, _: connection.execute(words_table.delete()))  # it quotes as another


def facts(quote: Quote) -> dict[str, str]:
    return dict(priced.facts(quote))


def test_of_rows_that_ask_for_the_same_those_that_are_bought_stay_and_no_other_is_bought(quote, tmp_path):
    text = "id,prompt\na,a cat\nb,a cat\nc,a cat\nd,a dog\ne,a dog\n"
    quote(text, states={"b": "stored", "c": "stored", "d": "failed"})
    once = {"path": str(tmp_path / "shots.csv"), "defaults": {"model": "still-1"}, "repeated": "once"}
    made = quote(text, input=once)
    assert made.table.select("row_id", "to_buy").rows() == [("b", False), ("c", False), ("d", False)]
    assert made.plan.notes == ("2 rows ask for what another row asks for: left out by input.repeated",)


def test_lines_show_what_sets_the_price_what_is_bought_and_what_is_to_buy(quote):
    made = quote(states={"c": "bought"})
    what, counts = ("model", "resolution", "duration", "sound"), ("jobs", "already_bought", "to_buy")
    assert made.price_lines.select(*what, *counts, "each", "total").rows() == [
        ("reel-1", "720p", 10, True, 1, 0, 1, Decimal("0.771"), Decimal("0.771")),
        ("still-1", "1K", None, None, 2, 1, 1, Decimal("0.0407"), Decimal("0.0407")),
        ("still-1", "2K", None, None, 2, 0, 2, Decimal("0.0833"), Decimal("0.1666")),
    ]
    assert (made.to_buy, made.already_bought, made.held, made.quoted) == (4, 1, 0, Decimal("0.9783"))
    assert table(made)[1] == {
        "model": "still-1", "resolution": "1K", "duration": "", "sound": "", "jobs": "2", "bought": "1",
        "to buy": "1", "each": "0.0407", "USD": "0.0407",
    }  # fmt: skip


def rows(made: Quote, *of_type: ModelType) -> list[str]:
    """The rows of the jobs that a run looks at."""
    return [job.row_id for job in made.jobs_in_order(*of_type)]


def test_failed_and_doubtful_jobs_are_held_unless_the_config_buys_them_again(quote):
    """A run looks at what it buys, and at what a person or another run may still free."""
    assert rows(quote()) == ["a", "a", "b", "c", "e"]
    held = quote(states={"a": "failed", "b": "doubt", "c": "generated", "e": "in flight"})
    assert (held.to_buy, held.already_bought, held.held, held.quoted) == (0, 2, 3, 0)
    assert rows(held) == ["b", "e"]
    assert "3 failed or in doubt and not bought again" in facts(held)["Jobs"]
    again = quote(retry_failed=True)
    assert (again.to_buy, rows(again), rows(again, ModelType.VIDEO)) == (2, ["a", "a", "b", "e"], ["b"])
    again = quote(retry_failed=True, on_doubt="retry")
    assert (again.to_buy, again.already_bought, again.held) == (4, 1, 0)


def test_a_number_that_is_larger_than_any_batch_is_all_of_it(quote):
    made = quote(choice=Choice(first=10**24))
    assert made.to_buy == quote().to_buy == len(requests(made.table, str(10**24)))
    assert quote(budget={"pilot": 10**24}).pilot is None, "a pilot of all jobs is the batch itself"


@pytest.mark.parametrize(("first", "others"), [(4, "1 other job is"), (3, "2 other jobs are")])
def test_what_is_not_chosen_is_left_for_later(quote, first, others):
    made = quote(choice=Choice(first=first))
    chosen = f"the first {first} jobs that are not bought"
    assert (made.to_buy, facts(made)["Chosen"]) == (first, f"{chosen}; {others} left for later")


def test_a_video_that_is_being_made_is_bought_wherever_that_is_said(quote):
    made = quote(states={"a": "stored", "b": "pending", "c": "doubt"})
    assert made.already_bought == 3
    assert bought_so_far(made).endswith("3 jobs bought, 0.1666 USD spent, at most 0.0407 USD in doubt")


def test_what_is_stored_and_offered_no_more_stays_bought(quote):
    text = "id,model,prompt\nx,reel-1,a cat\n"
    quote(text, states={"x": "stored"})
    others = {name: model for name, model in CATALOGUE.items() if name != "reel-1"}
    made = quote(text, catalogue=others)
    assert (made.plan.not_offered(), made.already_bought, made.to_buy) == (1, 1, 0)


def test_reserved_jobs_count_once_and_jobs_in_flight_are_paid_besides_the_balance(quote):
    total = Decimal("1.0190")

    reserved = {"a": "reserved", "b": "reserved"}
    fitting = quote(states=reserved, budget={"on_exceed": "refuse", "limit": total})
    assert fitting.quoted == total
    assert objection(fitting) is None
    assert objection(quote(budget={"on_exceed": "refuse", "limit": total - Decimal("0.0001")}))
    sent = {"states": {"b": "bought"}, "batch": "other", "budget": {"on_exceed": "refuse"}}
    in_flight = quote(balance="0.2480", **sent)
    assert in_flight.totals.exposure == Decimal("0.771")
    assert in_flight.quoted == Decimal("0.2480")
    assert objection(in_flight) is None


def test_an_objection_names_the_quote_and_what_it_does_not_fit_into(quote):
    found = objection(quote(budget={"on_exceed": "refuse", "limit": "1"}))
    assert isinstance(found, BudgetReached)
    assert (
        str(found) == "the quote of 1.0190 USD does not fit what is left of the budget: 1.0000 of 1.0000 USD"
    )
    found = objection(quote(states={"b": "bought"}, balance="0.2", budget={"on_exceed": "refuse"}))
    assert isinstance(found, BalanceTooLow)
    assert str(found) == "the quote of 0.2480 USD does not fit what is left of the balance: 0.2000 USD"


def test_a_job_without_a_price_adds_nothing_to_the_quote(quote):
    made = quote(budget={"allow_unpriced": True})
    unpriced = made.price_lines.filter(model="proof-1").select("jobs", "to_buy", "each", "total").rows()
    assert unpriced == [(1, 1, None, None)]
    assert made.quoted == Decimal("0.9783") + Decimal("0.0407")
    assert [line["each"] for line in table(made) if line["model"] == "proof-1"] == ["unpriced"]
    assert facts(made)["Rows"] == "5 read, 0 rejected, 1 without a price"
    assert "Fits" not in facts(made), "whether it fits, nobody knows"
    assert "fit into" not in line(made)


def test_the_budget_is_shown_as_limit_spent_in_flight_and_left(quote):
    assert facts(quote())["Budget"] == "no limit: 0.0000 USD spent, 0.0000 in flight or in doubt"
    states = {"a": "doubt", "b": "generated"}
    limited = quote(states=states, budget={"limit": "0.9800"})
    assert (limited.to_buy, limited.fits, limited.budget_left) == (2, 1, Decimal("0.0424"))
    lowered = quote(budget={"limit": "0.5"})
    assert (lowered.fits, lowered.budget_left) == (0, Decimal(0))
    limited = quote(budget={"limit": 5, "per_day": "2.50"})
    assert facts(limited)["Budget"] == (
        "limit 5.0000 USD: 0.7710 USD spent, 0.1666 in flight or in doubt, 4.0624 left"
    )
    assert facts(limited)["Today"] == (
        "budget.per_day is 2.5000 USD over all batches: 0.9376 used, 1.5624 left until midnight UTC"
    )
    assert "Fits" not in facts(limited)
    assert "Today" not in facts(quote(batch="other", budget={"limit": 5}))


@pytest.mark.parametrize(
    ("on_exceed", "limit", "fits", "text"),
    [
        ("stop", "1.0190", 5, None),
        ("stop", "0.9782", 3, "3 of 5 jobs; then the budget stops the buying"),
        ("stop", "0.0000", 0, "0 of 5 jobs; then the budget stops the buying"),
        ("skip", "0.2479", 3, "3 of 5 jobs; the others are left out"),
        ("refuse", "1.0189", 0, "0 of 5 jobs; nothing is bought, because budget.on_exceed is 'refuse'"),
    ],
)
def test_the_jobs_that_fit_are_counted_in_the_file_s_order(quote, on_exceed, limit, fits, text):
    """The prices are 0.0833, 0.0833, 0.771, 0.0407 and 0.0407."""
    budgeted = quote(budget={"limit": limit, "on_exceed": on_exceed})
    assert budgeted.fits == fits
    assert facts(budgeted).get("Fits") == text
    assert f"{fits} fit into budget and balance" in line(budgeted) or text is None


def another_batch(quote: Quoter) -> None:
    """Another batch of the ledger, with a video of 0.771 USD in flight."""
    quote("id,model,prompt,duration,sound\nb,reel-1,a sea,10,yes\n", batch="other", states={"b": "sent"})


@pytest.mark.parametrize(
    ("setting", "because", "then"),
    [
        ("per_day", " today, because of budget.per_day", "the same command goes on after midnight UTC"),
        ("ledger", ", because of budget.ledger", "then the budget stops the buying"),
    ],
)
def test_what_fits_counts_what_all_batches_have_used_of_a_limit_for_all(quote, setting, because, then):
    """Another batch has 0.771 in flight today. The prices are 0.0833, 0.0833, 0.771, 0.0407 and 0.0407."""
    another_batch(quote)
    budget = {setting: "1.0190", "limit": "1.0190"}
    limited = quote(budget=budget)
    lefts = {"per_day": limited.day_left, "ledger": limited.ledger_left}
    assert (limited.budget_left, limited.fits) == (Decimal("1.0190"), 2)
    assert lefts == {"per_day": None, "ledger": None} | {setting: Decimal("0.2480")}
    assert facts(limited)["Fits"] == f"2 of 5 jobs{because}; {then}"
    assert "(2 fit into budget and balance)" in line(limited)
    for on_exceed, fits, text in (
        ("skip", 4, "the others are left out"),
        ("refuse", 0, "nothing is bought, because budget.on_exceed is 'refuse'"),
    ):
        made = quote(budget=budget | {"on_exceed": on_exceed})
        assert (made.fits, facts(made)["Fits"]) == (fits, f"{fits} of 5 jobs{because}; {text}")
    tighter = quote(budget=budget | {"limit": "0.2000"})
    assert because not in facts(tighter)["Fits"], "the batch's own limit is what limits"


def test_the_limits_for_all_batches_are_shown_with_what_is_used_and_the_tightest_is_named(quote):
    another_batch(quote)
    both = quote(budget={"ledger": "1.0190", "per_day": "0.9000"})
    assert facts(both)["Ledger"] == (
        "budget.ledger is 1.0190 USD over all batches: 0.7710 used by 1 batch, 0.2480 left"
    )
    assert "because of budget.per_day" in facts(both)["Fits"]
    told = figures(both).as_json()
    assert (told["budget_ledger"], told["budget_left_ledger"]) == ("1.0190", "0.2480")
    assert (told["budget_per_day"], told["budget_left_today"]) == ("0.9000", "0.1290")
    unlimited = quote()
    assert "Ledger" not in facts(unlimited)
    assert (unlimited.fits, figures(unlimited).budget_left_ledger) == (5, None)


@pytest.mark.parametrize(
    ("setting", "message", "hint"),
    [
        ("per_day", "budget.per_day for today: 1.0189 of 1.7899 USD", "after midnight UTC"),
        (
            "ledger",
            "budget.ledger: 1.0189 of 1.7899 USD; 0.7710 USD are used by 1 batch",
            "a higher budget.ledger",
        ),
    ],
)
def test_a_quote_that_does_not_fit_into_a_limit_for_all_is_refused_with_that(quote, setting, message, hint):
    another_batch(quote)
    assert objection(quote(budget={"on_exceed": "refuse", setting: "1.7900"})) is None
    found = objection(quote(budget={"on_exceed": "refuse", setting: "1.7899"}))
    assert isinstance(found, BudgetReached)
    assert str(found) == f"the quote of 1.0190 USD does not fit what is left of {message}"
    assert hint in found.hint
    assert objection(quote(budget={"on_exceed": "stop", setting: "1"})) is None


def test_a_quote_above_a_whole_day_is_not_told_to_wait_and_the_ledger_s_limit_is_said_first(quote):
    found = objection(quote(budget={"on_exceed": "refuse", "per_day": "1"}))
    assert found
    assert "after midnight" not in found.hint, "it will not fit into any day"
    found = objection(quote(budget={"on_exceed": "refuse", "per_day": "1", "ledger": "1"}))
    assert "budget.ledger" in str(found)


@pytest.mark.parametrize(
    ("on_exceed", "limit", "per_day", "fits", "stop"),
    [
        ("refuse", "1.0000", "0.9000", "0 of 5 jobs; nothing is bought", "left of the budget: 1.0000"),
        ("stop", "0.0500", "0.0300", "0 of 5 jobs; then the budget stops the buying", None),
        ("stop", "1.0000", "0.0900", "1 of 5 jobs today, because of budget.per_day; the same command", None),
    ],
)
def test_a_quote_waits_for_midnight_only_where_that_would_help(quote, on_exceed, limit, per_day, fits, stop):
    """The prices are 0.0833, 0.0833, 0.771, 0.0407 and 0.0407; less is left of the day than of the limit."""
    made = quote(budget={"on_exceed": on_exceed, "limit": limit, "per_day": per_day})
    assert facts(made)["Fits"].startswith(fits)
    found = objection(made)
    assert str(found).find(stop) > 0 if stop else found is None


def test_a_quote_and_its_refusal_name_the_tightest_of_what_it_does_not_fit(quote):
    made = quote(budget={"on_exceed": "refuse", "limit": "1.0000", "ledger": "0.9000"})
    assert "because of budget.ledger" in facts(made)["Fits"]
    assert "left of budget.ledger: 0.9000 of 0.9000 USD" in str(objection(made))


def test_what_is_reserved_counts_once_and_a_dead_run_s_not_at_all(quote):
    quote(batch="other", states={"b": "reserved"})  # by a run that is dead by now
    budget = {"per_day": "1.0190", "ledger": "1.0190"}
    mine = quote(states={"a": "reserved", "b": "reserved"}, budget=budget)
    assert (mine.day_left, mine.ledger_left, mine.fits) == (Decimal("1.0190"), Decimal("1.0190"), 5)


def test_the_time_is_a_range_while_the_account_s_limits_are_not_known():
    """Limits are assumed to be 10 to 600 a minute; images and videos are submitted at the same time."""
    many, mixed = {"image": 1201, "video": 0}, {"image": 201, "video": 31}
    unknown = "; the account's limit of {}s a minute is not known yet, 10 to 600 is assumed"
    assert submission_time({"image": 5}, {}) == "about 1 min"
    assert submission_time(many, {}) == f"2 min to 2 h{unknown.format('image')}"
    assert submission_time(mixed, {"image": 20}) == "at least 10 min, by the limits a minute"
    assert submission_time(mixed, {"image": 200}) == f"1 to 3 min{unknown.format('video')}"
    assert submission_time(many, {"image": 120}).startswith("at least 10 min")
    assert submission_time(many, {"image": 5000}) == "about 1 min"
    assert submission_time({"image": 0}, {}) == "0 min: nothing to buy"


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        (900, "1 to 89 min;"),
        (910, "1 min to 1 h 30 min;"),
        (20_000, "33 min to 1 day 9 h;"),
        (1_000_000, "1 day 3 h to 69 days 10 h;"),
    ],
)
def test_a_long_time_is_said_in_hours_and_days(jobs, said):
    assert submission_time({"video": jobs}, {}).startswith(said)


def test_the_time_that_is_left_is_said_in_the_same_words():
    times = [40, 720, 11_100, 7_200, 120_000, 172_800]
    assert [time_in_words(time) for time in times] == [
        "40 s",
        "12 min",
        "3 h 5 min",
        "2 h",
        "1 day 9 h",
        "2 days",
    ]


def test_the_limits_are_the_config_s_and_otherwise_what_a_run_has_learned(quote):
    made = quote(learned={"image": 240, "video": 30}, limits={"image_rpm": 1})
    assert made.rpm == {"image": 1, "video": 30}
    assert facts(made)["Time"] == "at least 3 min, by the limits a minute"
