"""A reranker that learns from what a policy opened and cited."""

from __future__ import annotations

from pathlib import Path

from bank_maker import save_sample

from napmem_rl.memory.bank import MemoryBank
from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.retrieval.rerank_learner import RerankLearner, RerankSettings
from napmem_rl.schema import Level, Status, Task, ToolCall, ToolResult, Trajectory, Turn
from napmem_rl.systems.rmm.evidence import learn_from_trajectory

TASK = Task(task_id="t1", bank_id="ana", question="What does Ana like?", category="fact", needs_memory=True)


def search(query: str, *item_ids: str) -> Turn:
    call = ToolCall(name="search", arguments={"query": query})
    return Turn(text=query, tool_results=(ToolResult(call=call, text="", is_success=True, level=Level.RECORD, item_ids=item_ids),))


def test_searches_over_records_and_messages_teach_by_what_was_named_later(tmp_path: Path) -> None:
    save_sample(tmp_path / "ana")
    bank = MemoryBank.open(tmp_path / "ana", encoder=HashingEncoder(64))
    turns = (search("Ana moved to Oslo", "rec:1", "rec:2", "rec:99"), search("I like tea", "msg:4"), Turn(text="<answer>tea [rec:2] [msg:4]</answer>"))
    trajectory = Trajectory(task=TASK, turns=turns, final_answer="tea", status=Status.COMPLETED)
    learner = RerankLearner(64, RerankSettings(batch_size=1))
    first, second = learn_from_trajectory(learner, trajectory, bank)
    assert [first.candidate_ids[index] for index in first.chosen] == ["rec:1", "rec:2"] and first.cited == (False, True)
    assert second.cited == (True,) and learner.counts.num_updates == 2
    assert learn_from_trajectory(learner, Trajectory(task=TASK, turns=(), final_answer=None, status=Status.TRUNCATED), bank) == []
