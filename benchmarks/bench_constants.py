"""What a job leaves in the database, in files and in the object storage, and what runs cost each other.

    python benchmarks/bench_constants.py [--rows N] [--others N]

The constants of `night.py` that no other benchmark measures. A run buys `--rows` images from `sink.py` and
stores them in SeaweedFS, behind a proxy that counts the requests; another ledger, in PostgreSQL, gets as many
jobs as `bench_writers.py` buys, and is then looked at as other runs do.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import sqlalchemy as sa

from benchmarks import sink
from benchmarks.bench_writers import BLOCK, FORKS, Load, job, measure, server_cpu
from benchmarks.figures import options, save
from benchmarks.measuring import CONFIG, project, run
from callsheet.ledger import leases, queries
from callsheet.ledger.ledger import Ledger
from tests.servers.postgres import PostgresServer, postgres
from tests.servers.s3 import s3
from tests.servers.s3_proxy import Answer, Proxy, _Handler

BATCH = "bench"  # of bench_writers.py
TIMES = 5  # tries of what a look at other runs costs
LOOKS = 500  # of a try: the server's CPU is known to 10 ms
TABLES = ("attempts", "media", "totals", "runs")


class Counting(Proxy):
    """Counts the requests by their methods."""

    def __init__(self, target: str) -> None:
        self.requests: Counter[str] = Counter()
        super().__init__(target, "")

    def answer(self, request: _Handler, body: bytes) -> Answer | None:
        """The server's answer."""
        self.requests[request.command] += 1
        return super().answer(request, body)


@contextmanager
def counting(target: str) -> Iterator[Counting]:
    proxy = Counting(target)
    try:
        yield proxy
    finally:
        proxy.stop()


def files_and_requests(base_url: str, rows: int) -> dict[str, float]:
    """Bytes of the report's files for a row, and requests to the object storage for an image.

    Of a run of many rows less those of a run of few: what does not grow does not count.
    """
    few = rows // 10
    small, large = _stored(base_url, few), _stored(base_url, rows)
    return {name: (large[name] - small[name]) / (rows - few) for name in large}


def _stored(base_url: str, rows: int) -> dict[str, float]:
    with TemporaryDirectory() as folder, s3(Path(folder)) as server, counting(server.endpoint_url) as proxy:
        os.environ.update(server.environment() | {"AWS_ENDPOINT_URL": proxy.url})
        with project(rows) as batch:
            storage = f"storage: {{url: s3://{server.bucket}/bench}}\nreport: {{contact_sheet: 0}}\n"
            (batch / "batch.yaml").write_text(CONFIG + storage)
            run(batch, base_url, rows)
            report = {path.name: float(path.stat().st_size) for path in batch.rglob("*.parquet")}
    names = ("plan", "manifest", "costs")
    bytes_ = {name: sum(size for file, size in report.items() if file.startswith(name)) for name in names}
    return bytes_ | {method: float(proxy.requests[method]) for method in ("PUT", "HEAD", "GET", "POST")}


def ledger(server: PostgresServer, jobs: int, others: int) -> dict[str, float]:
    """What the database keeps of a job, and what looks at other runs cost."""
    begun = set(_databases(server))
    measure(server, 1, Load(jobs, 50, per_day=False))
    [name] = set(_databases(server)) - begun
    url = sa.make_url(server.new_database()).set(database=name).render_as_string(hide_password=False)
    return asyncio.run(_ledger(server, url, jobs, others))


async def _ledger(server: PostgresServer, url: str, jobs: int, others: int) -> dict[str, float]:
    ledgers = [await Ledger.open(url, BATCH) for _ in range(others)]
    for each in ledgers:
        await each.begin_run()
    engine = sa.create_engine(url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
        sizes = {name: _bytes(connection, name) for name in TABLES}
    blocks = [[job(0, n) for n in range(start, start + BLOCK)] for start in range(0, jobs, BLOCK)]
    reading = engine.execution_options(isolation_level="REPEATABLE READ")

    def pass_over() -> None:
        for block in blocks:
            with reading.connect() as connection:
                assert list(queries.states(connection, BATCH, [one.key for one in block]))

    def look() -> None:
        for _ in range(LOOKS):
            with reading.connect() as connection:
                assert len(leases.others(connection, BATCH, ledgers[0].run_id)) == others - 1

    here, there = timed(server, pass_over)
    _, looked = timed(server, look)
    for each in ledgers:
        await each.end_run()
        await each.close()
    engine.dispose()
    return {
        **{f"{name} bytes": size / jobs for name, size in sizes.items()},
        "disk": sum(sizes.values()) / jobs,
        "passing over": here / len(blocks),
        "passed over": there / len(blocks),
        "looked": looked / LOOKS / (others - 1),
    }


def timed(server: PostgresServer, work: Callable[[], None]) -> tuple[float, float]:
    """CPU seconds of this process and of the server's; medians, as single tries differ by a factor of two."""
    here, there = [], []
    for _ in range(TIMES):
        before, theirs = time.process_time(), server_cpu(server)
        work()
        here.append(time.process_time() - before)
        there.append(server_cpu(server) - theirs)
    return median(here), median(there)


def _bytes(connection: sa.Connection, table: str) -> float:
    return float(connection.execute(sa.select(sa.func.pg_total_relation_size(table))).scalar_one())


def _databases(server: PostgresServer) -> list[str]:
    engine = sa.create_engine(sa.make_url(server.server.get_uri()).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        names = list(connection.scalars(sa.text("SELECT datname FROM pg_database")))
    engine.dispose()
    return names


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, default=4_000)
    parser.add_argument("--others", type=int, default=20, help="runs that look at each other")
    chosen = parser.parse_args()
    FORKS.set_forkserver_preload(["benchmarks.bench_writers"])
    with postgres() as server:
        found = ledger(server, 2 * chosen.rows, chosen.others)
    with sink.running() as base_url:
        found |= files_and_requests(base_url, chosen.rows)
    for name, value in found.items():
        print(f"{name:>16}{value:16.6f}")
    save(chosen, found)


if __name__ == "__main__":
    main()
