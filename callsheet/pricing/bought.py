"""Which jobs of a plan the batch has in its ledger already, so that nothing is bought again as another job.

A job is the same as long as its row asks for the same (`keyed`). Besides, it is the same where its row
and sample have bought the very request that would be sent now, apart from what makes no other job
(`same_request`): a row may write out what was the default, or be of an older ledger, which told such
requests apart. Rows without ids that are equal are told apart by their carried columns, then by their order.
A row has all of its samples that were bought, also where it asks for fewer. What is asked for again has the
next number of its request, and so a key of its own. And a row that was bought stays in the plan where the
catalogue no longer offers what it asks for.

A job is taken for bought here as long as it may have cost something (`MAY_COST`), in doubt too.

Pure: it reads tables that are given to it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import chain, count
from typing import Any

import polars as pl

from callsheet.batches.identities import nfc, sha256, without_signature, written_alike
from callsheet.cells import carried_as_json, same_prompt, separate
from callsheet.config.settings import Settings
from callsheet.plain_text import and_more, counted, printable
from callsheet.pricing.rates import PRICED_COLUMNS, PricedJobs
from callsheet.records import MADE_FROM, MAY_COST, UNDECIDED, canonical, made_from
from callsheet.standing import SUBMITTED, Standing

PLAN_COLUMNS = ["key", *PRICED_COLUMNS, "repeats", "unseen", "again"]
"""The columns of `plan.parquet`. `repeats`: the job looks like one that was bought; `unseen`: it differs
from that only in what cannot be seen of its prompt; `again`: it is a sample more than the row asks for.
"""


_MADE_ID = r"^[0-9a-f]{16}-\d+$"
_NTH = pl.int_range(pl.len()).over("request_key")
_NAME = ["request_key", "made", "name"]
_BY_HAND = 10  # prompts that a person corrects, and means to buy
_NAMED = 5  # rows; changed defaults, those of the most jobs
_PROMPT = r'"prompt":"(?:[^"\\]|\\.)*"'  # of a request
_INLINED = "sha256:[0-9a-f]{64}"


# ---- what a job is


def request_key(request: pl.Expr | None = None) -> pl.Expr:
    """The column `request_key` of jobs: the sha256 of [request, sample] as canonical JSON in NFC, in hex."""
    request = pl.col("request") if request is None else request
    pair = pl.concat_str(pl.lit("["), nfc(request), pl.lit(","), "sample", pl.lit("]"))
    return sha256(pair).alias("request_key")


_MAY_DIFFER = r'"prompt":"(?:\s|\\)|(?:\s|\\.|\\u....)"[,}]|\\r|"url":"https://[^"]*\?'
"""Requests that `same_request` may change: a blank or an escape at an end of a text, a CR, a query."""


def same_request() -> pl.Expr:
    """The column `request` without what makes no other job: the prompt's kind of line ends, blanks at its
    ends, and signatures of addresses.
    """
    return pl.col("request").map_batches(_same, return_dtype=pl.String)


def _same(requests: pl.Series) -> pl.Series:
    at = requests.str.contains(_MAY_DIFFER).fill_null(value=False).arg_true()
    if at.is_empty():
        return requests
    bodies = [json.loads(request) for request in requests.gather(at)]
    prompts = pl.DataFrame({"prompt": [body["prompt"] for body in bodies]}, {"prompt": pl.String})
    same_prompts = prompts.select(same_prompt(pl.col("prompt"))).to_series()
    for body, prompt in zip(bodies, same_prompts, strict=True):
        body["prompt"] = prompt
        if "images" in body:
            body["images"] = [image | {"url": without_signature(image["url"])} for image in body["images"]]
    return requests.scatter(at, [canonical(body) for body in bodies])


def _as_seen() -> list[pl.Expr]:
    """The columns `seen`, the prompt as a person sees it (NFKC, without letters that have no sign, blanks as
    one space), and `rest`, all else of the request. They compare jobs, and make no identity.
    """
    prompt = pl.col("request").str.json_path_match("$.prompt").str.normalize("NFKC")
    visible = prompt.str.replace_all(r"\p{Default_Ignorable_Code_Point}", "")
    seen = visible.str.replace_all(r"\s{2,}|[^\S ]", " ").str.strip_chars()  # one blank stays as it is
    return [seen.alias("seen"), same_request().str.replace(_PROMPT, "").alias("rest")]


def keyed(jobs: pl.DataFrame, batch: str) -> pl.DataFrame:
    """Jobs with `key`, each job's identity.

    The key is the sha256 of {"asked", "batch", "row_id", "sample"} as canonical JSON, in hex.
    """
    row = pl.struct("row_id", "sample").struct.json_encode().str.slice(1)
    identity = pl.concat_str(pl.lit('{"asked":'), "asked", pl.lit(f',"batch":{canonical(batch)},'), row)
    return jobs.with_columns(sha256(identity).alias("key"))


_SAME_KEY = request_key(same_request())


# ---- the jobs of a plan, matched


def match_bought_jobs(
    priced: PricedJobs, standing: Standing | None, settings: Settings
) -> tuple[pl.DataFrame, list[str]]:
    """The jobs of a plan under the keys by which the ledger has them.

    `standing` is what the ledger has of the batch, with `ASKED_FOR`; None: nothing. With `review.buy_again`,
    rows of which every stored file is rejected are bought again, up to `review.samples`.

    Returns:
        The rows of `plan.parquet`, those that are bought and not offered any more after the others, without a
        request; and what a person should know, in sentences.
    """
    no, batch = pl.lit(False), settings.batch
    jobs, not_offered = priced.jobs.with_columns(repeats=no, unseen=no, again=no), priced.not_offered
    if standing is None or standing.attempts.is_empty():
        return keyed(jobs, batch).select(PLAN_COLUMNS), []
    ledger_jobs, rejected = standing.newest, standing.rejected_rows
    # The ledger's keys are of the very text that was sent.
    if (may_differ := ledger_jobs["request"].str.contains(_MAY_DIFFER)).any():
        key = pl.when(may_differ).then(_SAME_KEY).otherwise(pl.col("request_key"))
        ledger_jobs = ledger_jobs.with_columns(key.alias("request_key"))
    rows = [jobs.select("row_id", "carried"), not_offered.select("row_id")]
    renamed, unsure = _equal_rows(pl.concat(rows, how="diagonal"), ledger_jobs)
    notes: list[str] = []
    if unsure:
        notes.append(
            f"{counted(unsure, 'row')} without an id: equal rows with other carried columns were bought, and "
            "it cannot be told which file is whose; give the rows ids"
        )
    ledger_row_id = pl.col("row_id").replace(renamed)
    jobs = keyed(jobs.with_columns(ledger_row_id).with_row_index("place"), batch)
    jobs = _bought_as_another(jobs.with_columns(_SAME_KEY), ledger_jobs)
    jobs = _with_more_samples(jobs, ledger_jobs, batch)
    jobs, repeat_notes = _with_repeats(jobs, ledger_jobs, rejected)
    notes += _changed_defaults(jobs, ledger_jobs) + repeat_notes
    kept = _kept_though_not_offered(not_offered.with_columns(ledger_row_id), jobs, ledger_jobs, batch)
    if settings.review.buy_again:
        added, sample_notes = _next_samples(jobs, ledger_jobs, rejected, settings.review.samples)
        jobs = _inserted(jobs, keyed(added, batch))
        notes += sample_notes
    plan = pl.concat([jobs, kept], how="diagonal_relaxed").select(PLAN_COLUMNS)
    return plan.with_columns(pl.col("repeats", "unseen", "again").fill_null(value=False)), notes


# ---- rows without ids that are equal


def _equal_rows(rows: pl.DataFrame, ledger_jobs: pl.DataFrame) -> tuple[dict[str, str], int]:
    """New ids for rows without ids of which there are or were several that are equal: first by the same
    carried columns, then in their order.

    Returns:
        By the row's id, the id under which the ledger has it; and how many rows only their order tells apart,
        although rows were added or removed.
    """
    ids = pl.concat([rows["row_id"], ledger_jobs["row_id"]])
    contents = ids.filter(ids.str.contains(_MADE_ID) & ~ids.str.ends_with("-1")).str.head(16).unique()
    in_ledger, in_file = _carried_by_row(ledger_jobs, contents), _carried_by_row(rows, contents)
    renamed: dict[str, str] = {}
    unsure = 0
    for content, cells_of in in_file.items():
        free = dict(in_ledger.get(content, {}))
        numbers = count(max(map(_number, free), default=0) + 1)
        left = []
        for row_id, cells in cells_of.items():
            ledger_id = next((free_id for free_id, carried in free.items() if carried == cells), None)
            if ledger_id is None:
                left.append(row_id)
            else:
                renamed[row_id] = ledger_id
                del free[ledger_id]
        if left and free and len(left) != len(free):
            unsure += len(left)
        renamed |= zip(left, chain(free, (f"{content}-{number}" for number in numbers)), strict=False)
    return renamed, unsure


def _carried_by_row(rows: pl.DataFrame, contents: pl.Series) -> dict[str, dict[str, Any]]:
    """By content, the carried columns of each of its rows by the row's id, in the order of their numbers."""
    is_one = pl.col("row_id").str.contains(_MADE_ID) & pl.col("row_id").str.head(16).is_in(contents.implode())
    chosen = rows.filter(is_one).with_columns(carried_as_json(rows.schema["carried"]))
    by_content: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for row_id, cells in sorted(
        chosen.select("row_id", "carried").iter_rows(), key=lambda row: _number(row[0])
    ):
        by_content[row_id[:16]].setdefault(row_id, _cells(cells))
    return by_content


