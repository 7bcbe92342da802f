"""LoCoMo in its official format: each two-speaker conversation becomes two users' banks (NapMem appendix A).

In a bank one speaker is the user and the other the assistant; a setup turn in our own words says so. Choices that the paper leaves open, or where the data
are not what they seem:

- Category numbers are the benchmark's own (1 multi-hop, 2 temporal, 3 open-domain, 4 single-hop, 5 adversarial). Adversarial questions, whose answer is that
  nothing was said (`AnswerKind.UNANSWERABLE`), are off unless asked for.
- A question goes to the bank of the speaker whose name it holds as a whole word, to both banks when it names both or neither.
- A session has one date. Its turns get that moment plus one second each, in order, so that text order and time order agree; the seconds mean nothing else.
- An image's caption is kept; the search phrase that found the image (``query``) holds some gold answers and is never read.
- Evidence ids are repaired where it is clear what they mean; a question left without evidence is dropped, as in the paper. Each such case is a `Repair`.
  Questions whose evidence contradicts the answer, which the paper drops too, are kept: nothing in the file marks them.
- Questions keep their published wording, in the third person.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from napmem_rl.data.published_file import iterate_objects, read_field
from napmem_rl.data.source import Repair, SourceBank, SourceSet
from napmem_rl.errors import DataError
from napmem_rl.schema import AnswerKey, AnswerKind, Message, Task

NAME = "locomo"
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
ADVERSARIAL = 5
NOT_MENTIONED = ("Not mentioned in the conversation", "Not mentioned", "No information available")
SETUP_USER = "Hello {assistant}, it's {user}. Let's talk the way friends do."  # the rules writer draws no record from it
SETUP_ASSISTANT = "Sure, happy to."
_SETUP_SECONDS = 2  # of a session's start that are left to the setup turn
_DATE_FORMAT = "%I:%M %p on %d %B, %Y"
_EVIDENCE_ID = re.compile(r"D:?\s*(\d+)\s*:\s*(\d+)")
_SESSION_KEY = re.compile(r"session_(\d+)")
_read = functools.partial(read_field, set_name="LoCoMo")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Turn:
    """One utterance, before it is known who is the user."""

    turn_id: str  # "D3:7"
    session_id: str  # "D3"
    speaker: str
    text: str
    time: datetime
    caption: str | None


def load_locomo(path: Path | str, *, adversarial: bool = False) -> SourceSet:
    """Read a LoCoMo file.

    Args:
        path: JSON list of conversations as published, gzipped or not.
        adversarial: keep the questions of category 5.

    Returns:
        Two banks a conversation; questions with keys; what was repaired or dropped.

    Raises:
        DataError: missing file, not JSON, not LoCoMo's format, no conversations. The message names the conversation and the field.
    """
    banks: list[SourceBank] = []
    items: list[tuple[Task, AnswerKey]] = []
    repairs: list[Repair] = []
    for index, raw in enumerate(iterate_objects(Path(path), f"LoCoMo file {path}")):
        group_id = _read(raw, "sample_id", str, f"LoCoMo file {path}, conversation {index} (counting from 0)")
        what = f"LoCoMo file {path}, conversation {group_id}"
        if any(bank.group_id == group_id for bank in banks):
            raise DataError.of(what, "sample_id stands twice", expected="unique ids")
        new = _convert(raw, group_id, what, adversarial, repairs)
        if {bank.bank_id for bank in banks} & {bank.bank_id for bank in new.banks} or new.banks[0].bank_id == new.banks[1].bank_id:
            names = [bank.bank_id for bank in new.banks]
            raise DataError.of(what, "two users get one bank name", got=names, fix="Make names or sample_ids differ in letters or digits.")
        banks += new.banks
        items += new.items
    return SourceSet(name=NAME, banks=tuple(banks), items=tuple(items), repairs=tuple(repairs))


def parse_date(text: str, what: str) -> datetime:
    """Parse a session's date, e.g. ``"1:56 pm on 8 May, 2023"``.

    Raises:
        DataError: another format.
    """
    try:
        return datetime.strptime(text.strip(), _DATE_FORMAT)
    except ValueError as error:
        raise DataError.of(what, "not a date", got=text, expected='like "1:56 pm on 8 May, 2023"') from error


def repair_evidence(raw: Sequence[Any], turn_ids: frozenset[str] | set[str]) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Make evidence ids point to turns.

    Args:
        raw: as published: ``"D1:3"``, but also ``"D8:6; D9:17"``, ``"D:11:26"``, ``"D30:05"``, ``"D1:2 D1:4"``, ``"D"``.
        turn_ids: ids of the conversation's turns.

    Returns:
        The ids in order, each once; and what was done, as (kind, before, after) with after "" where an id was left out.
    """
    kept: list[str] = []
    done: list[tuple[str, str, str]] = []
    for entry in raw:
        found = [f"D{int(session)}:{int(turn)}" for session, turn in _EVIDENCE_ID.findall(str(entry))]
        if found != [entry]:
            done.append(("evidence_malformed", str(entry), ", ".join(found)))
        for turn_id in found:
            if turn_id not in turn_ids:
                done.append(("evidence_without_turn", turn_id, ""))
            elif turn_id in kept:
                done.append(("evidence_duplicate", turn_id, ""))
            else:
                kept.append(turn_id)
    return kept, done


