"""The text of docs/benchmarks.md, from the figures of the benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from callsheet.plain_text import counted

Figures = dict[str, Any]
OURS = "callsheet run"


@dataclass(frozen=True)
class Goal:
    """A goal, the figures that are compared with it (none may be greater), and what bounds them."""

    name: str
    figures: Callable[[Figures], list[float]]
    most: float
    unit: str
    bound: str


def ways(figures: Figures) -> dict[str, dict[str, float]]:
    """What a row costs in each way to buy it."""
    return dict(figures["run"]["ways"]["ways"])


GOALS = (
    Goal(
        "CPU of an image row, next to a bare loop on httpx",
        lambda all_: [ways(all_)[OURS]["ratio"]],
        2,
        "times",
        "A bare loop writes a file and forgets it. A run commits three times for a row (the intent, the cost "
        "with the URL, the stored file), checks type and hash of the file, syncs it, and gives it its name "
        "without writing over another. These are work of their own.",
    ),
    Goal(
        "the same with 10,000, 100,000 and 1,000,000 jobs in the ledger: most over least",
        lambda all_: [
            max(each["ms"] for each in all_["ledger"]["resume"])
            / min(each["ms"] for each in all_["ledger"]["resume"])
        ],
        1.1,
        "times",
        "No work of a row grows with the ledger; what is left is by how much single tries differ.",
    ),
    Goal(
        "a run of the largest batch when all is done: seconds of the longest try",
        lambda all_: [all_["ledger"]["rerun"][-1]["longest"]],
        30,
        "s",
        "The whole plan is read and compared with the ledger, and manifest and costs are written anew for "
        "the whole batch.",
    ),
    Goal(
        "the same: memory",
        lambda all_: [all_["ledger"]["rerun"][-1]["mb"]],
        500,
        "MB",
        "The rows of the whole plan, and the report's, are in memory at once.",
    ),
    Goal(
        "a run of a million rows, from its start to the end of its report: memory (`make bench-long`)",
        lambda all_: [all_["long"]["whole"]["mb"]] if "long" in all_ else [],
        500,
        "MB",
        "What a run keeps of each job, and the rows of the report.",
    ),
    Goal(
        "resume with all but 1,000 rows of the largest batch done: until the first request",
        lambda all_: [all_["ledger"]["resume"][-1]["first"]],
        15,
        "s",
        "The rows that are left are the last of the plan: all others are read, and found done, before.",
    ),
    Goal(
        "a batch file read and priced, next to polars doing the same columns (CSV, Parquet)",
        lambda all_: [each["ratio"] for each in all_["reading"]["formats"].values()],
        4,
        "times",
        "Polars checks nothing and makes no keys. A plan has a key for each job (a SHA-256), and every cell "
        "was checked; reading, hashing and writing alone are the lower bound below.",
    ),
    Goal(
        "the event loop is never blocked for longer than (median of the longest of each run)",
        lambda all_: [median(each["longest"] for each in all_["run"]["loop"]["runs"])],
        50,
        "ms",
        "What blocks it is Python's own lock, while a thread holds it, and imports at the start. On a busy "
        "machine the loop also waits for a core.",
    ),
    Goal(
        "`callsheet run` of one row: until the quote",
        lambda all_: [all_["start"]["quote shown"]],
        2,
        "s",
        "Most of it are imports: polars, SQLAlchemy and pydantic.",
    ),
    Goal(
        "`callsheet run` of one row: until the first request that buys",
        lambda all_: [all_["start"]["first POST"]],
        3,
        "s",
        "Most of it are imports: polars, SQLAlchemy and pydantic.",
    ),
)


def text(figures: Figures) -> str:
    """The page."""
    parts = [head, goals, rows, ledger, writers, two_runs, memory, loop, start, reading, limits, backlot]
    return "\n\n".join(part(figures) for part in parts) + "\n"


def table(columns: Iterable[str], lines: Iterable[Iterable[Any]]) -> str:
    """A table: the first column is text, the others are numbers."""
    columns = list(columns)
    marks = ["---", *["--:"] * (len(columns) - 1)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in (columns, marks, *lines))


def head(figures: Figures) -> str:
    return (
        "# Benchmarks\n\n"
        "`make bench` measured this, and wrote this page and its plots; the figures are in "
        "[benchmarks/figures.json](benchmarks/figures.json). Figures are medians. Those that are compared "
        "took turns on one machine, so the ratios are what to trust; seconds and milliseconds depend on the "
        "machine.\n\n" + table(("machine", ""), figures["machine"].items())
    )


def number(value: float) -> str:
    """Three digits that count, more for large numbers."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def goals(figures: Figures) -> str:
    lines, missed = [], []
    for goal in GOALS:
        if not (values := goal.figures(figures)):
            continue
        met = max(values) <= goal.most
        measured = ", ".join(map(number, values))
        lines.append(
            (goal.name, f"{measured} {goal.unit}", f"{goal.most:g} {goal.unit}", "yes" if met else "**no**")
        )
        if not met:
            missed.append(f"- {goal.name[0].upper()}{goal.name[1:]}: {measured} {goal.unit}. {goal.bound}")
    shown = "## Goals\n\n" + table(("", "measured", "at most", "reached"), lines)
    return shown + ("\n\nWhat bounds those that are not reached:\n\n" + "\n".join(missed) if missed else "")


