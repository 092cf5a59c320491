"""The config file: what it may say, and how an error names its place."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from callsheet.config.settings import Settings, load
from callsheet.errors import ConfigError

SMALL = """\
batch: shots
service: {base_url: "https://api.example.com/"}
input: {path: shots.csv}
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "run.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def complaint(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    return caught.value.message


def test_what_is_left_out_has_the_design_s_values(write):
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


def test_the_design_s_own_example_is_read(write, monkeypatch):
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


def test_a_value_that_its_column_cannot_have_is_named_with_its_line(write):
    text = SMALL.replace(
        "{path: shots.csv}", "\n  path: shots.csv\n  defaults:\n    model: m\n    duration: 5.5"
    )
    path = write(text)
    assert complaint(path).startswith(f"{path}, line 7: `input.defaults.duration` is not a whole number")
    path = write(text.replace("5.5", "5.0\n  matrix:\n    sound: [yes, 'on',\n      'maybe']"))
    assert complaint(path) == (
        f"{path}, line 10: `input.matrix.sound.2` is neither true nor false (yes, no, 1 and 0 are read too) "
        "(it is 'maybe')"
    )
    assert complaint(path, "input.matrix.sound=[off]", "input.defaults.samples=0").startswith(
        "--set input.defaults.samples=0: `input.defaults.samples` is not a whole number from 1"
    )


def test_a_report_goes_where_the_batch_is_named(write):
    assert load(write(SMALL), ["report.url='s3://b/{batch}/{{x}}'"]).report.url == "s3://b/shots/{x}"
    assert load(write(SMALL), ["batch=two"]).report.url == "out/two/report"
    assert load(write(SMALL), ["report.url=out/report"]).report.url == "out/report"


def test_a_section_with_nothing_under_it_is_left_out(write):
    assert load(write(SMALL + "budget:\nlimits:\n")).budget.limit is None


@pytest.mark.parametrize(
    "written", ["1234567890.123456", '"1234567890.123456"', "${LIMIT}", "${NONE:-1234567890.123456}"]
)
def test_money_is_exact_however_it_is_written(write, monkeypatch, written):
    monkeypatch.setenv("LIMIT", "1234567890.123456")
    limit = load(write(SMALL + f"budget:\n  limit: {written}\n")).budget.limit
    assert limit == Decimal("1234567890.123456")


def test_a_float_is_no_money():
    with pytest.raises(ValidationError, match="binary float"):
        Settings.model_validate(
            {
                "batch": "b",
                "service": {"base_url": "http://h"},
                "input": {"path": "p"},
                "budget": {"limit": 0.1},
            }
        )


def test_a_ratio_without_quotes_is_no_number_to_base_sixty(write):
    text = SMALL.replace("shots.csv}", "shots.csv, matrix: {aspect_ratio: [16:9, 1:1]}}")
    assert load(write(text)).input.matrix == {"aspect_ratio": ["16:9", "1:1"]}


@pytest.mark.parametrize("value", ["null", "{a: b}", "[a]", "[{url: 1}]"])
def test_a_default_that_is_no_value_is_told_in_one_line(write, value):
    said = complaint(write(SMALL), f"input.defaults.model={value}")
    assert said.startswith(f"--set input.defaults.model={value}: `input.defaults.model")
    assert "should be text, a number, true or false" in said
    assert len(said.splitlines()) == 1


def test_defaults_keep_their_types(write):
    text = SMALL.replace("shots.csv}", "shots.csv, defaults: {sound: true, duration: 5, resolution: '1080'}}")
    defaults = load(write(text)).input.defaults
    assert defaults == {"sound": True, "duration": 5, "resolution": "1080"}
    assert [type(each) for each in defaults.values()] == [bool, int, str]


def test_an_unknown_key_is_named_with_its_line_and_the_key_that_was_meant(write):
    path = write(SMALL + "\nbudget:\n  # the wall\n  limitt: 5\n")
    assert complaint(path) == f"{path}, line 7: unknown key `budget.limitt`; did you mean `limit`?".replace(
        "`limit`?", "limit?"
    )
    assert "line 5: unknown key `colour`" in complaint(write(SMALL + "\ncolour: red\n"))
    assert "line 4: unknown key `bugdet`; did you mean budget?" in complaint(write(SMALL + "bugdet:\n"))
    text = SMALL.replace("shots.csv}", "shots.csv,\n  columns: {promt: text}}")
    assert "line 4: unknown key `input.columns.promt`; did you mean prompt?" in complaint(write(text))


