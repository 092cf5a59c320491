"""docs/configuration.md describes every setting, as the schema has it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from callsheet.config.load import load
from callsheet.config.settings import Section, Settings

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "configuration.md"


def keys(section: type[Section], prefix: str = "") -> dict[str, str | None]:
    """Every setting with its description."""
    described: dict[str, str | None] = {}
    for name, field in section.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            described |= keys(inner, f"{prefix}{name}.")
        else:
            described[prefix + name] = field.description
    return described


def test_every_setting_is_described():
    assert [key for key, description in keys(Settings).items() if not description] == []


def test_the_page_is_what_the_schema_generates():
    page = runpy.run_path(str(DOCS / "generate_configuration.py"))["page"]
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_the_page_has_a_row_for_every_setting():
    rows = re.findall(r"^\| `([a-z_.]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(keys(Settings))


def test_the_page_s_example_is_a_config(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLSHEET_BASE_URL", "https://api.example.com")
    example = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "run.yaml").write_text(example[0])
    assert load(tmp_path / "run.yaml").batch == "product-shots"
