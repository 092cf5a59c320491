"""A gateway in front of the service loses answers: nothing is bought twice, and few jobs are in doubt."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from tests.cli.test_rows import printed
from tests.conftest import Project
from tests.servers.proxies import Failure, ReverseProxy

Make = Callable[..., Project]
IMAGES, VIDEOS = "/v2/images/generations", "/v2/videos/generations"
IMAGE = {"model": "sketch-1", "aspect_ratio": "1:1"}
VIDEO = {"model": "dailies-1", "duration": 1}
PRICE = {"image": Decimal("0.0015"), "video": Decimal("0.0080")}
STOP_AFTER, LANES = 4, 2


@pytest.fixture
def batch(project: Make) -> Iterator[tuple[Project, ReverseProxy]]:
    """A batch of one video and 40 images, whose config names the gateway as the service."""
    rows = [{"id": "video", "prompt": "video", **VIDEO}]
    rows += [{"id": f"image-{n}", "prompt": f"image-{n}", **IMAGE} for n in range(40)]
    made = project(rows, video_seconds=0.5)
    with ReverseProxy(made.backlot.base_url) as gateway:
        made.set(service={"base_url": gateway.url}, limits={"concurrency": LANES}, stop_after=STOP_AFTER)
        yield made, gateway


def run(made: Project, code: int) -> dict[str, Any]:
    """Runs the command in this process, where it backs off for a moment only; returns its JSON object."""
    answer: dict[str, Any] = json.loads(printed("run", str(made.config), "--json", code=code))
    return answer


def charged(made: Project) -> Counter[str]:
    """How often the service has charged for each prompt, by its own record."""
    return Counter(generation.recipe.prompt for generation in made.backlot.service.store.select("1 = 1"))


def test_a_gateway_that_loses_the_answers_stops_the_run_after_a_few_doubts(
    batch: tuple[Project, ReverseProxy],
) -> None:
    """The rest is collected, and when the gateway works again, the same command buys what is left."""
    made, gateway = batch
    gateway.fail(Failure("POST", IMAGES, status=504, skip=6))
    stopped = run(made, 4)
    assert (stopped["outcome"], stopped["stop_reason"]) == ("stopped", "doubt")
    assert stopped["stored"] == 6 + 1, "what was answered is stored, the video too"
    in_doubt = stopped["in_doubt"]
    assert STOP_AFTER <= in_doubt <= STOP_AFTER + LANES + 1, "the last ones on the wire, and a probe"
    assert (stopped["pending"], stopped["lost"], stopped["failed"]) == (0, 0, 0)
    assert Decimal(stopped["spent"]) == 6 * PRICE["image"] + PRICE["video"]
    assert Decimal(stopped["in_doubt_exposure"]) == in_doubt * PRICE["image"]
    assert sum(charged(made).values()) == 7 + in_doubt
    assert gateway.count("POST", IMAGES) == 6 + in_doubt, "no request is sent twice"

    gateway.fail()
    rest = run(made, 3)
    assert (rest["outcome"], rest["stored"], rest["in_doubt"]) == ("partial", 41 - in_doubt, in_doubt)
    assert max(charged(made).values()) == 1, "nothing is bought twice"
    assert sum(charged(made).values()) == 41


def test_a_doubt_now_and_then_does_not_stop_the_run(batch: tuple[Project, ReverseProxy]) -> None:
    """`stop_after` counts doubts one after another; an accepted job between them starts the count again."""
    made, gateway = batch
    failures = [Failure("POST", IMAGES, status=504, skip=skip, times=1) for skip in range(2, 40, 6)]
    gateway.fail(*failures)
    done = run(made, 3)
    assert (done["outcome"], done["stop_reason"]) == ("partial", None)
    assert (done["in_doubt"], done["stored"]) == (len(gateway.failed), 41 - len(gateway.failed))
    assert len(gateway.failed) > STOP_AFTER
