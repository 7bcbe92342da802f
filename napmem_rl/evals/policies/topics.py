"""What RMM shows a reader (arXiv 2503.08026): the raw turns of the topic memories that one search finds; summaries are searched and not shown."""

from __future__ import annotations

import asyncio

from napmem_rl.evals.policies.contexts import Context, Passage, as_passage
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.schema import Task


class TopicContext:
    """The messages under the best records of one search with the question's own words; a bank opened with a reranker ranks by it. A `ContextSource`."""

    has_memory = True

    def __init__(self, *, top_k: int) -> None:
        """`top_k`: records at most, M of the paper."""
        self._top_k = top_k

    async def find(self, task: Task, bank: MemoryBank) -> Context:
        """Messages in the order of their records, each once, none said after the question. The search runs in a thread."""
        passages = await asyncio.to_thread(self._search, task, bank)
        note = "" if passages else "no topic memory was found"
        return Context(passages=passages, is_ranked=True, note=note)

    async def close(self) -> None:
        """Nothing to free."""

    def _search(self, task: Task, bank: MemoryBank) -> tuple[Passage, ...]:
        records = bank.search_records(task.question, k=self._top_k, before=task.asked_at)
        found = dict.fromkeys(message_id for record in records for message_id in bank.provenance(record.record_id))
        messages = [message for message_id in found if (message := bank.message(message_id)) is not None]
        return tuple(as_passage(bank, message) for message in messages if task.asked_at is None or message.time <= task.asked_at)
