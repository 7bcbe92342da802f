"""From a batch of messages to records: who said what, a question with its answer, at most three messages a record.

A batch is cut into *exchanges* of one to three neighbouring messages that belong together (a question and what answers it, a statement and what is said on it),
by the best sum of links between neighbours. Each exchange becomes one record of its telling sentences in the third person. Messages that give it no words
(greetings, praise, thanks) are not among its sources, and an exchange that tells nothing leaves no record.

What stands alone (a statement that nobody took up, each of several statements in a row) is a record of its first telling sentence.
An assistant's words count where they answer a question or tell of the assistant itself; advice and praise stay in the raw messages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from napmem_rl.memory.writers.base import RecordDraft
from napmem_rl.memory.writers.rules_words import find_content_stems
from napmem_rl.memory.writers.sentences import (
    MAX_CHARS,
    classify_sentence,
    cut_at_word,
    is_about_speaker,
    is_chat_question,
    is_instruction,
    is_question,
    is_reply,
    is_telling,
    rewrite_third_person,
    speaks_of_self,
    split_bare,
)
from napmem_rl.schema import Message, RecordType

MAX_SOURCES = 3
MAX_SENTENCES = 2  # of one message in an exchange
MAX_SENTENCE_CHARS = 160  # of one in an exchange; what stands alone may have MAX_CHARS
MIN_STEMS = 1  # content words of a record that is a mere fact
_ANSWERED, _NEIGHBOURS, _SHARED_STEM, _MAX_SHARED = 2.0, 0.3, 0.5, 2  # weights of a link


@dataclass(frozen=True, slots=True)
class _Part:
    """What one message can give to a record."""

    message: Message
    question: str | None  # the last one that asks for something
    statements: tuple[str, ...]  # tell something by themselves
    replies: tuple[str, ...]  # tell something as an answer
    stems: frozenset[str]

    @property
    def is_instruction(self) -> bool:
        return any(is_instruction(sentence) for sentence in self.statements)

    @property
    def tells(self) -> bool:
        """Whether anything of it could answer a question."""
        return bool(self.statements or self.replies or self.message.caption)


@dataclass(frozen=True, slots=True)
class Exchange:
    """Neighbouring messages as one record, and how much they tell (content words)."""

    draft: RecordDraft
    num_stems: int


def find_exchanges(batch: Sequence[Message], *, max_sources: int = MAX_SOURCES) -> list[Exchange]:
    """Cut a batch into exchanges, and keep those that tell something.

    Args:
        batch: messages of one session, oldest first.
        max_sources: messages of an exchange at most.

    Returns:
        In the order of the batch. Each message is a source of at most one.
    """
    names = frozenset(stem for message in batch for stem in find_content_stems(message.speaker))
    parts = [_read_part(message, names) for message in batch]
    exchanges = (_write_exchange(parts[start:stop], names) for start, stop in _cut(parts, max_sources))
    return [exchange for exchange in exchanges if exchange is not None]


def _read_part(message: Message, names: frozenset[str]) -> _Part:
    sentences = split_bare(message.text)
    asked = [sentence for sentence in sentences if is_question(sentence) and not is_chat_question(sentence) and find_content_stems(sentence) - names]
    is_user = message.role == "user"
    statements = tuple(sentence for sentence in sentences if is_telling(sentence) and (is_user or not is_instruction(sentence)))
    replies = tuple(sentence for sentence in sentences if is_reply(sentence) and (find_content_stems(sentence) - names or re.search(r"\d", sentence)))
    stems = find_content_stems(f"{message.text} {message.caption or ''}") - names
    return _Part(message, asked[-1] if asked else None, statements, replies, stems)


def _cut(parts: Sequence[_Part], max_sources: int) -> list[tuple[int, int]]:
    """The cut [start, stop) of the parts with the greatest sum of links; of equal ones, that whose last pieces are shortest."""
    best = [0.0] + [float("-inf")] * len(parts)
    start_of = [0] * (len(parts) + 1)
    for stop in range(1, len(parts) + 1):
        worth = 0.0
        for start in range(stop - 1, max(-1, stop - 1 - max_sources), -1):
            if start < stop - 1:
                link = _link(parts[start], parts[start + 1])
                if link is None:
                    break
                worth += link
            if best[start] + worth > best[stop] + 1e-9:
                best[stop], start_of[stop] = best[start] + worth, start
    cuts, stop = [], len(parts)
    while stop:
        cuts.append((start_of[stop], stop))
        stop = start_of[stop]
    return cuts[::-1]


def _link(first: _Part, second: _Part) -> float | None:
    """How much two neighbours belong together; None where they must not be joined: one speaker's words in a row, or an instruction, which stands alone."""
    if first.message.role == second.message.role or first.is_instruction or second.is_instruction:
        return None
    answered = _ANSWERED if first.question and second.tells else 0.0
    return _NEIGHBOURS + _SHARED_STEM * min(_MAX_SHARED, len(first.stems & second.stems)) + answered


