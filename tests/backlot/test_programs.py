"""A model whose files a program makes: real processes, which do as they should, and which do not."""

from __future__ import annotations

import hashlib
import io
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import av
import httpx
import pandas as pd
import psutil
import pytest
import yaml
from PIL import Image

import callsheet
from backlot import service
from backlot.errors import SettingsError
from backlot.server import Backlot, serve
from backlot.settings import Settings
from tests.backlot.conftest import Clock, balance, client, data_url, make_image, make_video, poll, refused
from tests.conftest import Project
from tests.servers import http
from tests.waiting import runs, wait_until

HERE = Path(__file__).parent
PRICE = {"sound": "not_applicable"}
STILL = {
    "id": "own-still",
    "name": "Own still",
    "type": "image",
    "supported_aspect_ratios": ["16:9"],
    "supported_resolutions": ["0.125K"],
    "supported_references": {"reference_image": 2},
    "rates": [{"resolution": "0.125K", "unit_price": "0.0100", **PRICE}],
}
FILM = STILL | {
    "id": "own-film",
    "name": "Own film",
    "type": "video",
    "supported_durations": [2],
    "supported_resolutions": ["90p"],
    "supports_sound": True,
    "supported_references": {"first_frame": 1},
    "rates": [{"resolution": "90p", "unit_price": "0.0200", **PRICE}],
}


def catalogue(folder: Path, **more: Any) -> Path:
    """Two models of the odd program, which takes its notes in the folder."""
    program = {"command": [sys.executable, str(HERE / "odd_program.py"), str(folder)]} | more
    path = folder / "models.yaml"
    path.write_text(yaml.safe_dump([STILL | program, FILM | program]))
    return path


@contextmanager
def at_work(folder: Path, clock: Clock | None = None, **more: Any) -> Iterator[tuple[Backlot, httpx.Client]]:
    """A backlot with its state in the folder, and a client of it."""
    settings = Settings(port=0, catalogue=catalogue(folder, **more), state=folder / "state")
    with serve(settings, clock or Clock()) as lot, client(lot.base_url) as api:
        yield lot, api


def still(api: httpx.Client, prompt: str, **fields: Any) -> httpx.Response:
    return make_image(api, model="own-still", prompt=prompt, output_format="png", **fields)


def film(api: httpx.Client, prompt: str, **fields: Any) -> httpx.Response:
    answer = make_video(api, model="own-film", prompt=prompt, **fields)
    assert answer.status_code == 202, answer.text
    return answer


def finished(api: httpx.Client, video: httpx.Response) -> Any:
    """The last answer for a video."""
    wait_until(lambda: poll(api, video)["status"] != "pending", "the video is finished")
    return poll(api, video)


def noted(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []


def processes(folder: Path) -> list[psutil.Process]:
    """The processes of programs that run now."""
    found = []
    for pid in " ".join(noted(folder, "pids")).split():
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(int(pid)))
    return [each for each in found if runs(each)]


def test_a_program_makes_images_and_videos_until_their_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "SWEEP", 0.1)
    clock = Clock()
    with at_work(tmp_path, clock) as (lot, api):
        images = [{"url": data_url("blue", (1600, 900))}, {"url": "https://example.com/a.png"}]
        first, second = (still(api, "a fox", images=images).json() for _ in range(2))
        video = finished(api, film(api, "a fox", sound=True))
        assert first["usage"]["total_cost"] == 0.01
        assert video["usage"] == {
            "total_cost": 0.04, "billable_unit": "video_second", "unit_price": 0.02, "quantity": 2
        }  # fmt: skip
        assert balance(api) == "99.9400"
        one, two, three = (json.loads(line) for line in noted(tmp_path, "asked"))
        assert one == {
            "model": "own-still", "prompt": "a fox", "width": 160, "height": 90, "format": "png",
            "duration": None, "fps": None, "sound": False, "seed": one["seed"], "output": one["output"],
            "images": [
                {"role": "reference_image", "path": one["images"][0]["path"]},
                {"role": "reference_image", "url": "https://example.com/a.png"},
            ],
        }  # fmt: skip
        assert one["seed"] != two["seed"], "another sample of the same request"
        assert (three["duration"], three["fps"], three["sound"], three["images"]) == (2, 24, True, [])

        file = http.get(first["data"][0]["url"]).content
        with Image.open(io.BytesIO(file)) as image:
            assert (image.format, image.width) == ("PNG", first["data"][0]["width"])
            assert image.convert("RGB").getpixel((100, 60))[2] > 200, "the reference, whole"
        with av.open(io.BytesIO(http.get(video["data"][0]["url"]).content)) as made:
            assert (len(made.streams.video), len(made.streams.audio)) == (1, 1)
        session = client(lot.base_url)
        session.get(lot.dashboard or "")
        small = [session.get(f"/media/{each['id']}/small").content for each in (first, video)]
        assert [Image.open(io.BytesIO(each)).format for each in small] == ["JPEG", "JPEG"]

        kept = tmp_path / "state/backlot-files"
        assert {path.stem for path in kept.iterdir()} == {first["id"], second["id"], video["id"]}
        assert not list((tmp_path / "state/backlot-making").iterdir())
        clock.now += 3601
        assert http.get(first["data"][0]["url"]).status_code == 410
        wait_until(lambda: not list(kept.iterdir()), "the files are removed")