def _cells(text: str | None) -> dict[str, Any]:
    """Carried columns from their JSON, without empty ones."""
    return {name: value for name, value in json.loads(text or "{}").items() if value is not None}


def _number(row_id: str) -> int:
    return int(row_id[17:])


# ---- the same request under another key


def _bought_as_another(jobs: pl.DataFrame, ledger_jobs: pl.DataFrame) -> pl.DataFrame:
    """The jobs; those whose row has bought the same request under another key have that key."""
    is_known = pl.col("key").is_in(ledger_jobs["job_key"].implode())
    is_planned = pl.col("job_key").is_in(jobs["key"].implode())
    new = _with_names(jobs.filter(~is_known))
    free = _with_names(ledger_jobs.filter(~is_planned)).unique(_NAME)
    matches = new.join(free, on=_NAME, suffix="_before").select("key", "row_id_before", "job_key")
    matched = jobs.join(matches, on="key", how="left", maintain_order="left")
    columns = {"key": pl.coalesce("job_key", "key"), "row_id": pl.coalesce("row_id_before", "row_id")}
    return matched.with_columns(**columns).select(jobs.columns)


def _with_names(jobs: pl.DataFrame) -> pl.DataFrame:
    """Jobs with the columns `_NAME`: by the row's own id, or by a count of the jobs with the same request.

    A row without an id is its content, so what it writes out has changed its id, too.
    """
    is_made = pl.col("row_id").str.contains(_MADE_ID)
    nth = pl.int_range(pl.len()).over("request_key", is_made)
    return jobs.with_columns(
        made=is_made, name=pl.when(is_made).then(nth.cast(pl.String)).otherwise("row_id")
    )