def _convert(raw: Mapping[str, Any], group_id: str, what: str, adversarial: bool, repairs: list[Repair]) -> SourceSet:
    """One conversation as two banks and its questions; appends to `repairs`."""
    conversation = _read(raw, "conversation", dict, what)
    speakers = (_read(conversation, "speaker_a", str, what), _read(conversation, "speaker_b", str, what))
    if speakers[0] == speakers[1]:
        raise DataError.of(what, "both speakers have one name", got=speakers[0], expected="two names")
    turns = list(_read_turns(conversation, group_id, speakers, what, repairs))
    if not turns:
        raise DataError.of(what, "holds no turns", expected="at least one session_N with turns")
    if len({turn.turn_id for turn in turns}) != len(turns):
        raise DataError.of(what, "a dia_id stands twice", expected="unique ids of turns")
    banks = tuple(
        SourceBank(bank_id=_bank_id(group_id, user), group_id=group_id, messages=_build_messages(turns, user, other))
        for user, other in (speakers, speakers[::-1])
    )
    asked_at = (max(turn.time for turn in turns) + timedelta(minutes=1)).isoformat()
    items = []
    for index, question in enumerate(_read(raw, "qa", list, what)):
        key = _read_key(question, index, group_id, {turn.turn_id for turn in turns}, adversarial, f"{what}, question {index}", repairs)
        if key is not None:
            items += _address(question, key, group_id, speakers, asked_at)
    return SourceSet(name=NAME, banks=banks, items=tuple(items))


def _read_turns(conversation: Mapping[str, Any], group_id: str, speakers: tuple[str, str], what: str, repairs: list[Repair]) -> Iterator[_Turn]:
    """All utterances, oldest session first; dates without a session are passed over, empty utterances dropped and reported."""
    numbers = sorted(int(match[1]) for key in conversation if (match := _SESSION_KEY.fullmatch(key)))
    for number in numbers:
        field = f"{what}, session_{number}"
        start = parse_date(_read(conversation, f"session_{number}_date_time", str, what), f"{field}_date_time")
        for position, raw in enumerate(_read(conversation, f"session_{number}", list, what)):
            where = f"{field}, turn {position}"
            turn_id, speaker = _read(raw, "dia_id", str, where), _read(raw, "speaker", str, where)
            if speaker not in speakers:
                raise DataError.of(where, "unknown speaker", got=speaker, expected=f"{speakers[0]} or {speakers[1]}")
            text, caption = _read(raw, "text", str, where).strip(), raw.get("blip_caption") or None
            if not text and not caption:
                repairs.append(Repair(group_id=group_id, where=turn_id, kind="empty_turn", before="", after=""))
                continue
            time = start + timedelta(seconds=_SETUP_SECONDS + position)
            yield _Turn(turn_id=turn_id, session_id=f"D{number}", speaker=speaker, text=text, time=time, caption=caption)


