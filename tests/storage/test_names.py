"""Names of stored files are safe and different, whatever the ids are."""

from __future__ import annotations

import unicodedata
from pathlib import PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from callsheet.storage.names import folded, name, safe_name

DEVICES = {"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"}
DEVICES |= {f"{port}{number}" for port in ("COM", "LPT") for number in "123456789\xb9\xb2\xb3"}

ids = (
    st.text(max_size=150)
    | st.text("./%~\\ aA-_\0é", max_size=12)
    | st.integers(0, 400).map(lambda n: "x" * n)
)


@given(ids, ids)
def test_no_two_ids_share_a_name(one: str, other: str) -> None:
    assert (safe_name(one) == safe_name(other)) == (one == other)


@given(ids)
def test_a_safe_name_is_one_segment_of_letters_digits_and_blanks(row_id: str) -> None:
    safe = safe_name(row_id)
    assert all(unicodedata.category(character)[0] in "LMN" or character in "-_.,%~ " for character in safe)
    assert unicodedata.is_normalized("NFC", safe), "macOS and S3 show the same name"
    assert len(safe.encode()) <= 100
    assert not safe.startswith((".", " ")) and not safe.endswith(" ")


@given(
    st.sampled_from(
        ["{batch}/{row_id}-{sample}-{index}.{ext}", "{row_id}", "..{row_id}/.{batch}", "{model}/"]
    ),
    ids,
    ids,
)
def test_a_name_stays_inside_the_store(template: str, row_id: str, model: str) -> None:
    made = name(template, batch="b", row_id=row_id, sample=1, index=0, ext="png", model=model)
    path = PurePosixPath(made)
    assert not path.is_absolute()
    assert made == str(path), "no empty segment, and none that is a single dot"
    assert ".." not in path.parts
    assert all(len(part.encode()) <= 200 for part in path.parts)


literals = st.text('abc./<>:"|?*\\ .\x01$', max_size=12) | st.sampled_from(sorted(DEVICES)).map(str.lower)


@given(literals, ids | st.sampled_from(sorted(DEVICES)), st.sampled_from(["", ".", ".{ext}", " ", "/x"]))
def test_every_part_of_a_name_is_one_that_windows_takes(literal: str, row_id: str, end: str) -> None:
    """It refuses some characters and the names of devices, and drops dots and blanks at the end."""
    for template in (f"{literal}{{row_id}}{end}", f"{{row_id}}{end}", f"{literal}/{{row_id}}{literal}{end}"):
        for part in name(template, row_id=row_id, ext="png").split("/"):
            assert not set(part) & set('<>:"\\|?*\x01')
            assert part == part.rstrip(". ")
            assert part.partition(".")[0].rstrip(" ").upper() not in DEVICES
            assert 0 < len(part) <= 200


def test_a_name_that_windows_does_not_take_has_its_characters_encoded() -> None:
    made = {row_id: name("{row_id}.{ext}", row_id=row_id, ext="png") for row_id in ("CON", "nul.x", "COM10")}
    assert made == {"CON": "%43ON.png", "nul.x": "%6Eul.x.png", "COM10": "COM10.png"}
    assert name("day 1: {row_id}./{ext} ", row_id="a", ext="png") == "day 1%3A a%2E/png%20"


def test_plain_ids_stay_readable_in_names() -> None:
    template = "{batch}/{row_id}-{sample}-{index}.{ext}"
    assert (
        name(template, batch="shots", row_id="SKU_1.a", sample=2, index=0, ext="jpeg")
        == "shots/SKU_1.a-2-0.jpeg"
    )
    assert name(template, batch="shots", row_id="../../etc", sample=1, index=0, ext="png") == (
        "shots/%2E.,..,etc-1-0.png"
    )
    assert safe_name("Kännchen grün") == "Kännchen grün"
    assert [safe_name(row_id) for row_id in ("夜の海", "हिन्दी", "مصباح")] == ["夜の海", "हिन्दी", "مصباح"]
    assert safe_name(" a  b/ü~") == "%20a%20%20b,ü%7E"
    assert [safe_name(row_id) for row_id in ("s01-kite/1", "s01-kite,1")] == ["s01-kite,1", "s01-kite%2C1"]
    assert safe_name("cafe\u0301") == "cafe%CC%81", "another id than that with one letter"
    assert len(safe_name("夜" * 34).encode()) <= 100
    assert safe_name("y" * 101).startswith("y" * 67 + "~")
    assert name("{a}{b}{c}.png", a="1" * 100, b="2" * 100, c="3" * 100).endswith(".png")


def test_a_carried_column_may_have_any_name_that_a_template_can_write() -> None:
    """Also the dotted one of a value inside a JSON object."""
    carried = {"body.kind": "sea", "0": "nought", "a[b]": "x.jpg"}
    made = name("{body.kind}/{0}/{a[b]}-{{{row_id}}}.{ext}", carried, row_id="r", ext="png")
    assert made == "sea/nought/x-{r}.png"


def test_names_that_some_disks_take_for_the_same_have_the_same_folded_form() -> None:
    assert folded("Shots/CAFÉ.png") == folded("shots/cafe\u0301.PNG") == "shots/café.png"
    assert folded("STRASSE") == folded("straße")
    assert folded("a.png") != folded("b.png")
