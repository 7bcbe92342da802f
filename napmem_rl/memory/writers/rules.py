"""A memory writer without a language model: offline, deterministic, compact.

One record per user message at most: its first sentence that tells something, in the third person. What later sentences add, and all that the assistant says,
stays in the raw messages alone. Against NapMem section 3.2: word lists take the place of the extraction and reconciliation models, records are never merged
(a restated fact is a new record at its own time, so that the bank can be read as of any moment), and the pyramid is built in one pass.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from napmem_rl.memory.pyramid import PROFILE_FILE
from napmem_rl.memory.writers.sentences import classify_sentence, find_informative, is_lasting, rewrite_third_person
from napmem_rl.retrieval.bm25 import tokenize_words
from napmem_rl.schema import Message, Profile, Record, RecordType, Track

MAX_TRACKS = 20  # NapMem appendix B
MIN_TRACK_RECORDS = 2
MAX_TRACK_RECORDS = 12  # the newest ones of a topic
MAX_TOPIC_SHARE = 0.3  # a word in more of the records than this is no topic
MAX_PROFILE_CHARS = 1500
_HEADINGS = {RecordType.PREFERENCE: "Preferences", RecordType.INSTRUCTION: "Instructions", RecordType.FACT: "Facts"}
_GENERAL = frozenset(  # stems that say nothing of a topic
    "about ad add after again ago all alreadi also alway am amaz and ani anoth anyth appreci around assist away awesom back be becaus becom been befor"
    " best bet better big bit bought break bring call came can care catch chang chat check combin come cool could cours day definit detail determin did"
    " didn differ do doe doesn don down each enjoy even ever everi everyon everyth excit feel felt few find first for forward found from fun gave get"
    " give go goal gonna good got gotta great had happen happi hard has have he help her here him his hobbi home hope how idea if impact import in it"
    " join just keep key kind know last late learn left let life like littl live ll long look lot love made make mani may me mean might moment month"
    " more morn most motiv move much must my name need never new next nice night not now off often old onc one onli other ouch our out over own part"
    " peopl place plan post prefer pretti progress push put re readi real realli recent rememb right said saw say see seem share she should show sinc"
    " small so some someth sometim soon sorri special spend spent start stay step still stoke stuff such super sure take talk tell than thank that the"
    " their them then there these they thing think this those though thought through time today togeth too took tough tri true two up us use user usual"
    " ve veri view want was way we week weekend well went were what when where which while who whole whom why wish with won wonder work world would"
    " year yesterday yet you your".split()
)
_SINGLE_VALUED = frozenset("is am prefers lives works called named favorite favourite owns drives".split())


@dataclass(frozen=True, slots=True)
class _Statement:
    """A record and what the profile needs to know of it."""

    record: Record
    is_lasting: bool  # tells something of the user that the profile may hold


@dataclass(slots=True)
class _Topic:
    """A stem, the forms it occurs in, and the positions of the records that hold it."""

    stem: str
    positions: list[int] = field(default_factory=list)
    forms: Counter[str] = field(default_factory=Counter)
    num_inner_capitals: int = 0  # occurrences with a capital that are not a record's first word

    @property
    def is_name(self) -> bool:
        """True for a word that is never written small, and capital inside a sentence at least once."""
        return self.num_inner_capitals > 0 and not any(form.islower() for form in self.forms)


def build_pyramid(messages: Sequence[Message]) -> tuple[tuple[Record, ...], tuple[Track, ...], Profile]:
    """Records, topic tracks and profile of one user.

    Args:
        messages: in any order; those of the same time keep theirs.

    Returns:
        Records in time order as "rec:1", …; at most MAX_TRACKS tracks; the profile, empty where nothing is known.
    """
    ordered = sorted(messages, key=lambda message: message.time)
    statements = _extract_statements(ordered)
    records = tuple(statement.record for statement in statements)
    speakers = {word for message in ordered for word in tokenize_words(message.speaker)}
    return records, _build_tracks(records, speakers), _build_profile(statements)


def _extract_statements(messages: Iterable[Message]) -> list[_Statement]:
    """One statement per informative user message; the same words again in the same session say nothing new."""
    statements: list[_Statement] = []
    seen: set[tuple[str, str]] = set()
    for message in messages:
        sentence = find_informative(message.text) if message.role == "user" else None
        if sentence is None or (message.session_id, sentence.lower()) in seen:
            continue
        seen.add((message.session_id, sentence.lower()))
        record = Record(
            record_id=f"rec:{len(statements) + 1}",
            type=classify_sentence(sentence),
            text=rewrite_third_person(sentence, message.speaker),
            time=message.time,
            source_ids=(message.message_id,),
            session_id=message.session_id,
        )
        statements.append(_Statement(record, is_lasting(sentence, record.type)))
    return statements


def _build_tracks(records: Sequence[Record], speakers: set[str]) -> tuple[Track, ...]:
    """Topics by greedy cover: the one that gathers most records not yet in a track comes next, names before other words."""
    topics = _find_topics(records, speakers)
    covered: set[int] = set()
    tracks: list[Track] = []
    slugs = {PROFILE_FILE.removesuffix(".md")}
    while topics and len(tracks) < MAX_TRACKS:
        gains = {topic.stem: sum(position not in covered for position in topic.positions) for topic in topics}
        best = min(topics, key=lambda topic: (-gains[topic.stem] * (1.5 if topic.is_name else 1.0), topic.stem))
        if gains[best.stem] < MIN_TRACK_RECORDS:
            break
        topics.remove(best)
        covered.update(best.positions)
        slug = _build_slug(best.stem, best.forms, slugs, len(tracks) + 1)
        tracks.append(_build_track(f"trk:{len(tracks) + 1}", f"{slug}.md", best, records))
    return tuple(tracks)


def _find_topics(records: Sequence[Record], speakers: set[str]) -> list[_Topic]:
    """Stems that at least two records share, but not so many that they mean nothing."""
    topics: dict[str, _Topic] = {}
    for position, record in enumerate(records):
        for match in re.finditer(r"[^\W\d_]{3,}", record.text):
            form = match.group(0)
            stem = next(iter(tokenize_words(form)), "")
            if not stem or stem in _GENERAL or stem in speakers:
                continue
            topic = topics.setdefault(stem, _Topic(stem))
            topic.forms[form] += 1
            topic.num_inner_capitals += match.start() > 0 and form[0].isupper()
            if topic.positions[-1:] != [position]:
                topic.positions.append(position)
    limit = max(MAX_TRACK_RECORDS, int(MAX_TOPIC_SHARE * len(records)))
    return [topic for topic in topics.values() if MIN_TRACK_RECORDS <= len(topic.positions) <= limit]


def _build_track(track_id: str, file_name: str, topic: _Topic, records: Sequence[Record]) -> Track:
    chosen = [records[position] for position in topic.positions[-MAX_TRACK_RECORDS:]]
    form = min(topic.forms, key=lambda form: (-topic.forms[form], form))
    title = form if topic.is_name else form.lower()
    first, last = chosen[0].time[:10], chosen[-1].time[:10]
    summary = f"{len(chosen)} records about {title}, {first if first == last else f'{first} to {last}'}. Newest: {_quote(chosen[-1].text)}"
    narrative = "\n".join(f"- {record.time[:10]}: {_quote(record.text)} [{record.record_id}]" for record in chosen)
    ids = tuple(record.record_id for record in chosen)
    return Track(track_id=track_id, file_name=file_name, title=title, summary=summary, narrative=narrative, time=chosen[-1].time, record_ids=ids)


def _build_slug(stem: str, forms: Counter[str], taken: set[str], number: int) -> str:
    """A file name's stem from the topic's commonest form: a-z and digits, never one that is taken."""
    form = min(forms, key=lambda form: (-forms[form], form)).lower()
    slug = form if re.fullmatch(r"[a-z0-9]{1,60}", form) else f"topic-{number}"
    while slug in taken:
        slug = f"{slug}-{number}"
    taken.add(slug)
    return slug


def _build_profile(statements: Sequence[_Statement]) -> Profile:
    """What holds of the user: preferences, instructions and lasting facts told in the first person, under the length budget, newest kept first."""
    standing = _drop_superseded([statement.record for statement in statements if statement.is_lasting])
    chosen: list[Record] = []
    room = MAX_PROFILE_CHARS
    for record_type in _HEADINGS:
        room -= len(f"## {_HEADINGS[record_type]}\n\n\n")
        for record in reversed([record for record in standing if record.type is record_type]):
            line = len(_profile_line(record)) + 1
            if line <= room:
                chosen.append(record)
                room -= line
    chosen.sort(key=lambda record: (list(_HEADINGS).index(record.type), record.time, int(record.record_id[4:])))
    sections = [
        f"## {heading}\n\n" + "\n".join(_profile_line(record) for record in chosen if record.type is record_type)
        for record_type, heading in _HEADINGS.items()
        if any(record.type is record_type for record in chosen)
    ]
    time = max((record.time for record in chosen), default="")
    return Profile(text="\n\n".join(sections), time=time, source_ids=tuple(record.record_id for record in chosen))


def _drop_superseded(records: Sequence[Record]) -> list[Record]:
    """Records without those that a later one restates: the same words, or the same statement of one value with another value."""
    kept: list[Record] = []
    groups: dict[tuple[int, tuple[str, ...]], list[list[str]]] = {}
    for record in reversed(records):
        words = re.findall(r"[\w']+", record.text.lower())
        newer = groups.setdefault((len(words), tuple(words[:2])), [])
        if not any(_is_restated(words, other) for other in newer):
            kept.append(record)
        newer.append(words)
    return kept[::-1]


def _is_restated(words: Sequence[str], newer: Sequence[str]) -> bool:
    """True for equal words, or for one that differs in a statement with a single value ("prefers the music jazz", then "prefers the music rock")."""
    different = [position for position, (word, other) in enumerate(zip(words, newer, strict=True)) if word != other]
    return not different or (len(different) == 1 and bool(_SINGLE_VALUED.intersection(words[: different[0]])))


def _profile_line(record: Record) -> str:
    return f"- {_quote(record.text)} [{record.record_id}]"


def _quote(text: str) -> str:
    """A text inside a Markdown file: on one line, and with no brackets, so that nothing a user says can pass for an evidence link."""
    return " ".join(text.replace("[", "(").replace("]", ")").split())