def test_every_wrong_key_is_named_at_once(write):
    said = complaint(write(SMALL + "polll: 1\nattempts: none\n")).splitlines()
    assert ["line 4" in said[1], "line 5" in said[0]] == [True, True]


@pytest.mark.parametrize(
    ("line", "says"),
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
        ("retry_failed: perhaps", "`retry_failed` should be a valid boolean"),
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
        ("stop_after: 0", "`stop_after` should be greater than or equal to 1"),
        ("limits: {shared: crew}", "line 4: unknown key `limits.shared`"),
        ('storage: {key: "{index"}', "`storage.key`"),
        ('storage: {key: "../{index}"}', "stays inside storage.url"),
        ('storage: {endpoint_url: "minio:9000"}', "must begin with http:// or https://"),
    ],
)
def test_a_wrong_value_is_named_with_key_and_line(write, line, says):
    assert says in complaint(write(SMALL + line + "\n"))


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("batch", "a/b", "letters, digits, '-', '_' and '.'"),
        ("batch", "..", "letters, digits"),
        ("batch", "''", "letters, digits"),
        ("batch", "7", "should be a valid string"),
        ("service.base_url", "ftp://h", "must begin with http:// or https://"),
        ("batch", "null", "the key `batch` is missing"),
        ("service.base_url", "http://xn--zz", "is no address"),
        ("service.base_url", "http://127.0.0.1:65536", "is no address"),
        ("service.base_url", "http://h:x", "is no address"),
        ("service.base_url", "http://:80", "is no address"),
        ("attempts", "9" * 5000, "`attempts` "),
        ("budget.limit", "9" * 5000, "`budget.limit` "),
        ("input.defaults.id", "1", "an id is the row's own"),
        ("input.matrix.samples", "[1, 2]", "samples is a number of a row's own"),
        ("input.matrix.model", "[]", "at least 1 item"),
        ("input.matrix.model", "[a, b, a]", "lists a value twice"),
        ("input.matrix.model", "a", "should be a valid list"),
        ("input.delimiter", "'||'", "at most 1 character"),
        ("input.template", "a {}", "{} is not the bare name of a column"),
        ("input.template", "a {:>3}", "{} is not the bare name of a column"),
        ("input.template", "'a {b!r}'", "{b} is not the bare name of a column"),
        ("input.encoding", "base64", "no text encoding called 'base64'"),
        ("input.encoding", "utf-99", "no text encoding called 'utf-99'"),
    ],
)
def test_a_wrong_override_is_named_itself(write, key, value, says):
    said = complaint(write(SMALL), f"{key}={value}")
    assert says in said
    assert said.startswith(f"--set {key}=")


def test_a_prompt_has_one_source(write):
    said = complaint(write(SMALL), "input.template='{a} and {b}'", "input.columns.prompt=text")
    assert "the prompt comes from template or from a column" in said


def test_what_a_url_says_is_never_repeated(write):
    for said in (
        complaint(write(SMALL), "service.base_url=ftp://user:hunter2@h"),
        complaint(write(SMALL.replace("https://api.example.com/", "ftp://user:hunter2@h"))),
        complaint(write(SMALL), "ledger.url={postgresql://user:hunter2@h: 1}"),
        complaint(write(SMALL), "service={base_url: 'ftp://user:hunter2@h'}"),
        complaint(write(SMALL), "service.base_url=http://user:hunter2/x@h"),
        complaint(write(SMALL), "ledger.url:postgresql://user:hunter2@h/db"),
        complaint(write(SMALL), "ledger={postgresql://user:hunter2@h}"),
        complaint(write(SMALL + "ledger: postgresql+psycopg://user:p@ss/hunter2@h/db\n")),
        complaint(write(SMALL + f"ledger: postgresql://user:{'hunter2' * 20}@h/db\n")),
        complaint(write(SMALL + "ledger: {postgresql://user:hunter2@h: 1}\n")),
        complaint(write(SMALL), "postgresql://user:hunter2@h=1"),
    ):
        assert "hunter2" not in said


def test_overrides_go_over_the_file_and_are_yaml(write):
    path = write(SMALL + "budget: {limit: 1, on_exceed: refuse}\n")
    settings = load(
        path, ["budget.limit=2.50", "poll.interval=0.1", "input.matrix.model=[a, b]", "limits.image_rpm=null"]
    )
    assert settings.budget.model_dump(include={"limit", "on_exceed"}) == {
        "limit": Decimal("2.50"),
        "on_exceed": "refuse",
    }
    assert settings.poll.interval == 0.1
    assert settings.input.matrix == {"model": ["a", "b"]}
    assert settings.limits.image_rpm is None


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("budget.limit", "takes the form a.b=value"),
        ("=5", "takes the form a.b=value"),
        ("budget..limit=5", "takes the form a.b=value"),
        ("batch.name=5", "`batch` is a single value"),
        ("budget.wall=5", "--set budget.wall=5: unknown key `budget.wall`"),
        ("budget.limit=[", "--set budget.limit=[: is not valid YAML"),
    ],
)
def test_an_override_that_cannot_be_used_is_named(write, override, says):
    assert says in complaint(write(SMALL), override)


