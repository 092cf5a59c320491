"""The fields of a form: parts of the config's sections, which replace what the config says."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter, ValidationError

from callsheet.config import form, settings
from callsheet.config.form import BudgetForm, ConfigFile, Group, InputForm, LimitsForm, ServiceForm, load_form
from callsheet.config.load import load
from callsheet.errors import ConfigError

CONFIG = """\
batch: test
service: {base_url: "http://127.0.0.1:8000"}
input: {path: shots.csv, defaults: {model: still-1}}
budget: {limit: "9.00", on_exceed: refuse}
"""


def test_a_field_replaces_what_the_config_says_and_an_empty_one_leaves_it(write):
    path = str(write(CONFIG))
    groups = {"budget": BudgetForm(limit="0.10"), "limits": LimitsForm(image_rpm=7), "input": InputForm()}
    made = load_form(path, ["limits.video_rpm=3"], **groups)
    assert (made.budget.limit, made.budget.on_exceed) == (Decimal("0.10"), "refuse")
    assert (made.limits.image_rpm, made.limits.video_rpm) == (7, 3)
    assert made.input == load(write(CONFIG)).input


@pytest.mark.parametrize("override", ["budget.limit=3", "budget={limit: 3}", "budget.limit="])
def test_a_field_and_an_override_of_the_same_setting_are_an_error(write, override):
    with pytest.raises(ConfigError, match=r"`budget\.limit` is given twice: .*override budget") as caught:
        load_form(str(write(CONFIG)), [override], budget=BudgetForm(limit="2"))
    assert "Leave the field empty" in caught.value.hint


@pytest.mark.parametrize("wrong", ["abc", "-1", "NaN", "Infinity", 0.1, True, "1.0000001", ""])
def test_money_is_exact_dollars(wrong):
    with pytest.raises(ValidationError, match="binary float" if isinstance(wrong, float) else "limit"):
        BudgetForm(limit=wrong)


@pytest.mark.parametrize("group", Group.__subclasses__())
def test_a_form_has_the_types_of_the_configs_sections_and_a_line_of_help(group: type[Group]):
    """A field accepts what its setting does; its help is one line with an example."""
    drawn = group.model_json_schema()
    section = getattr(settings, group.__name__.removesuffix("Form"))
    assert drawn["additionalProperties"] is False
    for name, field in group.model_fields.items():
        setting = section.model_fields[name]
        assert field.default is None
        assert drawn["properties"][name]["title"] == name
        assert not {"default", "anyOf"} & set(drawn["properties"][name]), "the UI would send null"
        assert "for example" in drawn["properties"][name]["description"]
        assert len(drawn["properties"][name]["description"]) < 100
        assert accepted(field.annotation) == accepted(Annotated[setting.annotation, *setting.metadata, None])


def accepted(annotation: Any) -> list[Any]:
    """Which of some values a type takes, and as what."""
    values = ["x", "1", "0", "-1", "", "0.1", "1e3", 1, 0, -1, 0.1, True, "https://h", "a/b.csv"]
    taken = []
    for value in values:
        try:
            taken.append((value, TypeAdapter(annotation).validate_python(value)))
        except ValidationError:
            continue
    return taken


def test_the_choice_of_configs_is_that_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert TypeAdapter(ConfigFile).json_schema() == {"type": "string", "minLength": 1}
    form.FOLDER.mkdir()
    for name in ("b.yaml", "a.yaml", "notes.txt"):
        (form.FOLDER / name).touch()
    (form.FOLDER / "old").mkdir()
    (form.FOLDER / "old" / "c.yaml").touch()
    other, listed = TypeAdapter(ConfigFile).json_schema()["anyOf"]
    assert listed["enum"] == ["configs/a.yaml", "configs/b.yaml"]
    assert other == {"type": "string", "minLength": 1, "title": "Path"}
    assert TypeAdapter(ConfigFile).validate_python("elsewhere/c.yaml") == "elsewhere/c.yaml"


BLOCK = "batch: test\nservice: {block: studio}\ninput: {path: shots.csv}\n"


def test_a_block_takes_the_place_of_the_address(write):
    assert load(write(BLOCK)).service.block == "studio"
    with pytest.raises(ConfigError, match=r"line 2: the key `service\.base_url` is missing"):
        load(write(BLOCK.replace("block: studio", "block: null")))


@pytest.mark.parametrize("with_form", [True, False])
def test_a_block_from_elsewhere_replaces_all_of_the_configs_service(write, with_form):
    """Its variables may not be set: a worker without the service's environment can run the config."""
    path = write(CONFIG.replace("http://127.0.0.1:8000", "${NO_SUCH_VARIABLE}"))
    if with_form:
        made = load_form(str(path), service=ServiceForm(block="studio"))
    else:
        made = load(path, ["service.block=studio"])
    assert (made.service.block, made.service.base_url) == ("studio", None)
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE is not set") as error:
        load(path, ["service.block=null"])
    assert "A run in Prefect has the variables of its worker." in error.value.hint
