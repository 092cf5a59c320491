"""The text of docs/many_machines.md: a night of many workers, from measured constants (`night.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from benchmarks.night import (
    BLOCK,
    LOOK,
    Assumed,
    Measured,
    Station,
    blocks_a_second,
    costs,
    jobs_a_second,
    simulate,
)
from benchmarks.page import Figures, number, table

WORKERS = (1, 4, 10, 30, 100, 300)
ROWS = (1e6, 1e7, 1e8)
MANY = 100
SERVICE = "the service"
LIFTS: Mapping[str, tuple[str, Mapping[str, float]]] = {
    SERVICE: ("accepts ten times as much", {"images_a_minute": 10}),
    "the database's CPU": ("four times the cores", {"database_cores": 4}),
    "the database's disk": ("four times as fast", {"database_disk": 4}),
    "the object storage": ("ten prefixes in place of one", {"put_rate": 10}),
}
"""How a wall is lifted that more money can lift: assumptions, and by how much they grow."""


def measured(figures: Figures) -> Measured:
    """The constants, of which each is a figure of a benchmark."""
    runs, found = figures["writers"]["runs"], figures["constants"]
    small, *_, large = figures["ledger"]["resume"]
    reported = figures["ledger"]["rerun"][-1]
    more = large["rows"] - small["rows"]
    looked_at = (large["first"] - small["first"]) / more
    return Measured(
        row=small["ms"] / 1000,
        row_looked_at=looked_at,
        row_reported=max(0.0, reported["seconds"] / reported["rows"] - looked_at),
        run=runs[0]["run ms"] / 1000,
        job=runs[0]["server ms"] / 1000,
        passed_over=found["passed over"],
        passing_over=found["passing over"],
        looked=found["looked"],
        wal=runs[0]["wal"],
        disk=found["disk"],
        memory=small["mb"] * (1 << 20),
        memory_row=(large["mb"] - small["mb"]) * (1 << 20) / more,
        plan=found["plan"],
        manifest=found["manifest"],
        costs=found["costs"],
        puts=found["PUT"],
    )


def predicted(figures: Figures) -> list[tuple[int, float, float]]:
    """Of each number of runs on two cores: jobs a second by the network of queues, and as measured.

    What one run waits for (the pause between commits, the disk) is what is left of its time. With it, and
    with the cores that other programs left, the network says what four and sixteen runs do.
    """
    runs, constants = figures["writers"]["runs"], measured(figures)
    cpu = Station("the cores", BLOCK * (constants.run + constants.job) * 2 / cores_left(figures), 2)
    waits = max(0.0, BLOCK / runs[0]["jobs a second"] - cpu.work)
    return [
        (
            each["runs"],
            BLOCK * blocks_a_second(each["runs"], waits, [cpu])[0],
            each["jobs a second"],
        )
        for each in runs
    ]


def cores_left(figures: Figures) -> float:
    """The most cores that runs and server were seen to use."""
    return float(max(each["cores"] for each in figures["writers"]["runs"]))


def text(figures: Figures, assumed: Assumed | None = None) -> str:
    """The page."""
    constants, given = measured(figures), assumed or Assumed()
    parts = (
        head(),
        walls(constants, given),
        speeds(constants, given),
        nights(constants, given),
        growth(constants),
        known(constants, figures),
        chosen(given),
        agreement(figures),
    )
    return "\n\n".join(parts) + "\n"


def head() -> str:
    return (
        "# Many machines\n\n"
        "What a night of many workers would do, by simulation. `benchmarks/night.py` is the model, and "
        "`python -m benchmarks.write_page --only-write` writes this page. Nobody has tried this with 100 "
        "machines: the constants were measured on one with two cores, and everything else is an assumption. "
        "Both are listed below, apart from each other. To change an assumption: "
        "`python -m benchmarks.simulate_night --workers 100 --rows 1e8 --images-a-minute 60000`."
    )


def walls(constants: Measured, given: Assumed) -> str:
    lines = [
        (at, wall, f"{speed:,.0f}", f"{ROWS[-1] / speed / 3600:.1f}", lift)
        for at, (wall, speed, lift) in enumerate(in_order(constants, given), 1)
    ]
    full = (given.worker_memory - constants.memory) / constants.memory_row
    needed = ROWS[-1] / given.night * 60
    return (
        f"## The walls\n\n{MANY} workers, 100 million rows. Each line is what keeps them from more; the next "
        "line is what comes after it is lifted.\n\n"
        + table(("", "wall", "jobs a second", "hours for 100 million rows", "lifted by"), lines)
        + f"\n\nMemory is a wall of its own: a run keeps {constants.memory_row:.0f} bytes of each row of its "
        f"plan, so that a worker of {given.worker_memory / 1e9:g} GB holds {full / 1e6:,.0f} million rows; "
        "a larger batch is to be cut into several. And the service must accept "
        f"{needed:,.0f} images a minute for 100 million in {given.night / 3600:g} hours: below that, no "
        "number of workers helps."
    )


def in_order(constants: Measured, given: Assumed) -> Iterator[tuple[str, float, str]]:
    """The walls that 100 workers meet one after the other: its name, the speed there, and what lifts it."""
    whole_plan, workers = True, MANY
    for _ in range(6):
        speed, wall = jobs_a_second(workers, constants, given, whole_plan=whole_plan)
        if wall in LIFTS and not (wall == "the database's CPU" and whole_plan):
            lift, more = LIFTS[wall]
            given = replace(given, **{name: getattr(given, name) * by for name, by in more.items()})
        elif whole_plan:
            whole_plan, lift = False, "each run has a part of the plan of its own (not built)"
        else:
            workers, lift = 3 * workers, f"{3 * workers} workers"
        yield wall, speed, lift


def speeds(constants: Measured, given: Assumed) -> str:
    free = replace(given, images_a_minute=1e9, put_rate=1e9)
    lines = []
    for workers in WORKERS:
        line: list[str | int] = [workers]
        for whole_plan in (True, False):
            speed, wall = jobs_a_second(workers, constants, free, whole_plan=whole_plan)
            line += [f"{speed:,.0f}", wall]
        lines.append(line)
    return (
        "## Workers\n\nJobs a second, and which wall counts, where service and object storage take "
        "everything. Every run of a crew goes through the whole plan, and passes over what others have "
        "taken: that costs the database and the worker something for each block of 50 and each worker. The "
        "second pair of columns is what runs would do of which each has a part of the plan.\n\n"
        + table(("workers", "jobs a second", "wall", "with parts", "wall"), lines)
    )


def nights(constants: Measured, given: Assumed) -> str:
    columns: list[dict[str, str]] = []
    for rows in ROWS:
        for workers in (10, MANY):
            night = simulate(workers, rows, constants, given)
            of = costs(workers, night, constants, given)
            hours = f"{night.seconds / 3600:.1f}{'' if night.whole else ' (not whole)'}"
            columns.append(
                {
                    "million rows": f"{rows / 1e6:g}",
                    "workers": str(workers),
                    "million bought": f"{night.bought / 1e6:.3g}",
                    "hours, with the report": hours,
                    "bound most of the time by": max(night.walls, key=lambda name: night.walls[name]),
                    "workers that died": str(night.deaths),
                    **{name: number(value) for name, value in of.items()},
                }
            )
    lines = [(name, *(column[name] for column in columns)) for name in list(columns[0])[1:]]
    return (
        f"## A night\n\n{given.night / 3600:g} hours, with everything that is assumed below. The price of "
        "the images themselves is not in it.\n\n"
        + table(("million rows", *(column["million rows"] for column in columns)), lines)
    )


def growth(constants: Measured) -> str:
    lines = [
        ("an image", ms(constants.row), "a worker's CPU"),
        ("an image", ms(constants.job), "the database's CPU"),
        ("an image", f"{constants.disk / 1000:.1f} kB", "the ledger's disk"),
        ("an image", f"{constants.wal / 1000:.1f} kB", "the ledger's write-ahead log"),
        ("an image", f"{constants.puts:.2f} PUTs", "the object storage; no other request"),
        ("a row of the plan, in each run", f"{constants.memory_row:.0f} bytes", "memory"),
        ("a row of the plan, in each run", us(constants.row_looked_at), "until the first request"),
        ("a row, in the first run", us(constants.row_reported), "the report"),
        (
            "a row, in the first run",
            f"{constants.plan:.0f} + {constants.manifest:.0f} + {constants.costs:.0f} bytes",
            "files: plan, manifest, costs",
        ),
        (f"{BLOCK} rows that others took, in each run", ms(constants.passed_over), "the database's CPU"),
        (f"{BLOCK} rows that others took, in each run", ms(constants.passing_over), "the run's CPU"),
        (
            f"two runs, every {LOOK:g} s",
            ms(2 * constants.looked),
            "the database's CPU, for a look at whether the other has died",
        ),
    ]
    return "## What grows with what\n\n" + plain_table(("for", "it takes", "of"), lines)


def plain_table(columns: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """A table of text: every column begins at the left."""
    return table(columns, lines).replace("--:", "---")


def ms(seconds: float) -> str:
    return f"{number(1000 * seconds)} ms"


def us(seconds: float) -> str:
    return f"{number(1e6 * seconds)} µs"


def known(constants: Measured, figures: Figures) -> str:
    sources = dict.fromkeys(
        ("row", "row_looked_at", "row_reported", "memory", "memory_row"), "bench_ledger.py (with SQLite)"
    ) | dict.fromkeys(("run", "job", "wal"), "bench_writers.py")
    lines = []
    for each in fields(constants):
        source = sources.get(each.name, "bench_constants.py")
        lines.append((f"`{each.name}`", f"{getattr(constants, each.name):,.3g}", source))
    on = figures["constants"].get("machine", figures["machine"])
    return (
        "## Measured\n\nSeconds and bytes; `Measured` in `benchmarks/night.py` says what each is. On "
        f"{on['cores']} cores, {on['Python']}, {on['day']}. Seconds of CPU depend on the machine, and other "
        "programs used the same cores meanwhile.\n\n" + plain_table(("constant", "value", "by"), lines)
    )


def chosen(given: Assumed) -> str:
    lines = [(f"`{each.name}`", f"{getattr(given, each.name):,.6g}") for each in fields(given)]
    return (
        "## Assumed\n\nNot measured; `Assumed` in `benchmarks/night.py` says what each is. Prices are round "
        "figures of the kind that cloud providers publish, in dollars: put yours in their place.\n\n"
        + table(("assumption", "value"), lines)
        + "\n\nThe model assumes besides: a core of the database is as fast as one here, and is on a machine "
        "of its own; a job's cost in the database does not grow with the tables (up to a million jobs in "
        "SQLite it does not, see [benchmarks.md](benchmarks.md)); vacuum and checkpoints cost nothing; "
        "networks are never the wall; all workers share the service's limits without loss. It errs on "
        "the slow side where a worker carries one block at a time: a run has several on their way."
    )


def agreement(figures: Figures) -> str:
    lines = [
        (runs, f"{model:,.0f}", f"{found:,.0f}", f"{100 * (model / found - 1):+.0f} %")
        for runs, model, found in predicted(figures)
    ]
    return (
        "## Against a measurement\n\nThe network of queues was told what one run of `bench_writers.py` takes "
        "on this machine, and that other programs left "
        f"{cores_left(figures):.1f} of its two cores at most; then it was asked for four and sixteen runs. "
        "A test asks for agreement within 35 %. Of a hundred machines this says little.\n\n"
        + table(("runs", "jobs a second, model", "measured", "difference"), lines)
    )


def as_options(given: Assumed) -> dict[str, Any]:
    """The assumptions by their names on a command line."""
    return {each.name.replace("_", "-"): getattr(given, each.name) for each in fields(given)}
