"""A number of a workbook and its cell's format -> the text that the sheet shows (ECMA-376 part 1, 18.8.31).

Formats that are not read, such as conditions, give None: their numbers stay as they are. So does a fraction
that is not exactly the number, for programs choose different ones, and `General`, which shows as many digits
as the column is wide. Dates that are shown as the reader's system shows them are ISO 8601.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from fractions import Fraction
from functools import cache

_BUILT_IN = {
    **{1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 11: "0.00e+00"},
    **{12: "# ?/?", 13: "# ??/??"},
    **{14: "yyyy-mm-dd", 15: "d-mmm-yy", 16: "d-mmm", 17: "mmm-yy", 18: "h:mm am/pm", 19: "h:mm:ss am/pm"},
    **{20: "h:mm", 21: "h:mm:ss", 22: "yyyy-mm-dd h:mm", 37: "#,##0;(#,##0)", 38: "#,##0;(#,##0)"},
    **{39: "#,##0.00;(#,##0.00)", 40: "#,##0.00;(#,##0.00)", 45: "mm:ss", 46: "[h]:mm:ss", 48: "##0.0e+0"},
}
_BY_SYSTEM = re.compile(r"\[\$-(f800|f400|x-sysdate|x-systime)\]", re.IGNORECASE)
_TOKEN = re.compile(
    r"""(?P<text>"[^"]*"|\\.|[ $+():!^&'~{}<>=-]|[^\x00-\x7f])|(?P<blank>_.|\*.)|\[\$(?P<money>[^\]-]*)"""
    r"""(?:-(?P<language>[^\]]*))?\]|\[(?P<elapsed>h+|m+|s+)\]|\[(?P<colour>[a-z]+\d*)\]|(?P<half>am/pm|a/p)"""
    r"""|(?P<general>general)|(?P<part>y+|m+|d+|h+|s+(?:\.0+)?)|(?P<exponent>e[+-]0+)|(?P<digit>[0#?])|(?P<mark>[.,%/@])""",
    re.IGNORECASE,
)
_FRACTION = re.compile(r"(?:([#0?]+) +)?([#0?]+) ?/ ?([#0?]+|[1-9]\d*)")
_LONGEST = 11  # characters of a number as `General`
_MONTHS = "January February March April May June July August September October November December"
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
_LAST_DAY = 2_958_465  # 9999-12-31
_Tokens = list[tuple[str, str]]


def code_of(number: int, own: dict[int, str]) -> str | None:
    """A format's code by its number, of the workbook's own or the built-in ones; None for `General`."""
    code = own.get(number, _BUILT_IN.get(number))
    return None if code is None or code.lower() in ("general", "@") else code


def shown(number: str, code: str, *, since_1904: bool = False) -> str | None:
    """A number as its cell shows it; None where the format is none of those that are read here.

    Args:
        number: as the workbook has it, with all digits.
        code: the format, such as `000`, `0.0%` or `d-mmm-yy`.
        since_1904: whether the workbook counts days from 1904.
    """
    try:
        return _shown(Decimal(number), code, since_1904=since_1904)
    except InvalidOperation:  # it is no number, or has too many digits
        return None


def _shown(value: Decimal, code: str, *, since_1904: bool) -> str | None:
    if not value.is_finite() or value.adjusted() > 20:
        return None
    sections = _sections(code)
    at = 1 if value < 0 and len(sections) > 1 else 2 if value == 0 and len(sections) > 2 else 0
    if fraction := _FRACTION.fullmatch(sections[at].strip()):
        return _fraction(value, *fraction.groups())
    tokens = _tokens(sections[at])
    if tokens is None:
        return None
    if any(kind in ("part", "elapsed") for kind, _ in tokens):
        by_system = _BY_SYSTEM.search(code)
        return None if by_system or value < 0 else _date(value, tokens, since_1904=since_1904)
    text = _number(abs(value), tokens)
    return text and ("-" + text if value < 0 and at == 0 and text.strip("0.,") else text).strip()


@cache
def _sections(code: str) -> list[str]:
    """The parts of a format for positive and negative numbers, zero and text."""
    return re.findall(r'(?:"[^"]*"|\\.|[^;"\\])+|(?<=;)(?=;|$)', code) or [""]


