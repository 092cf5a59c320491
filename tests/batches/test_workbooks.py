"""Excel workbooks as people and programs save them: formulas, several sheets, and what is no workbook."""

from __future__ import annotations

import zipfile
from collections.abc import Collection
from pathlib import Path

import pytest

from callsheet.batches.read import read_batch
from callsheet.batches.workbooks import code_of, shown
from callsheet.errors import InputError
from tests.batches.conftest import places, prompts, rows_of, settings

_MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_DOCUMENT = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_LINKS = f'<Relationships xmlns="{_PACKAGE}/relationships">{{}}</Relationships>'


def text(cell: str) -> str:
    return f't="inlineStr"><is><t>{cell}</t></is>'


def workbook(
    path: Path, formats: tuple[str, ...] = (), hidden: Collection[int] = (), **sheets: list[list[str]]
) -> Path:
    """Writes a workbook; a cell is its XML behind `<c r="A1" `, see `text`; `s="1"` has the first format.

    `hidden` are the numbers of the rows that are hidden in each sheet.
    """
    kinds = '<Default Extension="xml" ContentType="application/xml"/><Default Extension="rels" '
    kinds += 'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    link = '<Relationship Id="r{}" Type="' + _DOCUMENT + '/{}" Target="{}"/>'
    names, links, parts = "", "", {}
    for at, (name, rows) in enumerate(sheets.items(), 1):
        names += f'<sheet name="{name}" sheetId="{at}" r:id="r{at}"/>'
        links += link.format(at, "worksheet", f"worksheets/sheet{at}.xml")
        xml = ""
        for row, cells in enumerate(rows, 1):
            placed = zip("ABCDE", cells, strict=False)
            filled = [f'<c r="{column}{row}" {cell}</c>' for column, cell in placed if cell]
            xml += f'<row r="{row}" spans="1:5" hidden="{int(row in hidden)}">{"".join(filled)}</row>'
        parts[f"xl/worksheets/sheet{at}.xml"] = f"<worksheet {_MAIN}><sheetData>{xml}</sheetData></worksheet>"
    codes = [f'<numFmt numFmtId="{at}" formatCode="{code}"/>' for at, code in enumerate(formats, 164)]
    styles = [f'<xf numFmtId="{at}"/>' for at in range(164, 164 + len(formats))]
    styled = f"<numFmts>{''.join(codes)}</numFmts><cellXfs><xf/>{''.join(styles)}</cellXfs>"
    parts |= {
        "_rels/.rels": _LINKS.format(link.format(1, "officeDocument", "xl/workbook.xml")),
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">{kinds}</Types>',
        "xl/workbook.xml": f'<workbook {_MAIN} xmlns:r="{_DOCUMENT}"><sheets>{names}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": _LINKS.format(links),
    }
    if formats:
        parts["xl/styles.xml"] = f"<styleSheet {_MAIN}>{styled}</styleSheet>"
    with zipfile.ZipFile(path, "w") as file:
        for part, content in parts.items():
            file.writestr(part, content)
    return path


HEADER = [text("prompt"), text("samples"), text("sku")]


def test_a_formula_that_has_failed_is_no_empty_cell(tmp_path):
    """An empty cell would be a default: one sample. In a column that is only carried it is kept as shown."""
    rows = [
        [text("a cat"), 't="e"><f>#REF!*2</f><v>#REF!</v>', text("x")],
        ['t="e"><f>VLOOKUP(1,A1:A2,1)</f><v>#N/A</v>', "><v>1</v>", text("y")],
        [text("a dog"), "><f>1+1</f><v>2</v>", 't="e"><f>1/0</f><v>#DIV/0!</v>'],
    ]
    read = read_batch(settings(workbook(tmp_path / "x.xlsx", Shots=[HEADER, *rows])))
    assert rows_of(read, "line", "prompt", "samples") == [(4, "a dog", 2)]
    assert read.rows["carried"].to_list() == [{"sku": "#DIV/0!"}]
    assert [(line, column) for line, column, _ in places(read)] == [(2, "samples"), (3, "prompt")]
    assert read.rejects["value"].to_list() == ["#REF!", "#N/A"]
    assert not read.notes


