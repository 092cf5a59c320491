"""The settings: their defaults, and which values they may have."""

from __future__ import annotations

import pwd
from decimal import Decimal

import pytest
from pydantic import ValidationError

from callsheet.config.load import load, load_ledger
from callsheet.config.settings import Settings
from callsheet.errors import ConfigError
from tests.config.conftest import SMALL, error_message


def test_what_is_left_out_has_its_default(write):
    settings = load(write(SMALL))
    assert settings.service.base_url == "https://api.example.com"
    assert settings.service.api_key_env == "CALLSHEET_API_KEY"
    assert settings.service.api_key_block is None
    assert (settings.input.columns, settings.input.defaults, settings.input.matrix) == ({}, {}, {})
    assert (settings.input.template, settings.input.strict) == (None, False)
    assert (settings.budget.limit, settings.budget.per_day) == (None, None)
    assert settings.budget.approve_above is None
    assert (settings.budget.on_exceed, settings.budget.allow_unpriced) == ("stop", False)
    assert settings.limits.model_dump() == dict.fromkeys(["image_rpm", "video_rpm", "concurrency"])
    assert (settings.poll.interval, settings.poll.timeout) == (5.0, 300.0)
    assert (settings.on_doubt, settings.retry_failed, settings.attempts) == ("hold", False, 4)
    assert settings.stop_after == 10
    assert (settings.storage.url, settings.storage.endpoint_url) == ("out/media", None)
    assert settings.storage.key == "{batch}/{row_id}-{sample}-{index}.{ext}"
    assert settings.ledger.url == "sqlite:///out/ledger.db"
    assert settings.report.url == "out/shots/report"


def test_an_example_with_every_section_is_read(write, monkeypatch):
    monkeypatch.setenv("CALLSHEET_BASE_URL", "http://127.0.0.1:8000")
    settings = load(
        write(
            """\
batch: product-shots
service: {base_url: "${CALLSHEET_BASE_URL}", api_key_env: CALLSHEET_API_KEY, api_key_block: null}
input:   {path: prompts/shots.csv, columns: {prompt: text}, defaults: {model: m}, template: null, matrix: {}}
budget:  {limit: "25.00", per_day: null, on_exceed: stop, approve_above: null, allow_unpriced: false}
limits:  {image_rpm: null, video_rpm: null, concurrency: null}
poll:    {interval: 5, timeout: 300}
on_doubt: hold
stop_after: 10
storage: {url: out/media, endpoint_url: null, key: "{batch}/{row_id}-{sample}-{index}.{ext}"}
ledger:  {url: "sqlite:///out/ledger.db"}
report:  {url: "out/{batch}/report"}
"""
        )
    )
    assert settings.service.base_url == "http://127.0.0.1:8000"
    assert settings.budget.limit == Decimal("25.00")
    assert settings.input.columns == {"prompt": "text"}


def test_a_wrong_value_in_defaults_or_matrix_is_named_with_its_line(write):
    text = SMALL.replace(
        "{path: shots.csv}", "\n  path: shots.csv\n  defaults:\n    model: m\n    duration: 5.5"
    )
    path = write(text)
    assert error_message(path).startswith(f"{path}, line 7: `input.defaults.duration` is not a whole number")
    path = write(text.replace("5.5", "5.0\n  matrix:\n    sound: [yes, 'on',\n      'maybe']"))
    assert error_message(path) == (
        f"{path}, line 10: `input.matrix.sound.2` is not a boolean; expected true, false, yes, no, 1 or 0 "
        "(it is 'maybe')"
    )
    assert error_message(path, "input.matrix.sound=[off]", "input.defaults.samples=0").startswith(
        "--set input.defaults.samples=0: `input.defaults.samples` is not a whole number from 1"
    )


def test_report_url_contains_the_batch_s_name(write):
    assert load(write(SMALL), ["report.url=s3://b/{batch}/{{x}}"]).report.url == "s3://b/shots/{x}"
    assert load(write(SMALL), ["batch=two"]).report.url == "out/two/report"
    assert load(write(SMALL), ["report.url=out/report"]).report.url == "out/report"


@pytest.mark.parametrize(
    "written", ["1234567890.123456", '"1234567890.123456"', "${LIMIT}", "${NONE:-1234567890.123456}"]
)
def test_money_is_exact_however_it_is_written(write, monkeypatch, written):
    monkeypatch.setenv("LIMIT", "1234567890.123456")
    limit = load(write(SMALL + f"budget:\n  limit: {written}\n")).budget.limit
    assert limit == Decimal("1234567890.123456")


