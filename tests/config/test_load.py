"""A config: YAML, environment, overrides, the values of settings, and errors that name file, line and key."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from callsheet.config.load import load, load_ledger, load_without_service
from callsheet.errors import ConfigError
from tests.config.conftest import SMALL, error_message


def test_an_unknown_key_is_named_with_its_line_and_a_similar_key(write):
    path = write(SMALL + "\nbudget:\n  # the limit\n  limitt: 5\n")
    assert error_message(path) == f"{path}, line 7: unknown key `budget.limitt`; did you mean limit?"
    message = error_message(write(SMALL + "colour: red\nbugdet:\n"))
    assert "line 4: unknown key `colour`" in message
    assert "line 5: unknown key `bugdet`; did you mean budget?" in message, "each wrong key is named"
    text = SMALL.replace("shots.csv}", "shots.csv,\n  columns: {promt: text}}")
    assert "line 4: unknown key `input.columns.promt`; did you mean prompt?" in error_message(write(text))


def test_a_setting_of_an_earlier_version_is_named_with_what_to_set_now(write):
    path = write(SMALL.replace("shots.csv}", "shots.txt,\n  pattern: '(?P<id>.+)[|](?P<prompt>.+)'}"))
    message = error_message(path)
    assert message.startswith(
        f"{path}, line 4: `input.pattern` is no setting any more; for lines of the form "
    )
    assert "set input.split: named_lines" in message
    for place in (SMALL + "reuse: ledger\n", SMALL.replace("shots.csv}", "shots.csv, reuse: batch}")):
        message = error_message(write(place))
        assert "reuse` is no setting any more; leave it out" in message
        assert "input.stored: CONFIG" in message


def test_no_error_repeats_a_password_in_a_url(write):
    for override in (
        "service.base_url=ftp://user:hunter2@h",
        "service={base_url: 'ftp://user:hunter2@h'}",
        "service.base_url=http://user:hunter2/x@h",
        "ledger.url:postgresql://user:hunter2@h/db",
        "ledger={postgresql://user:hunter2@h}",
        "postgresql://user:hunter2@h=1",
    ):
        assert "hunter2" not in error_message(write(SMALL), override)
    for text in (
        SMALL.replace("https://api.example.com/", "ftp://user:hunter2@h"),
        SMALL + "ledger: postgresql+psycopg://user:p@ss/hunter2@h/db\n",
        SMALL + f"ledger: postgresql://user:{'hunter2' * 20}@h/db\n",
        SMALL + "ledger: {postgresql://user:hunter2@h: 1}\n",
    ):
        assert "hunter2" not in error_message(write(text))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("budget.limit", "must look like a.b=value"),
        ("=5", "must look like a.b=value"),
        ("budget..limit=5", "must look like a.b=value"),
        ("batch.name=5", "`batch` is a single value"),
        ("budget.wall=5", "budget.wall=5: unknown key `budget.wall`"),
        ("storage.put.StorageClas=x", "unknown key `storage.put.StorageClas`; did you mean StorageClass?"),
        (
            "storage.put.Body=x",
            "unknown key `storage.put.Body`; expected one of ACL, ExpectedBucketOwner, Grant",
        ),
        ("budget.limit=[", "budget.limit=[: is not valid YAML"),
    ],
)
def test_an_override_that_cannot_be_used_is_named(write, override, expected):
    assert expected in error_message(write(SMALL), override)


def test_a_key_that_is_missing_or_given_twice_is_named(write):
    path = write("batch: b\nservice: {}\n")
    message = error_message(path)
    assert f"{path}, line 2: the key `service.base_url` is missing" in message
    assert "the key `input` is missing" in message
    message = error_message(write(SMALL + "poll:\n  interval: 1\n  interval: 2\n"))
    assert message.endswith("line 6: the key `poll.interval` is given twice")


def test_variables_are_replaced_and_can_be_escaped(write, monkeypatch):
    monkeypatch.delenv("CALLSHEET_NOWHERE", raising=False)
    path = write(SMALL + "report:\n  url: out/${CALLSHEET_NOWHERE}/report\n")
    assert error_message(path) == f"{path}, line 5: the environment variable CALLSHEET_NOWHERE is not set"
    monkeypatch.setenv("WHO", "ann")
    monkeypatch.setenv("EMPTY", "")
    path = write(SMALL + 'report: {url: "out/${WHO}/${EMPTY:-e}/${NOT_THERE:-d}"}\n')
    settings = load(path, ["input.template=for $${price}, {product}"])
    assert settings.report.url == "out/ann/e/d"
    assert load(path, ["report.url=s3://b/{batch}/{{x}}"]).report.url == "s3://b/shots/{x}"
    assert settings.input.template == "for ${price}, {product}"
    assert "line 4" in error_message(write(SMALL + 'report: {url: "${1}"}\n'))


def test_an_empty_variable_is_an_error_and_not_null(write, monkeypatch):
    """Otherwise an empty `budget.limit` would remove the limit."""
    monkeypatch.setenv("EMPTY", "")
    for line in (
        "budget:\n  limit: ${EMPTY}",
        "budget:\n  limit: ${EMPTY:-}",
        "budget: {limit: }",
        "budget:\n  limit:",
        "budget:\n  limit:  # to be filled in\n  per_day: 5",
    ):
        path = write(SMALL + line + "\n")
        assert error_message(path).endswith(": `budget.limit` is empty")
        assert error_message(path).startswith(f"{path}, line ")
    assert error_message(write(SMALL + "on_doubt: ${EMPTY}\n")).endswith("line 4: `on_doubt` is empty")
    for value in ("", " ", "# none", "${EMPTY}"):
        message = error_message(write(SMALL), f"budget.limit={value}")
        assert message == f"budget.limit={value}: `budget.limit` is empty"
    assert error_message(write(SMALL), "budget={limit: }").endswith("`budget.limit` is empty")
    assert error_message(write(SMALL), "input.path=").endswith("`input.path` is empty")
    monkeypatch.setenv("NONE", "null")
    for null in ("null", "~", "${NONE}", "${EMPTY:-null}"):
        assert load(write(SMALL + f"budget:\n  limit: {null}\n")).budget.limit is None
        assert load(write(SMALL + "budget: {limit: 5}\n"), [f"budget.limit={null}"]).budget.limit is None


def test_a_section_with_nothing_in_it_is_as_if_left_out(write):
    empty = load(write(SMALL + "budget:\n  # limit: 5\nreport:\n"))
    assert empty.model_dump() == load(write(SMALL)).model_dump()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "has no settings"),
        ("- a\n- b\n", "has no settings"),
        ("batch: b\n  c: [\n", "line 2: is not valid YAML"),
        ("batch: b\nx: \x07\n", "line 2: is not valid YAML"),
        ("a: &a\n  b: *a\n", "an alias contains itself"),
        ("batch: b\n[a]: c\n", "line 2: a list or a mapping stands where a key must be"),
        ("batch: b\ninput: {path: {{ shots }}}\n", "line 2: a list or a mapping stands where a key must be"),
    ],
)
def test_a_file_that_is_not_a_config_is_an_error(write, text, expected):
    assert expected in error_message(write(text))


def test_a_config_may_be_in_the_home_folder(write, monkeypatch):
    path = write(SMALL)
    monkeypatch.setenv("HOME", str(path.parent))
    assert load(Path("~/run.yaml")).batch == "shots"
    with pytest.raises(ConfigError) as missing:
        load(Path("~/other.yaml"))
    assert missing.value.hint == f"It was looked for in {path.parent}."
    assert "no such home folder is known" in error_message(Path("~no-such-user/run.yaml"))


def test_a_config_that_cannot_be_read_is_named_in_the_error(tmp_path):
    assert "cannot be read" in error_message(tmp_path)
    with pytest.raises(ConfigError, match="there is no such config file") as missing:
        load(Path("runs/none.yaml"))
    assert missing.value.hint == f"It was looked for in {Path.cwd()}/runs."
    (tmp_path / "latin.yaml").write_bytes("batch: café".encode("latin-1"))
    assert "is not UTF-8" in error_message(tmp_path / "latin.yaml")


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("input.template={a} b: c", "{a} b: c"),
        ("input.template=null", None),
        ("input.path=@home/[a].csv", "@home/[a].csv"),
        ("input.columns.prompt=Prompt: long", "Prompt: long"),
        ("batch=007", "007"),
        ("report.url=out/${NOT_SET:-x}/{batch}", "out/x/shots"),
        ("budget.limit=2.50", Decimal("2.50")),
        ("poll.interval=0.1", 0.1),
        ("input.matrix.aspect_ratio=[1:1, 16:9]", ["1:1", "16:9"]),
    ],
)
def test_an_override_of_a_text_setting_is_text_and_any_other_is_yaml(write, override, value):
    setting = load(write(SMALL + "budget: {limit: 1, on_exceed: refuse}\n"), [override])
    assert setting.budget.on_exceed == "refuse"
    for name in override.partition("=")[0].split("."):
        setting = setting[name] if isinstance(setting, dict) else getattr(setting, name)
    assert setting == value


@pytest.mark.parametrize(
    ("address", "expected", "hint"),
    [
        ("https://h/v2", "must not end in /v2", "Leave it out: Callsheet adds the version."),
        ("https://user:hunter2@h", "must not contain a user name or a password", "service.api_key_env"),
        ("https://hunter2@h/", "must not contain a user name or a password", "service.api_key_env"),
        ("https://h/?key=hunter2", "must not contain a query or a fragment", "https://api.example.com"),
    ],
)
def test_a_base_url_with_more_than_an_address_is_an_error_with_a_hint(write, address, expected, hint):
    path = write(SMALL.replace("https://api.example.com/", address))
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.message.startswith(f"{path}, line 2: `service.base_url` {expected}")
    assert hint in caught.value.hint
    assert "hunter2" not in caught.value.message


def test_without_its_service_a_config_needs_no_variable_of_it_and_the_rest_is_checked(write, monkeypatch):
    monkeypatch.delenv("CALLSHEET_BASE_URL", raising=False)
    path = write(SMALL.replace("https://api.example.com/", "${CALLSHEET_BASE_URL}"))
    assert "CALLSHEET_BASE_URL is not set" in error_message(path)
    settings = load_without_service(path, ["service.base_url=${CALLSHEET_BASE_URL}", "batch=two"])
    assert (settings.batch, settings.report.url, settings.service) == ("two", "out/two/report", None)
    with pytest.raises(ConfigError, match="line 4: unknown key `colour`"):
        load_without_service(write(SMALL + "colour: red\n"))
    with pytest.raises(ConfigError, match="is not valid YAML"):
        load_without_service(write("service: {base_url: [\n"))


def test_a_wrong_value_in_defaults_or_matrix_is_named_with_its_line(write):
    defaults = "\n  path: shots.csv\n  defaults:\n    model: m\n    duration: 5.5"
    path = write(text := SMALL.replace("{path: shots.csv}", defaults))
    assert error_message(path).startswith(f"{path}, line 7: `input.defaults.duration` is not a whole number")
    path = write(text.replace("5.5", "5.0\n  matrix:\n    sound: [yes, 'on',\n      'maybe']"))
    assert error_message(path) == (
        f"{path}, line 10: `input.matrix.sound.2` is not a boolean; expected true, false, yes, no, 1 or 0 "
        "(it is 'maybe')"
    )
    assert error_message(path, "input.matrix.sound=[off]", "input.defaults.samples=0").startswith(
        "input.defaults.samples=0: `input.defaults.samples` is not a whole number from 1"
    )


@pytest.mark.parametrize(
    "written", ["1234567890.123456", '"1234567890.123456"', "${LIMIT}", "${NONE:-1234567890.123456}"]
)
def test_money_is_exact_however_it_is_written(write, monkeypatch, written):
    monkeypatch.setenv("LIMIT", "1234567890.123456")
    limit = load(write(SMALL + f"budget:\n  limit: {written}\n")).budget.limit
    assert limit == Decimal("1234567890.123456")


@pytest.mark.parametrize("value", ["null", "{a: b}", "[a]", "[{url: 1}]"])
def test_a_default_of_a_wrong_type_has_one_error_on_one_line(write, value):
    message = error_message(write(SMALL), f"input.defaults.model={value}")
    assert message.startswith(f"input.defaults.model={value}: `input.defaults.model")
    assert "should be text, a number, true or false" in message
    assert len(message.splitlines()) == 1


def test_values_keep_their_types_and_a_ratio_is_text(write):
    text = SMALL.replace("shots.csv}", "shots.csv, defaults: {sound: true, duration: 5, resolution: '1080'}}")
    settings = load(write(text), ["input.matrix.aspect_ratio=[16:9, 1:1]"])
    assert [*settings.input.defaults.values(), *settings.input.matrix["aspect_ratio"]] == [
        True, 5, "1080", "16:9", "1:1",
    ]  # fmt: skip
    assert settings.input.defaults["sound"] is True


WRONG_LINES = [
    ("limits: {image_rpm: many}", "line 4: `limits.image_rpm` should be a whole number (it is 'many')"),
    ("poll: {interval: 0.01}", "line 4: `poll.interval` should be at least 0.1 (it is '0.01')"),
    ("poll: {timeout: null}", "line 4: `poll.timeout` should be a number (it is null)"),
    ("limits: {patience: 0}", "`limits.patience` should be more than 0 (it is '0')"),
    ("report: {contact_sheet: 100001}", "should be at most 100000 (it is '100001')"),
    ("budget: {limit: plenty}", "should be an amount in US dollars, such as 20.00 (it is 'plenty')"),
    ("budget: {limit: true}", "should be an amount in US dollars, such as 20.00 (it is 'True')"),
    ("budget: {limit: 0.0000001}", "should have at most 12 digits before the point and 6 after it"),
    ("poll: 25", "`poll` should have keys with values, some of interval, timeout (it is '25')"),
    ("storage: {put: x}", "`storage.put` should have keys with values (it is 'x')"),
    ("ledger: {new: maybe}", "`ledger.new` should be true or false (it is 'maybe')"),
    ("storage: {key: 2026}", "`storage.key` should be text: put it in quotes (it is '2026')"),
    ("storage: {key: {row_id}}", "line 4: `storage.key` should be text: put it in quotes"),
    ("storage:\n  key: {row_id}", "line 5: `storage.key` should be text: put it in quotes"),
    ("storage: {key: ''}", "line 4: `storage.key` is empty"),
    ("on_doubt: maybe", "`on_doubt` should be 'hold' or 'retry'"),
    ("on_doubt: null", "line 4: `on_doubt` should be 'hold' or 'retry' (it is null)"),
    ("stop_after:", "line 4: `stop_after` should be a whole number (it is null)"),
    ("retry_failed: perhaps", "`retry_failed` should be false, true, 'server_error', 'gateway' or 'all'"),
    ("attempts: yes", "`attempts` should be a number"),
    ('storage: {key: "{index:03}"}', "is not the name of a column in braces"),
    ('report: {url: "out/{row_id}"}', "`report.url` {row_id} is not a placeholder; expected {batch}"),
    ('storage: {url: "gs://b/c"}', "line 4: `storage.url` begins with gs://, which is not supported"),
    ('storage: {url: "s3:/b/c"}', "line 4: `storage.url` begins with s3: in place of s3://"),
    ('report: {url: "s3:///c"}', "line 4: `report.url` has no bucket"),
    ('report: {url: "file://out/{batch}"}', "names the host out, not a folder of this machine"),
    ('storage: {key: "../{index}"}', "must stay inside storage.url"),
    ('storage: {endpoint_url: "minio:9000"}', "must begin with http:// or https://"),
]


@pytest.mark.parametrize(("line", "expected"), WRONG_LINES)
def test_a_wrong_value_is_named_with_key_and_line(write, line, expected):
    assert expected in error_message(write(SMALL + line + "\n"))


WRONG_VALUES = [
    ("batch", "a/b", "letters, digits, '-', '_' and '.'"),
    ("batch", "-ä", "begin with a letter or digit"),
    ("batch", "照" * 67, "at most 200 bytes"),
    ("service.base_url", "ftp://h", "must begin with http:// or https://"),
    ("batch", "null", "`batch` should be text (it is null)"),
    ("service.base_url", "http://127.0.0.1:65536", "is not a valid address"),
    ("budget.limit", "9" * 5000, "`budget.limit` "),
    ("input.defaults.id", "1", "cannot set id: each row needs its own"),
    ("input.matrix.samples", "[1, 2]", "cannot set samples: use a column or a default"),
    ("input.matrix.model", "[]", "at least 1 item"),
    ("input.matrix.model", "[a, b, a]", "lists a value of model twice"),
    ("input.template", "a {}", "{} is not the name of a column in braces"),
    ("input.template", "'a {b!r}'", "{b} is not the name of a column in braces"),
    ("input.encoding", "base64", "no text encoding named 'base64'"),
]


@pytest.mark.parametrize(("key", "value", "expected"), WRONG_VALUES)
def test_a_wrong_override_is_named_itself(write, key, value, expected):
    message = error_message(write(SMALL), f"{key}={value}")
    assert expected in message
    assert message.startswith(f"{key}=")


def test_a_prompt_or_an_id_may_not_have_two_sources(write):
    message = error_message(write(SMALL), "input.template='{a} and {b}'", "input.columns.prompt=text")
    assert "has template and also a column, default or matrix for prompt" in message
    message = error_message(write(SMALL), "input.id={a}", "input.columns.id=b")
    assert "has id and also a column for id" in message


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
    assert load(write(SMALL), ["input.path=~root/a"]).input.path == f"{Path('~root').expanduser()}/a"
    assert load(write(SMALL), ["report.url=file:///~/r"]).report.url == "file:///home/a%20b/r"
    assert load_ledger(["ledger.url=sqlite:///~/l.db"]) == "sqlite:////home/a b/l.db"
    # elsewhere it is a letter like others
    urls = ["./~/media", "a~/media", "s3://bucket/~/media", "file:///a/~b"]
    assert [load(write(SMALL), [f"storage.url={url}"]).storage.url for url in urls] == urls


def test_who_asks_for_several_samples_may_buy_two_more_again(write):
    samples = [load(write(SMALL), said).review.samples for said in ([], ["input.defaults.samples=3"])]
    assert samples == [3, 5]
    assert load(write(SMALL), ["input.defaults.samples=3", "review.samples=2"]).review.samples == 2


def test_a_home_folder_that_cannot_be_found_is_an_error_with_its_line(write):
    path = write(SMALL + "storage: {url: ~no-such-user/media}\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.message == (
        f"{path}, line 4: `storage.url` begins with ~no-such-user, and no such home folder is known"
    )
    assert "whole path" in caught.value.hint
    with pytest.raises(ConfigError, match="no such home folder"):
        load_ledger(["ledger.url=sqlite:///~no-such-user/x.db"])