def _changed_defaults(jobs: pl.DataFrame, ledger_jobs: pl.DataFrame) -> list[str]:
    """Which defaults have changed that bought jobs relied on, with the number of these jobs."""
    bought = ledger_jobs.filter(pl.col("state").is_in(MAY_COST)).select("job_key", "request_key", "request")
    pairs = jobs.join(bought, left_on="key", right_on="job_key", suffix="_before")
    pairs = pairs.filter(pl.col("request_key") != pl.col("request_key_before"))
    changes: Counter[tuple[str, str, str, str]] = Counter()
    for model, request, old_request in pairs.select("model", "request", "request_before").iter_rows():
        new, old = json.loads(request), json.loads(old_request)
        for name in sorted({*new, *old} - {"prompt", "images"}):  # which may be written in another way
            if new.get(name) != old.get(name):
                changes[model, name, str(old.get(name)), str(new.get(name))] += 1
    notes = [
        f"the default {name} of {model} was {old} and is {new} now; {counted(count, 'job')} bought with it "
        f"{'stays' if count == 1 else 'stay'} as bought"
        for (model, name, old, new), count in changes.most_common(_NAMED)
    ]
    if unnamed := len(changes) - len(notes):
        have = "default has" if unnamed == 1 else "defaults have"
        notes.append(f"{unnamed} other {have} changed that bought jobs relied on; these stay as bought")
    return notes