@cache
def _tokens(section: str) -> _Tokens | None:
    """The parts of a section; None where one of them is not read here."""
    tokens: _Tokens = []
    at = 0
    while at < len(section):
        found = _TOKEN.match(section, at)
        if found is None:
            return None
        at = found.end()
        kind = found.lastgroup or ""
        token = found[0]
        if kind in ("money", "language"):
            kind, token = "text", found["money"]
            language = (found["language"] or "en").lower()
            if not language.startswith("en") and not language.endswith("09"):
                tokens.append(("language", language))
        elif kind == "text":
            token = token[1:] if token.startswith("\\") else token.strip('"') if len(token) > 1 else token
        elif kind == "blank":  # `*-` fills the cell with a character, which a CSV does not have
            kind, token = "text", " " if token[0] == "_" else ""
        elif kind == "elapsed":
            token = found["elapsed"]
        elif kind == "colour":
            continue
        tokens.append((kind, token.lower() if kind != "text" else token))
    return tokens


def _number(value: Decimal, tokens: _Tokens) -> str | None:
    kinds = [kind for kind, _ in tokens]
    marks = [token for kind, token in tokens if kind == "mark"]
    if "/" in marks or "@" in marks or marks.count(".") > 1 or kinds.count("exponent") > 1:
        return None
    if "digit" not in kinds:
        plain = f"{value.normalize():f}"
        shown = [
            plain if kind == "general" else token for kind, token in tokens if kind in ("text", "general")
        ]
        return "".join(shown) if "general" not in kinds or len(plain) <= _LONGEST else None
    point = next((at for at, token in enumerate(tokens) if token == ("mark", ".")), len(tokens))
    last = max((at for at in range(point) if kinds[at] == "digit"), default=-1)
    whole, fraction = tokens[:point], tokens[point:]
    end = max(at for at, kind in enumerate(kinds) if kind == "digit")
    scale = [*whole[last + 1 :], *fraction[max(0, end + 1 - point) :]].count(("mark", ","))
    value = value * 100 ** marks.count("%") / 1000**scale
    places = [token for kind, token in fraction if kind == "digit"]
    if "exponent" in kinds:
        return _scientific(value, tokens, whole, len(places))
    digits = f"{value.quantize(Decimal(1).scaleb(-len(places)), ROUND_HALF_UP):f}"
    left, _, right = digits.partition(".")
    optional = len(places) - len("".join(places).rstrip("#?"))
    shortest = len(right) - optional
    kept = right[:shortest] + right[shortest:].rstrip("0")
    after = iter(kept)
    thousands = any(token == ("mark", ",") for token in whole[:last])
    text = _whole("" if left == "0" else left, whole, thousands=thousands)
    for kind, token in fraction:
        if kind == "digit":
            text += next(after, "")
        elif (kind, token) != ("mark", ",") and kind != "language":
            text += token
    return text


def _whole(digits: str, tokens: _Tokens, *, thousands: bool) -> str:
    """The digits before the point in their places, the first of which takes all that are left."""
    first = next((at for at, (kind, _) in enumerate(tokens) if kind == "digit"), None)
    text, placed = "", 0
    for at in range(len(tokens) - 1, -1, -1):
        kind, token = tokens[at]
        if kind != "digit":
            text = ("" if (kind, token) == ("mark", ",") or kind == "language" else token) + text
            continue
        count = max(1, len(digits)) if at == first else 1
        for _ in range(count):
            digit = digits[-1:] or {"0": "0", "?": " "}.get(token, "")
            digits = digits[:-1]
            text = digit + ("," if thousands and placed and placed % 3 == 0 and digit.strip() else "") + text
            placed += 1
    return text


def _scientific(value: Decimal, tokens: _Tokens, whole: _Tokens, places: int) -> str | None:
    digits = "".join(token for kind, token in whole if kind == "digit")
    if digits not in ("0", "##0") or any(kind == "text" for kind, _ in tokens):
        return None
    exponent = next(token for kind, token in tokens if kind == "exponent")
    step, last = len(digits), Decimal(1).scaleb(-places)  # the power is a multiple of the step
    power = value.adjusted() // step * step if value else 0
    mantissa = value.scaleb(-power).quantize(last, ROUND_HALF_UP)
    if mantissa.adjusted() >= step:  # rounded up
        power += step
        mantissa = value.scaleb(-power).quantize(last, ROUND_HALF_UP)
    sign = "-" if power < 0 else "+" if exponent[1] == "+" else ""
    return f"{mantissa:f}E{sign}{abs(power):0{len(exponent) - 2}d}"


