"""A store that begins to refuse in the middle of a run: nothing is lost, downloaded twice or bought twice."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal

import polars as pl
import pytest
from botocore.retries.standard import ExponentialBackoff

from callsheet.errors import OtherLedger, StorageDown, known_error
from callsheet.present.results import line, next_steps
from callsheet.watch import WATCHER, LogWatcher
from tests.cli.test_commands import callsheet
from tests.conftest import Project
from tests.servers.backlots import Observed
from tests.servers.proxies import CHECKSUMS, CONDITIONS, S3Proxy, Trouble, refuse
from tests.servers.s3 import Server

ROWS = 40  # so many that the buying is not over before trouble is noticed, on a busy machine too
PRICE = Decimal("0.0015")
ON_THE_WIRE = 4
AFTER = 5  # files that are stored before the trouble begins


@dataclass
class Shop(LogWatcher):
    """A project that stores its media at `url`, behind the proxy; notes when the first problem is shown."""

    project: Project
    url: str
    proxy: S3Proxy
    server: Server
    asked: Observed = field(default_factory=Observed)
    bought_when_shown: int = 0
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.bought_when_shown = self.bought_when_shown or self.bought

    @property
    def bought(self) -> int:
        return len(self.asked.prompts["images"])

    @property
    def spool(self) -> list[str]:
        return [path.name for path in self.project.folder.glob("out/report/spool/*")]

    def objects(self, folder: str) -> dict[str, bytes]:
        """The objects of a folder, by their name under `url`, but for the batch's owner file."""
        client, bucket = self.server.client(), self.server.bucket
        root = self.url.removeprefix(f"s3://{bucket}/") + "/"
        found = client.list_objects_v2(Bucket=bucket, Prefix=root + folder)["Contents"]
        names = [content["Key"] for content in found if "/.callsheet-ledger-" not in content["Key"]]
        return {
            name.removeprefix(root): client.get_object(Bucket=bucket, Key=name)["Body"].read()
            for name in names
        }

    def states(self) -> Counter[str]:
        return Counter(self.project.costs()["state"])


@pytest.fixture
def shop(
    project: Callable[..., Project],
    s3: Server,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Shop]:
    rows = [{"id": f"s{n}", "prompt": f"image {n}", "model": "sketch-1"} for n in range(ROWS)]
    made = project(rows, image_seconds=0.3, concurrency=1000)
    url = f"s3://{s3.bucket}/{hashlib.sha256(request.node.name.encode()).hexdigest()}"
    made.set(storage={"url": f"{url}/media"}, limits={"concurrency": ON_THE_WIRE})
    scale = ExponentialBackoff._DEFAULT_BACKOFF_CONFIG
    for name, seconds in scale.items():
        monkeypatch.setitem(scale, name, seconds / 100)  # as the fixture `impatient` does for our own
    with S3Proxy(s3.endpoint_url, f"{url.removeprefix('s3:/')}/media/test/") as proxy:
        for name, value in replace(s3, endpoint_url=proxy.url).environment().items():
            monkeypatch.setenv(name, value)
        opened = Shop(made, url, proxy, s3)
        made.backlot.service.faults = opened.asked
        token = WATCHER.set(opened)
        yield opened
        WATCHER.reset(token)


def refusing(status: int, code: str) -> Callable[[Shop], Trouble]:
    return lambda _: refuse(status, code, after=AFTER)


def unreachable(shop: Shop) -> Trouble:
    def trouble(number: int, forward: Callable[[], bytes]) -> bytes:
        if number <= AFTER:
            return forward()
        if number == AFTER + 1:
            shop.proxy.stop()
        return b""

    return trouble