WRONG = {
    "die": "The program ended before it answered (exit code 1): out of memory",
    "kill": "The program ended before it answered (exit code -9)",
    "chat": "The program wrote a line to stdout that is no answer: Loading the model",
    "code": 'The program wrote a line to stdout that is no answer: {"error": "x", "code": "nothing_known"}',
    "nothing": "The program wrote no file to the path of `output`",
    "empty": "The program wrote a file of 0 bytes",
    "other": "The program wrote a file that is no whole png: cannot identify",
    "cut": "The program wrote a file that is no whole png: ",
    "small": "The program wrote a file with width 8; it was asked for ",
    "outside": "The program wrote no file to the path of `output`",
}


def test_a_generation_that_goes_wrong_costs_nothing_and_the_next_one_is_made(tmp_path: Path) -> None:
    with at_work(tmp_path) as (lot, api):
        for number, (prompt, reason) in enumerate(WRONG.items(), 1):
            error = refused(still(api, prompt), 500, "server_error")
            assert error["message"].startswith(reason)
            assert balance(api) == f"{100 - Decimal('0.01') * (number - 1):.4f}"
            assert still(api, "a fox").status_code == 200, "by another worker"
        for process in processes(tmp_path):
            process.kill()
        wait_until(lambda: not processes(tmp_path), "they die while nothing is asked")
        number += 1
        assert still(api, "a fox").status_code == 200, "by a worker that is started for it"
        before = balance(api)
        for prompt, reason in {
            "short": "with duration",
            "silent": "with sound 0; it was asked for 1",
        }.items():
            failed = finished(api, film(api, prompt, sound=True))
            assert failed["error"]["code"] == "server_error"
            assert reason in failed["error"]["message"]
        error = refused(still(api, "refuse"), 422, "content_policy_violation")
        assert error["message"] == "Not this one."
        assert finished(api, film(api, "fail"))["error"] == {
            "message": "The disk is full.",
            "code": "server_error",
        }
        assert balance(api) == before
        (workspace,) = lot.service.workspaces.values()
        assert (workspace.busy, workspace.reserved) == (0, 0)
        assert len(list((tmp_path / "state/backlot-files").iterdir())) == number
        assert len(processes(tmp_path)) == 4, "a worker for each model, with its child"


def test_after_three_failures_in_a_row_the_model_answers_503_for_a_minute(tmp_path: Path) -> None:
    clock = Clock()
    with at_work(tmp_path, clock, timeout=0.5) as (lot, api):
        for _ in range(3):
            error = refused(still(api, "hang"), 500, "server_error")
            assert error["message"] == "The program did not answer within 0.5 s"
        answer = still(api, "a fox")
        assert "failed 3 times in a row" in refused(answer, 503, "server_error")["message"]
        assert answer.headers["Retry-After"] == "60"
        session = client(lot.base_url)
        session.get(lot.dashboard or "")
        said = session.get("/models").text
        assert "It failed 3 times in a row, so the model answers 503 for 60 s." in said
        assert "The program did not answer within 0.5 s" in said
        assert balance(api) == "100.0000"
        clock.now += 60
        program = lot.service.programs.by_model["own-still"]
        program.model = program.model.model_copy(update={"timeout": 600})
        assert still(api, "a fox").status_code == 200
        assert "in a row" not in session.get("/models").text


