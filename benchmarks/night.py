"""A night of many workers, simulated with constants that were measured on one machine.

It is a fluid model: time goes in steps, and in each the workers that are at work buy at the greatest rate
that nothing refuses. What they do to each other at the ledger is a closed queueing network
(`blocks_a_second`): each worker is a customer that carries a block of jobs from its own CPU to the database's
CPU and to its disk. They wait for no lock: far from its wall, a budget is divided into parts. Workers start
one after the other, and some die: what they had in hand waits for their lease.

`Measured` is what this machine has shown, `Assumed` what a reader may change. Nothing here measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

BLOCK = 50  # jobs of a reservation (tasks/submit.py)
AHEAD = 500  # jobs that a run has reserved and not sent (tasks/submit.py)
LEASE = 60.0  # seconds (callsheet/ledger/waits.py)
LOOK = 2.0  # seconds between two looks of a run of a crew at the others (tasks/others.py)
STEP = 30.0  # seconds


@dataclass(frozen=True)
class Measured:
    """What one machine has shown; CPU is of its cores.

    Attributes:
        row: seconds of a worker's CPU for a row that it buys.
        row_looked_at: seconds of a worker's CPU until the first request, for each row of the plan.
        row_reported: seconds of the first run's CPU for the report, for each row of the batch.
        run: seconds of a worker's CPU for the ledger alone, for each job.
        job: seconds of the database's CPU for a job: reserved, sent, paid for, stored.
        passed_over: seconds of the database's CPU for a block that another run has taken.
        passing_over: seconds of the worker's CPU for it.
        looked: seconds of the database's CPU for a look at the other runs, for each of them.
        wal: bytes of the database's write-ahead log for a job.
        disk: bytes of the database's tables and indexes for a job.
        memory: bytes of a run of a small batch.
        memory_row: bytes of a run more for each row of the batch.
        plan, manifest, costs: bytes of these files for a row.
        puts: requests to the object storage for an image.
    """

    row: float
    row_looked_at: float
    row_reported: float
    run: float
    job: float
    passed_over: float
    passing_over: float
    looked: float
    wal: float
    disk: float
    memory: float
    memory_row: float
    plan: float
    manifest: float
    costs: float
    puts: float


@dataclass(frozen=True)
class Assumed:
    """What was not measured: the service, the machines, and prices. Change what is different for you.

    Attributes:
        images_a_minute: what the service accepts, over all workspaces.
        image_bytes: of a stored image.
        night: seconds.
        database_cores: of the ledger's server; each as fast as one here.
        database_disk: bytes a second that its disk makes durable.
        put_rate: PUTs a second that the bucket's prefixes take.
        worker_start: seconds between the starts of two workers.
        hours_to_death: hours after which a worker dies, on average; another one takes its place.
        put_price: dollars for a PUT.
        storage_price, database_storage_price: dollars for a GB and month.
        database_price: dollars for an hour of a core of the ledger's server.
        worker_price: dollars for an hour of a worker with one core.
        worker_memory: bytes of a worker.
    """

    images_a_minute: float = 200_000
    image_bytes: float = 1_500_000
    night: float = 10 * 3600
    database_cores: int = 16
    database_disk: float = 500e6
    put_rate: float = 3_500
    worker_start: float = 2.0
    hours_to_death: float = 200.0
    put_price: float = 0.005 / 1000
    storage_price: float = 0.023
    database_storage_price: float = 0.115
    database_price: float = 0.10
    worker_price: float = 0.05
    worker_memory: float = 8e9


@dataclass(frozen=True)
class Station:
    """Where blocks queue: seconds of work for a block, and how many are served at once."""

    name: str
    work: float
    servers: int = 1


def blocks_a_second(runs: int, own: float, stations: Sequence[Station]) -> tuple[float, dict[str, float]]:
    """How many blocks pass a closed network in a second (mean value analysis).

    Args:
        runs: the customers; each carries one block at a time.
        own: seconds of a block for which nobody else is needed.
        stations: where they meet.

    Returns:
        The rate, and how busy each station is, from 0 to 1.
    """
    # A station with several servers is one that is so many times faster, and a delay (Seidmann).
    think = own + sum(each.work * (each.servers - 1) / each.servers for each in stations)
    waiting = [0.0] * len(stations)
    rate = 0.0
    for number in range(1, runs + 1):
        times = [
            each.work / each.servers * (1 + queue) for each, queue in zip(stations, waiting, strict=True)
        ]
        rate = number / (think + sum(times))
        waiting = [rate * time for time in times]
    return rate, {each.name: min(1.0, rate * each.work / each.servers) for each in stations}


def jobs_a_second(runs: int, measured: Measured, assumed: Assumed, *, whole_plan: bool) -> tuple[float, str]:
    """What so many runs buy, and which wall keeps them from more.

    Args:
        runs: how many are at work.
        measured: the constants.
        assumed: the others.
        whole_plan: each run goes through the whole plan, and passes over what others have taken; else each
            has its own part.
    """
    others = runs - 1 if whole_plan else 0
    own = BLOCK * measured.row + others * measured.passing_over
    cores = assumed.database_cores - runs * (runs - 1) * measured.looked / LOOK
    if cores <= 0:
        return 0.0, "the database's CPU"
    stations = (
        Station(
            "the database's CPU",
            (BLOCK * measured.job + others * measured.passed_over) * assumed.database_cores / cores,
            assumed.database_cores,
        ),
        Station("the database's disk", BLOCK * measured.wal / assumed.database_disk),
    )
    blocks, busy = blocks_a_second(runs, own, stations)
    fullest = max(busy, key=lambda name: busy[name])
    walls = {
        fullest if busy[fullest] > 0.9 else "the workers' CPU": blocks * BLOCK,
        "the service": assumed.images_a_minute / 60,
        "the object storage": assumed.put_rate / measured.puts,
    }
    wall = min(walls, key=lambda name: walls[name])
    return walls[wall], wall


@dataclass
class Night:
    """What a simulated night came to.

    Attributes:
        bought: jobs.
        seconds: until the last was stored and the report written; the whole night where it was too short.
        whole: whether all rows were bought and reported.
        walls: seconds for which each wall was the one that counted.
        deaths: workers that died.
        speed: jobs a second with all workers at work.
    """

    bought: float = 0.0
    seconds: float = 0.0
    whole: bool = False
    walls: dict[str, float] = field(default_factory=dict)
    deaths: int = 0
    speed: float = 0.0


def simulate(
    workers: int, rows: float, measured: Measured, assumed: Assumed, *, whole_plan: bool = True
) -> Night:
    """A night that begins with the first worker's look at a plan that is priced and approved."""
    reading = rows * measured.row_looked_at
    ready = [number * assumed.worker_start + reading for number in range(workers)]
    night, time, hours = Night(), 0.0, 0.0  # hours of all workers since the last death
    rates: dict[int, tuple[float, str]] = {}
    while time < assumed.night and night.bought < rows:
        active = sum(begins <= time for begins in ready)
        if active not in rates:
            rates[active] = (
                jobs_a_second(active, measured, assumed, whole_plan=whole_plan) if active else (0.0, "")
            )
        rate, wall = rates[active]
        wall = wall or "reading the plan"
        # The last jobs: those in hand of a worker that is dead wait for its lease.
        part = min(1.0, (rows - night.bought) / (rate * STEP)) if rate else 1.0
        night.bought += rate * STEP * part
        night.walls[wall] = night.walls.get(wall, 0.0) + STEP * part
        time += STEP * part
        hours += active * STEP / 3600
        if hours >= assumed.hours_to_death:
            hours -= assumed.hours_to_death
            night.deaths += 1
            first = ready.index(min(ready))
            # The next worker begins at once; what the dead one had in hand is free when its lease has ended.
            ready[first] = time + LEASE + reading
    night.speed = jobs_a_second(workers, measured, assumed, whole_plan=whole_plan)[0]
    if night.bought >= rows and night.deaths:
        time += LEASE
    time += rows * measured.row_reported
    night.whole = night.bought >= rows and time <= assumed.night
    night.seconds = min(time, assumed.night)
    return night


def costs(workers: int, night: Night, measured: Measured, assumed: Assumed) -> dict[str, Any]:
    """What a night leaves behind, and what it costs apart from the images themselves."""
    gb = 1e9
    hours = night.seconds / 3600
    media = night.bought * assumed.image_bytes / gb
    disk = night.bought * measured.disk / gb
    return {
        "database GB": disk,
        "log GB": night.bought * measured.wal / gb,
        "report GB": night.bought * (measured.plan + measured.manifest + measured.costs) / gb,
        "media TB": media / 1000,
        "puts": night.bought * measured.puts,
        "put dollars": night.bought * measured.puts * assumed.put_price,
        "media dollars a month": media * assumed.storage_price,
        "database dollars": hours * assumed.database_cores * assumed.database_price,
        "database storage dollars a month": disk * assumed.database_storage_price,
        "worker dollars": hours * workers * assumed.worker_price,
        "worker GB": (measured.memory + night.bought * measured.memory_row) / gb,
    }