def test_what_programs_write_for_an_empty_cell_is_no_prompt(batch):
    empty = ["NaN", "none", "NULL", " <NA>", "undefined"]
    read = batch("id,prompt\n" + "".join(f"{at},{cell}\n" for at, cell in enumerate([*empty, "none of it"])))
    assert prompts(read) == [(7, "none of it")]
    assert {*read.rejects["reason"]} == {"is what a program has written for an empty cell"}


def test_the_error_of_a_formula_is_no_prompt_in_a_csv_either(batch):
    read = batch("prompt,product\n#NAME?,hat\na cat,#N/A\n")
    assert prompts(read) == [(3, "a cat")]
    ((line, column, reason),) = places(read)
    assert (line, column) == (2, "prompt")
    assert "is the error of a formula" in reason
    read = batch("product\nhat\n#N/A\n", template="a photo of a {product}")
    assert prompts(read) == [(2, "a photo of a hat")]
    assert [(line, column) for line, column, _ in places(read)] == [(3, "product")]


def test_formulas_without_a_saved_result_are_said(tmp_path):
    """A program that writes a workbook does not calculate it. An empty text is a result."""
    rows = [[text("a cat"), "><f>1+1</f><v></v>"]]
    (note,) = read_batch(settings(workbook(tmp_path / "x.xlsx", Shots=[HEADER, *rows]))).notes
    assert "has formulas without a result" in note
    rows = [[text("a cat"), 't="str"><f>IF(1,"","")</f><v></v>']]
    assert not read_batch(settings(workbook(tmp_path / "y.xlsx", Shots=[HEADER, *rows]))).notes


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ([[text("Cover")], [text("2026")]], "there is no column 'prompt'"),
        ([], "is empty"),
        ([HEADER], "has no rows"),
    ],
)
def test_a_sheet_that_cannot_be_used_is_named_with_the_others(tmp_path, first, said):
    path = workbook(tmp_path / "x.xlsx", Cover=first, Shots=[HEADER, [text("a cat")]])
    with pytest.raises(InputError, match=said) as caught:
        read_batch(settings(path))
    assert "sheet 'Cover' (input.sheet may be Cover, Shots)" in caught.value.message
    named = read_batch(settings(path, sheet="Shots"))
    assert (prompts(named), named.notes) == ([(2, "a cat")], ())


def test_that_a_workbook_has_other_sheets_is_said(tmp_path):
    path = workbook(tmp_path / "x.xlsx", Old=[HEADER, [text("a cat")]], Shots=[HEADER, [text("a dog")]])
    read = read_batch(settings(path))
    assert prompts(read) == [(2, "a cat")]
    assert "sheet 'Old' (input.sheet may be Old, Shots)" in read.notes[0]


def test_hidden_rows_are_counted_and_asked_about_until_the_config_says_what_becomes_of_them(tmp_path):
    """By a filter or by hand; those that hold nothing, the header, or what `input.where` leaves are none."""
    rows = [[text(prompt), "", text(sku)] for prompt, sku in (("a cat", "x"), ("a dog", "y"), ("a fox", "x"))]
    path = workbook(tmp_path / "x.xlsx", hidden=(1, 2, 4, 5, 6, 7), Shots=[[], HEADER, *rows, [], []])
    read = read_batch(settings(path))
    assert prompts(read) == [(3, "a cat"), (4, "a dog"), (5, "a fox")]
    [sentence] = read.unclear
    assert sentence.startswith(f"{path}, line 4, 5: 2 rows are hidden, and read")
    for hidden, left in (("read", 3), ("leave", 1)):
        read = read_batch(settings(path, hidden=hidden))
        [note] = read.notes
        assert (read.total, read.left_out, read.unclear) == (left, 0, ())
        assert "2 rows are hidden, and " in note
    [sentence] = read_batch(settings(path, where={"sku": "x"})).unclear
    assert "line 5: 1 row is hidden" in sentence
    assert not read_batch(settings(path, where={"prompt": "a cat"})).unclear