def rows(figures: Figures) -> str:
    run = figures["run"]["ways"]
    lines = [
        (name, *(number(way[key]) for key in ("ms", "ratio", "rows a second", "mb")))
        for name, way in run["ways"].items()
    ]
    return (
        "## An image row\n\n"
        f"{run['rows']:,} images of 20 kB from a service that answers at once and never refuses "
        "(`benchmarks/sink.py`), 32 requests at a time. CPU is that of the whole process. The bare loop "
        "is what most would write who know asyncio, and what ratios are to. It keeps none of the promises: a "
        "POST, a GET, a file, on httpx with a client for each request in flight. The script has requests, a "
        "pool of threads and pandas (1,000 rows).\n\n"
        + table(("", "ms of CPU a row", "ratio", "rows a second", "MB at most"), lines)
        + "\n\n![CPU of a row against the size of its batch](benchmarks/cost-per-row.png)"
    )


def ledger(figures: Figures) -> str:
    resumed = [
        (
            f"{each['rows']:,}",
            each["tries"],
            *(number(each[key]) for key in ("first", "ms", "ratio", "cpu", "mb")),
        )
        for each in figures["ledger"]["resume"]
    ]
    done = [
        (
            f"{each['rows']:,}",
            each["tries"],
            *(number(each[key]) for key in ("seconds", "longest", "cpu", "mb")),
        )
        for each in figures["ledger"]["rerun"]
    ]
    return (
        "## The size of a batch\n\nAll but 1,000 rows are done when the run begins. For the CPU of a row "
        "4,000 are left, and it is that of the last three quarters of them; the tries are its, and the other "
        "columns are of one run. No contact sheet is made here: it shows the first 10,000 jobs, so that only "
        "the small batch would have work with it. So this is what buying alone costs; a row of the table "
        "above has its part of the contact sheet, too.\n\n"
        + table(
            ("rows", "tries", "s until the first request", "ms of CPU a row", "ratio", "CPU s", "MB"), resumed
        )
        + "\n\nEverything is done when the run begins. The first try finds no plots and no contact sheet, "
        "and makes them.\n\n" + table(("rows", "tries", "seconds", "the longest", "CPU s", "MB"), done)
    )


