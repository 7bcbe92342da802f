"""What every data source is turned into: users' messages, and questions with keys to their banks; whole, or one user after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

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
    """One thing in the source that was corrected, left out, or merely found, and why.

    Example: Repair(group_id="conv-1", where="question 37", kind="evidence_malformed", before="D8:6; D9:17", after="D8:6, D9:17")
    """

    group_id: str
    where: str
    kind: str
    before: str
    after: str  # what it became; "" where it was left out


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcePart:
    """A piece of a source that stands for itself: some banks, the questions to them, and what was repaired on the way."""

    banks: tuple[SourceBank, ...]
    items: tuple[tuple[Task, AnswerKey], ...] = ()
    repairs: tuple[Repair, ...] = ()


class DataSource(Protocol):
    """Anything that can be prepared.

    `is_benchmark`: for evaluation alone; all its rows go to the split test, and training on them is refused. `is_generated`: its sentences come from
    templates, so that different users say the same words without one being a copy of the other; they are not compared.
    """

    @property
    def name(self) -> str: ...

    @property
    def is_benchmark(self) -> bool: ...

    @property
    def is_generated(self) -> bool: ...

    def parts(self) -> Iterator[SourcePart]:
        """The source from its start, one piece at a time; every call reads it again. Raises DataError where it cannot be used."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamedSource:
    """A source that is read piece by piece, so that it need not fit into memory."""

    name: str  # the `data_source` of its rows
    read: Callable[[], Iterator[SourcePart]]
    is_benchmark: bool = False
    is_generated: bool = False

    def parts(self) -> Iterator[SourcePart]:
        """See `DataSource`."""
        return self.read()


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceSet:
    """A whole data source in memory."""

    name: str  # the `data_source` of its rows
    banks: tuple[SourceBank, ...]
    items: tuple[tuple[Task, AnswerKey], ...]
    repairs: tuple[Repair, ...] = ()
    is_benchmark: bool = False
    is_generated: bool = False

    @property
    def groups(self) -> dict[str, str]:
        """Bank id -> group id."""
        return {bank.bank_id: bank.group_id for bank in self.banks}

    def parts(self) -> Iterator[SourcePart]:
        """See `DataSource`."""
        yield SourcePart(banks=self.banks, items=self.items, repairs=self.repairs)

    def summary(self) -> Mapping[str, Any]:
        """Counts for people: banks, messages, questions by category, repairs by kind."""
        return {
            "banks": len(self.banks),
            "messages": sum(len(bank.messages) for bank in self.banks),
            "questions": len(self.items),
            "questions_by_category": dict(sorted(Counter(task.category for task, _ in self.items).items())),
            "repairs_by_kind": dict(sorted(Counter(repair.kind for repair in self.repairs).items())),
        }


def collect(source: DataSource) -> SourceSet:
    """The whole of a source in memory."""
    parts = list(source.parts())
    return SourceSet(
        name=source.name,
        banks=tuple(bank for part in parts for bank in part.banks),
        items=tuple(item for part in parts for item in part.items),
        repairs=tuple(repair for part in parts for repair in part.repairs),
        is_benchmark=source.is_benchmark,
        is_generated=source.is_generated,
    )
