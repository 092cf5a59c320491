"""What is said of the models of a catalogue: what each takes and costs, and the rows of a batch on each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from callsheet.present.page import Facts, Line, Page, Table
from callsheet.pricing.compare import Comparison
from callsheet.records import dollars
from callsheet.service.models import Model


def screen(models: Iterable[Model]) -> Page:
    """The values that each model supports, defaults first, and its prices."""
    page: Page = []
    for model in models:
        page.append(Line(f"  {model.type}", strong=model.id))
        if model.unreadable:
            page.append(Facts([("error", f"the service's entry cannot be read: {model.unreadable}")]))
            continue
        facts = [
            ("ratios", ", ".join(model.supported_aspect_ratios)),
            ("sizes", ", ".join(model.supported_resolutions)),
            ("seconds", ", ".join(map(str, model.supported_durations))),
            ("images", ", ".join(f"{role} {count}" for role, count in model.supported_references.items())),
            ("price", "" if model.pricing.rates else "unpriced: the catalogue has no rate"),
        ]
        for rate in model.pricing.rates:
            sound = "" if rate.sound == "not_applicable" else f", {rate.sound.replace('_', ' ')}"
            price = f"{rate.unit_price} {model.pricing.currency} / {rate.billable_unit.replace('_', ' ')}"
            facts.append(("price", f"{price} at {rate.resolution}{sound}"))
        page.append(Facts(facts))
    return page


def comparison_screen(comparisons: Sequence[Comparison]) -> Page:
    """What the rows of a batch would cost on each model."""
    lines = [
        {
            "model": comparison.model,
            "makes": comparison.type,
            "rows": f"{comparison.rows:,} of {comparison.of:,}",
            "jobs": f"{comparison.jobs:,}",
            "USD": dollars(comparison.price),
            "why not all": ""
            if comparison.rows == comparison.of
            else next(iter(comparison.reasons.values()), ""),
        }
        for comparison in comparisons
    ]
    return [Table(lines, ("model", "makes", "why not all"), limit=len(lines))]


def comparison_figures(comparison: Comparison) -> dict[str, Any]:
    """What `quote --compare --json` prints of a model."""
    return {
        "model": comparison.model,
        "type": comparison.type.value,
        "rows": comparison.rows,
        "jobs": comparison.jobs,
        "quoted": comparison.price,
    }