def _is_taken_up(first: _Part, second: _Part) -> bool:
    """Whether one of two neighbours asks, or speaks of what the other spoke of."""
    return bool(first.question or second.question or first.stems & second.stems)


def _write_exchange(parts: Sequence[_Part], names: frozenset[str]) -> Exchange | None:
    """The record of an exchange, or None where it tells nothing."""
    told = [_tell(part, parts[i - 1] if i else None) for i, part in enumerate(parts)]
    for here, after in zip(told, told[1:], strict=False):
        here.question = here.part.question if after.sentences or after.part.message.caption else None
    telling = [item for item in told if item.sentences or item.part.message.caption or item.question]
    record_type = _classify(telling)
    is_alone = len(telling) == 1 and not any(_is_taken_up(first, second) for first, second in zip(parts, parts[1:], strict=False))
    text = " ".join(_write_told(item, names, is_alone=is_alone) for item in telling)
    num_stems = len(find_content_stems(text) - names)
    if not telling or (record_type is RecordType.FACT and num_stems < MIN_STEMS):
        return None
    draft = RecordDraft(type=record_type, text=text, source_ids=tuple(item.part.message.message_id for item in telling))
    return Exchange(draft, num_stems)


@dataclass(slots=True)
class _Told:
    """What of a message goes into a record."""

    part: _Part
    sentences: tuple[str, ...]
    question: str | None = None  # where the next message answers it


def _tell(part: _Part, before: _Part | None) -> _Told:
    """What answers a question need not tell anything by itself; an assistant's words count as an answer, or where they speak of itself."""
    is_answer = before is not None and before.question is not None
    sentences = (part.replies or part.statements) if is_answer else part.statements
    if part.message.role == "assistant" and not is_answer:
        sentences = tuple(sentence for sentence in sentences if speaks_of_self(sentence))
    return _Told(part, sentences)


def _classify(telling: Sequence[_Told]) -> RecordType:
    """The type of the first sentence that the user says, else of the first."""
    said = sorted((item for item in telling if item.sentences), key=lambda item: item.part.message.role != "user")
    return classify_sentence(said[0].sentences[0]) if said else RecordType.FACT


def _write_told(item: _Told, names: frozenset[str], *, is_alone: bool) -> str:
    """A message's share of a record's text, e.g. ``"Ana moved to Oslo. Ana shared a photo of a red door."``."""
    message = item.part.message
    chosen = item.sentences[:1] if is_alone else _pick(item.sentences, names)
    limit = MAX_CHARS if is_alone else MAX_SENTENCE_CHARS
    written = [rewrite_third_person(cut_at_word(sentence, limit), message.speaker) for sentence in chosen]
    label = f"{message.speaker}: "
    if len(written) > 1 and message.speaker in written[0]:
        written[1:] = [text.removeprefix(label) for text in written[1:]]
    if written and not is_alone and not any(message.speaker in text for text in written):
        written[0] = label + written[0]
    if message.caption:
        written.append(f"{message.speaker} shared {cut_at_word(message.caption, MAX_SENTENCE_CHARS)}.")
    if item.question:
        written.append(f"{message.speaker} asked: {cut_at_word(item.question, MAX_SENTENCE_CHARS)}")
    return " ".join(written)


def _pick(sentences: Sequence[str], names: frozenset[str]) -> list[str]:
    """The sentences that tell most, in their order."""
    best = sorted(range(len(sentences)), key=lambda i: (-_rate(sentences[i], names), i))[:MAX_SENTENCES]
    return [sentences[i] for i in sorted(best)]


def _rate(sentence: str, names: frozenset[str]) -> int:
    """How much a sentence tells: content words, two more for a name or number, two more for the first person."""
    has_name = re.search(r"\d|(?<=\s)[A-Z][a-z]", sentence) is not None
    return len(find_content_stems(sentence) - names) + 2 * has_name + 2 * is_about_speaker(sentence)
