"""What a person should see of a batch before it is bought, and of one before it has a config.

Of a batch: requests, columns, what may be a mistake, and what its rows would cost on each other model. Of a
batch file without a config: which of its columns are which, and the cheapest model that fits. A guess is used
only if every row can be bought with it; what is not used is said. Without a batch file: the rows of a first
batch, made from the catalogue. It buys nothing, and writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from operator import itemgetter
from typing import Any

import polars as pl

from callsheet.batches import columns
from callsheet.batches.formats import field_names, read_tables, with_fields
from callsheet.batches.read import Batch, read_batch
from callsheet.config.settings import COLUMNS, Input, Settings
from callsheet.errors import InputError
from callsheet.plain_text import and_more, counted, printable, row_name
from callsheet.pricing.jobs import JobTable, make_jobs
from callsheet.pricing.plan import Plan
from callsheet.pricing.rates import Combination, Offer, offer
from callsheet.records import ModelType, dollars
from callsheet.service.models import Catalogue, Model

_FLAG = r"\s--[A-Za-z]"  # of other generators: --ar 16:9
_REMARK = r'"prompt":"(#|//)'
_LEAVE_OUT = '; input.comments: "#" leaves them out'
_LONGEST_TEXT = 5_000  # characters of a request's text that are shown; a prompt has at most 4,096
_NAMED = 12  # columns


def requests(jobs: pl.DataFrame, show: str = "1") -> list[tuple[str, dict[str, Any]]]:
    """Requests as they would be sent, each with its row's name; images that are inlined later as their hash.

    Args:
        jobs: those of a plan, with their standing (`Quote.table`).
        show: how many of the first that are to buy, or which row's.

    Raises:
        InputError: the plan has no such row.
    """
    jobs = jobs.filter(pl.col("request").is_not_null())
    first = jobs.filter("to_buy").head(int(show)) if show.isdecimal() else jobs.filter(row_id=show)
    if first.is_empty() and not show.isdecimal():
        raise InputError(
            f"the batch has no row {show} that can be bought", hint="Give a row's id, or a number."
        )
    return [
        (row_name(row_id, sample, line), _cut(json.loads(request)))
        for row_id, sample, line, request in first.select("row_id", "sample", "line", "request").iter_rows()
    ]


def in_lines(request: dict[str, Any]) -> list[str]:
    """A request as JSON on several lines, for people."""
    return [printable(line) for line in json.dumps(request, indent=2, ensure_ascii=False).split("\n")]


def _cut(value: Any) -> Any:
    """JSON in which no text is longer than a prompt: an image as a data URL has millions of characters."""
    if isinstance(value, dict):
        return {name: _cut(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_cut(each) for each in value]
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return f"{value[:60]}… ({len(value):,} characters)"
    return value


def repeated(plan: Plan) -> tuple[int, Decimal]:
    """How many rows ask for what a row before them asks for, and the price of their jobs, in dollars."""
    jobs = plan.table.filter(pl.col("request").is_not_null()).select("row_id", "sample", "request", "price")
    again = jobs.filter(~pl.struct("request", "sample").is_first_distinct())
    return again["row_id"].n_unique(), Decimal(again["price"].sum() or 0)


def as_json(plan: Plan, jobs: pl.DataFrame) -> dict[str, Any]:
    """The fields of `quote --json` that say how the file was read; `jobs` as `requests` takes them."""
    first = requests(jobs)
    return {
        "columns": dict(plan.columns.used),
        "carried": list(plan.columns.carried),
        "unused": [{"column": name, "looks_like": like} for name, like in plan.columns.unused.items()],
        "first_request": first[0][1] if first else None,
        "repeated": repeated(plan)[0],
    }


def facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """The same for people, and what may be a mistake: names and texts."""
    columns = plan.columns
    if columns.used:
        used = [name if name == ours else f"{ours} from {name!r}" for ours, name in columns.used.items()]
        yield (
            "Columns",
            ", ".join(used) + (f"; carried: {_listed(columns.carried)}" if columns.carried else ""),
        )
    if columns.unused:
        ours = {repr(name): f"{like}: {name}" for name, like in columns.unused.items() if like in COLUMNS}
        others = [repr(name) for name, like in columns.unused.items() if like not in COLUMNS]
        if ours:
            use = next(iter(ours.values()))
            yield "Not used", f"{_listed(ours)}; to use one, name it: input.columns {{{use}}}"
        if others:
            yield "Not used", f"{_listed(others)}: the service has no such setting"
    rows, price = repeated(plan)
    if rows:
        what = f"{counted(rows, 'row')} {'asks' if rows == 1 else 'ask'} for what another row asks for"
        yield "Repeated", f"{what}: {dollars(price)} USD"
    odd = ((_FLAG, "with flags such as --ar 16:9", ""), (_REMARK, "with # or // first", _LEAVE_OUT))
    for pattern, what, to_do in odd:
        lines = plan.table.filter(pl.col("request").str.contains(pattern))["line"].unique(maintain_order=True)
        if lines.len():
            prompts = f"{counted(lines.len(), 'prompt')} {what} (line {lines[0]})"
            yield "Prompts", f"{prompts}: sent as text{to_do}"


def _listed(names: Collection[str]) -> str:
    return and_more([*names][:_NAMED], len(names))


_IDS = ("id", "key", "name", "slug", "sku", "filename")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows of a batch on one model.

    Attributes:
        rows: how many of the rows it takes, at a known price.
        of: how many rows there are.
        jobs: how many generations that is.
        price: of all of them, in dollars.
        reasons: why it does not take a row, by the column that is wrong there; the first one of each.
    """

    model: str
    type: ModelType
    rows: int
    of: int
    jobs: int
    price: Decimal
    reasons: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """The JSON object; money is a string."""
        return {
            "model": self.model,
            "type": self.type.value,
            "rows": self.rows,
            "jobs": self.jobs,
            "quoted": dollars(self.price),
        }