def writers(figures: Figures) -> str:
    found = figures["writers"]
    doing = list(found["runs"][0]["doing"])
    lines = [
        (
            each["runs"],
            each["tries"],
            *(number(each[key]) for key in ("jobs a second", "ratio", "run ms", "server ms", "cores")),
            *(f"{100 * each['doing'][what]:.0f} %" for what in doing),
        )
        for each in found["runs"]
    ]
    per_job = median(each["wal"] for each in found["runs"])
    columns = ("runs", "tries", "jobs a second", "ratio", "ms of CPU a job, runs", "server", "cores")
    return (
        "## Runs that share a ledger in PostgreSQL\n\n"
        f"{found['jobs']:,} jobs of one batch, divided among runs that are processes, "
        f"{found['flight']} under way at once in each, without HTTP and files: what the ledger alone allows. "
        "Runs and server are on the same two cores, and `cores` says how much of them they used. The last "
        "columns say what the runs' connections were seen to do. For an advisory lock a run waits while "
        "another one writes alone, or adds up what is left of the budget, as with the first reservation "
        "of each run. "
        f"A job takes {per_job / 1000:.1f} kB of write-ahead log.\n\n"
        + table((*columns, *doing), lines)
        + (f"\n\nMeasured by itself: {machine_of(found)}." if "machine" in found else "")
    )


def two_runs(figures: Figures) -> str:
    """A batch that two processes buy, next to one."""
    found = figures["crew"]
    lines = [
        (
            counted(each["runs"], "run"),
            f"{each['share']:.0%} of a core each" if each["share"] else "what the servers leave",
            number(each["rows a second"]),
            *(number(of(each["ratios"])) for of in (median, min, max)),
            *(number(each[key]) for key in ("ms", "mb")),
        )
        for each in found["runs"]
    ]
    columns = ("", "CPU", "rows a second", "ratio", "least", "most", "ms of CPU a row", "MB at most")
    return (
        f"## Two runs of one batch\n\n{found['rows']:,} images, whole runs with HTTP and files, the ledger "
        "in PostgreSQL. The service and the database are on the same two cores; where each run has a share "
        "of a core, the rest is theirs. A run's start is in its CPU, and not in the rows a second. `least` "
        "and `most` are the ratios of single tries.\n\n"
        + table(columns, lines)
        + (f"\n\nMeasured by itself: {machine_of(found)}." if "machine" in found else "")
    )


def machine_of(figures: Figures) -> str:
    """What some figures were measured on, where that was not with the others."""
    return ", ".join(f"{name} {value}" for name, value in figures["machine"].items())


def memory(figures: Figures) -> str:
    runs = [figures["run"]["whole"]]
    note = "`make bench-long` adds a run of a million rows."
    if "long" in figures:
        runs.append(figures["long"]["whole"])
        note = f"The run of a million rows is from `make bench-long`; {machine_of(figures['long'])}."
    lines = [
        (
            f"{run['rows']:,} of {run['bytes'] / 1000:g} kB",
            *(number(run[key]) for key in ("seconds", "cpu", "mb")),
        )
        for run in runs
    ]
    return (
        "## The memory of a run\n\n"
        + table(("images", "seconds", "CPU s", "MB at most"), lines)
        + f"\n\n{note} What comes after the last request is the report.\n\n"
        "![The memory of a run over its time](benchmarks/memory.png)"
    )


def loop(figures: Figures) -> str:
    lines = [
        (at, *(number(run[key]) for key in ("longest", "thousandth", "callback cpu")))
        for at, run in enumerate(figures["run"]["loop"]["runs"], 1)
    ]
    columns = ("run", "longest, ms", "99.9 % below, ms", "the longest callback, ms of CPU")
    return f"## How long the event loop was blocked\n\n{table(columns, lines)}"


def start(figures: Figures) -> str:
    seconds = figures["start"]
    lines = [(name, number(seconds[name])) for name in ("quote shown", "first POST", "the end", "CPU")]
    lines.append(("`callsheet quote` of 1,000 rows", number(figures["reading"]["quote of 1,000 rows"])))
    return f"## The start\n\n`callsheet run` of one row, from Enter.\n\n{table(('', 'seconds'), lines)}"


