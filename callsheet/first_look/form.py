"""A batch file that is looked at: its form, and what is in doubt of it.

The form is what must be known before there are columns: the sheet, the encoding, the list of rows, whether
there is a header, what a prompt is in a text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from callsheet.batches import columns
from callsheet.batches.formats import find_files, read_tables
from callsheet.batches.headers import Table, field_names, with_fields
from callsheet.batches.json_files import lists_of_rows
from callsheet.batches.judgements import Judgement, judge, ranked
from callsheet.batches.lists_of_prompts import likely_split
from callsheet.batches.texts import likely_readings
from callsheet.batches.workbooks import ALL_SHEETS, sheet_names
from callsheet.config.load import in_words
from callsheet.config.settings import Settings
from callsheet.errors import ConfigError, InputError
from callsheet.plain_text import and_more
from callsheet.service.models import Catalogue

_TEXTS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson")
_TABLES = (".csv", ".tsv", ".xlsx")
_NAMED = 12  # columns, sheets
_FAR = 2  # of how much a sheet looks like prompts


@dataclass(frozen=True, slots=True)
class Proposal:
    """A doubt: the setting, the question, and by each value that it may be what a person sees of that; the
    first one is taken.
    """

    setting: str
    question: str
    candidates: Mapping[str, str]

    @property
    def taken(self) -> str:
        """What is written into the config."""
        return next(iter(self.candidates))

    @property
    def others(self) -> list[str]:
        """What else it may be."""
        return [*self.candidates][1:]


@dataclass
class FileLook:
    """A batch file that is being looked at: its settings so far, and what is in doubt.

    Attributes:
        given: what a person has said.
        why: by column why it is taken.
        not_used: columns that seem to be for a field, each with the reason.
        other_texts: columns that might be prompts, and are not meant as far as is seen.
        unknown_models: what stands in a column of models of which the catalogue has none.
        films_by: the column of the prompts for films, where stills and films of them are made.
    """

    path: str
    catalogue: Catalogue
    given: Mapping[str, str]
    input: dict[str, Any] = field(default_factory=dict)
    proposals: list[Proposal] = field(default_factory=list)
    why: dict[str, str] = field(default_factory=dict)
    not_used: dict[str, str] = field(default_factory=dict)
    other_texts: list[str] = field(default_factory=list)
    unknown_models: list[str] = field(default_factory=list)
    films_by: str = ""

    @cached_property
    def tables(self) -> list[Table]:
        """What is in the file: a table, or of a workbook one for each sheet that is read; of a glob, what is
        in its first file.
        """
        tables = read_tables(self.settings())
        read = [*tables] if self.input.get("sheet") == ALL_SHEETS else [next(iter(tables))]
        return [
            replace(table, cells=with_fields(table.cells, field_names(table.cells.schema))) for table in read
        ]

    @property
    def cells(self) -> pl.DataFrame:
        """The cells of the first table."""
        return self.tables[0].cells

    @cached_property
    def judged(self) -> dict[str, Judgement]:
        """What each column holds."""
        return {column.name: judge(column) for column in self.cells if column.name}

    def again(self, **settings: Any) -> None:
        """Reads the file anew, with these settings of `input`."""
        self.input |= settings
        for name in ("tables", "judged"):
            self.__dict__.pop(name, None)

    def propose(self, setting: str, question: str, candidates: Mapping[str, str]) -> None:
        """Adds a doubt, unless a person has said what it is."""
        if setting not in self.given and len(candidates) > 1:
            self.proposals.append(Proposal(setting, question, candidates))

    def settings(self) -> Settings:
        """A config with what is known, and with any model where the file names none."""
        defaults = {"model": next(iter(self.catalogue), "any")} | self.input.get("defaults", {})
        service = {"base_url": "http://127.0.0.1:1"}
        input_values = {"path": self.path} | self.input | {"defaults": defaults}
        try:
            return Settings.model_validate({"batch": "guess", "service": service, "input": input_values})
        except ValidationError as error:  # what a person has given
            raise ConfigError(in_words(error)) from None

    def check_column(self, name: str) -> None:
        """Raises InputError where the file has no column of this name."""
        if name not in self.cells.columns:
            raise InputError(f"{self.path}: there is no column {name!r}; {self.its_columns()}")

    def its_columns(self) -> str:
        """Its columns in words, the first of them."""
        return f"the columns are {and_more(self.cells.columns[:_NAMED], self.cells.width)}"

    def example(self, name: str) -> str:
        """The first cell of a column that is filled."""
        return self.judged[name].example


def look_at_form(file: FileLook) -> None:
    """Says in `input` how the file is read, before its columns are looked at."""
    given, settings = file.given, ("sheet", "rows", "encoding")
    file.input |= {setting: given[setting] for setting in settings if given.get(setting)}
    name = find_files(file.path)[0]
    if name.lower().endswith(".xlsx") and "sheet" not in given:
        _choose_sheet(file, sheet_names(Path(name), name))
    if name.lower().endswith(_TEXTS) and "encoding" not in given:
        _choose_encoding(file, name)
    if name.lower().endswith(".json") and "rows" not in given:
        _choose_rows(file, name)
    _choose_header_or_split(file)


def _choose_sheet(file: FileLook, sheets: Sequence[str]) -> None:
    """Takes the first sheet whose columns hold prompts best; all that have its columns are a doubt."""
    if len(sheets) < 2:
        return
    scores: dict[str, float] = {}
    names: dict[str, list[str]] = {}
    for sheet in sheets:
        try:
            file.again(sheet=sheet)
            names[sheet] = file.cells.columns
            scores[sheet] = max(
                (likely.score for likely in ranked("prompt", file.judged.values())), default=0
            )
        except InputError:  # an empty one
            scores[sheet] = 0
    likely = [sheet for sheet in scores if scores[sheet]]
    if not likely:
        file.again(sheet=sheets[0])
        return
    best = max(likely, key=lambda sheet: scores[sheet])
    file.again(sheet=best)
    alike = [sheet for sheet in likely if names[sheet] == names[best]]
    candidates = {best: "this sheet alone"}
    if len(alike) > 1:
        candidates[ALL_SHEETS] = f"all {len(alike)} sheets with these columns"
    close = [sheet for sheet in likely if scores[sheet] > scores[best] - _FAR]
    candidates |= dict.fromkeys((sheet for sheet in close if sheet != best), "")
    if left_out := [sheet for sheet in sheets if sheet not in close]:
        names_of_sheets = and_more(left_out[:_NAMED], len(left_out))
        file.not_used[names_of_sheets] = "(sheets) hold nothing like these prompts"
    file.propose("sheet", "Which sheet has the prompts?", candidates)


def _choose_encoding(file: FileLook, name: str) -> None:
    """Takes the likeliest encoding of a text file that is not UTF-8."""
    content = Path(name).read_bytes()
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError:
        if readings := likely_readings(content):
            file.input["encoding"] = next(iter(readings))
            file.propose("encoding", "In which of these encodings is the text right?", readings)


def _choose_rows(file: FileLook, name: str) -> None:
    """Takes the list or object whose entries look most like rows with prompts."""
    try:
        document = json.loads(Path(name).read_bytes().decode(file.input.get("encoding", "utf-8-sig")))
    except ValueError:  # reading it says more
        return
    scores = lists_of_rows(document)
    best = next(iter(scores), "")
    if best and scores[best]:
        file.input["rows"] = best
        close = [path for path in scores if path and scores[best] - scores[path] < 1]
        file.propose("rows", "Which list has the rows?", dict.fromkeys(close, ""))


def _choose_header_or_split(file: FileLook) -> None:
    """Says whether a table has a header, and what is a prompt in a text without one."""
    answers, cells, lines = file.given, file.cells, file.tables[0].lines
    header = answers.get("header")
    if header == "none" or (not header and columns.is_no_header(cells.columns, cells)):
        file.again(header="none")
        candidates = {"none": "its first line is a row", "names": "its first line has names"}
        file.propose("header", "Has the file a header?", candidates)
        return
    is_table = Path(file.path).name.lower().endswith(_TABLES)
    if is_table and cells.width == 1 and not columns.is_name(cells.columns[0]):
        is_row, is_name = f"{cells.columns[0]} is a row", f"{cells.columns[0]} is the column's name"
        file.propose("header", "Has the file a header?", {"names": is_name, "none": is_row})
    if not Path(file.path).name.lower().endswith(".txt") or cells.columns != ["prompt"]:
        return
    prompts = cells["prompt"].to_list()
    split, is_doubt = (
        (answers["split"], False) if "split" in answers else likely_split(prompts, lines.to_list())
    )
    if split == "#":
        file.again(comments=split)
    elif split != "lines":
        file.again(split=split)
        if is_doubt:
            file.propose("split", "What is a prompt?", {split: file.cells["prompt"][0], "lines": prompts[0]})
