"""Topic memories at a session's end: what is asked, what is added and merged, and what stays of what was."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from napmem_rl.errors import LLMError
from napmem_rl.llm.scripted import ScriptedChat
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.builder import build_bank, grow_bank
from napmem_rl.schema import Message, RecordOperation
from napmem_rl.systems.rmm.prospective import OfflineTopicWriter, ProspectiveConfig, TopicMemoryWriter, is_one_topic, join_summaries


def say(number: int, text: str, speaker: str = "Ana", *, session: int = 1) -> Message:
    role = "user" if speaker == "Ana" else "assistant"
    time = f"2024-03-{session:02d}T10:00:{number:02d}"
    return Message(message_id=f"msg:{number}", session_id=f"s{session}", role=role, speaker=speaker, text=text, time=time)


FIRST = (say(1, "I adopted a cat called Miso."), say(2, "Lovely! I keep two hens.", "Ben"), say(3, "Miso sleeps all day."))
SECOND = (say(4, "Miso had to go to the vet.", session=2), say(5, "Poor thing.", "Ben", session=2))


def memories(*pairs: tuple[str, list[str]]) -> str:
    return json.dumps({"memories": [{"summary": summary, "turns": turns} for summary, turns in pairs]})


def decide(**decision: Any) -> str:
    return json.dumps({"decision": decision})


def shown(chat: ScriptedChat, request: int) -> dict[str, Any]:
    return json.loads(chat.requests[request]["messages"][1]["content"])


def test_each_speaker_of_a_session_is_asked_about_once_and_its_turns_are_the_references(tmp_path: Path) -> None:
    chat = ScriptedChat([memories(("Ana has a cat called Miso.", ["t1", "t3"])), memories(("Ben keeps two hens.", ["t2"])), decide(action="add")])
    build_bank(tmp_path / "ana", "ana", FIRST, TopicMemoryWriter(chat))
    assert [shown(chat, request)["speaker"] for request in (0, 1)] == ["Ana", "Ben"]
    assert [turn["text"] for turn in shown(chat, 0)["turns"]] == [message.text for message in FIRST]
    bank = MemoryBank.open(tmp_path / "ana")
    assert [record.text for record in bank.records] == ["Ana has a cat called Miso.", "Ben keeps two hens."]
    assert [record.source_ids for record in bank.records] == [("msg:1", "msg:3"), ("msg:2",)]
    assert bank.writer == f"rmm:{chat.name}" and not bank.tracks


def test_a_merge_rewrites_the_summary_unites_the_references_and_keeps_the_history(tmp_path: Path) -> None:
    merged = "Ana has a cat called Miso, who went to the vet on 2024-03-02."
    first, second = memories(("Ana has a cat called Miso.", ["t1"])), memories(("Miso went to the vet.", ["t1"]))
    chat = ScriptedChat([first, memories(), second, memories(), decide(action="merge", target="r1", summary=merged)])
    build_bank(tmp_path / "ana", "ana", (*FIRST, *SECOND), TopicMemoryWriter(chat))
    bank = MemoryBank.open(tmp_path / "ana")
    assert shown(chat, 4) == {"new": "Miso went to the vet.", "known": [{"label": "r1", "time": FIRST[0].time, "summary": "Ana has a cat called Miso."}]}
    (record,) = bank.records
    assert record.text == merged and record.source_ids == ("msg:1", "msg:4") and record.time == SECOND[0].time
    assert [(one.operation, one.record.text) for one in bank.history(record.record_id)] == [
        (RecordOperation.STORE, "Ana has a cat called Miso."),
        (RecordOperation.UPDATE, merged),
    ]


@pytest.mark.parametrize("bad", ["Sure, I will!", decide(action="merge", target="r9", summary="x"), decide(action="merge", target="r1", summary=" "), "{}"])
def test_a_decision_that_cannot_be_used_adds_the_memory_and_is_counted(tmp_path: Path, bad: str) -> None:
    chat = ScriptedChat([memories(("Ana has a cat.", ["t1"]), ("Ana's cat sleeps all day.", ["t3"])), memories(), bad, bad])
    writer = TopicMemoryWriter(chat)
    build_bank(tmp_path / "ana", "ana", FIRST, writer)
    assert len(MemoryBank.open(tmp_path / "ana").records) == 2
    assert sum(writer.counts.rejections.values()) == 1


def test_an_endpoint_that_fails_leaves_the_session_to_the_next_run(tmp_path: Path) -> None:
    dead = TopicMemoryWriter(ScriptedChat([LLMError("down")] * 4))
    report = asyncio.run(grow_bank(tmp_path / "ana", "ana", FIRST, writer=dead))
    assert report.pending and len(MemoryBank.open(tmp_path / "ana").messages) == 3
    chat = ScriptedChat([memories(("Ana has a cat called Miso.", ["t1"])), memories()])
    assert not asyncio.run(grow_bank(tmp_path / "ana", "ana", writer=TopicMemoryWriter(chat))).pending
    assert [record.text for record in MemoryBank.open(tmp_path / "ana").records] == ["Ana has a cat called Miso."]


def test_a_long_session_is_read_in_parts(tmp_path: Path) -> None:
    chat = ScriptedChat([memories() for _ in range(4)])
    build_bank(tmp_path / "ana", "ana", FIRST, TopicMemoryWriter(chat, ProspectiveConfig(max_input_chars=60)))
    assert [(shown(chat, n)["speaker"], len(shown(chat, n)["turns"])) for n in range(3)] == [("Ana", 2), ("Ben", 2), ("Ana", 1)]


def test_the_offline_writer_merges_what_shares_its_words_and_adds_what_does_not(tmp_path: Path) -> None:
    talk = (
        say(1, "I work as a nurse at the harbour clinic in Bergen."),
        say(2, "I started to bake sourdough bread at home.", session=2),
        say(3, "My work as a nurse at the harbour clinic in Bergen ended in March.", session=3),
    )
    build_bank(tmp_path / "ana", "ana", talk, OfflineTopicWriter())
    bank = MemoryBank.open(tmp_path / "ana")
    assert [record.source_ids for record in bank.records] == [("msg:1", "msg:3"), ("msg:2",)]
    assert len(bank.history(bank.records[0].record_id)) == 2


def test_one_topic_and_joined_summaries() -> None:
    assert is_one_topic("Ana paints watercolour landscapes.", "Ana's watercolour landscapes hang in a cafe.")
    assert not is_one_topic("Ana paints.", "Ana swims.")
    joined = join_summaries("Ana paints watercolours. " * 30, "Ana sold her first painting in May.")
    assert len(joined) <= 402 and joined.endswith("Ana sold her first painting in May.")
