"""What every data source is turned into: users' messages, and questions with keys to their banks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from napmem_rl.schema import AnswerKey, Message, Task


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceBank:
    """The messages of one user. Banks of one `group_id` share text (both speakers of a conversation see every turn) and never part in a split.

    Example: SourceBank(bank_id="conv-1_ana", group_id="conv-1", messages=(…,))
    """

    bank_id: str  # also the folder's name
    group_id: str
    messages: tuple[Message, ...]  # oldest first


@dataclass(frozen=True, kw_only=True, slots=True)
class Repair:
    """One thing in the source that was corrected or left out, and why.

    Example: Repair(group_id="conv-1", where="question 37", kind="evidence_malformed", before="D8:6; D9:17", after="D8:6, D9:17")
    """

    group_id: str
    where: str
    kind: str
    before: str
    after: str  # what it became; "" where it was left out


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceSet:
    """A whole data source, before it is split."""

    name: str  # the `data_source` of its rows
    banks: tuple[SourceBank, ...]
    items: tuple[tuple[Task, AnswerKey], ...]
    repairs: tuple[Repair, ...] = ()

    @property
    def groups(self) -> dict[str, str]:
        """Bank id -> group id."""
        return {bank.bank_id: bank.group_id for bank in self.banks}

    def summary(self) -> Mapping[str, Any]:
        """Counts for people: banks, messages, questions by category, repairs by kind."""
        return {
            "banks": len(self.banks),
            "messages": sum(len(bank.messages) for bank in self.banks),
            "questions": len(self.items),
            "questions_by_category": dict(sorted(Counter(task.category for task, _ in self.items).items())),
            "repairs_by_kind": dict(sorted(Counter(repair.kind for repair in self.repairs).items())),
        }