def test_numbers_are_read_as_their_sheet_shows_them(tmp_path):
    """As in its CSV; otherwise its ids would be others there, and everything would be bought twice."""
    formats = ("000", "h:mm", "[h]:mm:ss", "00-0")
    header = ["", text("id"), text("prompt"), text("aspect_ratio")]
    rows = [
        ["", 's="1"><v>1</v>', text("a kite"), 's="2"><v>0.6729166666666667</v>'],
        ["", 's="1"><f>1+1</f><v>2</v>', text("a boat"), 's="2"><v>4.2361111111111113E-2</v>'],
        ["", 's="4"><v>5</v>', text("a hat"), 's="3"><v>1.339583333333333</v>'],
        ["", f's="1" {text("x")}', text("a cup"), text("9:16")],
    ]
    path = workbook(tmp_path / "shots.xlsx", formats, Shots=[[], header, *rows])
    read = read_batch(settings(path))
    assert rows_of(read, "line", "row_id", "aspect_ratio") == [
        (3, "001", "16:9"),
        (4, "002", "1:1"),
        (5, "00-5", "32:9"),
        (6, "x", "9:16"),
    ]


@pytest.mark.parametrize(
    ("number", "code", "text"),
    [
        ("12345", "000", "12345"),
        ("7", '"shot-"00', "shot-07"),
        ("123456789", "000-00-0000", "123-45-6789"),
        ("0.125", "0.0%", "12.5%"),
        ("-1234567.891", "#,##0.00", "-1,234,567.89"),
        ("-5", "#,##0;(#,##0)", "(5)"),
        ("0", '0;-0;"none"', "none"),
        ("1234567", '#,##0.0,,"M"', "1.2M"),
        ("7", "_([$€-407]* #,##0.0#_);_(@_)", "€7.0"),
        ("0.5", "#.##", ".5"),
        ("123456", "0.00E+00", "1.23E+05"),
        ("46027", "[$-409]d-mmm-yy;@", "5-Jan-26"),
        ("46027.75", "dddd, mmmm d, yyyy h:mm AM/PM", "Monday, January 5, 2026 6:00 PM"),
        ("46027", 'yyyy"年"m"月"d"日"', "2026年1月5日"),
        ("46027.5001", "hh:mm:ss.00", "12:00:08.64"),
        ("-5", '_($* #,##0.00_);_($* (#,##0.00);_($* "-"??_);_(@_)', "$(5.00)"),
        ("12500", "0.0E+00", "1.3E+04"),
        ("0", "0.0E+00", "0.0E+00"),
        ("-0.00999", "0.0E-0", "-1.0E-2"),
        ("1.25", 'General" pcs"', "1.25 pcs"),
        ("-3", '"Nr. "General', "-Nr. 3"),
        # not read: they stay as they are
        ("0.5", "# ??/??", None),
        ("123456789.123", 'General" pcs"', None),
        ("5", "[<10]0;00", None),
        ("46027", "[$-407]d. mmmm yyyy", None),
        ("46027", "[$-F800]dddd, mmmm dd, yyyy", None),
        ("1e30", "000", None),
        ("-1", "yyyy", None),
    ],
)
def test_a_format_is_applied_as_a_spreadsheet_does(number, code, text):
    assert shown(number, code) == text


def test_dates_of_the_systems_own_form_are_iso_and_may_be_counted_from_1904():
    assert shown("46027", code_of(14, {}) or "") == "2026-01-05"
    assert shown("44565", code_of(14, {}) or "", since_1904=True) == "2026-01-05"
    assert [code_of(number, {164: "General"}) for number in (0, 49, 164)] == [None] * 3
