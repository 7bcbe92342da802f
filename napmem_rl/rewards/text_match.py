"""When two short answers are the same without asking a model: equal text, equal date, equal number with equal unit.

Each rule compares the whole answer with the whole reference. Containment never suffices: "not Oslo" and "Oslo or Bergen" are not "Oslo".
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, time
from decimal import Decimal
from typing import NamedTuple

_PLAIN = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": " ", "−": "-", "&": " and "})  # noqa: RUF001
_ARTICLES = ("a", "an", "the")

_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKDAY = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?"
_MONTH = r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_TIME = r"(?:\d{1,2}(?::\d{2}){1,2}(?:\s*[ap]m)?|\d{1,2}\s*[ap]m)"
_DATE_FORMS = re.compile(
    rf"(?:{_WEEKDAY},?\s+)?(?:{_DAY}\s+(?:of\s+)?{_MONTH}|{_MONTH}\s+{_DAY}|{_MONTH})(?:,?\s+\d{{4}})?(?:,?\s+(?:at\s+)?{_TIME})?"
    rf"|\d{{4}}([-/])\d{{1,2}}\1\d{{1,2}}(?:[t\s]\s*{_TIME})?"
    r"|\d{4}"
)
_NUMERIC_DATE = re.compile(r"(\d{1,2})([/.])(\d{1,2})\2(\d{4})")  # day and month in either order

_NUMBER = re.compile(r"(-?)([$€£]?)(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.\d+|\d+)\s*([a-z%°/²³' \"]*)")
_BELOW_TWENTY = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_SMALL = {word: value for value, word in enumerate(_BELOW_TWENTY.split())}
_TENS = dict(zip("twenty thirty forty fifty sixty seventy eighty ninety".split(), range(20, 100, 10), strict=True))
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_UNIT_NAMES = {
    "$": "dollar", "usd": "dollar", "€": "euro", "eur": "euro", "£": "pound sterling", "gbp": "pound sterling", "%": "percent",
    "hr": "hour", "hrs": "hour", "min": "minute", "mins": "minute", "yr": "year", "yrs": "year",
    "km": "kilometer", "kilometre": "kilometer", "m": "meter", "metre": "meter", "cm": "centimeter", "centimetre": "centimeter",
    "kg": "kilogram", "lb": "pound", "lbs": "pound",
}  # fmt: skip


class DateValue(NamedTuple):
    """A date as exact as it was written; what was not written is None. Example: "May 2023" is DateValue(2023, 5, None, None)."""

    year: int | None
    month: int | None
    day: int | None
    time: time | None


class Quantity(NamedTuple):
    """A number with its unit, "" where there is none. Example: "three days" is Quantity(Decimal(3), "day")."""

    value: Decimal
    unit: str


def match_answer(answer: str, references: Sequence[str]) -> str | None:
    """How the answer equals one of the references: "text", "date" or "number"; None where no rule says so.

    Dates are equal where they name the same fields with the same values ("7 May 2023" = "2023-05-07", not "May 2023"). Numbers are equal in digits and words;
    units must be equal as well, and nothing is converted ("3 days" is neither "3" nor "72 hours").
    """
    for reference in references:
        if normalise(answer) == normalise(reference):
            return "text"
        date = parse_date(answer)
        if date is not None and date == parse_date(reference):
            return "date"
        quantity = parse_quantity(answer)
        if quantity is not None and quantity == parse_quantity(reference):
            return "number"
    return None


def normalise(text: str) -> str:
    """Text without what does not tell answers apart: case, Unicode form, punctuation, hyphens between letters, one leading article.

    Signs, decimal points, units and symbols that carry meaning (-, %, $, +, #) stay. A text of punctuation alone stays as it is.
    """
    plain = unicodedata.normalize("NFKC", text).translate(_PLAIN).casefold()
    plain = re.sub(r"(?<!\d)['\"]|\.(?!\d)", "", plain)
    plain = re.sub(r"(?<![\d])[,:]|[,:](?!\d)|[!?;()\[\]{}…*_`]", " ", plain)
    plain = re.sub(r"(?<=[^\W\d])-(?=[^\W\d])", " ", plain)
    words = plain.split()
    if len(words) > 1 and words[0] in _ARTICLES:
        words = words[1:]
    return " ".join(words) or text.strip()


def parse_date(text: str) -> DateValue | None:
    """Read a text that is a date and nothing else; None for anything else.

    Known forms: ISO, day-month-year with the month's name in either order, a month, a year, with or without weekday and time, and numeric dates whose order
    is certain (13/05/2023; 07/05/2023 could be two days and is refused). Two-digit years and weekdays that contradict the date are refused.
    """
    from dateutil.parser import ParserError, parse

    plain = re.sub(r"^(?:(?:on|in)\s+)?(?:the\s+)?", "", text.strip().rstrip(".").casefold())
    numeric = _NUMERIC_DATE.fullmatch(plain)
    if numeric is not None:
        return _parse_numeric_date(int(numeric[1]), int(numeric[3]), int(numeric[4]))
    if _DATE_FORMS.fullmatch(plain) is None:
        return None
    try:  # what both fillers leave in common was written; both years are leap years, so that 29 February stands alone too
        first, second = parse(plain, default=datetime(2000, 1, 1)), parse(plain, default=datetime(2004, 2, 2, 1, 1, 1))
    except ParserError:  # such as 31 February
        return None
    year, month, day = (a if a == b else None for a, b in zip(first.timetuple()[:3], second.timetuple()[:3], strict=True))
    weekday = plain[:3] if plain[:3] in _WEEKDAYS else None
    if weekday is not None and None not in (year, month, day) and _WEEKDAYS[first.weekday()] != weekday:
        return None
    return DateValue(year, month, day, first.time() if first.hour == second.hour else None)


def parse_quantity(text: str) -> Quantity | None:
    """Read a text that is one number, in digits or English words, with or without a unit; None for anything else, and for codes such as 007."""
    plain = " ".join(unicodedata.normalize("NFKC", text).translate(_PLAIN).casefold().strip().rstrip(".!").split())
    match = _NUMBER.fullmatch(plain)
    if match is None:
        return _parse_number_words(plain)
    sign, symbol, digits, rest = match.groups()
    words = rest.split()
    scale = _SCALES[words.pop(0)] if words and words[0] in _SCALES else 1
    if re.match(r"0\d", digits) or (symbol and words):
        return None
    value = Decimal(digits.replace(",", "")) * scale
    return Quantity(-value if sign else value, _normalise_unit([symbol] if symbol else words))


def compute_token_f1(answer: str, references: Sequence[str]) -> float:
    """Word overlap F1 in [0, 1] of the normalised texts, the best over the references (as question-answering benchmarks report it)."""
    return max(_token_f1(normalise(answer).split(), normalise(reference).split()) for reference in references)


def _token_f1(answer: Sequence[str], reference: Sequence[str]) -> float:
    common = sum((Counter(answer) & Counter(reference)).values())
    return 2 * common / (len(answer) + len(reference)) if common else 0.0


def _parse_numeric_date(first: int, second: int, year: int) -> DateValue | None:
    if first > 12 or first == second:
        day, month = first, second
    elif second > 12:
        month, day = first, second
    else:
        return None
    try:
        datetime(year, month, day)
    except ValueError:
        return None
    return DateValue(year, month, day, None)


def _parse_number_words(plain: str) -> Quantity | None:
    words = re.sub(r"(?<=[a-z])-(?=[a-z])", " ", plain).split()
    total, position, last_scale = 0, 0, 10**12
    while True:
        part = _read_below_thousand(words, position)
        if part is None:
            break
        value, position = part
        scale = _SCALES.get(words[position], 1) if position < len(words) else 1
        if scale == 1 or scale >= last_scale:
            total += value
            break
        total, position, last_scale = total + value * scale, position + 1, scale
    return Quantity(Decimal(total), _normalise_unit(words[position:])) if position else None


def _read_below_thousand(words: Sequence[str], start: int) -> tuple[int, int] | None:
    """A number below 1000 in words from `start` on, and the position after it. Example: two hundred and five."""
    head = _read_below_hundred(words, start)
    if head is None or not 0 < head[0] < 10 or words[head[1] : head[1] + 1] != ["hundred"]:
        return head
    value, position = head[0] * 100, head[1] + 1
    tail = _read_below_hundred(words, position + 1 if words[position : position + 1] == ["and"] else position)
    return (value + tail[0], tail[1]) if tail is not None else (value, position)


def _read_below_hundred(words: Sequence[str], start: int) -> tuple[int, int] | None:
    if start >= len(words):
        return None
    if words[start] in _SMALL:
        return _SMALL[words[start]], start + 1
    if words[start] not in _TENS:
        return None
    ones = _SMALL.get(words[start + 1], 0) if start + 1 < len(words) else 0
    return (_TENS[words[start]] + ones, start + 2) if 0 < ones < 10 else (_TENS[words[start]], start + 1)


def _normalise_unit(words: Sequence[str]) -> str:
    """Units in one spelling: "days" and "day", "%" and "percent", "km" and "kilometres"."""
    names = []
    for word in words:
        name = _UNIT_NAMES.get(word, word)
        single = name[:-1] if len(name) > 3 and name.endswith("s") and not name.endswith("ss") else name
        names.append(_UNIT_NAMES.get(single, single))
    return " ".join(names)
