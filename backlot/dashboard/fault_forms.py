"""A form for each kind of fault, made from the rules of the faults file, and a rule made from a form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from backlot.faults import RULE, AnyRule, Rule

KINDS: dict[str, type[Rule]] = {
    get_args(rule.model_fields["do"].annotation)[0]: rule for rule in get_args(get_args(AnyRule)[0])
}
"""The kinds of faults, in the order of the faults file, by their `do`."""

NOT_ITS_OWN = frozenset({"do", "fields", *Rule.model_fields})
"""What every kind has; and `fields`, for which a form has no place."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form: its name, its values where it has few, and the one that it begins with."""

    name: str
    choices: tuple[str, ...] = ()
    value: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: the `do` of the faults file, what it does, and its fields."""

    do: str
    about: str
    fields: tuple[Field, ...]


def kinds() -> list[Kind]:
    """Every kind that the faults file has, in its order."""
    found = []
    for do, rule in KINDS.items():
        fields = [own_field(name, rule) for name in rule.model_fields if name not in NOT_ITS_OWN]
        if len(rule.acts_on) > 1:
            fields.append(Field("endpoint", ("", *sorted(rule.acts_on))))
        fields.append(Field("prompt"))
        about = (rule.__doc__ or "").splitlines()[0].replace("`", "")
        found.append(Kind(do, about, tuple(fields)))
    return found


def own_field(name: str, rule: type[Rule]) -> Field:
    """A field of a kind's own."""
    info = rule.model_fields[name]
    choices = tuple(map(str, choices_of(info.annotation)))
    value = "" if info.is_required() else str(info.default)
    return Field(name, choices, value, info.is_required())


def choices_of(annotation: Any) -> tuple[Any, ...]:
    """The values of a type that has few; none for another type."""
    if annotation is bool:
        return (False, True)
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def rule_of(fields: dict[str, str]) -> Rule:
    """The rule that a form asks for.

    Raises:
        ValidationError: a field is wrong, or the fault does not exist.
    """
    given: dict[str, Any] = {name: text.strip() for name, text in fields.items() if text.strip()}
    rule = KINDS.get(given.get("do", ""), Rule)
    for name in given.keys() & rule.model_fields.keys():
        values = {str(each): each for each in choices_of(rule.model_fields[name].annotation)}
        given[name] = values.get(given[name], given[name])
    return RULE.validate_python(given)


def text_of(rule: Rule) -> str:
    """A rule as the faults file has it."""
    said = rule.model_dump(mode="json", exclude_unset=True)
    ordered = {name: said[name] for name in (*Rule.model_fields, "do", *said) if name in said}
    return ", ".join(f"{name}: {value}" for name, value in ordered.items())
