"""The table of what a batch has of each model, or of each value of a setting."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from callsheet.cells import as_text
from callsheet.ledger.marks import Counts
from callsheet.present.page import Table
from callsheet.records import ENDED, dollars
from callsheet.report.shares import MODEL, Share, Shares
from callsheet.report.summary import ModelLine


def bought(model_lines: Iterable[ModelLine]) -> Table:
    """A line for each model, the dearest first; a state that no job is in has no column."""
    models = sorted(model_lines, key=lambda line: -line.quoted)
    states = [state for state in ENDED if any(line.states[state] for line in models)]
    is_reviewed = any(line.review.kept or line.review.rejected for line in models)
    has_open = any(line.open for line in models)
    lines = []
    for line in models:
        counts = {"jobs": line.jobs} | {state.in_words: line.states[state] for state in states}
        counts |= {"open": line.open} if has_open else {}
        money = {"quoted USD": dollars(line.quoted), "spent USD": dollars(line.spent)}
        if is_reviewed:
            kept = {"kept": f"{line.review.kept:,}", "rejected": f"{line.review.rejected:,}"}
            money = {"spent USD": money["spent USD"], **kept, **_cost_per_kept(line.cost_per_kept)}
        lines.append({"model": line.model} | {name: f"{n:,}" for name, n in counts.items()} | money)
    return Table(lines, ("model",), more="more models", is_narrow=True)


def reviewed(by_model: tuple[Share, ...], by_setting: Shares) -> list[Table]:
    """How far the batch is reviewed and what it cost, by model and by each setting with several values."""
    tables = []
    for name, shares in {MODEL: by_model, **by_setting}.items():
        if any(share.files for share in shares):
            head = name.replace("_", " ")
            lines = [{head: as_text(share.value) or ""} | _of_share(share) for share in shares]
            tables.append(Table(lines, (head,), more="more", is_narrow=True))
    return tables


def _of_share(share: Share) -> dict[str, str]:
    counts = {"files": share.files} | dict(zip(Counts._fields, share.review, strict=True))
    numbers = {name.replace("_", " "): f"{count:,}" for name, count in counts.items()}
    return numbers | {"USD spent": dollars(share.spent)} | _cost_per_kept(share.cost_per_kept)


def _cost_per_kept(amount: Decimal | None) -> dict[str, str]:
    return {"USD a kept": "" if amount is None else dollars(amount)}
