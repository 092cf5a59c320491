"""What the names of a file's columns are: those that the config names, and texts that are no names."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping

import yaml

from callsheet.config.settings import FileColumn, Input

_PROMPT_NAMES = ("prompt", "提示词", "提示詞", "プロンプト", "프롬프트", "промпт")
_TEXT_NAMES = {
    *("caption", "description", "text", "instruction", "instructions", "beschreibung", "bildbeschreibung"),
    *("texte", "légende", "texto", "descripción", "descrição", "descrizione", "testo", "описание"),
    *("描述", "説明", "文案", "설명"),
}

_WORDS = 4  # of a line that is a prompt and not a column's name
_NO_NAME = re.compile(r"[+-]?\d+([.,:x]\d+)?|https?://.*|s3://.*", re.IGNORECASE)


def template_columns(template: str | None) -> list[str]:
    """The columns that a template names, in its order."""
    if template is None:
        return []
    return [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]


def prompt_name(columns: Mapping[FileColumn, str | None]) -> str:
    """The name of the column with the prompts, by the config's columns; never a prompt itself."""
    name = columns.get("prompt")
    return "prompt" if name is None or is_a_prompt(name) else name


def id_name(config: Input) -> str:
    """The name of the column with the ids."""
    return config.names.get("id") or "id"


def needed(config: Input) -> list[str]:
    """The columns without which a file has no prompts."""
    return template_columns(config.template) or [prompt_name(config.names)]


def mapped(config: Input) -> list[str]:
    """The file's columns that `input.columns` names; of a ratio that of the width, and that of the height."""
    names = [name if isinstance(name, tuple) else (name,) for name in config.columns.values() if name]
    return [each for name in names for each in name]


def read_by(config: Input) -> list[str]:
    """The file's columns that the config reads beside those that `input.columns` names."""
    return [*template_columns(config.template), *template_columns(config.id), *config.where]


def is_a_prompt(name: str) -> bool:
    """Whether a text is a prompt rather than a column's name."""
    return len(name.split()) >= _WORDS and "prompt" not in name.lower()


def is_a_number(text: str) -> bool:
    """Whether a text is a number, a ratio or an address, and no column's name."""
    return _NO_NAME.fullmatch(text) is not None


def is_a_cell(text: str) -> bool:
    """Whether a text is a cell of a row, and no column's name."""
    return is_a_prompt(text) or is_a_number(text)


def rank(name: str) -> int:
    """How much a column's name is that of prompts: 2 for prompts, 1 for texts, 0 for anything else."""
    lower = name.lower()
    if "negative" in lower:
        return 0
    if any(word in lower for word in _PROMPT_NAMES):
        return 2
    return 1 if _TEXT_NAMES & {*re.split(r"[\W_]+", lower)} else 0


def in_yaml(text: str) -> str:
    """A text as a value of YAML on one line."""
    is_plain = re.fullmatch(r"[^\W\d][\w .-]*\w", text) and yaml.safe_load(text) == text
    if "\\" in text and "'" not in text and text.isprintable():
        return f"'{text}'"  # in which a backslash is one
    return text if is_plain else json.dumps(text, ensure_ascii=False)
