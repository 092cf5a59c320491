"""What tells a row from all others: its own id, or its content's hash and a count of equal rows."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import date
from decimal import Decimal
from fnmatch import fnmatchcase
from urllib.parse import unquote

import polars as pl

from callsheet.cells import IMAGE_COLUMNS, same_prompt, wrong_cells
from callsheet.config.settings import COLUMNS

THIS_ID = " this id already; input.id makes one of several columns, and input.columns {id: null} does without"
"""What is wrong with a repeated id, after the line that has it first."""

_SIGNATURES = (
    # S3 and what speaks its protocol, version 4: docs.aws.amazon.com/AmazonS3/latest/API/
    # sigv4-query-string-auth.html; version 2: .../userguide/RESTAuthentication.html
    ("x-amz-signature", "x-amz-*"),
    ("awsaccesskeyid signature", "expires x-amz-security-token"),
    # docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/private-content-creating-signed-url-*.html
    ("key-pair-id signature", "expires policy hash-algorithm"),
    # cloud.google.com/storage/docs/access-control/signed-urls and signed-urls-v2; cdn/docs/using-signed-urls
    ("x-goog-signature", "x-goog-*"),
    ("googleaccessid signature", "expires"),
    ("keyname signature", "expires urlprefix"),
    # learn.microsoft.com/rest/api/storageservices/create-service-sas, create-account-sas,
    # create-user-delegation-sas
    (
        "sig sv",
        "ss srt sp st se spr sip sr si sdd ses saoid suoid scid skoid sktid skt ske sks skv skdutid sduoid "
        "srh srq",
    ),
    # Alibaba OSS, versions 4 and 2, and version 1: alibabacloud.com/help/doc-detail/31952.htm. x-oss-process
    # is no part of a signature: it makes another image.
    (
        "x-oss-signature",
        "x-oss-signature-version x-oss-credential x-oss-date x-oss-expires x-oss-security-token "
        "x-oss-additional-headers x-oss-access-key-id",
    ),
    ("ossaccesskeyid signature", "expires security-token"),
    # Tencent COS: tencentcloud.com/document/product/436/7778
    (
        "q-signature",
        "q-sign-algorithm q-ak q-sign-time q-key-time q-header-list q-url-param-list x-cos-security-token",
    ),
    # Huawei OBS: obs-community.obs.cn-north-1.myhuaweicloud.com/sign/query_signature.html
    ("accesskeyid signature", "expires x-obs-security-token"),
    # TOS: docs.byteplus.com/en/docs/tos/reference-including-a-signature-in-the-url, and
    # reference-presigned-url-with-the-x-tos-policy-query-parameter
    (
        "x-tos-signature",
        "x-tos-algorithm x-tos-credential x-tos-date x-tos-expires x-tos-signedheaders "
        "x-tos-security-token x-tos-policy",
    ),
    # OpenStack Swift: docs.openstack.org/swift/latest/api/temporary_url_middleware.html
    ("temp_url_sig temp_url_expires", "temp_url_prefix temp_url_ip_range"),
    # Akamai: techdocs.akamai.com, "Auth Token 2.0 Verification"; it may have any name, and mostly has these
    ("hdnts", ""),
    ("hdnea", ""),
    # Discord: docs.discord.com/developers/reference, "Signed Attachment CDN URLs"
    ("ex is hm", ""),
    # SharePoint and OneDrive (@microsoft.graph.downloadUrl): in no reference, and in every such address
    ("tempauth", ""),
)
"""Signatures in the query of an address, by the names of their parameters in lower case: those that all of
them have, by which an address is known to be signed, and those that it may have besides. Without the first, a
parameter with one of these names is the address's own. Pairs of common words (`expires` and `token`) are not
here: of an address with its own parameters of these names, two images would be one job."""

_ADDRESSES = re.compile(r"""https://[^\s"|]*\?[^\s"|]+""")