def test_money_may_not_be_a_float():
    with pytest.raises(ValidationError, match="binary float"):
        Settings.model_validate(
            {
                "batch": "b",
                "service": {"base_url": "http://h"},
                "input": {"path": "p"},
                "budget": {"limit": 0.1},
            }
        )


def test_a_ratio_without_quotes_is_text(write):
    text = SMALL.replace("shots.csv}", "shots.csv, matrix: {aspect_ratio: [16:9, 1:1]}}")
    assert load(write(text)).input.matrix == {"aspect_ratio": ["16:9", "1:1"]}


@pytest.mark.parametrize("value", ["null", "{a: b}", "[a]", "[{url: 1}]"])
def test_a_default_of_a_wrong_type_has_one_error_on_one_line(write, value):
    message = error_message(write(SMALL), f"input.defaults.model={value}")
    assert message.startswith(f"--set input.defaults.model={value}: `input.defaults.model")
    assert "should be text, a number, true or false" in message
    assert len(message.splitlines()) == 1


def test_defaults_keep_their_types(write):
    text = SMALL.replace("shots.csv}", "shots.csv, defaults: {sound: true, duration: 5, resolution: '1080'}}")
    defaults = load(write(text)).input.defaults
    assert defaults == {"sound": True, "duration": 5, "resolution": "1080"}
    assert [type(each) for each in defaults.values()] == [bool, int, str]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("limits: {image_rpm: many}", "line 4: `limits.image_rpm` should be a valid integer"),
        ("poll: {interval: 0.01}", "line 4: `poll.interval` should be greater than or equal to 0.1"),
        ("poll: {interval: .inf}", "`poll.interval`"),
        ("budget: {limit: plenty}", "`budget.limit` should be a valid decimal (it is 'plenty')"),
        ("budget: {limit: -1}", "`budget.limit` should be greater than or equal to 0"),
        ("budget: {limit: .inf}", "`budget.limit`"),
        ("budget: {limit: NaN}", "`budget.limit`"),
        ("budget: {on_exceed: panic}", "`budget.on_exceed` should be 'stop', 'skip' or 'refuse'"),
        ("budget: 25", "`budget` should be"),
        ("on_doubt: maybe", "`on_doubt` should be 'hold' or 'retry'"),
        (
            "retry_failed: perhaps",
            "`retry_failed` should be False, True, 'server_error', 'gateway' or 'all'",
        ),
        ("attempts: 0", "`attempts`"),
        ("attempts: yes", "`attempts` should be a number"),
        ("poll: {interval: true}", "`poll.interval` should be a number"),
        (
            'storage: {key: "{batch}/{colour}.{ext}"}',
            "{colour} is not a placeholder; expected {batch}, {row_id}",
        ),
        ('storage: {key: "{index:03}"}', "is not a placeholder"),
        (
            'report: {url: "out/{row_id}"}',
            "line 4: `report.url` {row_id} is not a placeholder; expected {batch}",
        ),
        ('report: {url: "out/{batch!r}"}', "is not a placeholder"),
        ('report: {url: "out/{batch"}', "`report.url`"),
        ("budget: {per_day: -1}", "`budget.per_day` should be greater than or equal to 0"),
        ("storage: {url: 7}", "line 4: `storage.url` should be a valid string"),
        ('storage: {url: "gs://b/c"}', "line 4: `storage.url` begins with gs://, which is not supported"),
        ('storage: {url: "s3:/b/c"}', "line 4: `storage.url` begins with s3: in place of s3://"),
        ('report: {url: "s3:///c"}', "line 4: `report.url` has no bucket"),
        ('report: {url: "file://out/{batch}"}', "names the host out, not a folder of this machine"),
        ("stop_after: 0", "`stop_after` should be greater than or equal to 1"),
        ("limits: {shared: crew}", "line 4: unknown key `limits.shared`"),
        ('storage: {key: "{index"}', "`storage.key`"),
        ('storage: {key: "../{index}"}', "must stay inside storage.url"),
        ('storage: {endpoint_url: "minio:9000"}', "must begin with http:// or https://"),
    ],
)
def test_a_wrong_value_is_named_with_key_and_line(write, line, expected):
    assert expected in error_message(write(SMALL + line + "\n"))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("batch", "a/b", "A-Z, a-z, 0-9, '-', '_' and '.'"),
        ("batch", "..", "begin with a letter or digit"),
        ("batch", "''", "must be 1 to 100"),
        ("service.base_url", "ftp://h", "must begin with http:// or https://"),
        ("batch", "null", "the key `batch` is missing"),
        ("service.base_url", "http://xn--zz", "is not a valid address"),
        ("service.base_url", "http://127.0.0.1:65536", "is not a valid address"),
        ("service.base_url", "http://h:x", "is not a valid address"),
        ("service.base_url", "http://:80", "is not a valid address"),
        ("attempts", "9" * 5000, "`attempts` "),
        ("budget.limit", "9" * 5000, "`budget.limit` "),
        ("input.defaults.id", "1", "cannot set id: each row needs its own"),
        ("input.matrix.samples", "[1, 2]", "cannot set samples: use a column or a default"),
        ("input.matrix.model", "[]", "at least 1 item"),
        ("input.matrix.model", "[a, b, a]", "lists a value of model twice"),
        ("input.matrix.model", "a", "should be a valid list"),
        ("input.delimiter", "'||'", "at most 1 character"),
        ("input.template", "a {}", "{} is not the name of a column in braces"),
        ("input.template", "a {:>3}", "{} is not the name of a column in braces"),
        ("input.template", "'a {b!r}'", "{b} is not the name of a column in braces"),
        ("input.encoding", "base64", "no text encoding named 'base64'"),
        ("input.encoding", "utf-99", "no text encoding named 'utf-99'"),
    ],
)
def test_a_wrong_override_is_named_itself(write, key, value, expected):
    message = error_message(write(SMALL), f"{key}={value}")
    assert expected in message
    assert message.startswith(f"--set {key}=")


