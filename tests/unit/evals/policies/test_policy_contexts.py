"""What a passive reader gets to see."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from bank_maker import make_levels, make_message

from napmem_rl.errors import DataError
from napmem_rl.evals.policies.contexts import Context, FullContext, NoContext, OracleContext, Passage, SearchContext, fit_passages, order_for_reading
from napmem_rl.memory.bank import MemoryBank, save_bank
from napmem_rl.schema import Task


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    path: Path = tmp_path_factory.mktemp("banks") / "ana"
    messages = (*make_levels()["messages"], make_message(6, "Oslo again!", caption="a red door"))
    save_bank(path, bank_id="ana", writer="hand", **make_levels(messages=messages))
    return MemoryBank.open(path, ranking="bm25")


def ask(question: str = "Where did I move, to Oslo?", asked_at: str | None = None) -> Task:
    return Task(task_id="t", bank_id="ana", question=question, category="c", needs_memory=True, asked_at=asked_at)


def ids(context: Context) -> list[str]:
    return [message_id for passage in context.passages for message_id in passage.message_ids]


def test_no_context_is_empty_and_says_that_there_is_no_memory(bank: MemoryBank) -> None:
    assert asyncio.run(NoContext().find(ask(), bank)).passages == () and not NoContext.has_memory


def test_the_full_context_holds_every_message_up_to_the_question_newest_first(bank: MemoryBank) -> None:
    found = asyncio.run(FullContext().find(ask(asked_at="2024-03-03T10:00:00"), bank))
    assert ids(found) == ["msg:3", "msg:2", "msg:1"] and not found.is_ranked
    assert len(asyncio.run(FullContext().find(ask(), bank)).passages) == 6


def test_a_search_gives_the_best_messages_best_first_and_none_after_the_question(bank: MemoryBank) -> None:
    found = asyncio.run(SearchContext(top_k=5).find(ask("Oslo"), bank))
    assert set(ids(found)) == {"msg:1", "msg:6"} and found.is_ranked
    assert ids(asyncio.run(SearchContext(top_k=1).find(ask("Oslo"), bank))) == ids(found)[:1]
    assert ids(asyncio.run(SearchContext(top_k=5).find(ask("Oslo", "2024-03-05T00:00:00"), bank))) == ["msg:1"]
    assert next(passage for passage in found.passages if passage.message_ids == ("msg:6",)).text == "Oslo again! [image: a red door]"


def test_the_oracle_shows_the_evidence_alone_each_message_once(bank: MemoryBank) -> None:
    found = asyncio.run(OracleContext({"t": ("msg:2", "msg:1", "msg:2")}).find(ask(), bank))
    assert ids(found) == ["msg:2", "msg:1"] and not found.is_ranked and found.note == ""
    assert asyncio.run(OracleContext({"t": ()}).find(ask(), bank)).note == "no gold evidence is known"


def test_evidence_that_the_bank_does_not_hold_is_an_error_and_never_a_smaller_context(bank: MemoryBank) -> None:
    with pytest.raises(DataError, match="msg:77"):
        asyncio.run(OracleContext({"t": ("msg:1", "msg:77")}).find(ask(), bank))
    with pytest.raises(DataError, match="no entry"):
        asyncio.run(OracleContext({}).find(ask(), bank))


def count(passage: Passage) -> int:
    return len(passage.text.split())


def make(*texts: str) -> list[Passage]:
    return [Passage(text=text, time=f"2024-03-{9 - number:02d}T10:00:00", place=9 - number) for number, text in enumerate(texts)]


def test_what_does_not_fit_is_left_out_from_the_least_important_end_and_counted() -> None:
    passages = make("a b", "c d", "e f")
    assert fit_passages(passages, limit=6, count_tokens=count) == (tuple(passages), "")
    kept, note = fit_passages(passages, limit=5, count_tokens=count)
    assert kept == tuple(passages[:2]) and note == "1 of 3 passages left out: context limit"


def test_a_first_passage_that_is_too_long_is_cut_rather_than_lost() -> None:
    kept, note = fit_passages(make("one two three four five", "six"), limit=3, count_tokens=count)
    assert [passage.text for passage in kept] == ["one two …"] and "was cut" in note
    assert fit_passages(make("one two"), limit=0, count_tokens=count) == ((), "1 of 1 passages left out: context limit")


def test_passages_are_read_oldest_first_whatever_their_rank() -> None:
    assert [passage.text for passage in order_for_reading(make("newest", "middle", "oldest"))] == ["oldest", "middle", "newest"]
