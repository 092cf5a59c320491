"""`review --host`: the page for a phone or tablet in the same network."""

from __future__ import annotations

import io
import os
import pty
import re
import sys
from collections.abc import Callable
from contextlib import suppress

import httpx
import pytest
import segno

from tests.cli.test_rows import refusal
from tests.conftest import Project
from tests.reviewing.served import served
from tests.servers.forks import forks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="others have one address of loopback")

Make = Callable[..., Project]
OTHER = "127.0.0.2"  # an address of this machine, which only it reaches


@pytest.fixture
def made(project: Make) -> Project:
    batch = project([{"id": "mug", "prompt": "a mug", "model": "sketch-1"}])
    batch.set(report={"contact_sheet": 10})
    batch.run()
    return batch


def test_the_page_is_at_the_address_that_is_named_alone_and_what_that_means_is_said(made: Project) -> None:
    with served(made.folder, "--host", OTHER) as review:
        assert review.link.startswith(f"http://{OTHER}:")
        port = review.address.rpartition(":")[2]
        [file] = made.manifest().to_dicts()
        mark = {"job_key": file["job_key"], "attempt": 1, "index": 0, "decision": "kept", "note": None}
        with review.client() as client:
            for headers, status in (({"Host": f"127.0.0.1:{port}"}, 403), ({"Origin": review.address}, 204)):
                assert client.post("/marks", json={"marks": [mark]}, headers=headers).status_code == status
        with httpx.Client(trust_env=False) as stranger:
            forbidden = stranger.get(f"{review.address}/")
            assert forbidden.status_code == 403, "without the token"
            with suppress(httpx.TransportError):  # another program may have this port there
                assert stranger.get(f"http://127.0.0.1:{port}/").text != forbidden.text
        assert review.marks() == {"mug/1": ("kept", None)}
        assert "It is not encrypted" in " ".join(review.log.read_text().split())
    with served(made.folder) as review:
        assert "not encrypted" not in review.log.read_text()


def test_an_address_that_is_none_or_all_of_this_machine_is_refused(made: Project) -> None:
    for address, said in (
        ("0.0.0.0", "means all addresses"),
        ("192.0.2.1", "is no address of this machine"),
        ("no such name", "is no address of this machine"),
    ):
        assert said in refusal("review", "batch.yaml", "--host", address).message
    assert "--host is for the page" in refusal("review", "batch.yaml", "--host", OTHER, "--json").message


def test_a_terminal_shows_the_link_as_a_code_for_a_phone(made: Project) -> None:
    terminal, end = pty.openpty()
    words = ("-m", "callsheet", "review", "batch.yaml", "--host", OTHER)
    with forks().start(*words, cwd=made.folder, stdout=end, stderr=end) as process:
        os.close(end)
        shown = b""
        while shown.count("█".encode()) < 300 or not shown.rstrip().endswith(("█".encode(), "▀".encode())):
            shown += os.read(terminal, 65_536)
        process.send_signal(2)
        with suppress(OSError):  # how a terminal ends
            while os.read(terminal, 4096):
                pass
    os.close(terminal)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode()).replace("\r", "")
    code = io.StringIO()
    segno.make(re.findall(r"http://\S+", text)[0]).terminal(code, compact=True)
    assert code.getvalue().strip() in text