def without_signature(address: str) -> str:
    """An `https://` address without the parameters of its signature, which is new each time it is made."""
    base, mark, fragment = address.partition("#")
    path, _, query = base.partition("?")
    parameters = [(unquote(parameter.partition("=")[0]).lower(), parameter) for parameter in query.split("&")]
    names = {name for name, _ in parameters}
    signed = [
        pattern
        for always, besides in _SIGNATURES
        if names.issuperset(always.split())
        for pattern in (*always.split(), *besides.split())
    ]
    kept = [
        parameter
        for name, parameter in parameters
        if name and not any(fnmatchcase(name, pattern) for pattern in signed)
    ]
    return address if not signed else path + ("?" if kept else "") + "&".join(kept) + mark + fragment


def without_signatures(texts: pl.Expr) -> pl.Expr:
    """Cells that name images, with each address without its signature."""

    def bare(cells: pl.Series) -> pl.Series:
        at = cells.str.contains("https://", literal=True).fill_null(value=False).arg_true()
        plain = [_ADDRESSES.sub(lambda link: without_signature(link[0]), cell) for cell in cells.gather(at)]
        return cells.scatter(at, plain) if plain else cells

    return texts.map_batches(bare, return_dtype=pl.String)


def sha256(text: pl.Expr) -> pl.Expr:
    """The SHA-256 of each text as UTF-8, in hex; null where there is none."""
    return text.cast(pl.Binary).map_elements(
        lambda content: hashlib.sha256(content).hexdigest(), return_dtype=pl.String
    )


def nfc(text: pl.Expr) -> pl.Expr:
    """Texts in the form NFC, in which texts that look the same are the same."""

    def normalized(texts: pl.Series) -> pl.Series:
        wide = (texts.str.len_bytes() != texts.str.len_chars()).arg_true()  # ASCII is NFC; the rest is slow
        return texts.scatter(wide, texts.gather(wide).str.normalize("NFC")) if len(wide) else texts

    return text.map_batches(normalized, return_dtype=pl.String)


def repeated_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """The ids of rows (`file`, `line` and `id`) for which an earlier row has the same: wrong cells, with the
    schema `cells.WRONG`.
    """
    rows = rows.select("file", "line", "id")
    repeated = rows.filter(pl.col("id").is_not_null() & ~pl.col("id").is_first_distinct())
    first = rows.join(repeated, on="id", how="semi", maintain_order="left").unique("id", keep="first")
    both = repeated.join(first, on="id", suffix="_first", maintain_order="left")
    same_file = pl.col("file").eq_missing(pl.col("file_first"))
    in_this_file = pl.format("line {} has", "line_first")
    in_another = pl.format("line {} of {} has", "line_first", "file_first")
    reason = pl.when(same_file).then(in_this_file).otherwise(in_another) + THIS_ID
    return wrong_cells(both, "id", reason)


def row_ids(rows: pl.DataFrame, matrix: Collection[str]) -> pl.Series:
    """Each row's id: its own, or its content's hash, `-`, and the number of rows with this content up to it.

    The number of samples is not part of the content, nor are a prompt's kind of line ends, blanks at its ends
    and the signature of an image's address, and a matrix's column counts as empty. So one more sample, a
    longer matrix, or a first matrix over an empty column changes no row's identity, and nothing is bought
    twice.

    Args:
        rows: all correct rows of a batch, with our columns.
        matrix: the columns of `input.matrix`.
    """
    without_id = rows["id"].is_null()
    if not without_id.any():
        return rows["id"]
    bare = {"prompt": same_prompt(pl.col("prompt"))}
    bare |= {column: without_signatures(pl.col(column)) for column in IMAGE_COLUMNS}
    cells = [
        pl.lit("\0") if column in matrix else bare.get(column, pl.col(column)).cast(pl.String).fill_null("\0")
        for column in COLUMNS
        if column not in {"id", "samples"}
    ]
    content = nfc(pl.concat_str(cells, separator="\x1f"))
    hashes = rows.filter(without_id).select(hash=sha256(content).str.head(16))
    number = pl.int_range(1, pl.len() + 1).over("hash")
    ids = hashes.select(pl.format("{}-{}", "hash", number)).to_series()
    return rows["id"].scatter(without_id.arg_true(), ids)


# ---- ids that a spreadsheet has written in another way