def test_a_video_that_a_restart_has_interrupted_is_made_anew_and_charged_once(tmp_path: Path) -> None:
    with at_work(tmp_path) as (_, api):
        video = film(api, "wait a while")
        wait_until(lambda: noted(tmp_path, "asked"), "the program is at it")
        assert poll(api, video) == {"id": video.json()["id"], "status": "pending"}
    wait_until(lambda: not processes(tmp_path), "the programs end")
    with at_work(tmp_path) as (_, api):
        assert poll(api, video)["status"] == "pending"
        assert balance(api) == "100.0000"
        (tmp_path / "go").touch()
        assert finished(api, video)["status"] == "completed"
        assert balance(api) == "99.9600"
    one, two = (json.loads(line) for line in noted(tmp_path, "asked"))
    assert one == two, "the same order"
    with at_work(tmp_path) as (_, api):
        assert (finished(api, video)["status"], balance(api)) == ("completed", "99.9600")
        (url,) = (item["url"] for item in finished(api, video)["data"])
        assert http.get(url).headers["content-type"] == "video/mp4", "the file is still there"
        (tmp_path / "go").unlink()
        other = film(api, "wait again")
    (tmp_path / "models.yaml").write_text(yaml.safe_dump([STILL, FILM]))
    with serve(Settings(port=0, catalogue=tmp_path / "models.yaml", state=tmp_path / "state")) as lot:
        api = client(lot.base_url)
        assert "without the model's program" in finished(api, other)["error"]["message"]
        assert balance(api) == "99.9600"


def test_a_client_that_hangs_up_pays_for_a_file_that_is_there_alone(tmp_path: Path) -> None:
    with at_work(tmp_path) as (lot, api):
        for prompt in ("wait a while", "wait on"):
            with pytest.raises(httpx.ReadTimeout):
                api.post("/v2/images/generations", json={"model": "own-still", "prompt": prompt}, timeout=0.3)
        assert balance(api) == "100.0000"
        (tmp_path / "go").touch()
        (workspace,) = lot.service.workspaces.values()
        wait_until(lambda: workspace.busy == 0, "both are made, one after the other")
        assert balance(api) == "99.9800"
        assert len(list((tmp_path / "state/backlot-files").iterdir())) == 2


def test_workers_are_as_many_as_the_catalogue_says_and_images_wait_for_their_turn(tmp_path: Path) -> None:
    with at_work(tmp_path, workers=2) as (_, api):
        threads = [threading.Thread(target=still, args=(api, f"wait {n}")) for n in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(noted(tmp_path, "asked")) == 2, "two are at work")
        (tmp_path / "go").touch()
        for thread in threads:
            thread.join()
        assert balance(api) == "99.9700"
        assert len(set(noted(tmp_path, "pids"))) == 4


