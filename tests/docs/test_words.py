"""Who puts what into words (`docs/architecture.md`, "Read this first")."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOT_SAID = {"callsheet/first_look/config_text.py"}
"""Files whose sentences about money are no words to a person: a comment of a config."""


def in_words(text: ast.JoinedStr) -> bool:
    """Whether a text puts an amount between words."""
    amounts = [
        part for part in ast.walk(text) if isinstance(part, ast.Call) and "dollars" in ast.dump(part.func)
    ]
    words = "".join(str(part.value) for part in text.values if isinstance(part, ast.Constant))
    return bool(amounts) and any(map(str.isalpha, re.sub("<[^>]*>", "", words)))  # not by tags of HTML


def sentences(node: ast.AST) -> Iterator[int]:
    """The lines of a module with such a text, but those of errors, which say themselves what they are."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr) and in_words(child):
            yield child.lineno
        elif not isinstance(child, ast.Raise):
            yield from sentences(child)


def test_a_sentence_about_an_amount_is_the_presenters_or_an_errors_own() -> None:
    files = [file for folder in ("callsheet", "flows", "tasks") for file in (ROOT / folder).rglob("*.py")]
    assert len(files) > 100
    others = [
        f"{name}:{line}"
        for file in files
        if not (name := file.relative_to(ROOT).as_posix()).startswith("callsheet/present/")
        and name not in NOT_SAID
        for line in sentences(ast.parse(file.read_text("utf-8")))
    ]
    assert others == []