_NUMBER = re.compile(r"([+-]?(?:\d{1,25}|\d{1,3}(?:,\d{3})+)(?:\.\d*)?(?:e[+-]?\d{1,3})?)( ?%)?", re.ASCII)
_MIDNIGHT = r"(?:[t ]0?0:00(?::00(?:\.0+)?)?z?)?"
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_NAME = rf"({'|'.join(_MONTHS)})[a-z]*"
_DATES = (  # which part is the year, the month, the day; of 1/5/26 month and day may be the other way round
    (re.compile(rf"(\d{{4}})[-/.](\d{{1,2}})[-/.](\d{{1,2}}){_MIDNIGHT}"), (1, 2, 3)),
    (re.compile(rf"(\d{{1,2}})[-/. ]+(\d{{1,2}})[-/. ]+(\d{{4}}|\d\d){_MIDNIGHT}"), (3, 2, 1)),
    (re.compile(rf"(\d{{1,2}})[-/. ]*{_NAME}[-/., ]*(\d{{4}}|\d\d)"), (3, 2, 1)),
    (re.compile(rf"{_NAME}[-/. ]*(\d{{1,2}})[-/., ]+(\d{{4}}|\d\d)"), (3, 1, 2)),
)
_FIRST_DAY = date(1899, 12, 30)  # the day 0 of a spreadsheet
_SHOWN, _KEPT = 12, 15  # digits of a number up to which a spreadsheet shows, and keeps, each of them


def written_alike(new: Iterable[str], before: Iterable[str]) -> dict[str, str]:
    """By each new id, the id from before that may be the same as a spreadsheet writes it: a number (`001` as
    `1`, twelve digits as `1.23457E+11`), a boolean or a date.
    """
    old_by_reading = {key: row_id for row_id in before for key in {*_readings(row_id), *_roundings(row_id)}}
    counterpart = {"whole": "rounded", "rounded": "whole"}
    alike: dict[str, str] = {}
    for row_id in new if old_by_reading else ():
        readings = {*_readings(row_id), *((counterpart[kind], digits) for kind, digits in _roundings(row_id))}
        old_id = next((old_by_reading[key] for key in readings if key in old_by_reading), None)
        if old_id is not None:
            alike[row_id] = old_id
    return alike


def _plain(row_id: str) -> str:
    """An id without its capitals, its width, what nobody sees, and any blanks but one between words."""
    visible = (
        character
        for character in unicodedata.normalize("NFKC", row_id)
        if unicodedata.category(character) != "Cf"
    )
    return " ".join("".join(visible).casefold().split())


def _readings(row_id: str) -> Iterator[tuple[str, str]]:
    """What an id may be: a text, a number, a date."""
    text = _plain(row_id)
    yield "text", text
    if (number := _number(text)) is not None:
        yield "number", str(number.normalize())
    for pattern, places in _DATES:
        if parts := pattern.fullmatch(text):
            year, month, day = (
                _MONTHS.index(p) + 1 if p in _MONTHS else int(p) for p in map(parts.group, places)
            )
            year += 2000 if year < 100 else 0
            yield "date", f"{year} {sorted((month, day))}"
            with suppress(ValueError):  # there is no such day
                yield "number", str(Decimal((date(year, month, day) - _FIRST_DAY).days).normalize())


def _number(text: str) -> Decimal | None:
    match = _NUMBER.fullmatch(text)
    return Decimal(match[1].replace(",", "")) / (100 if match[2] else 1) if match else None


def _roundings(row_id: str) -> Iterator[tuple[str, str]]:
    """Of a long number: whether it is whole or rounded, and the digits that are left of it."""
    text = _plain(row_id)
    if "e+" in text and (number := _number(text)):
        yield "rounded", f"{number:.5e}"
    elif text.isascii() and text.isdigit() and len(text) >= _SHOWN:
        yield "whole", f"{Decimal(text):.5e}"
        if len(text) > _KEPT:
            kind = "whole" if text[_KEPT:].strip("0") else "rounded"
            yield kind, f"{text[:_KEPT]} of {len(text)}"