def _with_repeats(
    jobs: pl.DataFrame, ledger_jobs: pl.DataFrame, rejected: pl.Series
) -> tuple[pl.DataFrame, list[str]]:
    """The jobs with `repeats`: which of the new ones look like what was bought for rows that are gone, by
    their request (a column of ids is new, say) or by their id (a spreadsheet has written 001 as 1); or for
    the same rows, with another file of an image (a program has saved it anew), or where a large part of the
    batch has other prompts (a template's cells have another format); and `unseen`, where the prompt looks the
    same (an editor has put no-break blanks into it). And what a person should know of these.

    `rejected` are the rows of which every stored file is rejected: another prompt or image is what they need.
    """
    key, row_id = pl.col("key"), pl.col("row_id")
    is_gone = ~pl.col("job_key").is_in(jobs["key"].implode()) & pl.col("state").is_in(MAY_COST)
    former = ledger_jobs.filter(is_gone)
    if former.is_empty():
        return jobs, []
    new = jobs.filter(~key.is_in(ledger_jobs["job_key"].implode()))
    by_request = _with_the_same_request(new, former)
    old_ids = former.filter(~row_id.is_in(jobs["row_id"].implode()))["row_id"]
    alike = written_alike(_own_ids(new["row_id"]), _own_ids(old_ids))
    by_id = new.filter(row_id.is_in(list(alike)))["key"]
    not_rejected = new.filter(~row_id.is_in(rejected.implode()))
    by_image = _with_another_image(not_rejected, former)
    others = not_rejected.filter(~key.is_in(by_request.implode()))
    unseen = _with_the_same_look(others, former)
    others = others.filter(~key.is_in(unseen.implode()))
    by_prompt = _with_another_prompt(others, former.filter(~row_id.str.contains(_MADE_ID)))
    notes = _repeats_in_words(by_request.len(), alike, by_image.len(), unseen.len(), by_prompt.len())
    repeated = [by_request, by_id, by_image, unseen]
    if by_prompt.len() > _BY_HAND and are_too_many(by_prompt.len(), jobs.height):
        repeated.append(by_prompt)
    flags = {"repeats": key.is_in(pl.concat(repeated).implode()), "unseen": key.is_in(unseen.implode())}
    return jobs.with_columns(**flags), notes


def _repeats_in_words(
    by_request: int, alike: Mapping[str, str], by_image: int, unseen: int, by_prompt: int
) -> list[str]:
    """What a person should know of jobs that look like what was bought, by how many look so in which way;
    `alike` has the former id of each new one.
    """
    notes = []
    if by_request:
        notes.append(
            f"{counted(by_request, 'new job')} {'asks' if by_request == 1 else 'ask'} for the very request "
            "that this batch has bought under another row id; with the ids as they were it is not bought "
            "again"
        )
    if alike:
        pairs = [f"{new_id} for {old_id}" for new_id, old_id in [*alike.items()][:_NAMED]]
        have = "row has a new id that looks" if len(alike) == 1 else "rows have new ids that look"
        notes.append(
            f"{len(alike):,} {have} like one that this batch has bought, written in another way: "
            f"{and_more(pairs, len(alike))}; with the ids as they were nothing is bought again"
        )
    if by_image:
        notes.append(
            f"{by_image:,} {'job asks' if by_image == 1 else 'jobs ask'} for what was bought for the row, "
            "with another file of an image; if only what a program has noted in that file is new, put the "
            "old file back, and it is not bought again"
        )
    if unseen:
        notes.append(
            f"{counted(unseen, 'new job')} {'has' if unseen == 1 else 'have'} a prompt that looks like what "
            "this batch has bought, with other blanks, width or letters that cannot be seen; with the "
            "prompts as they were nothing is bought again"
        )
    if by_prompt:
        notes.append(
            f"{counted(by_prompt, 'new job')} {'has' if by_prompt == 1 else 'have'} another prompt than what "
            "this batch has bought for the same row; with the prompts as they were nothing is bought again"
        )
    return notes