def compare_models(plan: Plan, settings: Settings) -> list[Comparison]:
    """The rows of the batch file on each model of a plan's catalogue that takes some of them."""
    found = [each for each in compare(read_batch(settings), plan.catalogue, settings) if each.rows]
    return sorted(found, key=lambda each: each.price)


def compare(batch: Batch, catalogue: Catalogue, settings: Settings) -> list[Comparison]:
    """The rows of a batch, whichever models they name, on each model that makes images or videos: those that
    take most rows first, of these the cheapest first. A matrix of models is left out.
    """
    matrix = {column: cells for column, cells in settings.input.matrix.items() if column != "model"}
    update = {"matrix": matrix}
    settings = settings.model_copy(update={"input": settings.input.model_copy(update=update)})
    found = []
    for model in catalogue.values():
        if model.type not in (ModelType.IMAGE, ModelType.VIDEO):
            continue
        table = make_jobs(batch.rows.with_columns(model=pl.lit(model.id)), catalogue, settings)
        jobs = table.jobs.filter(pl.col("price").is_not_null())
        found.append(
            Comparison(
                model=model.id,
                type=ModelType(model.type),
                rows=jobs["row_id"].n_unique(),
                of=batch.rows.height,
                jobs=jobs.height,
                price=Decimal(jobs["price"].sum() or 0),
                reasons=_reasons_of(table),
            )
        )
    return sorted(found, key=lambda each: (-each.rows, each.price))


def _reasons_of(table: JobTable) -> dict[str, str]:
    """Why rows cannot be bought, by the column that is wrong; the first reason of each."""
    reasons = table.wrong.select("column", "reason").unique("column", keep="first", maintain_order=True)
    return dict(reasons.iter_rows())


# ---- a batch file without a config


@dataclass(frozen=True, slots=True)
class Guess:
    """How a batch file is read.

    Attributes:
        columns: `input.columns`: the file's name of a column of ours; None for one that is released.
        taken: the cheapest model that takes most rows, what they cost; None where the file names models.
        rows: how many rows the file has.
        not_used: columns that look like a setting and are not used, each with the reason.
    """

    columns: Mapping[str, str | None]
    taken: Comparison | None
    rows: int
    not_used: Mapping[str, str]


def guess(path: str, catalogue: Catalogue) -> Guess:
    """Guesses how a batch file (as in `input.path`) is to be read.

    Raises:
        InputError: it cannot be read, or has no column that can be the prompts.
    """
    table = next(iter(read_tables(Input(path=path), None))).cells
    table = with_fields(table, field_names(table.schema))
    chosen, likely = _needed(table), _likely(table)
    not_used: dict[str, str] = {}
    while True:
        settings = _settings(path, chosen | likely, catalogue)
        batch = read_batch(settings)
        has_models = "model" in batch.columns.used
        best = None if has_models else next(iter(compare(batch, catalogue, settings)), None)
        wrong = best.reasons if best else _reasons_of(make_jobs(batch.rows, catalogue, settings))
        reasons = {name: reason for _, name, _, reason in reversed(batch.rejects.rows())}
        reasons |= {likely[ours]: reason for ours, reason in wrong.items() if ours in likely}
        refused = {ours: reasons[name] for ours, name in likely.items() if name in reasons}
        if not refused:
            break
        not_used |= {likely.pop(ours): f"looks like {ours}: {reason}" for ours, reason in refused.items()}
    others = {
        name: f"looks like {like}" if like in COLUMNS else "is no setting of the service"
        for name, like in batch.columns.unused.items()
    }
    return Guess(chosen | likely, best if best and best.rows else None, batch.total, others | not_used)


def _likely(table: pl.DataFrame) -> dict[str, str]:
    """The columns that look like one of ours by their names, the first of each."""
    found: dict[str, str] = {}
    for column in table:
        name, like = column.name, columns.looks_like(column)
        if like in COLUMNS and like not in ("prompt", "model", *table.columns):
            found.setdefault(like, name)
    return found


