"""What is said of what `init` proposes: how a batch file is read, what that buys, and a first batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from callsheet.first_look.config_text import rows_taken
from callsheet.first_look.guess import Guess
from callsheet.first_look.starter import Starter
from callsheet.plain_text import counted, cut
from callsheet.present import as_read
from callsheet.present.page import Fact
from callsheet.records import dollars

_NAMED = 4  # answers of a doubt


def facts_of_starter(example: Starter, models: Sequence[str]) -> list[Fact]:
    """What a first batch has, and what it costs."""
    if not example.quoted and len(example.without) > 1:
        return [("Rows", "1, which a quote rejects: no model of the catalogue has a price now")]
    rows = f"{counted(len(example.rows), 'row')} for {counted(len(models), 'model')}: {', '.join(models)}"
    facts = [("Rows", rows), ("Price", f"{dollars(example.quoted)} USD, by the catalogue of now")]
    if example.without:
        unknown = "no model of the catalogue makes them at a known price"
        facts.append(("Without", f"{example.without[0]}s: {unknown}"))
    return facts


def nothing_to_buy(guess: Guess) -> str:
    """That nothing can be bought of the stills or of the films, and why; empty where all can be."""
    unsold = guess.without_jobs
    if unsold is None:
        return ""
    what = "No film" if unsold is guess.films else "Nothing"
    return f"{what} can be bought: every row is rejected. {'; '.join(unsold.rejects or unsold.refused)}"


def facts(guess: Guess, configs: Sequence[Path]) -> list[Fact]:
    """How the batch file is read, and what of it is rejected or not used; `configs`: of stills and films."""
    read = []
    for ours, name in guess.input.get("columns", {}).items():
        joined = (" x " if ours == "aspect_ratio" else " | ").join(name) if isinstance(name, list) else name
        others = f" (not {' or '.join(guess.other_texts)})" if ours == "prompt" and guess.other_texts else ""
        read += [f"{ours} from {joined}{others}"] if name is not None else []
    unnamed = ("columns", "defaults", "values")
    read += [f"{name} {value}" for name, value in guess.input.items() if name not in unnamed]
    rejects = () if guess.without_jobs is guess else guess.rejects
    return [
        ("Read", ", ".join(read)),
        *(("Rejected", reason) for reason in rejects),
        *(("Not used", f"{name} {reason}") for name, reason in guess.not_used.items()),
        *(("Note", note) for note in guess.notes),
        *as_read.of_prompts(guess.jobs),
        *(_facts_of_films(guess, guess.films, configs) if guess.films else ()),
    ]


def _facts_of_films(stills: Guess, films: Guess, configs: Sequence[Path]) -> list[Fact]:
    """What the films cost at the most, and what of the file they do not use."""
    model = films.input["defaults"]["model"]
    cost = f"{configs[1]}, on {model}: at most {dollars(films.price)} USD, of those that you keep"
    facts = [("Films", f"{cost} (callsheet review {configs[0]})")]
    unused = {name: why for name, why in films.not_used.items() if why != stills.not_used.get(name)}
    facts += [("Films", f"without {name}: {reason}") for name, reason in unused.items()]
    if films.taken and films.taken.rows < films.taken.of:
        of_rows = f"only of {films.taken.rows:,} of {counted(films.taken.of, 'row')}"
        facts.append(("Films", f"{of_rows}: {'; '.join(films.rejects)}"))
    return facts


def buys(guess: Guess, *, is_given: bool) -> str:
    """What is bought, and for how much; a model that was given (`is_given`) need not be the cheapest."""
    if guess.without_jobs is guess:
        return "no row can be bought as it is read"
    price, rows = f"{dollars(guess.price)} USD", counted(guess.rows, "row")
    if models := guess.input.get("values", {}).get("model"):  # of media types
        return f"{rows} on {' and '.join(dict.fromkeys(models.values()))}, the cheapest; {price}"
    if not guess.taken:
        return f"{rows} on the models that the file names; {price}"
    if not guess.taken.rows:
        return f"{rows_taken(guess)}; {price}"
    tried = f"; {guess.taken.of:,} rows were tried on each model" if guess.is_sample else ""
    bought = counted(guess.jobs.height, guess.taken.type.value)
    choice = "" if is_given else ", the cheapest"
    return f"{bought} of {rows} on {guess.taken.model}{choice}{tried}; {price}"


def doubts(guess: Guess) -> list[Fact]:
    """What is in doubt, with an example of each answer, that which is taken first."""
    facts = []
    for proposal in guess.proposals:
        answers = [
            f"{name} ({cut(example, 40)})" if example else name
            for name, example in [*proposal.candidates.items()][:_NAMED]
        ]
        more = len(proposal.candidates) - len(answers)
        others = f", or one of {more} more" if more else ""
        facts.append(("Doubt", f"{proposal.setting}: {answers[0]}; or {', or '.join(answers[1:])}{others}?"))
    return facts
