"""How much of the gold evidence a bank's records hold, and how well a search of them leads to it.

*Coverage*: the share of gold evidence turns that at least one record rests on (its provenance). Per bank: turns that the questions of this bank name. Per
conversation: turns that any question of it names, held by the records of either of its banks.

*Recall@5 through records*: five records are searched for; found is every message that they rest on. Beside it stand recall@5 over messages (five messages are
searched for), and, since five records hold up to fifteen messages, recall of the first five messages that the records lead to.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from napmem_rl.data.source import SourceBank, SourceSet
from napmem_rl.memory.bank import MemoryBank, save_bank
from napmem_rl.memory.writers.rules import RulesWriter, build_pyramid
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.schema import AnswerKey, Record, Task

K = 5
Item = tuple[Task, AnswerKey]


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One way to draw records."""

    name: str
    build: Callable[[], RulesWriter] = RulesWriter


CURVE = (
    Setting(name="1/8", build=lambda: RulesWriter(max_records_per_message=1 / 8)),
    Setting(name="1/4", build=lambda: RulesWriter(max_records_per_message=1 / 4)),
    Setting(name="1/3", build=lambda: RulesWriter(max_records_per_message=1 / 3)),
    Setting(name="default"),
    Setting(name="1/2, two messages a record", build=lambda: RulesWriter(max_sources=2, max_records_per_message=1 / 2)),
)


@dataclass(frozen=True, slots=True)
class _BankFigures:
    """What was measured of one bank under one setting."""

    bank: SourceBank
    num_records: int
    num_sources: int
    num_chars: int
    covered: frozenset[str]  # gold turns of this bank's questions that records rest on
    gold: frozenset[str]
    held: frozenset[str]  # all messages that records rest on
    recalls: Mapping[str, Sequence[float]]  # a value for each question


def measure_coverage(
    source: SourceSet, *, encoder: Encoder | None, split_of: Mapping[str, str] | None = None, settings: Sequence[Setting] = CURVE, report: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Draw the records of every bank under every setting, and measure.

    Args:
        source: conversations with questions; those without evidence are left out.
        encoder: for hybrid search; None for keywords alone.
        split_of: group id -> split; each split is measured by itself. None: all together.
        settings: ways to draw records.
        report: takes progress, one line at a time.

    Returns:
        One row a split and setting: numbers of banks, records and questions, coverage, recall.
    """
    questions: dict[str, list[Item]] = defaultdict(list)
    for task, key in source.items:
        if key.evidence_ids:
            questions[task.bank_id].append((task, key))
    rows = []
    for setting in settings:
        figures = []
        for bank in source.banks:
            if questions[bank.bank_id]:
                figures.append(_measure_bank(bank, questions[bank.bank_id], setting, encoder))
        report(f"coverage: {setting.name}: {sum(figure.num_records for figure in figures)} records of {len(figures)} banks")
        for split in dict.fromkeys((split_of or {}).get(figure.bank.group_id, "all") for figure in figures):
            chosen = [figure for figure in figures if (split_of or {}).get(figure.bank.group_id, "all") == split]
            rows.append({"setting": setting.name, "split": split, **_summarise(chosen, questions)})
    return rows


def _measure_bank(bank: SourceBank, items: Sequence[Item], setting: Setting, encoder: Encoder | None) -> _BankFigures:
    records, profile = build_pyramid(bank.messages, setting.build())
    gold = frozenset(message_id for _, key in items for message_id in key.evidence_ids)
    held = frozenset(source_id for record in records for source_id in record.source_ids)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "bank"
        save_bank(path, bank_id=bank.bank_id, messages=bank.messages, records=records, tracks=(), profile=profile, writer="rules")
        recalls = _measure_recall(MemoryBank.open(path, encoder=encoder), items)
    return _BankFigures(
        bank=bank,
        num_records=len(records),
        num_sources=sum(len(record.source_ids) for record in records),
        num_chars=sum(len(record.text) for record in records),
        covered=gold & held,
        gold=gold,
        held=held,
        recalls=recalls,
    )


def _measure_recall(bank: MemoryBank, items: Sequence[Item]) -> dict[str, list[float]]:
    """Shares of each question's evidence that the searches of one bank find."""
    recalls: dict[str, list[float]] = {"records": [], "records_first_messages": [], "messages": []}
    for task, key in items:
        gold = set(key.evidence_ids)
        through = list(dict.fromkeys(_follow(bank.search_records(task.question, k=K))))
        direct = [message.message_id for message in bank.search_messages(task.question, k=K)]
        for name, found in (("records", through), ("records_first_messages", through[:K]), ("messages", direct)):
            recalls[name].append(len(gold.intersection(found)) / len(gold))
    return recalls


def _follow(records: Sequence[Record]) -> Iterator[str]:
    for record in records:
        yield from record.source_ids


def _summarise(figures: Sequence[_BankFigures], questions: Mapping[str, Sequence[Item]]) -> dict[str, Any]:
    """The row of some banks: means over banks, conversations or questions."""
    shares = [figure.num_records / len(figure.bank.messages) for figure in figures]
    per_bank = [len(figure.covered) / len(figure.gold) for figure in figures]
    groups: dict[str, list[_BankFigures]] = defaultdict(list)
    for figure in figures:
        groups[figure.bank.group_id].append(figure)
    per_group = []
    for members in groups.values():
        gold = frozenset().union(*(figure.gold for figure in members))
        held = frozenset().union(*(figure.held for figure in members))
        per_group.append(len(gold & held) / len(gold))
    num_records = sum(figure.num_records for figure in figures)
    recalls = {f"recall@5_{name}": float(np.mean([value for figure in figures for value in figure.recalls[name]])) for name in figures[0].recalls}
    return {
        "banks": len(figures),
        "questions": sum(len(questions[figure.bank.bank_id]) for figure in figures),
        "messages": sum(len(figure.bank.messages) for figure in figures),
        "records": num_records,
        "records_per_message": float(np.mean(shares)),
        "records_per_message_max": max(shares),
        "sources_per_record": sum(figure.num_sources for figure in figures) / max(1, num_records),
        "chars_per_record": sum(figure.num_chars for figure in figures) / max(1, num_records),
        "coverage_bank": float(np.mean(per_bank)),
        "coverage_bank_min": min(per_bank),
        "coverage_conversation": float(np.mean(per_group)),
        "coverage_conversation_min": min(per_group),
        **recalls,
    }