def _build_messages(turns: Sequence[_Turn], user: str, assistant: str) -> tuple[Message, ...]:
    """The messages of one bank, the setup turn first.

    The assistant's half of it is left out where the conversation opens with the assistant, so that the roles alternate.
    """
    first = turns[0]
    setup = [("user", user, SETUP_USER.format(user=user, assistant=assistant))]
    if first.speaker == user:
        setup.append(("assistant", assistant, SETUP_ASSISTANT))
    start = first.time - timedelta(seconds=_SETUP_SECONDS)
    messages = [
        Message(message_id=f"msg:D0:{second + 1}", session_id=first.session_id, role=role, speaker=speaker, text=text, time=_later(start, second))
        for second, (role, speaker, text) in enumerate(setup)
    ]
    messages += [
        Message(
            message_id=f"msg:{turn.turn_id}",
            session_id=turn.session_id,
            role="user" if turn.speaker == user else "assistant",
            speaker=turn.speaker,
            text=turn.text,
            time=turn.time.isoformat(),
            caption=turn.caption,
        )
        for turn in turns
    ]
    return tuple(messages)


def _read_key(raw: Any, index: int, group_id: str, turn_ids: set[str], adversarial: bool, what: str, repairs: list[Repair]) -> AnswerKey | None:
    """The answer and evidence of one question, or None where it is dropped (and reported, unless it is merely of a category that is off)."""
    category = _read(raw, "category", int, what)
    if category not in CATEGORIES:
        raise DataError.of(what, "unknown category", got=category, expected="1 to 5")
    if category == ADVERSARIAL and not adversarial:
        return None
    asked = _read(raw, "question", str, what)
    note = _Notes(repairs, group_id, f"question {index}")
    references = NOT_MENTIONED if category == ADVERSARIAL else _read_references(raw, what, note)
    listed = raw.get("evidence") or []
    evidence, done = repair_evidence(listed if isinstance(listed, list) else [listed], turn_ids)
    for kind, before, after in done:
        note.add(kind, before, after)
    if not references or not evidence:
        note.add("dropped_no_evidence" if references else "dropped_no_answer", asked, "")
        return None
    evidence_ids = tuple(f"msg:{turn_id}" for turn_id in evidence)
    kind = AnswerKind.UNANSWERABLE if category == ADVERSARIAL else AnswerKind.ANSWER
    return AnswerKey(task_id=f"{group_id}:{index}", references=references, evidence_ids=evidence_ids, kind=kind)


def _read_references(raw: Mapping[str, Any], what: str, note: _Notes) -> tuple[str, ...]:
    """The published answer as text; empty where there is none."""
    if raw.get("answer") is None:
        return ()
    answer = _read(raw, "answer", (str, int, float), what)
    if not isinstance(answer, str):
        note.add("answer_number", repr(answer), f'"{answer}"')
    text = str(answer).strip()
    return (text,) if text else ()


def _address(raw: Mapping[str, Any], key: AnswerKey, group_id: str, speakers: tuple[str, str], asked_at: str) -> list[tuple[Task, AnswerKey]]:
    """The question as a task of each bank that it goes to."""
    question = raw["question"].strip()
    named = [speaker for speaker in speakers if re.search(rf"\b{re.escape(speaker)}\b", question, re.IGNORECASE)]
    items = []
    for user in named if len(named) == 1 else speakers:
        bank_id = _bank_id(group_id, user)
        task_id = f"{NAME}:{bank_id}:{key.task_id.rpartition(':')[2]}"
        task = Task(task_id=task_id, bank_id=bank_id, question=question, category=CATEGORIES[raw["category"]], needs_memory=True, asked_at=asked_at)
        items.append((task, replace(key, task_id=task_id)))
    return items


def _later(start: datetime, seconds: int) -> str:
    return (start + timedelta(seconds=seconds)).isoformat()


def _bank_id(group_id: str, user: str) -> str:
    """A name that is safe as a folder: letters, digits, ``-`` and ``_``."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", f"{group_id}_{user}").lower()


@dataclass(frozen=True, slots=True)
class _Notes:
    """Where repairs of one question are written down."""

    repairs: list[Repair]
    group_id: str
    where: str

    def add(self, kind: str, before: str, after: str) -> None:
        self.repairs.append(Repair(group_id=self.group_id, where=self.where, kind=kind, before=before, after=after))