def _needed(table: pl.DataFrame) -> dict[str, str | None]:
    """The columns of prompts and ids, where the file has them under other names."""
    found: dict[str, str | None] = {}
    if not any(name.strip().lower() == "prompt" for name in table.columns):
        prompts = columns.prompt_like(table)
        found |= {"prompt": prompts} if prompts else {}
    if "id" in table.columns:
        if not _tells_apart(table["id"]):
            found["id"] = None
        return found
    ids = [
        name
        for name in table.columns
        if name not in found.values()
        and (name.lower() in _IDS or name.lower().endswith(("_id", " id", ".id", "-id")))
        and _tells_apart(table[name])
    ]
    return found | ({"id": ids[0]} if ids else {})


def _tells_apart(column: pl.Series) -> bool:
    return not column.null_count() and not column.dtype.is_nested() and column.n_unique() == column.len()


def _settings(path: str, chosen: Mapping[str, str | None], catalogue: Catalogue) -> Settings:
    """A config with these columns, and with any model where the file names none."""
    any_model = next(iter(catalogue), "any")
    given = {"path": path, "columns": dict(chosen), "defaults": {"model": any_model}}
    return Settings.model_validate(
        {"batch": "guess", "service": {"base_url": "http://127.0.0.1:1"}, "input": given}
    )


_FIRST_COLUMNS = ("id", "model", "prompt", "aspect_ratio", "resolution", "duration")
"""The columns of the file, in their order."""

_PROMPTS = {
    ModelType.IMAGE: (
        ("harbour", "A small harbour at dusk, the first lamps lit"),
        ("orchard", "An orchard in bloom, seen through a rusty gate"),
        ("workshop", "A violin maker's workshop, shavings on the floor"),
    ),
    ModelType.VIDEO: (
        ("waves", "Waves break on a dark beach, seen from above"),
        ("kettle", "Steam rises from a kettle, rain runs down the window"),
    ),
}


@dataclass(frozen=True, slots=True)
class Starter:
    """A first batch: values of these columns, at least one row, the cheapest first; its costs in dollars;
    and the types of models of which the catalogue has none with a price.
    """

    rows: list[dict[str, str]]
    quoted: Decimal
    without: tuple[ModelType, ...]

    def as_csv(self) -> str:
        """The rows as a batch file, without the columns that no row uses."""
        used = [name for name in _FIRST_COLUMNS if name == "model" or any(row.get(name) for row in self.rows)]
        rows = [{name: row.get(name) or None for name in used} for row in self.rows]
        return pl.DataFrame(rows, dict.fromkeys(used, pl.String)).write_csv()


def starter(catalogue: Catalogue) -> Starter:
    """A few rows for the two cheapest models of each type, with the cheapest values that each of them offers.

    Where no model has a price, one row for a model without a price, or for no model: a quote then rejects the
    row, and says why.
    """
    priced: list[tuple[Decimal, dict[str, str]]] = []
    without = []
    for of_type, prompts in _PROMPTS.items():
        models = [model for model in catalogue.values() if model.type == of_type and _is_cell(model.id)]
        offered = [cheapest for model in models if (cheapest := _cheapest(model, catalogue))]
        best = sorted(offered, key=itemgetter(0))[:2]
        if not best:
            without.append(of_type)
            continue
        for number, (row_id, prompt) in enumerate(prompts):
            price, cells = best[-1 if number == len(prompts) - 1 else 0]
            ratios = [*filter(_is_cell, catalogue[cells["model"]].supported_aspect_ratios)]
            ratio = {"aspect_ratio": ratios[number % len(ratios)]} if ratios else {}
            priced.append((price, {"id": row_id, "prompt": prompt, **cells, **ratio}))
    rows = [row for _, row in sorted(priced, key=itemgetter(0))]
    if not rows:
        row_id, prompt = _PROMPTS[ModelType.IMAGE][0]
        named = (model.id for model in catalogue.values() if model.type in _PROMPTS and _is_cell(model.id))
        rows = [{"id": row_id, "prompt": prompt, "model": next(named, "")}]
    return Starter(rows, sum((price for price, _ in priced), Decimal(0)), tuple(without))


def _is_cell(text: str) -> bool:
    """Whether a text is the same when it is read from a file's cell."""
    return text.isprintable() and text == text.strip()


def _cheapest(model: Model, catalogue: Catalogue) -> tuple[Decimal, dict[str, str]] | None:
    """The cheapest size and duration of a model, with the price; a cell that is left out is the model's first
    entry. None where the model has no price.
    """
    choices = []
    sizes = (*filter(_is_cell, model.supported_resolutions), "")
    for size, duration in product(sizes, (*model.supported_durations, None)):
        offered = offer(Combination(model.id, resolution=size or None, duration=duration), catalogue)
        if isinstance(offered, Offer) and offered.price:
            seconds = "" if duration is None else str(duration)
            cells = {"model": model.id, "resolution": size, "duration": seconds}
            choices.append((offered.price.total, {name: text for name, text in cells.items() if text}))
    return min(choices, key=itemgetter(0), default=None)
