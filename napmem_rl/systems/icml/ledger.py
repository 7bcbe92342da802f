"""Who was paid what, when and why: one line an event, added at the end, and the rules that every such book keeps.

The book is the only place where payments are; the pending buffer (saved memories that were not triggered yet) is read out of it, so that the two cannot differ.
`check_entries` names every rule that is broken: nothing is lost, and nothing is paid twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from napmem_rl.errors import DataError
from napmem_rl.systems.icml.steps import Agent

TOLERANCE = 1e-9


class Kind(StrEnum):
    """What an entry says."""

    SAVE = "save"  # the Planner saved `memory_id` in this step; paid r_proxy - cost
    DISCARD = "discard"  # the Planner discarded; paid 0 or the miss penalty
    QUALITY = "quality"  # the Trigger's choice; paid r_qual
    TRUTH = "truth"  # the saved memory was triggered first; the Planner's old step is paid lambda r_qual
    WITHDRAWN = "withdrawn"  # the memory left the bank before it was triggered: it will not be paid
    END = "end"  # the session is over


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One event. `amount` is None where the judge gave no score: the step was not paid, which is not a payment of 0.

    Example: Entry(kind="truth", session_id="s4", step_id="s1/3/planner", agent="planner", amount=0.45, memory_id="rec:7", cause="s4/0/trigger")
    """

    kind: Kind
    session_id: str  # in whose update the payment enters
    step_id: str = ""  # the decision that is paid
    agent: str = ""
    amount: float | None = None
    memory_id: str = ""  # saved, or triggered
    cause: str = ""  # of a truth payment: the trigger step
    why: str = ""  # for people

    def as_row(self) -> dict[str, Any]:
        """JSON-ready."""
        return {name: value for name, value in asdict(self).items() if value not in ("", None) or name == "amount"}


def parse_entry(row: Any, what: str) -> Entry:
    """An entry out of JSON. Raises DataError that begins with `what`."""
    names = {field.name for field in fields(Entry)}
    if not isinstance(row, dict) or not {"kind", "session_id"} <= row.keys() <= names:
        raise DataError.of(what, "is no entry of a ledger", got=row, expected=f"an object with kind, session_id and some of {sorted(names)}")
    if row["kind"] not in tuple(Kind):
        raise DataError.of(what, "is of an unknown kind", got=row["kind"], expected=", ".join(Kind))
    wrong = [name for name, value in row.items() if name != "amount" and not isinstance(value, str)]
    amount = row.get("amount")
    if wrong or not (amount is None or (isinstance(amount, int | float) and not isinstance(amount, bool))):
        raise DataError.of(what, "has a field of the wrong type", got=row, expected="text everywhere, and a number or null as amount")
    return Entry(**{**row, "kind": Kind(row["kind"])})


def find_pending(entries: Iterable[Entry]) -> dict[str, str]:
    """Memory id -> step that saved it, of memories that were saved and neither triggered nor withdrawn; in the order of saving."""
    pending: dict[str, str] = {}
    for entry in entries:
        if entry.kind is Kind.SAVE:
            pending[entry.memory_id] = entry.step_id
        elif entry.kind in (Kind.TRUTH, Kind.WITHDRAWN):
            pending.pop(entry.memory_id, None)
    return pending


def check_entries(entries: Iterable[Entry], *, truth_weight: float | None = None) -> list[str]:
    """Every rule that is broken, one line each; [] where all hold.

    The rules: a step is paid once in its own session, an agent once a turn; a memory is saved once, and its saving is paid truth at most once, by a later
    choice of that very memory, and `truth_weight` times the quality of that choice; nothing follows the end of a session in it; amounts are finite.

    Args:
        entries: in order.
        truth_weight: lambda, where it is known and did not change.
    """
    return list(_Book(truth_weight).check(entries))