def test_a_missing_key_is_named(write):
    path = write("batch: b\nservice: {}\n")
    said = complaint(path)
    assert f"{path}, line 2: the key `service.base_url` is missing" in said
    assert "the key `input` is missing" in said


def test_an_unset_variable_is_named_with_its_line(write, monkeypatch):
    monkeypatch.delenv("CALLSHEET_NOWHERE", raising=False)
    path = write(SMALL + "report:\n  url: out/${CALLSHEET_NOWHERE}/report\n")
    assert complaint(path) == f"{path}, line 5: the environment variable CALLSHEET_NOWHERE is not set"


def test_variables_are_replaced_in_place_and_can_be_escaped(write, monkeypatch):
    monkeypatch.setenv("WHO", "ann")
    monkeypatch.setenv("EMPTY", "")
    path = write(SMALL + 'report: {url: "out/${WHO}/${EMPTY:-e}/${NOT_THERE:-d}"}\n')
    settings = load(path, ["input.template=for $${price}, {product}"])
    assert settings.report.url == "out/ann/e/d"
    assert settings.input.template == "for ${price}, {product}"
    assert "line 4" in complaint(write(SMALL + 'report: {url: "${1}"}\n'))


def test_an_empty_variable_is_no_way_to_say_none(write, monkeypatch):
    """Least of all for the budget, whose wall would be gone."""
    monkeypatch.setenv("EMPTY", "")
    for line in (
        "budget:\n  limit: ${EMPTY}",
        "budget:\n  limit: ${EMPTY:-}",
        "budget: {limit: }",
    ):
        path = write(SMALL + line + "\n")
        assert complaint(path).endswith(": `budget.limit` is empty")
        assert complaint(path).startswith(f"{path}, line ")
    assert complaint(write(SMALL + "on_doubt: ${EMPTY}\n")).endswith("line 4: `on_doubt` is empty")
    for value in ("", " ", "# none", "${EMPTY}"):
        said = complaint(write(SMALL), f"budget.limit={value}")
        assert said == f"--set budget.limit={value}: `budget.limit` is empty"
    assert complaint(write(SMALL), "budget={limit: }").endswith("`budget.limit` is empty")
    monkeypatch.setenv("NONE", "null")
    for said in ("null", "~", "${NONE}", "${EMPTY:-null}"):
        assert load(write(SMALL + f"budget:\n  limit: {said}\n")).budget.limit is None
        assert load(write(SMALL + "budget: {limit: 5}\n"), [f"budget.limit={said}"]).budget.limit is None


def test_a_key_given_twice_is_named_with_its_line(write):
    said = complaint(write(SMALL + "poll:\n  interval: 1\n  interval: 2\n"))
    assert said.endswith("line 6: the key `poll.interval` is given twice")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no settings"),
        ("- a\n- b\n", "holds no settings"),
        ("batch: b\n  c: [\n", "line 2: is not valid YAML"),
        ("batch: b\nx: \x07\n", "line 2: is not valid YAML"),
        ("a: &a\n  b: *a\n", "an alias contains itself"),
    ],
)
def test_what_is_no_config_is_said_so(write, text, says):
    assert says in complaint(write(text))


def test_a_config_that_cannot_be_read_is_named(tmp_path):
    assert "there is no such config file" in complaint(tmp_path / "none.yaml")
    assert "cannot be read" in complaint(tmp_path)
    (tmp_path / "latin.yaml").write_bytes("batch: café".encode("latin-1"))
    assert "is not UTF-8" in complaint(tmp_path / "latin.yaml")


def test_settings_cannot_be_changed(write):
    with pytest.raises(ValidationError):
        load(write(SMALL)).budget.limit = Decimal(1)  # type: ignore[misc]


def test_every_key_is_described():
    def bare(section: type[BaseModel], prefix: str = "") -> list[str]:
        found = []
        for name, field in section.model_fields.items():
            inner = field.annotation
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                found += bare(inner, f"{prefix}{name}.")
            elif not field.description:
                found.append(prefix + name)
        return found

    assert bare(Settings) == []
