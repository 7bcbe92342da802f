"""First lines of WhatsApp messages: date, time and the rest, in the forms of Android and iOS, 12 or 24 hours, and whichever order the phone's language has.

::

    12/04/2024, 21:06 - Ana: wow                     Android
    [4/12/24, 9:07:02 PM] Ana: wow                   iOS; the blank before PM is often U+202F, and lines begin with U+200E
    12.4.2024 klo 21.06 - Ana: wow                   Finnish
    [2024/4/12 下午9:07:02] Ana: wow                  Chinese
    2024년 4월 12일 오후 9:07, Ana : wow              Korean, also KakaoTalk
    [21:07, 12/4/2024] Ana: wow                      copied out of WhatsApp Web
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

MARKS = "\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff"
_STRIPPED = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
ORDERS = ("dmy", "mdy", "ymd")
_WORDS = {
    "am": "am a.m. vorm. πμ π.μ. öö ص पूर्वाह्न 午前 上午 오전 凌晨 清晨 早上 pg sa дп",
    "pm": "pm p.m. nachm. μμ μ.μ. ös م अपराह्न 午後 下午 오후 中午 傍晚 晚上 ptg ch пп",
}
_HALVES = {word: half for half, words in _WORDS.items() for word in words.split()}
_HALF = "|".join([r"[ap]\.?\s?m\.?", *map(re.escape, sorted(_HALVES, key=len, reverse=True))])
_KOREAN_HALVES = ("오전", "오후")
_BUDDHIST = 543  # years by which Thailand's calendar is ahead
_M = f"[{MARKS}]*"
_BEGIN = rf"{_M}(?P<open>\[)?{_M}"
_DATE = rf"(?P<a>\d{{1,4}}){_M}(?:(?P<separator>[./\-]|\.\s){_M}(?P<b>\d{{1,2}}){_M}(?P=separator)|년\s?(?P<b_ko>\d{{1,2}})월\s?)"
_DATE += rf"{_M}(?P<c>\d{{2,4}}|\d)(?:일|\.|\s?[гр]\.)?{_M}"
_TIME = rf"(?:(?P<before>{_HALF})\s*)?(?P<hour>\d{{1,2}})[:.](?P<minute>\d{{2}})(?:[:.](?P<second>\d{{2}}))?(?:\s*(?P<after>{_HALF})|\s?ч\.)?"
_END = rf"{_M}(?P<end>\]\s?|\s[-–]\s|,\s)(?P<rest>.*)"
_STARTS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        rf"{_BEGIN}{_DATE}[,،]?{_M}\s+{_M}(?:(?:klo|às|à|um|kl\.?|a las|at)\s+)?{_TIME}{_END}",
        rf"{_BEGIN}{_TIME}(?(open)[,،]?|[,،])\s+{_DATE}{_END}",
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstLine:
    """The first line of a message, its date not understood yet."""

    numbers: tuple[int, int, int]  # of the date, as they stand
    has_points: bool  # between them: no language puts the month first then
    clock: tuple[int, int, int]  # hour of 24, minute, second
    rest: str

    def moment(self, order: str) -> datetime | None:
        """The wall time in an order of `ORDERS`; None where there is no such day."""
        day, month, year = (self.numbers[order.index(part)] for part in "dmy")
        year += 2000 if year < 100 else -_BUDDHIST if year >= 2009 + _BUDDHIST else 0
        try:
            return datetime(year, month, day, *self.clock) if 2009 <= year < 2100 else None
        except ValueError:
            return None


def read_first_line(line: str) -> FirstLine | None:
    """The parts of a message's first line; None for a line that goes on with the message before it."""
    if not line[:40].strip(f"[{_STRIPPED} ")[:1].isdigit():
        return None
    match = next((found for pattern in _STARTS if (found := pattern.match(line)) is not None), None)
    if match is None or (match["open"] is None) != (not match["end"].startswith("]")):
        return None
    if match["end"].startswith(",") and match["before"] not in _KOREAN_HALVES:
        return None
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    half = _read_half(match["before"] or match["after"])
    if half is not None and hour <= 12:
        hour = hour % 12 + (12 if half == "pm" else 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    return FirstLine(
        numbers=(int(match["a"]), int(match["b"] or match["b_ko"]), int(match["c"])),
        has_points="." in (match["separator"] or ""),
        clock=(hour, minute, second),
        rest=match["rest"],
    )


def _read_half(word: str | None) -> str | None:
    if word is None:
        return None
    plain = "".join(word.lower().split())
    return _HALVES.get(plain) or _HALVES.get(plain.replace(".", "")) or ("pm" if plain.startswith("p") else "am")


@dataclass(slots=True)
class DateOrders:
    """Which orders of day, month and year fit all dates of a file, and how often time would run backwards in each, or stand in the future."""

    num_dates: int = 0
    has_points: bool = False
    num_valid: Counter[str] = field(default_factory=Counter)
    num_backwards: Counter[str] = field(default_factory=Counter)
    first_invalid: dict[str, int] = field(default_factory=dict)  # order -> line number
    is_same: bool = True  # so far both orders with the year at the end give the same days
    _last: dict[str, datetime] = field(default_factory=dict)
    _latest: datetime = field(default_factory=lambda: datetime.now() + timedelta(days=2))  # in any zone, with a clock that is fast

    def add(self, first: FirstLine, line_number: int) -> None:
        """Take in one more date."""
        self.num_dates += 1
        self.has_points |= first.has_points
        moments = {order: first.moment(order) for order in _possible(first)}
        for order in ORDERS:
            moment = moments.get(order)
            if moment is None:
                self.first_invalid.setdefault(order, line_number)
                continue
            self.num_valid[order] += 1
            last = self._last.get(order)
            self.num_backwards[order] += (last is not None and moment < last) or moment > self._latest
            self._last[order] = moment
        self.is_same &= moments.get("dmy") == moments.get("mdy")

    def decide(self) -> Sequence[str]:
        """The orders that the file allows: one, where it decides. A year of two digits in front is believed only where the other orders fit worse."""
        ranks = {order: (-self.num_valid[order], self.num_backwards[order]) for order in ORDERS}
        best = min(ranks["dmy"], ranks["mdy"])
        if ranks["ymd"] < best:
            return ("ymd",)
        fitting = [order for order in ("dmy", "mdy") if ranks[order] == best]
        return fitting[:1] if self.is_same or self.has_points else fitting


def _possible(first: FirstLine) -> Sequence[str]:
    """Orders by where a year of four digits stands."""
    return ("ymd",) if first.numbers[0] > 31 else ("dmy", "mdy") if first.numbers[2] > 31 else ORDERS


@dataclass(slots=True)
class WallClock:
    """Wall times of one phone to UTC, in the order of a chat, which tells the two hours apart that clocks show twice when they are set back."""

    zone: ZoneInfo | None  # None: wall times are kept as they are
    _last: datetime | None = None

    def convert(self, wall: datetime) -> tuple[str, bool, bool]:
        """(UTC as banks hold it, whether the clock skipped this time, whether it showed it twice)."""
        if self.zone is None:
            return wall.isoformat(), False, False
        early, late = (wall.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        is_skipped = early.astimezone(self.zone).replace(tzinfo=None) != wall
        is_double = not is_skipped and early != late
        moment = late if is_double and self._last is not None and early < self._last else early
        self._last = moment
        return moment.strftime("%Y-%m-%dT%H:%M:%S"), is_skipped, is_double