def _own_ids(row_ids: pl.Series) -> list[str]:
    """Those of the ids that are not made of the row's content."""
    return row_ids.filter(~row_ids.str.contains(_MADE_ID)).unique(maintain_order=True).to_list()


def _with_the_same_request(new: pl.DataFrame, former: pl.DataFrame) -> pl.Series:
    """The keys of new jobs with the very request of what is bought, and gone: as many as there are of it."""
    new, former = (jobs.with_columns(nth=_NTH) for jobs in (new, former))
    return new.join(former, on=["request_key", "nth"], how="semi")["key"]


def _with_the_same_look(new: pl.DataFrame, former: pl.DataFrame) -> pl.Series:
    """The keys of new jobs that differ from what is bought, and gone, in what cannot be seen of a prompt."""
    look = ["seen", "rest", "sample"]
    new, former = (
        jobs.with_columns(_as_seen()).with_columns(nth=pl.int_range(pl.len()).over(look))
        for jobs in (new, former)
    )
    return new.join(former, on=[*look, "nth"], how="semi")["key"]


def _with_another_prompt(new: pl.DataFrame, former: pl.DataFrame) -> pl.Series:
    """The keys of new jobs whose row and sample have bought what has another prompt, and is gone."""
    prompt = pl.col("request").str.json_path_match("$.prompt")
    place = ["row_id", "sample"]
    new_prompts = new.select("key", *place, now=prompt)
    # Of a matrix there are several of one place: it has bought this prompt where one of them has it.
    bought_prompts = former.group_by(place).agg(before=prompt)
    pairs = new_prompts.join(bought_prompts, on=place, maintain_order="left")
    return pairs.filter(~pl.col("now").is_in(pl.col("before")))["key"]


def _with_another_image(new: pl.DataFrame, former: pl.DataFrame) -> pl.Series:
    """The keys of new jobs that differ from what their row has bought, and is gone, in the bytes of inlined
    images alone; but not those that are made from another file of another batch, because a person keeps it.

    Whether their pixels are the same is not known: the ledger has only the hash of what was sent.
    """
    local = pl.col("request").str.contains(_INLINED)
    without_bytes = pl.col("request").str.replace_all(_INLINED, "")
    new_requests, bought_requests = (
        jobs.filter(local).with_columns(without_bytes, source=_source(jobs)) for jobs in (new, former)
    )
    on = ["row_id", "sample", "request", "source"]
    return new_requests.join(bought_requests, on=on, how="semi", nulls_equal=True)["key"]


def _source(jobs: pl.DataFrame) -> pl.Expr:
    """The files of other batches that jobs are made from, without their bytes, as JSON."""
    if "carried" not in jobs.columns:
        return pl.lit(None, pl.String)
    files = carried_as_json(jobs.schema["carried"]).str.json_path_match(f"$.{MADE_FROM}")
    return files.str.replace_all(r'"sha256":"[0-9a-f]*"', "")


def are_too_many(repeats: int, to_buy: int) -> bool:
    """Whether so many of the jobs to buy look bought that a person must look at them: more than a tenth."""
    return repeats * 10 > to_buy


# ---- the same request of several rows