@pytest.mark.parametrize(
    "begin, message, end",
    [
        pytest.param(refusing(503, "SlowDown"), "SlowDown", lambda _: None, marks=pytest.mark.soak),
        (refusing(403, "AccessDenied"), "AccessDenied", lambda _: None),
        # Answered by the proxy: SeaweedFS would make the bucket again.
        pytest.param(refusing(404, "NoSuchBucket"), "NoSuchBucket", lambda _: None, marks=pytest.mark.soak),
        (unreachable, "Could not connect", lambda shop: shop.proxy.start()),
    ],
    ids=["slow-down", "access-denied", "bucket-vanishes", "unreachable"],
)
def test_a_store_that_refuses_in_mid_run_stops_the_buying_and_loses_nothing(
    shop: Shop,
    begin: Callable[[Shop], Trouble],
    message: str,
    end: Callable[[Shop], object],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Prefect's handler keeps the stream that was stderr in the first test, and that is closed.
    monkeypatch.setattr(logging, "raiseExceptions", False)
    shop.proxy.trouble = begin(shop)
    first = shop.project.run()
    assert "Traceback" not in "".join(capfd.readouterr())
    assert (first.exit_code, first.outcome, first.stop_reason) == (4, "stopped", "storage")
    assert f"{shop.url}/media" in (first.stop_message or "")
    assert message in (first.stop_message or "")
    assert len([note for note in shop.notes if message in note]) == 1, "not once for each file on its way"
    bought = shop.bought
    assert bought <= shop.bought_when_shown + ON_THE_WIRE < ROWS, "it buys no more when it has noticed"
    assert shop.states() == Counter(stored=first.stored, generated=first.pending)
    assert first.stored + first.pending == bought < ROWS
    assert len(shop.spool) == first.pending > 0
    assert not [name for name in shop.spool if name.endswith(".part")]

    shop.proxy.trouble = None
    end(shop)
    second = shop.project.run()
    assert (second.exit_code, second.stored, second.submissions) == (0, ROWS, ROWS - bought)
    everything_is_in_its_place(shop)


def test_a_run_whose_report_is_in_the_same_store_has_stopped_too(shop: Shop) -> None:
    """What breaks it off is not the report: most of the batch was not tried."""
    shop.project.set(report={"url": f"{shop.url}/report"})
    shop.proxy.trouble = unreachable(shop)
    with pytest.raises(BaseExceptionGroup) as caught:
        shop.project.run()
    error = known_error(caught.value)
    assert isinstance(error, StorageDown)
    assert error.exit_code == 4
    assert "report is not written" in error.message
    assert "Nothing that was bought is lost" in error.hint
    bought = shop.bought
    shop.proxy.trouble = None
    shop.proxy.start()
    second = shop.project.run()
    assert (second.exit_code, second.stored, second.submissions) == (0, ROWS, ROWS - bought)


def test_a_store_that_is_too_busy_for_a_while_and_one_whose_answers_are_cut_off_are_tried_again(
    shop: Shop,
) -> None:
    """A file that the store has kept without saying so is recognised: no conflict, and no second copy."""
    busy = refuse(503, "SlowDown", after=AFTER, times=10)

    def trouble(number: int, forward: Callable[[], bytes]) -> bytes:
        answer = busy(number, forward)
        return b"" if number % 4 == 0 else answer

    shop.proxy.trouble = trouble
    summary = shop.project.run()
    assert (summary.exit_code, summary.stored) == (0, ROWS)
    assert shop.proxy.puts > ROWS + 10
    everything_is_in_its_place(shop)


def test_a_server_of_which_every_condition_fails_is_not_taken_for_another_ledger_s(shop: Shop) -> None:
    shop.proxy.refuses, shop.proxy.refusal = ("if-none-match", "if-match"), (412, "PreconditionFailed")
    summary = shop.project.run()
    assert (summary.exit_code, summary.stored) == (0, ROWS)
    assert [note for note in shop.notes if "refuses If-None-Match" in note] == shop.notes[:1]
    everything_is_in_its_place(shop)
    with pytest.raises(OtherLedger, match="is of another ledger"):
        shop.project.run("ledger.url=sqlite:///out/other.db", "report.url=out/other")


def test_a_server_that_overwrites_keeps_what_others_have_stored(shop: Shop) -> None:
    """The server ignores `If-None-Match` and checksums, so each object is looked up before and after."""
    shop.proxy.ignores, shop.proxy.signer = (*CONDITIONS, *CHECKSUMS), shop.server.sign
    key = f"{shop.url.removeprefix(f's3://{shop.server.bucket}/')}/media/test/s7-1-0.jpeg"
    shop.server.client().put_object(Bucket=shop.server.bucket, Key=key, Body=b"not ours")
    summary = shop.project.run("ledger.new=true")
    assert (summary.exit_code, summary.stored) == (0, ROWS)
    assert [
        note for note in shop.notes if "ignores If-None-Match and ignores checksums" in note
    ] == shop.notes[:1]
    assert shop.objects("media/").pop("media/test/s7-1-0.jpeg") == b"not ours"
    shop.server.client().delete_object(Bucket=shop.server.bucket, Key=key)
    everything_is_in_its_place(shop)


def test_what_cannot_be_stored_when_all_is_bought_does_not_stop_the_run(shop: Shop) -> None:
    """Nothing is left to buy: that is exit code 3, and what is wrong is said."""
    shop.proxy.trouble = refuse(403, "AccessDenied", after=ROWS - 1)
    summary = shop.project.run()
    assert (shop.bought, summary.stored, summary.pending) == (ROWS, ROWS - 1, 1)
    assert (summary.exit_code, summary.outcome, summary.stop_reason) == (3, "partial", None)
    assert "AccessDenied" in (summary.stop_message or "")
    assert "AccessDenied" in line(summary)
    assert "stopped" not in line(summary)
    assert "AWS credentials" in summary.details.stop_hint
    assert any("collect CONFIG" in step for step in next_steps(summary))
    again = shop.project.collect()
    assert (again.exit_code, again.outcome, again.stop_reason) == (3, "partial", None)
    shop.proxy.trouble = None
    assert (shop.project.run().exit_code, shop.bought) == (0, ROWS)


def test_a_file_gets_one_other_name_and_not_one_after_another(shop: Shop) -> None:
    """The server says of every name that it is taken. Nothing more is bought, and nothing is lost."""
    shop.proxy.trouble = refuse(412, "PreconditionFailed", after=AFTER)
    first = shop.project.run()
    assert (first.exit_code, first.outcome, first.stop_reason) == (4, "stopped", "storage")
    assert "another object has this name" in (first.stop_message or "")
    assert "storage.key" in first.details.stop_hint
    assert first.stored + first.pending == shop.bought < ROWS
    assert len(shop.spool) == first.pending > 0
    assert shop.proxy.puts <= AFTER + 2 * first.pending
    assert [note for note in shop.notes if "row s" in note and "another object has this name" in note]
    assert shop.project.collect().pending == first.pending

    shop.proxy.trouble = None
    assert (shop.project.run().exit_code, shop.bought) == (0, ROWS)
    everything_is_in_its_place(shop)
    names = [url.rpartition("/")[2] for url in shop.project.manifest()["url"]]
    renamed = first.pending
    assert Counter(name.count("-") for name in names) == {2: ROWS - renamed, 4: renamed}, "nor run after run"


def test_a_report_that_cannot_be_written_is_an_error_and_the_next_run_writes_it(shop: Shop) -> None:
    """The media are stored and the ledger knows: only the report is missing, and money was spent (not 2)."""
    shop.project.set(report={"url": f"{shop.url}/report"})
    shop.proxy.prefix = f"{shop.url.removeprefix('s3:/')}/report/"
    shop.proxy.trouble = refuse(
        403, "AccessDenied", after=5
    )  # the rejects and the owner file, before anything is bought
    done = callsheet("run", str(shop.project.config), "--json")
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    result = json.loads(done.stdout)
    assert f"{shop.url}/report/" in result["error"]
    assert "S3 refused the request: AccessDenied" in result["error"]
    assert "Nothing that was bought is lost" in result["hint"]
    assert shop.bought == ROWS

    shop.proxy.trouble = None
    second = shop.project.run()
    assert (second.exit_code, second.stored, second.submissions) == (0, ROWS, 0)
    assert len(shop.asked.prompts["downloads"]) == ROWS
    assert pl.read_parquet(shop.objects("report/")["report/manifest.parquet"]).height == ROWS
    charged = shop.project.backlot.service.workspaces["default"].spent
    assert second.spent == charged == ROWS * PRICE


def everything_is_in_its_place(shop: Shop) -> None:
    """Each job is bought, downloaded and stored once, whole, and its cost is what the service charged."""
    once = {f"image {n}": 1 for n in range(ROWS)}
    assert Counter(shop.asked.prompts["images"]) == once
    assert Counter(shop.asked.prompts["downloads"]) == once
    charged = shop.project.backlot.service.workspaces["default"].spent
    assert shop.project.costs()["cost"].sum() == charged == ROWS * PRICE
    sums = {
        f"{shop.url}/{name}": hashlib.sha256(body).hexdigest()
        for name, body in shop.objects("media/").items()
    }
    assert sums == dict(shop.project.manifest().select("url", "sha256").iter_rows())
    assert shop.spool == []
