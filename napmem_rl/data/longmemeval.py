"""LongMemEval, oracle and S, in its published schema: one instance, one bank, one question. For evaluation alone (NapMem holds it out).

Choices that the paper leaves open, or where the data are not what they seem; each case is counted as a `Repair` with its kind:

- Sessions are put in order of time (`sessions_unsorted`; the S files are not sorted although their readme says so). Sessions of one moment keep their order.
- A session's turns get its date plus one second each; the seconds mean nothing else. Where the next session starts earlier than that, time order and text
  order still agree, because the next one then starts a second after the last turn (`session_moved`).
- A session id that stands twice in a haystack gets ``#2``, ``#3``, … (`session_id_repeated`).
- Evidence are the turns marked `has_answer`. An instance that names answer sessions without one marked turn has no known evidence
  (`evidence_unmarked`): metrics that need it are then absent. The other answer sessions of a partly marked instance add nothing.
- A question is asked at `question_date`. Answer sessions that are stamped later on that day (in 43 of 500) would be hidden by a strict filter, so the question
  is then asked one second after the last turn of the latest of them (`asked_later`). Marked evidence of a later day is an error in the data and is refused.
- ``_abs`` in `question_id` marks a question that memory does not answer: `AnswerKind.UNANSWERABLE`, its answer says why. The answer of a preference question
  is a rubric: `AnswerKind.RUBRIC`. The category stays `question_type`.
- Numbers as answers become text (`answer_number`); turns without text are left out (`empty_turn`); a turn's role may be any, also in a session's first turn.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from napmem_rl.data.published_file import iterate_objects, read_field
from napmem_rl.data.source import Repair, SourceBank, SourcePart, StreamedSource
from napmem_rl.errors import DataError
from napmem_rl.schema import AnswerKey, AnswerKind, Message, Task

NAME = "longmemeval"
TYPES = (
    "single-session-user",
    "single-session-assistant",
    "single-session-preference",
    "multi-session",
    "temporal-reasoning",
    "knowledge-update",
)
PREFERENCE = "single-session-preference"
ABSTENTION = "_abs"
_SPEAKERS = {"user": "User", "assistant": "Assistant"}
_DATE_FORMAT = "%Y/%m/%d %H:%M"
_LISTS = ("haystack_session_ids", "haystack_dates", "haystack_sessions")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Session:
    """One session, with a unique id and the moment of its first turn."""

    session_id: str
    start: datetime
    turns: Sequence[Any]


class _Notes:
    """What was repaired in one instance."""

    def __init__(self, question_id: str) -> None:
        self.question_id = question_id
        self.repairs: list[Repair] = []

    def add(self, kind: str, where: str, before: str, after: str) -> None:
        self.repairs.append(Repair(group_id=self.question_id, where=where, kind=kind, before=before, after=after))


def load_longmemeval(path: Path | str) -> StreamedSource:
    """LongMemEval from a file: JSON list or JSON lines, gzipped or not. It is read one instance at a time, each time that `parts` is called.

    Raises:
        DataError: (while it is read) missing, cut off or another format; the message names the instance and the field.
    """
    return StreamedSource(name=NAME, read=functools.partial(_read_parts, Path(path)), is_benchmark=True)


def parse_date(text: str, what: str) -> datetime:
    """Parse a date, e.g. ``"2023/05/21 (Sun) 19:50"``; the weekday is not looked at.

    Raises:
        DataError: another format.
    """
    day, _, rest = text.partition(" (")
    clock = rest.partition(") ")[2]
    try:
        return datetime.strptime(f"{day} {clock}", _DATE_FORMAT)
    except ValueError as error:
        raise DataError.of(what, "not a date", got=text, expected='like "2023/05/21 (Sun) 19:50"') from error


def _read_parts(path: Path) -> Iterator[SourcePart]:
    what = f"LongMemEval file {path}"
    seen: set[str] = set()
    for number, raw in enumerate(iterate_objects(path, what)):
        question_id = read_field(raw, "question_id", str, f"{what}, instance {number} (counting from 0)", set_name="LongMemEval")
        if question_id in seen:
            raise DataError.of(f"{what}, instance {question_id}", "question_id stands twice", expected="unique ids")
        seen.add(question_id)
        yield _convert(raw, question_id, f"{what}, instance {question_id}")


def _convert(raw: Mapping[str, Any], question_id: str, what: str) -> SourcePart:
    """One instance as a bank and a question."""
    read = functools.partial(read_field, raw, what=what, set_name="LongMemEval")
    category = read("question_type", str)
    if category not in TYPES:
        raise DataError.of(f"{what}, field 'question_type'", "is unknown", got=category, expected=", ".join(TYPES))
    notes = _Notes(question_id)
    sessions = _read_sessions(raw, what, notes)
    messages, evidence = _build_messages(sessions, what, notes)
    if not messages:
        raise DataError.of(what, "holds no turns with text")
    named = read("answer_session_ids", list)
    if not evidence and named and ABSTENTION not in question_id:
        notes.add("evidence_unmarked", "answer_session_ids", ", ".join(map(str, named)), "evidence unknown")
    asked = parse_date(read("question_date", str), f"{what}, field 'question_date'")
    answer_sessions = {message.session_id for message in evidence} | {str(session_id) for session_id in named}
    asked_at = _find_moment(asked, [message for message in messages if message.session_id in answer_sessions], evidence, what, notes)
    task_id = f"{NAME}:{question_id}"
    is_unanswerable = ABSTENTION in question_id
    kind = AnswerKind.UNANSWERABLE if is_unanswerable else AnswerKind.RUBRIC if category == PREFERENCE else AnswerKind.ANSWER
    answer = read("answer", (str, int, float))
    if not isinstance(answer, str):
        notes.add("answer_number", "answer", repr(answer), f'"{answer}"')
    task = Task(task_id=task_id, bank_id=question_id, question=read("question", str).strip(), category=category, needs_memory=True, asked_at=asked_at)
    key = AnswerKey(task_id=task_id, references=(str(answer).strip(),), evidence_ids=tuple(message.message_id for message in evidence), kind=kind)
    bank = SourceBank(bank_id=question_id, group_id=question_id, messages=messages)
    return SourcePart(banks=(bank,), items=((task, key),), repairs=tuple(notes.repairs))


def _read_sessions(raw: Mapping[str, Any], what: str, notes: _Notes) -> list[_Session]:
    """The sessions by time, their ids made unique."""
    ids, dates, sessions = (read_field(raw, name, list, what, set_name="LongMemEval") for name in _LISTS)
    if not len(ids) == len(dates) == len(sessions):
        lengths = ", ".join(f"{name} {len(raw[name])}" for name in _LISTS)
        raise DataError.of(what, f"its lists have different lengths ({lengths})", expected="one id, date and session each")
    uses: Counter[str] = Counter()
    found = []
    for position, (given, date, turns) in enumerate(zip(ids, dates, sessions, strict=True)):
        where = f"{what}, session {position}"
        if not isinstance(turns, list):
            raise DataError.of(where, "not LongMemEval's format: no list of turns", got=turns)
        uses[str(given)] += 1
        session_id = str(given) if uses[str(given)] == 1 else f"{given}#{uses[str(given)]}"
        if session_id != str(given):
            notes.add("session_id_repeated", f"session {position}", str(given), session_id)
        found.append(_Session(session_id=session_id, start=parse_date(str(date), f"{where}, haystack_dates"), turns=turns))
    ordered = sorted(found, key=lambda session: session.start)
    moved = sum(1 for before, after in zip(found, ordered, strict=True) if before is not after)
    if moved:
        notes.add("sessions_unsorted", "haystack_dates", f"{moved} of {len(found)} sessions out of place", "sorted by time")
    return ordered


def _build_messages(sessions: Sequence[_Session], what: str, notes: _Notes) -> tuple[tuple[Message, ...], list[Message]]:
    """All messages, oldest first, and those that are marked as evidence."""
    messages: list[Message] = []
    evidence: list[Message] = []
    free = datetime.min  # no turn may be earlier
    for session in sessions:
        if session.start < free:
            notes.add("session_moved", session.session_id, session.start.isoformat(), free.isoformat())
        start = max(session.start, free)
        for position, raw in enumerate(session.turns):
            where = f"{what}, session {session.session_id}, turn {position}"
            role = read_field(raw, "role", str, where, set_name="LongMemEval")
            if role not in _SPEAKERS:
                raise DataError.of(f"{where}, field 'role'", "is unknown", got=role, expected=" or ".join(_SPEAKERS))
            text = read_field(raw, "content", str, where, set_name="LongMemEval")
            if not text.strip():
                notes.add("empty_turn", f"{session.session_id}, turn {position}", "", "")
                continue
            free = start + timedelta(seconds=position)
            message_id = f"msg:{_plain(session.session_id)}:{position}"
            message = Message(
                message_id=message_id, session_id=session.session_id, role=role, speaker=_SPEAKERS[role], text=text.strip(), time=free.isoformat()
            )
            messages.append(message)
            if raw.get("has_answer") is True:
                evidence.append(message)
            free += timedelta(seconds=1)
    return tuple(messages), evidence


def _find_moment(asked: datetime, answering: Sequence[Message], evidence: Sequence[Message], what: str, notes: _Notes) -> str:
    """When the question is asked: at its date, or right after those messages of answer sessions that are of later the same day."""
    too_late = [message for message in evidence if datetime.fromisoformat(message.time).date() > asked.date()]
    if too_late:
        fix = "The instance cannot be answered at its date; it may be another version of the data set."
        raise DataError.of(what, "evidence is of a later day than the question", got=too_late[0].time, expected=f"up to {asked.date()}", fix=fix)
    moments = [datetime.fromisoformat(message.time) for message in answering]
    last = max((moment for moment in moments if moment.date() == asked.date()), default=asked)
    if last <= asked:
        return asked.isoformat()
    moment = last + timedelta(seconds=1)
    notes.add("asked_later", "question_date", asked.isoformat(), moment.isoformat())
    return moment.isoformat()


def _plain(session_id: str) -> str:
    """A session id as part of a message id, which holds no blanks and no square brackets."""
    return "".join("-" if char.isspace() or char in "[]" else char for char in session_id)
