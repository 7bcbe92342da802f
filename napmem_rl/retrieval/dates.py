"""Dates that a query speaks of, as intervals of days."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from datetime import date, timedelta

Interval = tuple[date, date]  # first and last day

_MONTHS = {name.lower(): number for names in (calendar.month_name, calendar.month_abbr) for number, name in enumerate(names) if name} | {"sept": 9}
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_YEAR = r"(?:19|20)\d\d"
_ISO = re.compile(rf"\b({_YEAR})-(\d\d)(?:-(\d\d))?\b")
_DAY_MONTH = re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({_MONTH})\b\.?,?(?:\s+({_YEAR}))?")
_MONTH_DAY = re.compile(rf"\b({_MONTH})\b\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?\b,?(?:\s+({_YEAR}))?")
_MONTH_YEAR = re.compile(rf"\b({_MONTH})\b\.?,?\s+(?:of\s+)?({_YEAR})\b")
_MONTH_ALONE = re.compile(rf"\b(?:in|of|during|since|until|by|early|late|mid|last|this)[\s-]+({_MONTH})\b")  # without these, may be a word or a name
_YEAR_ALONE = re.compile(rf"\b({_YEAR})\b")
_PATTERNS = (  # fullest first, each with its groups of year, month and day; 0 where it has none
    (_ISO, (1, 2, 3)),
    (_DAY_MONTH, (3, 2, 1)),
    (_MONTH_DAY, (3, 1, 2)),
    (_MONTH_YEAR, (2, 1, 0)),
    (_MONTH_ALONE, (0, 1, 0)),
    (_YEAR_ALONE, (1, 0, 0)),
)
_AGO = re.compile(r"\b(\d+|a|an|one|two|three|four|five|six|seven|eight|nine|ten)\s+(day|week|month|year)s?\s+ago\b")
_NUMBERS = {word: number for number, word in enumerate("zero one two three four five six seven eight nine ten".split())} | {"a": 1, "an": 1}
_NEAR = re.compile(r"\b(today|yesterday|(?:last|this)\s+(?:week|month|year))\b")
_SPAN = {"day": 1, "week": 7, "month": 30, "year": 365}


def find_intervals(text: str, *, today: date, years: range) -> list[Interval]:
    """The days that a text speaks of.

    Args:
        text: a query, e.g. "What did Ana buy on 8 May, 2023?", "last week", "in March".
        today: what "yesterday" or "two weeks ago" count from.
        years: which years a month without one may lie in.

    Returns:
        Intervals, possibly overlapping; several where a month or day stands without its year. Empty where no date is spoken of. What is no date of the
        calendar (30 February) is passed over.

    Example: ``find_intervals("on 8 May, 2023", today=…, years=…)`` gives ``[(date(2023, 5, 8), date(2023, 5, 8))]``.
    """
    lowered = text.lower()
    found = [interval for year, month, day in _find_parts(lowered) for interval in _build_intervals(year, month, day, years)]
    return found + list(_find_relative(lowered, today))


def _find_parts(text: str) -> Iterator[tuple[int | None, int | None, int | None]]:
    """(year, month, day) as far as given. The fullest pattern takes its part of the text; a month or year inside it is not read again."""
    for pattern, groups in _PATTERNS:
        for match in list(pattern.finditer(text)):
            year, month, day = (match[group] if group else None for group in groups)
            text = text[: match.start()] + " " * len(match[0]) + text[match.end() :]
            yield int(year) if year else None, (_MONTHS.get(month) or int(month)) if month else None, int(day) if day else None


def _build_intervals(year: int | None, month: int | None, day: int | None, years: range) -> Iterator[Interval]:
    for chosen in years if year is None else (year,):
        if month is None:
            yield date(chosen, 1, 1), date(chosen, 12, 31)
        elif 1 <= month <= 12 and (day is None or 1 <= day <= calendar.monthrange(chosen, month)[1]):
            last = calendar.monthrange(chosen, month)[1]
            yield date(chosen, month, day or 1), date(chosen, month, day or last)


def _find_relative(text: str, today: date) -> Iterator[Interval]:
    """Days counted from `today`. "Last week" is the seven days before today's week, weeks beginning on Monday."""
    for match in _NEAR.finditer(text):
        yield _name_interval(" ".join(match[1].split()), today)
    for match in _AGO.finditer(text):
        count = _NUMBERS.get(match[1]) or int(match[1])
        days = count * _SPAN[match[2]]
        if days < 36_500:
            middle, slack = today - timedelta(days=days), timedelta(days=_SPAN[match[2]] // 4)
            yield middle - slack, middle + slack


def _name_interval(name: str, today: date) -> Interval:
    if name in ("today", "yesterday"):
        day = today - timedelta(days=name == "yesterday")
        return day, day
    which, unit = name.split()
    if unit == "week":
        first = today - timedelta(days=today.weekday() + (7 if which == "last" else 0))
        return first, first + timedelta(days=6)
    if unit == "year":
        year = today.year - (which == "last")
        return date(year, 1, 1), date(year, 12, 31)
    first = today.replace(day=1)
    if which == "last":
        first = (first - timedelta(days=1)).replace(day=1)
    return first, first.replace(day=calendar.monthrange(first.year, first.month)[1])