class _Book:
    """One reading of a ledger."""

    def __init__(self, truth_weight: float | None) -> None:
        self._truth_weight = truth_weight
        self._paid: set[str] = set()  # steps paid in their own session
        self._qualities: dict[str, Entry] = {}  # trigger step -> its entry
        self._saved: dict[str, str] = {}  # memory -> step
        self._closed: set[str] = set()  # memories that were paid truth or withdrawn
        self._ended: set[str] = set()
        self._open: dict[str, dict[str, int]] = {}  # session -> agent -> paid steps

    def check(self, entries: Iterable[Entry]) -> Iterator[str]:
        for number, entry in enumerate(entries, start=1):
            for problem in self._check_one(entry):
                yield f"entry {number} ({entry.kind} of {entry.step_id or entry.memory_id or entry.session_id}): {problem}"

    def _check_one(self, entry: Entry) -> Iterator[str]:
        if entry.session_id in self._ended:
            yield f"session {entry.session_id} had ended"
        if entry.amount is not None and not math.isfinite(entry.amount):
            yield f"the amount {entry.amount} is not finite"
        match entry.kind:
            case Kind.SAVE | Kind.DISCARD | Kind.QUALITY:
                yield from self._check_step(entry)
            case Kind.TRUTH | Kind.WITHDRAWN:
                yield from self._check_closing(entry)
            case Kind.END:
                yield from self._check_end(entry)

    def _check_step(self, entry: Entry) -> Iterator[str]:
        agent = Agent.TRIGGER if entry.kind is Kind.QUALITY else Agent.PLANNER
        if entry.agent != agent:
            yield f"is of agent {entry.agent!r}, expected {agent}"
        if entry.step_id in self._paid:
            yield "the step was paid before"
        if entry.step_id.rsplit("/", 2)[0] != entry.session_id:
            yield f"is paid in session {entry.session_id}, not in its own"
        self._paid.add(entry.step_id)
        counts = self._open.setdefault(entry.session_id, {Agent.PLANNER: 0, Agent.TRIGGER: 0})
        counts[agent] += 1
        if entry.kind is Kind.QUALITY:
            self._qualities[entry.step_id] = entry
        if entry.kind is Kind.SAVE:
            if not entry.memory_id or entry.memory_id in self._saved:
                yield f"memory {entry.memory_id!r} " + ("was saved before" if entry.memory_id else "has no id")
            self._saved.setdefault(entry.memory_id, entry.step_id)

    def _check_closing(self, entry: Entry) -> Iterator[str]:
        """A truth payment or a withdrawal."""
        if entry.memory_id not in self._saved:
            yield f"memory {entry.memory_id!r} was never saved"
        elif entry.memory_id in self._closed:
            yield f"memory {entry.memory_id} was paid truth or withdrawn before"
        elif entry.kind is Kind.TRUTH and self._saved[entry.memory_id] != entry.step_id:
            yield f"memory {entry.memory_id} was saved by {self._saved[entry.memory_id]}"
        self._closed.add(entry.memory_id)
        if entry.kind is Kind.TRUTH:
            yield from self._check_cause(entry)

    def _check_cause(self, entry: Entry) -> Iterator[str]:
        cause = self._qualities.get(entry.cause)
        if cause is None:
            yield f"its cause {entry.cause!r} is no choice that was made"
            return
        if cause.memory_id != entry.memory_id or cause.session_id != entry.session_id:
            yield f"its cause {entry.cause} chose {cause.memory_id or 'no memory'} in session {cause.session_id}"
        if cause.amount is None or entry.amount is None:
            yield "truth cannot be paid where the choice has no quality"
        elif self._truth_weight is not None and abs(entry.amount - self._truth_weight * cause.amount) > TOLERANCE:
            yield f"is {entry.amount}, expected {self._truth_weight} times {cause.amount}"

    def _check_end(self, entry: Entry) -> Iterator[str]:
        self._ended.add(entry.session_id)
        counts = self._open.pop(entry.session_id, {Agent.PLANNER: 0, Agent.TRIGGER: 0})
        if counts[Agent.PLANNER] != counts[Agent.TRIGGER]:
            yield f"the agents were not paid alike: {counts[Agent.PLANNER]} steps of the planner, {counts[Agent.TRIGGER]} of the trigger"