def test_programs_end_with_the_backlot_also_where_they_do_not_want_to(tmp_path: Path) -> None:
    environ = {"BACKLOT_CATALOGUE": str(catalogue(tmp_path))}
    command = [sys.executable, "-m", "backlot", "--port", "0"]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        with subprocess.Popen(
            command, env={**psutil.Process().environ(), **environ}, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout
            address = process.stdout.readline().split(" at ")[1].split()[0]
            film(client(address), "hang" if number != signal.SIGKILL else "a fox")
            wait_until(lambda: noted(tmp_path, "asked"), "the program is at it")
            process.send_signal(number)
            assert process.wait() == (0 if number != signal.SIGKILL else -9)
        wait_until(lambda: not processes(tmp_path), "the programs end")
        (tmp_path / "asked").unlink()


class ComfyUI(BaseHTTPRequestHandler):
    """The three endpoints of ComfyUI that the example uses; an image of the size that was asked for."""

    asked: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["prompt"])
        self.answer(b'{"prompt_id": "p1", "number": 1, "node_errors": {}}')

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/view":
            assert query == "filename=a.png&subfolder=&type=output"
            image = io.BytesIO()
            Image.new("RGB", (64, 64), "red").save(image, "png")
            return self.answer(image.getvalue())
        assert path == "/history/p1"
        images = [{"filename": "a.png", "subfolder": "", "type": "output"}]
        made = "fail" not in self.asked[-1]["1"]["inputs"]["text"]
        done = {"outputs": {"9": {"images": images}} if made else {}, "status": {"messages": ["no memory"]}}
        self.asked.append(self.asked[-1])
        is_done = len(self.asked) % 3 == 0  # the second time that it is looked at
        return self.answer(json.dumps({"p1": done} if is_done else {}).encode())

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_the_example_for_comfyui_fills_the_workflow_in_and_fetches_the_image(tmp_path: Path) -> None:
    size = {"seed": "%seed%", "width": "%width%"}
    workflow = {"1": {"inputs": {"text": "photo of %prompt%"}}, "2": {"inputs": size | {"latent": ["1", 0]}}}
    (tmp_path / "workflow.json").write_text(json.dumps(workflow))
    server = ThreadingHTTPServer(("127.0.0.1", 0), ComfyUI)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    program = HERE.parents[1] / "examples/comfyui_program.py"
    command = [sys.executable, str(program), str(tmp_path / "workflow.json"), address]
    with at_work(tmp_path, command=command) as (_, api):
        assert still(api, "a fox").status_code == 200
        assert ComfyUI.asked[0]["1"]["inputs"] == {"text": "photo of a fox"}
        assert ComfyUI.asked[0]["2"]["inputs"]["width"] == 160
        assert isinstance(ComfyUI.asked[0]["2"]["inputs"]["seed"], int)
        assert "no memory" in refused(still(api, "fail"), 500, "server_error")["message"]
        assert balance(api) == "99.9900"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"command": "python make.py"}, "0.command: expected a list (it is 'python make.py')"),
        (
            {"command": []},
            "0: command is a list with the program and its arguments; workers, timeout need it",
        ),
        ({"command": [""]}, "0.command.0: String should have at least 1 character (it is '')"),
        ({"command": ["x"], "workers": 0}, "0.workers: Input should be greater than or equal to 1 (it is 0)"),
        ({"workers": 2}, "0: command is a list with the program and its arguments; workers, timeout need it"),
        ({"comand": ["x"]}, "0.comand: unknown key"),
        ({"command": ["no-such-program"]}, "the program of model own-still is not found: no-such-program"),
    ],
)
def test_a_wrong_entry_of_the_catalogue_is_named(tmp_path: Path, wrong: Any, said: str) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(yaml.safe_dump([STILL | wrong]))
    with pytest.raises(SettingsError) as error, serve(Settings(port=0, catalogue=path)):
        pass
    assert str(error.value).removeprefix(f"{path}: ") == said


def test_a_batch_is_bought_from_a_program_reviewed_and_bought_again(
    project: Callable[..., Project], tmp_path: Path
) -> None:
    faults = {
        "rules": [
            {"endpoint": "videos", "prompt": "storm", "do": "fail_video"},
            {"endpoint": "images", "prompt": "night", "do": "blank"},
        ]
    }
    rows = [{"id": f"s{n}", "prompt": f"a fox, {n}", "model": "own-still"} for n in range(4)]
    rows += [{"id": f"f{n}", "prompt": f"a hen, {n}", "model": "own-film"} for n in range(2)]
    rows += [{"id": "bad", "prompt": "fail", "model": "own-still"}]
    rows += [{"id": "storm", "prompt": "storm", "model": "own-film"}]
    rows += [{"id": "night", "prompt": "night", "model": "own-still"}]
    made = project(rows, catalogue=catalogue(tmp_path), faults=faults, concurrency=2)
    first = made.run()
    assert (first.stored, first.failed, first.spent) == (7, 2, Decimal("0.13"))
    marks = [{"row_id": row, "decision": "rejected"} for row in ("s1", "f0")]
    callsheet.review(made.config, pd.DataFrame(marks))
    second = made.run("review.buy_again=true")
    assert (second.stored, second.spent) == (9, Decimal("0.18"))
    asked = {json.loads(line)["prompt"] for line in noted(tmp_path, "asked")}
    assert asked.isdisjoint({"storm", "night"}), "what a fault decides is not made"
    assert made.charged == second.spent == made.manifest()["cost"].sum()
    manifest = made.manifest()
    assert manifest["sha256"].n_unique() == 9
    for url, digest in zip(manifest["url"], manifest["sha256"], strict=True):
        assert hashlib.sha256((made.folder / url).read_bytes()).hexdigest() == digest
