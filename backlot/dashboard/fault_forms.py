"""A form for each kind of fault, made from the rules of the faults file, and a rule made from a form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from backlot.dashboard.forms import FormError
from backlot.faults import RULE, AnyRule, Rule
from backlot.yaml_files import problems

NOT_ITS_OWN = frozenset({"do", "fields", *Rule.model_fields})
"""What every kind has; and `fields`, for which a form has no place."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form: its name, its values where it has few, and the one that it begins with."""

    name: str
    choices: tuple[str, ...]
    value: str
    required: bool


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: the `do` of the faults file, what it does, and its fields."""

    do: str
    about: str
    fields: tuple[Field, ...]


def kinds() -> list[Kind]:
    """Every kind that the faults file has, in its order."""
    union, *_ = get_args(AnyRule)
    return [kind_of(rule) for rule in get_args(union)]


def kind_of(rule: type[Rule]) -> Kind:
    """The form of one kind."""
    about = (rule.__doc__ or "").strip().splitlines()[0].replace("`", "")
    fields = [field_of(name, info) for name, info in rule.model_fields.items() if name not in NOT_ITS_OWN]
    if len(rule.acts_on) > 1:
        fields.append(Field("endpoint", ("", *sorted(rule.acts_on)), "", required=False))
    fields.append(Field("prompt", (), "", required=False))
    return Kind(do_of(rule), about, tuple(fields))


def do_of(rule: type[Rule]) -> str:
    """The `do` of a kind of rule."""
    return str(get_args(rule.model_fields["do"].annotation)[0])


def field_of(name: str, info: FieldInfo) -> Field:
    """A field of a kind's own."""
    choices = tuple(str(each) for each in literals(info.annotation))
    if info.annotation is bool:
        choices = ("false", "true")
    value = "" if info.is_required() else str(info.default)
    return Field(name, choices, value.lower() if info.annotation is bool else value, info.is_required())


def literals(annotation: Any) -> tuple[Any, ...]:
    """The values of a `Literal`; none for another type."""
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def rule_of(fields: dict[str, str]) -> Rule:
    """The rule that a form asks for.

    Raises:
        FormError: a field is wrong, or the fault does not exist.
    """
    given: dict[str, Any] = {name: text.strip() for name, text in fields.items() if text.strip()}
    union, *_ = get_args(AnyRule)
    rule: type[Rule] | None = next((each for each in get_args(union) if do_of(each) == given.get("do")), None)
    for name, text in given.items():
        if rule and name in rule.model_fields:
            values = {str(each): each for each in literals(rule.model_fields[name].annotation)}
            given[name] = values.get(text, text)
    try:
        return RULE.validate_python(given)
    except ValidationError as error:
        raise FormError({key.rpartition(".")[2]: reason for key, reason in problems(error)}, fields) from None


def text_of(rule: Rule) -> str:
    """A rule as the faults file has it."""
    said = rule.model_dump(mode="json", exclude_unset=True)
    ordered = {name: said[name] for name in (*Rule.model_fields, "do", *said) if name in said}
    return ", ".join(f"{name}: {value}" for name, value in ordered.items())
