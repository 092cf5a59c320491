"""How many jobs a second pass through a ledger in PostgreSQL, with 1, 4 and 16 runs of one batch at once.

    python benchmarks/bench_writers.py [--runs N ...] [--jobs N] [--times N] [--per-day]

Each run is a process. It buys its own part of the batch's jobs, without HTTP and without files: it reserves
in blocks of 50, and for each job the intent, the answer and the stored file are durable one after the other,
as in `tasks/`. `--flight` jobs of a run are under way at once. The server is on the same cores, with its data
in the temporary folder: set TMPDIR to a real disk. The numbers of runs take turns, each in a new database.

While the runs buy, it is asked every few milliseconds what each run's connection does; the shares say where
the time goes. "the run" is the time in which a run works between two statements or has nothing to write. At
the end the running totals must be the sums of the attempts.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier, Event
from statistics import median
from typing import Any

import sqlalchemy as sa

from benchmarks.figures import options, save
from callsheet.ledger import running_totals
from callsheet.ledger.ledger import Ledger
from callsheet.ledger.policy import Policy
from callsheet.records import Attempt, Generation, Job, Media, ModelType, Price, StoredFile, Usage
from tests.servers.postgres import PostgresServer, postgres

BLOCK = 50  # jobs that are reserved in one transaction, as in tasks/submit.py
EVERY = 0.01  # seconds between two looks at what the connections do
PRICE = Decimal("0.0015")
FORKS = multiprocessing.get_context("forkserver")
_ASK = sa.text(
    "SELECT state, wait_event_type, wait_event FROM pg_stat_activity "
    "WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)
DOING = ("the run", "advisory lock", "row lock", "disk", "database's CPU")
"""What a connection of a run can be seen to do."""


@dataclass(frozen=True)
class Load:
    """What each run does: how many jobs it buys, how many are under way, and whether days have a budget."""

    jobs: int
    flight: int
    per_day: bool


def job(run: int, number: int) -> Job:
    """A job as a plan has it."""
    name = f"run-{run}-row-{number}"
    return Job(
        key=sha256(name.encode()).hexdigest(),
        row_id=name,
        sample=1,
        type=ModelType.IMAGE,
        model="sketch-1",
        request={"model": "sketch-1", "prompt": f"A lantern behind a market in the rain study number {name}"},
        price=Price("image", PRICE, 1, "USD"),
        request_key=sha256(f"request {name}".encode()).hexdigest(),
    )


@dataclass(frozen=True)
class Together:
    """What the runs and the process that measures them share: they begin together, and leave together."""

    begin: Barrier
    ends: Queue[Any]
    leave: Event


def buy(url: str, run: int, load: Load, together: Together) -> None:
    """A run: waits for the others, buys, says when it ended and its CPU seconds, and waits again."""
    asyncio.run(_buy(url, run, load, together))


async def _buy(url: str, run: int, load: Load, together: Together) -> None:
    ledger = await Ledger.open(url, "bench")
    await ledger.begin_run()
    jobs = [job(run, number) for number in range(load.jobs)]
    together.begin.wait()
    before = time.process_time()
    reserved: asyncio.Queue[tuple[Job, Attempt] | None] = asyncio.Queue(load.flight)
    async with asyncio.TaskGroup() as group:
        for _ in range(load.flight):
            group.create_task(_lane(ledger, reserved))
        for start in range(0, len(jobs), BLOCK):
            result = await ledger.reserve(
                jobs[start : start + BLOCK],
                Policy(),
                limit=Decimal(1_000_000),
                per_day=Decimal(1_000_000) if load.per_day else None,
            )
            for pair in result.reserved:
                await reserved.put(pair)
        for _ in range(load.flight):
            await reserved.put(None)
    together.ends.put((time.monotonic(), time.process_time() - before))
    await asyncio.to_thread(together.leave.wait)
    await ledger.end_run()
    await ledger.close()


async def _lane(ledger: Ledger, reserved: asyncio.Queue[tuple[Job, Attempt] | None]) -> None:
    """Buys one job after the other."""
    while pair := await reserved.get():
        one, attempt = pair
        await ledger.intend(attempt)
        name = f"bench/{one.row_id}-1-0.jpeg"
        [file] = await ledger.generated(attempt, answer(one), [name], "out/media")
        copy = StoredFile(f"out/media/{name}", one.key, 20_000, datetime.now(UTC))
        await ledger.stored(file, copy)


def answer(one: Job) -> Generation:
    """What the service answers: an image."""
    url = f"http://127.0.0.1:1/v2/downloads/req_{one.key[:24]}/0?exp=4102444800&sig={one.key[:32]}"
    item = Media(url=url, mime_type="image/jpeg", deletes_at=datetime.now(UTC) + timedelta(days=1))
    usage = Usage(total_cost=PRICE, billable_unit="image", unit_price=PRICE, quantity=Decimal(1))
    return Generation(f"req_{one.key[:24]}", (item,), usage)


def measure(server: PostgresServer, runs: int, load: Load) -> dict[str, Any]:
    """Figures of so many runs at once, in a new database."""
    url = server.new_database()
    engine = sa.create_engine(url)
    together = Together(FORKS.Barrier(runs + 1), FORKS.Queue(), FORKS.Event())
    processes = [FORKS.Process(target=buy, args=(url, run, load, together)) for run in range(runs)]
    for process in processes:
        process.start()
    with engine.connect() as connection:
        together.begin.wait()
        began, cpu_before, wal_before = time.monotonic(), server_cpu(server), wal(connection)
        ended, seen = watched(connection, together.ends, runs)
        cpu, written = server_cpu(server) - cpu_before, wal(connection) - wal_before
        together.leave.set()
        for process in processes:
            process.join()
        if wrong := running_totals.differences(connection):
            raise SystemExit(f"the running totals are not the sums of the attempts: {wrong}")
        stored = running_totals.of_batch(connection, "bench").states
    engine.dispose()
    jobs = runs * load.jobs
    if dict(stored) != {"stored": jobs}:
        raise SystemExit(f"{jobs} jobs should be stored: {stored}")
    seconds = max(moment for moment, _ in ended) - began
    own = sum(spent for _, spent in ended)
    return {
        "jobs a second": jobs / seconds,
        "run ms": own * 1000 / jobs,
        "server ms": cpu * 1000 / jobs,
        "cores": (own + cpu) / seconds,
        "wal": written / jobs,
        "doing": {name: seen[name] / seen.total() for name in DOING},
    }


def watched(
    connection: sa.Connection, ends: Queue[Any], runs: int
) -> tuple[list[tuple[float, float]], Counter[str]]:
    """What each run said at its end, and how often connections were seen to do what."""
    ended: list[tuple[float, float]] = []
    seen: Counter[str] = Counter()
    while len(ended) < runs:
        while not ends.empty():
            ended.append(ends.get())
        looked = [doing(*row) for row in connection.execute(_ASK)]
        connection.rollback()
        seen.update(looked)
        seen["the run"] += max(0, runs - len(looked))
        time.sleep(EVERY)
    return ended, seen


def doing(state: str | None, kind: str | None, event: str | None) -> str:
    """What a connection does, by PostgreSQL's names."""
    if state != "active":
        return "the run"
    if kind == "Lock":
        return "advisory lock" if event == "advisory" else "row lock"
    if kind in ("IO", "LWLock"):
        return "disk"  # mostly the write-ahead log: syncing it, or waiting for another's sync
    return "the run" if kind == "Client" else "database's CPU"


