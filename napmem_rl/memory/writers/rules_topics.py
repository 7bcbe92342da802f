"""Topics that records share, counted one record at a time, and the tracks that show them.

A topic is a word (by its stem) that at least two records hold, but not so many that it means nothing. At most MAX_TRACKS of them become tracks: by greedy
cover, the one that gathers most records not yet in a track comes next, names before other words. What is chosen follows from the records alone, whether they
came one by one or all at once. Beyond GROWTH_FROM records the choice is made anew only when their number has grown by about one in a hundred, so that a long
life costs no more a session than a short one; what a track shows of its topic is always up to date.
"""

from __future__ import annotations

import heapq
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from napmem_rl.memory.writers.rules_words import GENERAL_STEMS
from napmem_rl.memory.writers.sentences import cut_at_word, split_sentences
from napmem_rl.retrieval.bm25 import tokenize_words
from napmem_rl.schema import Record

MAX_TRACKS = 20  # NapMem appendix B
MIN_TRACK_RECORDS = 2
MAX_TRACK_RECORDS = 12  # the newest ones of a topic
MAX_TOPIC_SHARE = 0.3  # a word in more of the records than this is no topic
MAX_LINE_CHARS = 200  # of a record's text in a track
GROWTH_FROM = 512
MAX_WORD_CHARS = 40  # longer ones are no words, and no titles
_NAME_WEIGHT = 1.5
_NEVER = 1 << 62
_IMAGE = re.compile(r"\S+ shared an? (?:photo|photography|picture|image)\b[^.]*\.")  # what an image shows is no topic: its words are those of any image


@dataclass(slots=True)
class Topic:
    """A stem, the forms it occurs in, and the positions of the records that hold it, rising."""

    stem: str
    positions: list[int] = field(default_factory=list)
    forms: Counter[str] = field(default_factory=Counter)
    first_small: int = _NEVER  # position of the first record that writes it small
    first_inner_capital: int = _NEVER  # and of the first with a capital that is not the record's first letter

    @property
    def form(self) -> str:
        """The form it occurs in most."""
        return min(self.forms, key=lambda form: (-self.forms[form], form))

    @property
    def title(self) -> str:
        """The form as a title: names keep their capital."""
        return self.form if self.is_name(_NEVER) else self.form.lower()

    def is_name(self, num_records: int) -> bool:
        """True for a word that the first so many records never write small, and with a capital inside a text at least once."""
        return self.first_inner_capital < num_records and self.first_small >= num_records

    def count(self, num_records: int) -> int:
        """How many of the first so many records hold it."""
        return bisect_left(self.positions, num_records)


class TopicCounts:
    """Which topics records hold, by their positions 0, 1, …"""

    def __init__(self) -> None:
        self.num_records = 0
        self._topics: dict[str, Topic] = {}
        self._chosen: tuple[tuple[int, Set[str]], list[Topic]] | None = None

    def add(self, text: str) -> None:
        """Count the next record, by its text."""
        position = self.num_records
        self.num_records += 1
        for match in re.finditer(r"[^\W\d_]{3,}", _IMAGE.sub(" ", text)):
            form = match.group(0)
            stem = next(iter(tokenize_words(form)), "")
            if not stem or stem in GENERAL_STEMS or len(form) > MAX_WORD_CHARS:
                continue
            topic = self._topics.get(stem) or self._topics.setdefault(stem, Topic(stem))
            topic.forms[form] += 1
            if form.islower():
                topic.first_small = min(topic.first_small, position)
            if match.start() > 0 and form[0].isupper():
                topic.first_inner_capital = min(topic.first_inner_capital, position)
            if topic.positions[-1:] != [position]:
                topic.positions.append(position)

    def choose(self, excluded: Set[str]) -> list[Topic]:
        """The topics that become tracks, the one that gathers most first; `excluded` stems (the speakers' names) are none."""
        key = (round_down(self.num_records), frozenset(excluded))
        if self._chosen is None or self._chosen[0] != key:
            self._chosen = (key, self._cover(*key))
        return self._chosen[1]

    def _cover(self, num_records: int, excluded: Set[str]) -> list[Topic]:
        """Greedy cover of the first records. Gains only shrink, so a topic's gain is computed again only when it comes up."""
        limit = max(MAX_TRACK_RECORDS, int(MAX_TOPIC_SHARE * num_records))
        queue: list[tuple[float, str]] = []
        for topic in self._topics.values():
            if topic.stem not in excluded and MIN_TRACK_RECORDS <= topic.count(num_records) <= limit:
                queue.append((-topic.count(num_records) * _weigh(topic, num_records), topic.stem))
        heapq.heapify(queue)
        covered: set[int] = set()
        chosen: list[Topic] = []
        while queue and len(chosen) < MAX_TRACKS:
            topic = self._topics[heapq.heappop(queue)[1]]
            positions = topic.positions[: topic.count(num_records)]
            gain = len(positions) - sum(position in covered for position in positions)
            key = (-gain * _weigh(topic, num_records), topic.stem)
            if gain < MIN_TRACK_RECORDS:
                continue
            if queue and key > queue[0]:
                heapq.heappush(queue, key)
                continue
            covered.update(positions)
            chosen.append(topic)
        return chosen


def round_down(num_records: int) -> int:
    """The number itself up to GROWTH_FROM, then the next lower one of a grid of steps of about one in a hundred."""
    step = 1 if num_records <= GROWTH_FROM else 1 << (num_records.bit_length() - 7)
    return num_records - num_records % step


def write_track(topic: Topic, records: Sequence[Record]) -> dict[str, str]:
    """Title, summary and narrative of a topic's track, over its newest records.

    Args:
        topic: the topic.
        records: all live records, by position.
    """
    chosen = [records[position] for position in topic.positions[-MAX_TRACK_RECORDS:]]
    title, lines = topic.title, [_write_line(record, topic.stem) for record in chosen]
    first, last = chosen[0].time[:10], chosen[-1].time[:10]
    summary = f"{len(chosen)} records about {title}, {first if first == last else f'{first} to {last}'}. Newest: {lines[-1]}"
    narrative = "\n".join(f"- {record.time[:10]}: {line} [{record.record_id}]" for record, line in zip(chosen, lines, strict=True))
    return {"title": title, "summary": summary, "narrative": narrative}


def quote(text: str) -> str:
    """A text inside a Markdown file: on one line, and with no brackets, so that nothing a user says can pass for an evidence link."""
    return " ".join(text.replace("[", "(").replace("]", ")").split())


def _weigh(topic: Topic, num_records: int) -> float:
    return _NAME_WEIGHT if topic.is_name(num_records) else 1.0


def _write_line(record: Record, stem: str) -> str:
    """A short record whole; of a long one the sentences about the topic."""
    text = quote(record.text)
    if len(text) <= MAX_LINE_CHARS:
        return text
    about = [sentence for sentence in split_sentences(text) if stem in tokenize_words(sentence)]
    return cut_at_word(" ".join(about or [text]), MAX_LINE_CHARS)