def _fraction(value: Decimal, whole: str | None, above: str, below: str) -> str | None:
    """A number as a fraction, such as `1 3/8`: of the format's denominator, or the shortest that fits in.

    None where none is the number, up to the 15 digits that a spreadsheet keeps.
    """
    number = abs(Fraction(value))
    fixed = int(below) if below.strip("#?0") else 0
    exact = number.limit_denominator(fixed or 10 ** len(below) - 1)
    if abs(exact - number) > number / 10**14 or (fixed and fixed % exact.denominator):
        return None
    denominator = fixed or exact.denominator
    count, rest = divmod(int(exact * denominator), denominator) if whole else (0, int(exact * denominator))
    parts = [str(count)] if whole and (count or not rest or "0" in whole) else []
    parts += [f"{rest:>{len(above)}}/{denominator}"] if rest or not whole else []
    return ("-" if value < 0 else "") + " ".join(parts).strip()


def _date(value: Decimal, tokens: _Tokens, *, since_1904: bool) -> str | None:
    kinds = {kind for kind, _ in tokens}
    parts = [token for kind, token in tokens if kind == "part"]
    has_names = any(len(part) > 2 and part[0] in "md" for part in parts)
    if value > _LAST_DAY or kinds & {"digit", "exponent"} or (has_names and "language" in kinds):
        return None
    decimals = max((len(part) - part.index(".") - 1 for part in parts if "." in part), default=0)
    seconds = (value * 86_400).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)
    # A spreadsheet takes 1900 for a leap year, so its day 60 is none.
    day = (1904, 1, 1) if since_1904 else (1899, 12, 31 if value < 60 else 30)
    first = datetime(*day)  # noqa: DTZ001 - a sheet's times have no zone
    moment = first + timedelta(microseconds=int(seconds * 1_000_000))
    is_half = any(kind == "half" for kind, _ in tokens)
    clock = [(at, token[0]) for at, (kind, token) in enumerate(tokens) if kind in ("part", "elapsed")]
    text = ""
    for at, (kind, token) in enumerate(tokens):
        if kind == "elapsed":
            unit = {"h": 3600, "m": 60, "s": 1}[token[0]]
            text += f"{int(seconds // unit):0{len(token)}d}"
        elif kind == "half":
            half = "PM" if moment.hour >= 12 else "AM"
            text += half[: len(token) // 2]
        elif kind == "part":
            before = next((letter for place, letter in reversed(clock) if place < at), "")
            after = next((letter for place, letter in clock if place > at), "")
            is_minute = token[0] == "m" and len(token) < 3 and (before == "h" or after == "s")
            text += _part("n" * len(token) if is_minute else token, moment, seconds, is_half=is_half)
        elif kind != "language":
            text += token
    return text.strip()


def _part(token: str, moment: datetime, seconds: Decimal, *, is_half: bool) -> str:
    """One part of a date or time; `n` is a minute, `m` a month."""
    letter, width = token[0], len(token)
    if letter == "y":
        return f"{moment.year:04d}" if width > 2 else f"{moment.year % 100:02d}"
    if letter == "m" and width > 2:
        return _name(_MONTHS.split()[moment.month - 1], width)
    if letter == "d" and width > 2:
        return _name(_DAYS.split()[moment.weekday()], width)
    if letter == "s" and "." in token:
        whole, _, decimals = token.partition(".")
        return f"{moment.second:0{len(whole)}d}." + f"{seconds % 1:.{len(decimals)}f}".partition(".")[2]
    hour = (moment.hour % 12 or 12) if is_half else moment.hour
    number = {"m": moment.month, "d": moment.day, "h": hour, "n": moment.minute, "s": moment.second}[letter]
    return f"{number:0{min(width, 2)}d}"


def _name(name: str, width: int) -> str:
    return name[:3] if width == 3 else name[0] if width == 5 else name
