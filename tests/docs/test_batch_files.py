"""docs/batches.md: each of its files is read with its config as the page says."""

from __future__ import annotations

import re

import pytest

from tests.cli.test_rows import printed
from tests.docs.test_guides import Make, page, section

EXAMPLES = {
    title: text
    for title, text in re.findall(
        r"^### (.*?)\n(.*?)(?=^### |\Z)", section("batches.md", "I have this file"), re.DOTALL | re.MULTILINE
    )
    if "$ callsheet quote" in text
} | {"Rejected rows": section("batches.md", "Rejected rows")}


def in_one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_is_read_as_the_page_says(project: Make, title: str) -> None:
    folder = project().folder
    files = re.findall(r"^`([^`]+)`:\n\n```\w+\n(.*?)^```$", EXAMPLES[title], re.DOTALL | re.MULTILINE)
    for name, content in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    [(config, output)] = re.findall(
        r"^```\n\$ callsheet quote (.*?)\n(.*?)^```$", EXAMPLES[title], re.DOTALL | re.MULTILINE
    )
    said = in_one_line(printed("quote", config))
    for line in output.splitlines():
        assert in_one_line(line) in said, said


def test_every_type_of_file_that_is_read_is_on_the_page() -> None:
    from callsheet.batches import formats

    assert all(
        f"`{ending}`" in page("batches.md") for ending in (*formats._TEXT, *formats._PARQUET, *formats._EXCEL)
    )
