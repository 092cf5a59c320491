"""The service compared with its own OpenAPI document by schemathesis: every answer is declared there."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest

from backlot.server import Backlot
from backlot.settings import WorkspaceSettings
from tests.servers import http


@pytest.mark.parametrize("examples", [5, pytest.param(300, marks=pytest.mark.soak)])
def test_every_answer_is_declared(backlot: Backlot, examples: int) -> None:
    unlimited = WorkspaceSettings(
        balance=100_000,
        image_rpm=10**6,
        video_rpm=10**6,
        concurrency=10**6,
        projects={"p": ("sk_schema",)},
    )
    backlot.service.add_workspace("schema", unlimited)
    run = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{backlot.base_url}/openapi.json"),
            *("--header", "Authorization: Bearer sk_schema"),
            *("--max-examples", str(examples), "--generation-deterministic", "--no-color"),
            # Which values a model accepts depends on its lists; a schema cannot express that.
            *("--exclude-checks", "positive_data_acceptance"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_document_has_every_path_and_error_and_examples_that_work(
    backlot: Backlot, api: httpx.Client
) -> None:
    document = http.get(f"{backlot.base_url}/openapi.json").json()
    declared = {
        (method, path): {int(status) for status in operation["responses"]}
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert declared == {
        ("post", "/v2/images/generations"): {200, 400, 401, 402, 422, 429, 500},
        ("post", "/v2/videos/generations"): {202, 400, 401, 402, 422, 429, 500},
        ("get", "/v2/videos/generations/{id}"): {200, 400, 401, 404, 429, 500},
        ("get", "/v2/models"): {200, 400, 401, 429, 500},
        ("get", "/v2/models/{model}"): {200, 400, 401, 404, 429, 500},
        ("get", "/v2/billing/balance"): {200, 400, 401, 429, 500},
        ("get", "/v2/billing/costs"): {200, 400, 401, 429, 500},
        ("get", "/v2/downloads/{generation_id}/{index}"): {200, 206, 403, 404, 410, 416, 429, 500},
        ("head", "/v2/downloads/{generation_id}/{index}"): {200, 206, 403, 404, 410, 416, 429, 500},
    }
    assert http.get(f"{backlot.base_url}/docs").status_code == 200
    for media in ("image", "video"):
        for example in document["components"]["schemas"][f"{media.capitalize()}Request"]["examples"]:
            assert api.post(f"/v2/{media}s/generations", json=example).is_success
