"""How much of a question's evidence a search of a conversation's messages finds, ranking by ranking.

Searched are all turns of a conversation, the setup turn left out, as both of its banks hold them; a question that went to both banks counts once. Recall@k is
the share of its evidence turns among the first k. Intervals are bootstrapped over questions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from napmem_rl.data.source import SourceSet
from napmem_rl.memory.bank_tables import render_message_passage
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.retrieval.fusion import CANDIDATES, FusionWeights, Ranking
from napmem_rl.retrieval.index import PassageIndex
from napmem_rl.retrieval.passages import PassageList
from napmem_rl.schema import Message

DEPTHS = (5, 10, 20)
NUM_RESAMPLES = 2000
_SETUP_PREFIX = "msg:D0:"  # of the ids of LoCoMo's setup turn


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One way to search."""

    name: str
    ranking: Ranking = Ranking.FUSED
    weights: FusionWeights = FusionWeights()
    render: Callable[[Message], str] = render_message_passage
    candidates: int = CANDIDATES


def render_without_date(message: Message) -> str:
    """The form in which others index LoCoMo, e.g. ``"Ana: We moved to Oslo. [shares a red door]"``."""
    return f"{message.speaker}: {message.text}" + (f" [shares {message.caption}]" if message.caption else "")


SETTINGS = (
    *(Setting(name=f"{ranking}, no date", ranking=ranking, render=render_without_date) for ranking in (Ranking.BM25, Ranking.DENSE, Ranking.RRF)),
    *(Setting(name=str(ranking), ranking=ranking) for ranking in (Ranking.BM25, Ranking.DENSE, Ranking.RRF)),
    Setting(name="rrf, no date, whole rankings", ranking=Ranking.RRF, render=render_without_date, candidates=1_000_000),
    Setting(name="scores added", weights=FusionWeights(drop_asking_words=False, neighbours=0, speaker=0, date=0)),
    Setting(name="+ asking words dropped", weights=FusionWeights(neighbours=0, speaker=0, date=0)),
    Setting(name="+ neighbours", weights=FusionWeights(speaker=0, date=0)),
    Setting(name="+ speakers", weights=FusionWeights(date=0)),
    Setting(name="+ dates = fused"),
)
BASELINE = "rrf"


@dataclass(frozen=True, slots=True)
class _Conversation:
    """The turns of one conversation, and its questions as (text, positions of the evidence, category)."""

    group_id: str
    messages: Sequence[Message]
    questions: Sequence[tuple[str, frozenset[int], str]]


def measure_recall(
    source: SourceSet,
    *,
    encoder: Encoder | None,
    split_of: Mapping[str, str] | None = None,
    settings: Sequence[Setting] = SETTINGS,
    report: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Recall of every setting.

    Args:
        source: conversations with questions; those without evidence are left out.
        encoder: for dense and hybrid search; None for keywords alone, where rrf is bm25 and dense is left out.
        split_of: group id -> split; each split is measured by itself. None: all together.
        settings: ways to search.
        report: takes progress, one line at a time.

    Returns:
        One row a split and setting: recall@k for each k of DEPTHS, recall@5 by category, and for recall@5 the gain over BASELINE with its 95% interval.
    """
    conversations = _collect(source)
    rows = []
    for split in dict.fromkeys((split_of or {}).get(conversation.group_id, "all") for conversation in conversations):
        chosen = [conversation for conversation in conversations if (split_of or {}).get(conversation.group_id, "all") == split]
        recalls: dict[str, np.ndarray] = {}
        for setting in settings:
            if encoder is None and setting.ranking is Ranking.DENSE:
                continue
            recalls[setting.name] = np.concatenate([_search(conversation, setting, encoder) for conversation in chosen])
            report(f"recall: {split}, {setting.name}")
        categories = [category for conversation in chosen for _, _, category in conversation.questions]
        rows += [{"setting": name, "split": split, **_summarise(values, recalls.get(BASELINE), categories)} for name, values in recalls.items()]
    return rows


def _collect(source: SourceSet) -> list[_Conversation]:
    """Each conversation once, by the first of its banks."""
    conversations = []
    for group_id in dict.fromkeys(bank.group_id for bank in source.banks):
        banks = [bank for bank in source.banks if bank.group_id == group_id]
        messages = [message for message in banks[0].messages if not message.message_id.startswith(_SETUP_PREFIX)]
        positions = {message.message_id: position for position, message in enumerate(messages)}
        asked = {}
        for task, key in source.items:
            if key.evidence_ids and any(task.bank_id == bank.bank_id for bank in banks):
                gold = frozenset(positions[message_id] for message_id in key.evidence_ids)
                asked[task.task_id.rpartition(":")[2]] = (task.question, gold, task.category)
        conversations.append(_Conversation(group_id, messages, list(asked.values())))
    return conversations


def _search(conversation: _Conversation, setting: Setting, encoder: Encoder | None) -> np.ndarray:
    """[questions, depths] recall. Each depth is a search of its own, as a tool makes it."""
    messages = conversation.messages
    passages = PassageList(
        [setting.render(message) for message in messages],
        [message.time for message in messages],
        sessions=[message.session_id for message in messages],
        speakers=[message.speaker for message in messages],
    )
    index = PassageIndex(passages, level="raw", encoder=encoder, ranking=setting.ranking, weights=setting.weights, candidates=setting.candidates)
    return np.array([[len(gold.intersection(index.search(text, k=k))) / len(gold) for k in DEPTHS] for text, gold, _ in conversation.questions])


def _summarise(values: np.ndarray, baseline: np.ndarray | None, categories: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"questions": len(values)}
    row |= {f"recall@{k}": float(values[:, column].mean()) for column, k in enumerate(DEPTHS)}
    if baseline is not None:
        gains = values[:, 0] - baseline[:, 0]
        low, high = _bootstrap(gains)
        row |= {"gain@5": float(gains.mean()), "gain@5 low": low, "gain@5 high": high}
    for category in sorted(set(categories)):
        row[f"{category} @5"] = float(values[[name == category for name in categories], 0].mean())
    return row


def _bootstrap(values: np.ndarray) -> tuple[float, float]:
    """The 95% interval of a mean."""
    rng = np.random.default_rng(0)
    means = np.array([values[rng.integers(0, len(values), len(values))].mean() for _ in range(NUM_RESAMPLES)])
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))
