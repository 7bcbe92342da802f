"""Dialogues over several sessions, without questions: GapChat, Multi-Session Chat (MSC) and Conversation Chronicles, in their published formats.

Each dialogue becomes one bank: the speaker who opens it is the user, the other the assistant. Two uses:

- banks alone, to build memories from or to look at (the default; there are no rows then);
- with `ask`, the last session is kept out of the bank, and one question is asked of it: the session up to the user's last utterance that has a reply, as a
  transcript, with the reply as the reference (category ``next_reply``; its evidence is unknown). This is what response generation with memory is measured on.

None of the three has real moments, only gaps between sessions; here the first session begins at `START`, a session's turns stand a second apart, and sessions
by their gaps, where "a few" is three and "a couple" two. What a gap leaves open is a `Repair` of kind `gap_unknown` (a day is taken). GapChat's own
timestamps are those of the crowd workers' chat, whose sessions follow each other in seconds: the distances within a session are kept, the rest is not read.
Persona sentences, summaries and events are no messages and are not read.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from napmem_rl.data.published_file import iterate_objects, read_field
from napmem_rl.data.source import Repair, SourceBank, SourcePart, StreamedSource
from napmem_rl.errors import DataError
from napmem_rl.schema import AnswerKey, Message, Task

GAPCHAT, MSC, CHRONICLES = "gapchat", "msc", "chronicles"
START = datetime(2024, 1, 1, 9, 0)
NEXT_REPLY = "next_reply"
_UNITS = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
    "month": timedelta(days=30),
    "year": timedelta(days=365),
}
_NUMBERS = {"a": 1, "an": 1, "one": 1, "couple": 2, "two": 2, "few": 3, "three": 3, "several": 3}
_GAP = re.compile(r"(?:(\d+(?:\.\d+)?)|\b(a|an|one|couple|two|few|three|several)\b)(?:\s+of)?\s+(second|minute|hour|day|week|month|year)s?\b")
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_GAPCHAT_TIME = "%Y%m%d-%H%M%S"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Utterance:
    speaker: str
    text: str
    after: timedelta  # since the session's start


@dataclass(frozen=True, kw_only=True, slots=True)
class _Dialogue:
    """One dialogue: its sessions, and the gap before each, in the set's own words (the first one's is "")."""

    dialogue_id: str
    sessions: Sequence[Sequence[_Utterance]]
    gaps: Sequence[str]


def load_dialogues(name: str, path: Path, *, ask: bool = False) -> StreamedSource:
    """A dialogue set, read one dialogue at a time.

    Args:
        name: gapchat, msc or chronicles.
        path: a file (JSON list or JSON lines, gzipped or not; Parquet too for Chronicles), or a directory, whose files are taken in the order of their names.
            For MSC give one file of one session folder: a later session's file holds the earlier sessions.
        ask: keep the last session out and ask for its last reply.

    Raises:
        DataError: (while it is read) another format; the message names the dialogue and the field.
    """
    return StreamedSource(name=name, read=functools.partial(_read_parts, name, Path(path), ask))


def parse_gap(text: str) -> timedelta | None:
    """A gap in words, e.g. ``"12 minutes"``, ``"A few days after"``, ``"14 days 2 hours ago"``; None where it says no length."""
    found = _GAP.findall(text.lower())
    return sum(((float(digits) if digits else _NUMBERS[word]) * _UNITS[unit] for digits, word, unit in found), timedelta()) if found else None


def _read_parts(name: str, path: Path, ask: bool) -> Iterator[SourcePart]:
    read = _READERS[name]
    files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith(".")) if path.is_dir() else [path]
    files = [file for file in files if {".json", ".jsonl", ".txt", ".parquet"} & set(file.suffixes)] if path.is_dir() else files
    if not files:
        raise DataError.of(f"{name} {path}", "the directory holds no files of dialogues")
    for file in files:
        prefix = f"{file.stem}-" if len(files) > 1 else ""
        for number, raw in enumerate(_iterate_objects(file, f"{name} file {file}")):
            yield _convert(read(raw, number, f"{name} file {file}, dialogue {number} (counting from 0)"), name, prefix, ask)


def _iterate_objects(path: Path, what: str) -> Iterator[dict[str, Any]]:
    if path.suffix != ".parquet":
        yield from iterate_objects(path, what)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        for batch in pq.ParquetFile(path).iter_batches(batch_size=256):
            yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise DataError.of(what, f"not a readable parquet file ({error})") from error


def _read_gapchat(raw: Any, number: int, what: str) -> _Dialogue:
    """GapChat: sessions of timed turns; each gap stands twice in `gap`, once a speaker."""
    sessions = []
    for index, turns in enumerate(read_field(raw, "sessions", list, what, set_name="GapChat")):
        if not isinstance(turns, list):
            raise DataError.of(f"{what}, session {index}", "not GapChat's format: no list of turns", got=turns)
        utterances: list[_Utterance] = []
        start: datetime | None = None
        for position, turn in enumerate(turns):
            where = f"{what}, session {index}, turn {position}"
            speaker, text, time = (read_field(turn, key, str, where, set_name="GapChat") for key in ("speaker", "text", "time"))
            try:
                moment = datetime.strptime(time, _GAPCHAT_TIME)
            except ValueError as error:
                raise DataError.of(f"{where}, field 'time'", "not a time", got=time, expected='like "20230510-052155"') from error
            start = start or moment
            utterances.append(_Utterance(speaker=speaker, text=text, after=moment - start))
        sessions.append(utterances)
    gaps = [str(gap) for gap in read_field(raw, "gap", list, what, set_name="GapChat")]
    return _Dialogue(dialogue_id=str(number), sessions=sessions, gaps=["", *gaps[::2]])


def _read_msc(raw: Any, number: int, what: str) -> _Dialogue:
    """MSC: earlier sessions in `previous_dialogs`, whose turns alternate, each with the time until the next; the current one in `dialog`."""
    metadata = raw.get("metadata")
    given = metadata.get("initial_data_id") if isinstance(metadata, Mapping) else None
    sessions, gaps = [], [""]
    for index, earlier in enumerate(read_field(raw, "previous_dialogs", list, what, set_name="MSC")):
        where = f"{what}, previous dialog {index}"
        sessions.append(_read_turns(read_field(earlier, "dialog", list, where, set_name="MSC"), where))
        gaps.append(f"{earlier['time_num']} {earlier['time_unit']}" if "time_num" in earlier and "time_unit" in earlier else "")
    sessions.append(_read_turns(read_field(raw, "dialog", list, what, set_name="MSC"), what))
    return _Dialogue(dialogue_id=str(given or number), sessions=sessions, gaps=gaps)


def _read_turns(turns: Sequence[Any], what: str) -> list[_Utterance]:
    """Turns of MSC: the speaker by its id where it has one, else in turn."""
    found = []
    for position, turn in enumerate(turns):
        text = read_field(turn, "text", str, f"{what}, turn {position}", set_name="MSC")
        found.append(_Utterance(speaker=str(turn.get("id") or f"Speaker {1 + position % 2}"), text=text, after=timedelta(seconds=position)))
    return found


def _read_chronicles(raw: Any, number: int, what: str) -> _Dialogue:
    """Conversation Chronicles: five sessions, each a list of utterances and one of speakers; `time_interval` holds the gap before each."""
    read = functools.partial(read_field, raw, what=what, set_name="Conversation Chronicles")
    sessions = []
    for ordinal in _ORDINALS:
        texts, speakers = read(f"{ordinal}_session_dialogue", list), read(f"{ordinal}_session_speakers", list)
        if len(texts) != len(speakers):
            problem = f"{len(texts)} utterances and {len(speakers)} speakers in the {ordinal} session"
            raise DataError.of(what, problem, expected="one speaker each")
        pairs = enumerate(zip(texts, speakers, strict=True))
        sessions.append([_Utterance(speaker=str(speaker), text=str(text), after=timedelta(seconds=second)) for second, (text, speaker) in pairs])
    return _Dialogue(dialogue_id=read("dataID", str), sessions=sessions, gaps=["", *(str(gap) for gap in read("time_interval", list)[1:])])


_READERS: Mapping[str, Callable[[Any, int, str], _Dialogue]] = {GAPCHAT: _read_gapchat, MSC: _read_msc, CHRONICLES: _read_chronicles}


def _convert(dialogue: _Dialogue, name: str, prefix: str, ask: bool) -> SourcePart:
    """One dialogue as a bank, with its question where that is asked for."""
    bank_id = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{name}-{prefix}{dialogue.dialogue_id}")
    repairs: list[Repair] = []
    sessions = [_drop_empty(turns, bank_id, index, repairs) for index, turns in enumerate(dialogue.sessions)]
    opener = next((turns[0].speaker for turns in sessions if turns), "")
    messages = _build_messages(sessions, dialogue.gaps, opener, bank_id, repairs)
    items: list[tuple[Task, AnswerKey]] = []
    if ask:
        last = max((index for index, turns in enumerate(sessions) if turns), default=0)
        kept = [message for message in messages if message.session_id != f"s{last + 1}"]
        held = [message for message in messages if message.session_id == f"s{last + 1}"]
        item = _ask_for_reply(held, bank_id, name) if kept else None
        if item is None:
            repairs.append(
                Repair(
                    group_id=bank_id, where="last session", kind="no_question", before="no earlier session, or no reply to the user", after="nothing is asked"
                )
            )
        else:
            messages, items = kept, [item]
    return SourcePart(banks=(SourceBank(bank_id=bank_id, group_id=bank_id, messages=tuple(messages)),), items=tuple(items), repairs=tuple(repairs))


def _drop_empty(turns: Sequence[_Utterance], bank_id: str, index: int, repairs: list[Repair]) -> list[_Utterance]:
    for position, turn in enumerate(turns):
        if not turn.text.strip():
            repairs.append(Repair(group_id=bank_id, where=f"session {index + 1}, turn {position}", kind="empty_turn", before="", after=""))
    return [turn for turn in turns if turn.text.strip()]


def _build_messages(sessions: Sequence[Sequence[_Utterance]], gaps: Sequence[str], user: str, bank_id: str, repairs: list[Repair]) -> list[Message]:
    """All messages, oldest first; a gap is counted from the start of one session to that of the next, but no session starts before the last one's end."""
    messages: list[Message] = []
    start = START
    for index, turns in enumerate(sessions):
        if index:
            said = gaps[index] if index < len(gaps) else ""
            gap = parse_gap(said)
            if gap is None:
                repairs.append(Repair(group_id=bank_id, where=f"before session {index + 1}", kind="gap_unknown", before=said or "(none)", after="1 day"))
            start += timedelta(days=1) if gap is None else gap
            start = max(start, datetime.fromisoformat(messages[-1].time) + timedelta(seconds=1)) if messages else start
        earliest = start
        for position, turn in enumerate(turns):
            earliest = max(earliest, start + turn.after)
            messages.append(
                Message(
                    message_id=f"msg:{index + 1}:{position + 1}",
                    session_id=f"s{index + 1}",
                    role="user" if turn.speaker == user else "assistant",
                    speaker=turn.speaker,
                    text=turn.text.strip(),
                    time=earliest.isoformat(timespec="seconds"),
                )
            )
    return messages


def _ask_for_reply(session: Sequence[Message], bank_id: str, name: str) -> tuple[Task, AnswerKey] | None:
    """The last reply of the assistant as a question; None where there is none."""
    replies = [index for index, message in enumerate(session) if index and message.role == "assistant" and session[index - 1].role == "user"]
    if not replies:
        return None
    reply = session[replies[-1]]
    transcript = "\n".join(f"{message.speaker}: {message.text}" for message in session[: replies[-1]])
    task_id = f"{name}:{bank_id}:{NEXT_REPLY}"
    question = f"Continue this conversation with {reply.speaker}'s next reply.\n\n{transcript}"
    task = Task(task_id=task_id, bank_id=bank_id, question=question, category=NEXT_REPLY, needs_memory=True, asked_at=session[0].time)
    return task, AnswerKey(task_id=task_id, references=(reply.text,))