def test_a_prompt_may_not_have_two_sources(write):
    message = error_message(write(SMALL), "input.template='{a} and {b}'", "input.columns.prompt=text")
    assert "has template and also a column, default or matrix for prompt" in message


def test_settings_cannot_be_changed(write):
    with pytest.raises(ValidationError):
        load(write(SMALL)).budget.limit = Decimal(1)  # type: ignore[misc]


def test_a_path_that_begins_with_a_tilde_is_in_the_home_folder(write, tmp_path, monkeypatch):
    """Also in `--set`, where no shell replaces it."""
    monkeypatch.setenv("HOME", "/home/a b")
    text = SMALL.replace("shots.csv", "~/shots/*.csv") + (
        "storage: {url: ~/media/}\nledger: {url: 'sqlite:///~/ledger.db'}\nreport: {url: '~/{batch}'}\n"
    )
    settings = load(write(text))
    assert settings.input.path == "/home/a b/shots/*.csv"
    assert settings.storage.url == "/home/a b/media/"
    assert settings.ledger.url == "sqlite:////home/a b/ledger.db"
    assert settings.report.url == "/home/a b/shots"
    settings = load(write(SMALL), ["storage.url=~", "report.url=file:///~/report", "input.path=~/a.csv"])
    assert (settings.storage.url, settings.input.path) == ("/home/a b", "/home/a b/a.csv")
    assert settings.report.url == "file:///home/a%20b/report"
    assert load_ledger(["ledger.url=sqlite:///~/l.db"]) == "sqlite:////home/a b/l.db"
    monkeypatch.setenv("HOME", "/")
    settings = load(write(SMALL), ["storage.url=~", "report.url=~/report"])
    assert (settings.storage.url, settings.report.url) == ("/", "/report")


def test_the_home_folder_of_another_user_is_found_by_the_users_name(write):
    user = pwd.getpwuid(0)
    settings = load(write(SMALL), [f"storage.url=~{user.pw_name}/media"])
    assert settings.storage.url == f"{user.pw_dir}/media"


def test_a_tilde_elsewhere_is_a_letter_like_others(write):
    urls = ["./~/media", "a~/media", "s3://bucket/~/media", "file:///a/~b"]
    assert [load(write(SMALL), [f"storage.url={url}"]).storage.url for url in urls] == urls


def test_a_home_folder_that_cannot_be_found_is_an_error_with_its_line(write):
    path = write(SMALL + "storage: {url: ~no-such-user/media}\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.message == (
        f"{path}, line 4: `storage.url` begins with ~no-such-user, and no such home folder is known"
    )
    assert "whole path" in caught.value.hint
    for place in "input.path", "ledger.url", "report.url":
        beginning = "sqlite:///" if place == "ledger.url" else ""
        assert "no such home folder" in error_message(write(SMALL), f"{place}={beginning}~no-such-user/x")
    with pytest.raises(ConfigError, match="no such home folder"):
        load_ledger(["ledger.url=sqlite:///~no-such-user/x.db"])