def reading(figures: Figures) -> str:
    found = figures["reading"]
    keys = ("bare", "same", "planned", "ratio", "lower bound", "same mb", "mb", "rejected mb")
    lines = [(ending, *(number(each[key]) for key in keys)) for ending, each in found["formats"].items()]
    columns = (
        "",
        "bare, s",
        "polars, s",
        "ours, s",
        "ratio",
        "lower bound",
        "polars, MB",
        "ours, MB",
        "every row wrong, MB",
    )
    return (
        f"## Reading and pricing\n\n{found['rows']:,} rows. Bare polars scans the columns that the price "
        "needs, and sums. Polars, doing the same columns, reads all, prices each row and writes the table. "
        "Ours also checks each row and gives it a key. The ratio is ours to polars.\n\n"
        + table(columns, lines)
    )


def limits(figures: Figures) -> str:
    cases, by_limit = figures["limits"]["cases"], figures["limits"]["limits"]
    ways = {
        "cold": "a first run, which knows nothing",
        "again": "the next run, with what the first has learned",
        "told": "a semaphore with fixed pacing, told the limits",
    }
    lines = []
    for way, name in ways.items():
        ratios = [100 * case[way]["ratio"] for case in cases]
        refused = [case[way]["window"] + case[way]["lanes"] for case in cases]
        lines.append((name, f"{median(ratios):.1f} %", f"{min(ratios):.1f} %", median(refused), max(refused)))
    names = list(by_limit[0]["minutes"])
    totals = [
        (each["limit"], *(f"{sum(each['minutes'][name]):,}" for name in names), each["refused to two"])
        for each in by_limit
    ]
    return (
        f"## The account's limits\n\n{len(cases)} simulated services (windows of six types, limits of 60 to "
        "3,000 a minute, 10 to 200 at a time, wrong clocks, other clients), ten minutes each in virtual "
        "time: the machine has no influence. The ideal knows the service's state. "
        "`benchmarks/bench_limits.py` prints each case.\n\n"
        + table(("accepted, of the ideal", "median", "least", "429s, median", "429s, most"), lines)
        + "\n\nImages accepted in ten minutes of a fixed window, with 200 at a time that take 5 to 10 s "
        "each; two runs that share it know nothing of each other.\n\n"
        + table(("limit a minute", *names, "429s of these two"), totals)
        + "\n\n![Submissions a minute against the limit](benchmarks/submissions.png)\n\n"
        + crew(figures["limits"]["crews"])
    )


def crew(lines: list[dict[str, Any]]) -> str:
    rows = []
    for limit, again in dict.fromkeys((line["limit"], line["again"]) for line in lines):
        these = [line for line in lines if (line["limit"], line["again"]) == (limit, again)]
        ratios, refused = ([100 * line[name] for line in these] for name in ("ratio", "refused"))
        parts = [100 * line[name] for name in ("least", "most") for line in these]
        rows.append(
            (
                limit,
                "the limits are known" if again else "a first run",
                f"{median(ratios):.1f} %",
                f"{min(ratios):.1f} %",
                f"{median(refused):.1f} %",
                f"{max(refused):.1f} %",
                f"{min(parts):.0f} to {max(parts):.0f} %",
            )
        )
    head = ("limit a minute", "", "of one run, median", "least", "429s, median", "429s, most", "parts")
    return (
        "A crew of four, next to one run, in ten minutes of each of the six windows, on machines whose "
        "clocks are a second apart. The second run begins 8 s after the first, or when that knows how the "
        "window moves; the others follow, 2 s apart. Those at work see each of them 2 s later. A part is "
        "what one of the four bought, of a fair quarter, from a minute after the last has begun.\n\n"
        + table(head, rows)
    )


def backlot(figures: Figures) -> str:
    found = figures["backlot"]
    requests = [
        (name, number(each["a second"]), f"{each['cpu']:.2f}") for name, each in found["requests"].items()
    ]
    return (
        "## The backlot\n\nThe server and its client are on the same cores.\n\n"
        + table(("", "a second", "ms of the server's CPU"), requests)
        + "\n\n"
        + table(("made by", "ms of CPU"), [(name, number(ms)) for name, ms in found["media"].items()])
    )