def leave_out_repeated(
    jobs: pl.DataFrame, settings: Settings, standing: Standing | None = None
) -> tuple[pl.DataFrame, list[str]]:
    """With `input.repeated: once`, of jobs with the same request and sample the first alone, or those that
    are bought; and of how many rows one is left out, in a sentence.
    """
    if settings.input.repeated != "once":
        return jobs, []
    request_and_sample = ["request", "sample"]
    is_bought = pl.col("request").is_null()
    if standing is not None:
        bought = standing.newest.filter(pl.col("state").is_in(MAY_COST))["job_key"]
        is_bought |= pl.col("key").is_in(bought.implode())
    is_first = pl.struct(request_and_sample).is_first_distinct() & ~is_bought.any().over(request_and_sample)
    kept, left_out = separate(jobs, ~(is_bought | is_first))
    rows = left_out["row_id"].n_unique()
    ask = f"{counted(rows, 'row')} {'asks' if rows == 1 else 'ask'}"
    return kept, [f"{ask} for what another row asks for: left out by input.repeated"] if rows else []


# ---- more samples than the row asks for


def _with_more_samples(jobs: pl.DataFrame, ledger_jobs: pl.DataFrame, batch: str) -> pl.DataFrame:
    """The jobs, and after those of each row its other samples that were ever sent."""
    higher = keyed(_higher_samples(jobs, ledger_jobs), batch).with_columns(_SAME_KEY, again=pl.lit(True))
    if higher.is_empty():
        return jobs
    # Also these may have been bought under another key.
    higher = _bought_as_another(pl.concat([jobs, higher]), ledger_jobs)[jobs.height :]
    sent = ledger_jobs.filter(SUBMITTED)["job_key"]
    return _inserted(jobs, higher.filter(pl.col("key").is_in(sent.implode())))


def _inserted(jobs: pl.DataFrame, added: pl.DataFrame) -> pl.DataFrame:
    """The jobs, and more jobs each after the one with the same `place`."""
    return pl.concat([jobs, added]).sort("place", maintain_order=True)


def _higher_samples(jobs: pl.DataFrame, ledger_jobs: pl.DataFrame) -> pl.DataFrame:
    """Each request again, with every number after its last sample up to the highest that the ledger has of
    the row; the ledger need not have all of them.
    """
    highest = ledger_jobs.group_by("row_id").agg(highest=pl.col("sample").max()).filter(pl.col("highest") > 1)
    rows = _last(jobs.join(highest, on="row_id", maintain_order="left"), "asked")
    rows = rows.filter(pl.col("sample") < pl.col("highest"))
    numbers = pl.int_ranges(pl.col("sample") + 1, pl.col("highest") + 1)
    return rows.with_columns(sample=numbers).explode("sample").select(jobs.columns)


def _next_samples(
    jobs: pl.DataFrame, ledger_jobs: pl.DataFrame, rejected: pl.Series, highest: int
) -> tuple[pl.DataFrame, list[str]]:
    """One more sample of each request of the rows of which everything is rejected.

    A row of which anything is under way or in doubt, or to be bought anyway, waits for that. `rejected` are
    the ids of these rows, and `highest` is the highest number (`review.samples`).

    Returns:
        Rows like the last of each request, with the next number; and what a person should know, in sentences.
    """
    undecided = ledger_jobs.filter(pl.col("state").is_in(UNDECIDED))["row_id"]
    to_buy = jobs.filter(is_to_buy(ledger_jobs))["row_id"]
    waits = pl.col("row_id").is_in(pl.concat([undecided, to_buy]).implode())
    ends = _last(jobs.filter(pl.col("row_id").is_in(rejected.implode()) & ~waits), "request")
    added = ends.with_columns(pl.col("sample") + 1, again=pl.lit(True)).filter(pl.col("sample") <= highest)
    used_up = ends.join(added, on="row_id", how="anti")
    used_up_rows = [printable(row_id) for row_id in used_up["row_id"].unique(maintain_order=True)]
    numbers = added["sample"].unique().sort().to_list()
    samples = f"sample{'s' if len(numbers) > 1 else ''} {' and '.join(map(str, numbers))}"
    notes = []
    if rows := added["row_id"].n_unique():
        outcome = f"bought again, {samples} of {highest}"
        have = "has" if rows == 1 else "have"
        notes.append(f"{counted(rows, 'row')} {have} only rejected files: {outcome}")
    if rows := len(used_up_rows):
        have, named = "has" if rows == 1 else "have", and_more(used_up_rows[:_NAMED], rows)
        notes.append(
            f"{counted(rows, 'row')} ({named}) {have} only rejected files and no sample left: "
            f"review.samples={max(used_up['sample'].to_list()) + 1} allows one more"
        )
    return added, notes


