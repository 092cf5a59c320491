"""The schema that an editor checks a config with: it takes what the loader takes, and refuses what it can."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from callsheet.config.load import parse, split_override
from callsheet.config.schema import config_schema
from callsheet.config.settings import SOURCES, Settings
from callsheet.errors import ConfigError
from tests.config.conftest import SMALL
from tests.config.test_load import WRONG_LINES, WRONG_VALUES

ROOT = Path(__file__).parents[2]
BEYOND = {  # bytes, digits, ports and encodings
    f"batch: {'照' * 20}",
    "budget: {limit: 0.0000001}",
    "service.base_url: http://127.0.0.1:655",
    "input.encoding: base64",
}

SCHEMA = Draft7Validator(config_schema())


def seen(text: str) -> Any:
    """A config as an editor sees it: its variables are text, and its numbers JSON's."""
    return json.loads(json.dumps(parse(text.replace("${", "$${"), "run.yaml", {}), default=float))


def problems(config: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in SCHEMA.iter_errors(config)]


def configs() -> dict[str, str]:
    """Every config of the repository, and each part of one that a page shows."""
    files = [*ROOT.glob("*/**/*.yaml")]
    texts = {str(file): file.read_text("utf-8") for file in files if ".venv" not in file.parts}
    for page in (*ROOT.glob("docs/*.md"), ROOT / "README.md"):
        blocks = re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        texts |= {f"{page.name}, block {number}": block for number, block in enumerate(blocks)}
    return {
        name: text
        for name, text in texts.items()
        if isinstance(content := yaml.safe_load(text), dict) and {*content} <= {*Settings.model_fields}
    }


def test_every_config_of_the_repository_is_one_by_the_schema():
    texts = configs()
    assert len([name for name in texts if name.endswith(".yaml")]) >= 5
    assert len(texts) >= 20
    for name, text in texts.items():
        config = seen(SMALL) | seen(text)
        if not {*SOURCES} & {*config["input"]}:  # a page shows a part of it
            config["input"]["path"] = "shots.csv"
        assert not problems(config), name


@pytest.mark.parametrize(
    "line",
    [
        "budget: {limit: '${LIMIT:-5}', per_day: 20, ledger: '20.00', approve_above: null}",
        "budget:",
        "limits: {image_rpm: '${RPM}', concurrency: '8'}",
        "checks: {blank: off, command: null}",
        "on_doubt: ${ON_DOUBT}",
        "retry_failed: all",
        "review: {buy_again: '${AGAIN}'}",
        "storage: {put: {ACL: private}, sidecar: yes}",
    ],
)
def test_a_value_may_be_written_in_each_way_that_the_loader_reads(line):
    assert not problems(seen(SMALL + line))


def wrong_configs() -> dict[str, Any]:
    """What the loader refuses, as far as it is YAML that an editor can check."""
    wrong = {line: SMALL + line for line, _ in WRONG_LINES}
    configs = {}
    for line, text in wrong.items():
        with suppress(ConfigError):
            configs[line] = seen(text)
    for key, value, _ in WRONG_VALUES:
        config = seen(SMALL)
        *places, name = split_override(f"{key}={value}")[0]
        section = config
        for place in places:
            section = section.setdefault(place, {})
        with suppress(ConfigError):
            section[name] = parse(value, key, {}, (*places, name))
        configs[f"{key}: {value[:20]}"] = config
    return configs


WRONG = wrong_configs()


@pytest.mark.parametrize("name", WRONG)
def test_what_the_loader_refuses_is_refused_where_a_schema_can(name):
    assert bool(problems(WRONG[name])) is (name not in BEYOND)