def server_cpu(server: PostgresServer) -> float:
    """CPU seconds so far of the server's processes that live."""
    postmaster = server.server.get_postmaster_info().process
    times = [process.cpu_times() for process in (postmaster, *postmaster.children())]
    return sum(each.user + each.system for each in times)


def wal(connection: sa.Connection) -> float:
    """Bytes of write-ahead log that the server has written so far."""
    return float(
        connection.execute(sa.text("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')")).scalar_one()
    )


def combined(runs: Sequence[int], turns: Sequence[dict[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    """The medians of each number of runs, and of the ratios to the first one's speed in the same turn."""
    figures = []
    for number in runs:
        tries = [turn[number] for turn in turns]
        ratios = [turn[number]["jobs a second"] / turn[runs[0]]["jobs a second"] for turn in turns]
        names = [name for name in tries[0] if name != "doing"]
        figures.append(
            {
                "runs": number,
                "tries": len(turns),
                "ratio": median(ratios),
                **{name: median(each[name] for each in tries) for name in names},
                "doing": {name: median(each["doing"][name] for each in tries) for name in DOING},
            }
        )
    return figures


def shown(figures: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The figures as lines."""
    yield f"{'runs':>5}{'jobs/s':>9}{'ratio':>7}{'run ms':>8}{'server ms':>11}{'cores':>7}{'WAL B':>8}"
    for each in figures:
        parts = ", ".join(f"{name} {share:.0%}" for name, share in each["doing"].items())
        yield (
            f"{each['runs']:5}{each['jobs a second']:9.0f}{each['ratio']:7.2f}{each['run ms']:8.2f}"
            f"{each['server ms']:11.2f}{each['cores']:7.2f}{each['wal']:8.0f}\n      {parts}"
        )


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--jobs", type=int, default=6_000, help="of all runs together")
    parser.add_argument("--flight", type=int, default=50, help="jobs of a run under way at once")
    parser.add_argument("--times", type=int, default=3, help="tries; medians count")
    parser.add_argument("--per-day", action="store_true", help="the day has a budget, too")
    chosen = parser.parse_args()
    turns: list[dict[int, dict[str, Any]]] = []
    FORKS.set_forkserver_preload([__name__])
    with postgres() as server:
        for _ in range(chosen.times):
            turns.append({})
            for runs in chosen.runs:
                load = Load(chosen.jobs // runs, chosen.flight, chosen.per_day)
                turns[-1][runs] = measure(server, runs, load)
                print(f"{runs} runs: {turns[-1][runs]['jobs a second']:.0f} jobs a second", flush=True)
    figures = combined(chosen.runs, turns)
    print("\n".join(shown(figures)))
    save(chosen, {"jobs": chosen.jobs, "flight": chosen.flight, "per day": chosen.per_day, "runs": figures})


if __name__ == "__main__":
    main()