def _last(jobs: pl.DataFrame, request: str) -> pl.DataFrame:
    """The last sample of each request of each row."""
    of_each = ["row_id", request]
    return jobs.sort("sample", maintain_order=True).unique(of_each, keep="last", maintain_order=True)


def bought_again(
    plan: pl.DataFrame | None, ledger_jobs: pl.DataFrame, rejected: pl.Series, highest: int
) -> pl.DataFrame:
    """The jobs that a quote with `--again` has to buy for the rows of which everything is rejected: `row_id`,
    `sample` and `price`. One more sample of each request; or what of the row is to be bought anyway.

    Args:
        plan: the batch's last one. Without it every row counts that the ledger has, at its last price.
        ledger_jobs: what the ledger has of the batch, as for `match_bought_jobs`.
        rejected, highest: as for `_next_samples`.
    """
    sent = ledger_jobs.filter(SUBMITTED)
    if plan is None:
        jobs = sent.rename({"job_key": "key", "quoted": "price"})
    else:
        # One more that was never sent is counted anew, as in `match_bought_jobs`.
        is_there = ~pl.col("again") | pl.col("key").is_in(sent["job_key"].implode())
        jobs = plan.filter(pl.col("request").is_not_null(), is_there)
    jobs = jobs.filter(pl.col("row_id").is_in(rejected.implode()))
    anyway = jobs.filter(is_to_buy(ledger_jobs))
    added, _ = _next_samples(jobs, ledger_jobs, rejected, highest)
    return pl.concat(part.select("row_id", "sample", "price") for part in (anyway, added))


def is_to_buy(ledger_jobs: pl.DataFrame) -> pl.Expr:
    """Whether a run buys a job: a new one, or one that the ledger has as to buy."""
    return ~pl.col("key").is_in(ledger_jobs.filter(~pl.col("to_buy"))["job_key"].implode())


# ---- what is bought, and not offered any more


def _kept_though_not_offered(
    not_offered: pl.DataFrame, jobs: pl.DataFrame, ledger_jobs: pl.DataFrame, batch: str
) -> pl.DataFrame:
    """Rows of the plan for jobs that are bought and could not be bought now; the price is what was quoted."""
    not_offered = not_offered.with_row_index("place")
    not_offered = _inserted(not_offered, _higher_samples(not_offered, ledger_jobs)).drop("place")
    bought = ledger_jobs.filter(pl.col("state").is_in(MAY_COST)).select("job_key", "type", "model", "quoted")
    kept = keyed(not_offered, batch).join(bought, left_on="key", right_on="job_key", maintain_order="left")
    kept = kept.filter(~pl.col("key").is_in(jobs["key"].implode()))
    return kept.rename({"quoted": "price"}).with_columns(currency=pl.lit("USD"))


def changed_carried(plan: pl.DataFrame, ledger_jobs: pl.DataFrame) -> list[tuple[str, dict[str, Any]]]:
    """The jobs whose carried columns have changed since they were bought: the key, and what they are now.

    From which file of another batch a job is made stays known, also where its row is of a batch file now.
    """
    jobs = plan.select("key", carried_as_json(plan.schema["carried"]))
    pairs = jobs.join(ledger_jobs.select("job_key", before="carried"), left_on="key", right_on="job_key")
    different = pairs.filter(pl.col("carried").ne_missing(pl.col("before")))
    changes = []
    for key, new_carried, old_carried in different.select("key", "carried", "before").iter_rows():
        cells, old_cells = json.loads(new_carried or "{}"), _cells(old_carried)
        if cells.get(MADE_FROM) is None and made_from(old_cells)[0]:
            cells[MADE_FROM] = old_cells[MADE_FROM]
        if {name: value for name, value in cells.items() if value is not None} != old_cells:
            changes.append((key, cells))
    return changes
