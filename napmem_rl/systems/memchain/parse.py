"""Read what the policy wrote. Total: any text gives a `ParsedPacket`, never an exception, and nothing is filled in.

Thinking is cut off first; a packet inside it is none. What is left is one JSON object. Where text stands around it (a code fence, a sentence), the object from
the first brace to the last is read all the same, and `is_strict` is False. Each item is read on its own: one that cannot be read is left out and told with its
reason; one that can be read but breaks a rule stays as it was written, and is told too (`rules.find_rule_violations`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from napmem_rl.errors import PolicyOutputError
from napmem_rl.llm.structured import refuse_constant
from napmem_rl.schema import RecordType
from napmem_rl.systems.memchain.packet import (
    FULL,
    MAX_ACTIONS,
    MAX_CANDIDATES,
    MAX_EVIDENCE,
    MAX_TEXT,
    MAX_TRACE,
    NOT_AN_OBJECT,
    Action,
    Evidence,
    Intent,
    MemoryAction,
    Packet,
    PacketForm,
    Part,
    Plan,
    Reason,
    Relation,
    Role,
    TimeScope,
    TraceStep,
    Violation,
    normalise_id,
)
from napmem_rl.systems.memchain.rules import find_rule_violations
from napmem_rl.tools.parse import split_thinking
from napmem_rl.tools.spec import shorten

T = TypeVar("T")
Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedPacket:
    """What was read, and all that is wrong with it. `packet` is None where no JSON object could be read at all."""

    packet: Packet | None
    violations: tuple[Violation, ...] = ()
    thinking: str | None = None

    @property
    def is_strict(self) -> bool:
        """Whether the text after the thinking is exactly one JSON object."""
        return self.packet is not None and not self.has(Reason.EXTRA_TEXT)

    @property
    def is_failure(self) -> bool:
        """A parse failure of Algorithm 1: the text cannot be read as (z, T, A, E), because there is no object or one of its parts cannot be read."""
        return self.packet is None or any(violation.index is None and violation.reason not in _HARMLESS for violation in self.violations)

    def has(self, *reasons: Reason) -> bool:
        """Whether something is wrong for one of these reasons."""
        return any(violation.reason in reasons for violation in self.violations)

    def count_reasons(self) -> dict[str, int]:
        """Violations by reason."""
        return dict(sorted(Counter(str(violation.reason) for violation in self.violations).items()))


_HARMLESS = frozenset({Reason.EXTRA_TEXT, Reason.UNKNOWN_FIELD, Reason.REPEATED_ITEM, Reason.EMPTY_TRACE})  # of a part as a whole: it can be read


class _Repeated(ValueError):
    """A field is given twice."""


def parse_packet(text: str, candidate_ids: Collection[str], form: PacketForm = FULL) -> ParsedPacket:
    """Read one response of the policy.

    Args:
        text: the decoded response.
        candidate_ids: ids of C_q.
        form: the parts that a packet should have.

    Returns:
        What could be read, ids normalised, with every violation. Entries that cite foreign ids are still in it (`actions.apply_actions` removes them).
    """
    thinking, value, violation = _load_object(text)
    if value is None:
        assert violation is not None and violation.reason in NOT_AN_OBJECT
        return ParsedPacket(packet=None, violations=(violation,), thinking=thinking)
    reader = _PacketReader()
    packet = reader.read(value, form)
    lost = {found.part for found in reader.violations if found.index is None}  # what could not be read is not empty as well
    ruled = [found for found in find_rule_violations(packet, candidate_ids, form) if not (found.reason is Reason.EMPTY_TRACE and Part.TRACE in lost)]
    violations = ([violation] if violation is not None else []) + reader.violations + ruled
    return ParsedPacket(packet=packet, violations=tuple(violations), thinking=thinking)


def _load_object(text: str) -> tuple[str | None, dict[str, Any] | None, Violation | None]:
    """(thinking, object, what is wrong). A text that is an object as a whole holds no thinking, whatever tags its strings quote."""
    if text.lstrip().startswith("{"):
        value, _ = _load_json(text)
        if value is not None:
            return None, value, None
    try:
        thinking, rest = split_thinking(text)
    except PolicyOutputError as error:
        return None, None, Violation(reason=Reason.BAD_THINKING, part=Part.PACKET, detail=error.message)
    if not rest.strip():
        return thinking, None, Violation(reason=Reason.EMPTY, part=Part.PACKET)
    value, violation = _load_json(rest)
    if value is not None or (violation is not None and violation.reason is not Reason.NOT_JSON):
        return thinking, value, violation
    first, last = rest.find("{"), rest.rfind("}")
    inner, inner_violation = _load_json(rest[first : last + 1]) if 0 <= first < last else (None, violation)
    if inner is not None:
        around = rest[:first] + rest[last + 1 :]
        return thinking, inner, Violation(reason=Reason.EXTRA_TEXT, part=Part.PACKET, detail=shorten(around))
    return thinking, None, inner_violation


def _load_json(text: str) -> tuple[dict[str, Any] | None, Violation | None]:
    """One JSON object and nothing else, or what is wrong."""
    reason, detail = Reason.NOT_JSON, "not an object"
    try:
        value = json.loads(text, object_pairs_hook=_refuse_repeats, parse_constant=refuse_constant)
        json.dumps(value, ensure_ascii=False).encode()
        if isinstance(value, dict):
            return value, None
    except UnicodeEncodeError:
        reason, detail = Reason.NOT_UNICODE, "half of a surrogate pair"
    except _Repeated as error:
        reason, detail = Reason.DUPLICATE_KEY, str(error)
    except (ValueError, RecursionError) as error:
        detail = shorten(str(error))
    return None, Violation(reason=reason, part=Part.PACKET, detail=detail)


def _refuse_repeats(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    repeated = [name for name, number in Counter(name for name, _ in pairs).items() if number > 1]
    if repeated:
        raise _Repeated(f"{shorten(repeated[0])!r} is given twice")
    return dict(pairs)


class _PacketReader:
    """Reads the parts one by one and notes what is wrong on the way."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._where: tuple[Part, int | None] = (Part.PACKET, None)  # what is being read

    def read(self, value: Mapping[str, Any], form: PacketForm) -> Packet:
        """The packet as far as it can be read."""
        self._check_fields(value, tuple(str(part) for part in form.parts))
        return Packet(
            plan=self._read_plan(value.get("plan")) if form.has_plan and "plan" in value else None,
            trace=self._read_items(value, Part.TRACE, MAX_TRACE, self._read_step) if form.has_trace else (),
            actions=self._read_items(value, Part.ACTIONS, MAX_ACTIONS, self._read_action) if form.has_actions else (),
            evidence=self._read_items(value, Part.EVIDENCE, MAX_EVIDENCE, self._read_evidence),
        )

    def _note(self, reason: Reason, detail: str = "") -> None:
        part, index = self._where
        self.violations.append(Violation(reason=reason, part=part, index=index, detail=shorten(detail)))

    def _read_items(self, value: Mapping[str, Any], part: Part, limit: int, read: Callable[[Mapping[str, Any]], T | None]) -> tuple[T, ...]:
        """The items of a part that can be read; a list that is too long is not read at all, since nobody can say which of it was meant."""
        self._where = (part, None)
        if part not in value:
            return ()
        items: list[T] = []
        for index, row in enumerate(self._read_list(value[part], limit) or ()):
            self._where = (part, index)
            item = read(row) if isinstance(row, dict) else self._note(Reason.WRONG_TYPE, f"{_name_type(row)} where an object is expected")
            items += [item] if item is not None else []
        return tuple(items)

    def _read_plan(self, row: Any) -> Plan | None:
        self._where = (Part.PLAN, None)
        if not isinstance(row, dict):
            return self._note(Reason.WRONG_TYPE, f"{_name_type(row)} where an object is expected")
        if not self._check_fields(row, ("intent", "memory_types", "time_scope", "requirement", "evidence_target")):
            return None
        intent = self._read_choice(row["intent"], Intent, Reason.UNKNOWN_CHOICE)
        types = [self._read_choice(name, RecordType, Reason.UNKNOWN_CHOICE) for name in self._read_list(row["memory_types"], len(RecordType)) or ()]
        scope = self._read_choice(row["time_scope"], TimeScope, Reason.UNKNOWN_CHOICE)
        requirement = self._read_text(row["requirement"])
        target = self._read_count(row["evidence_target"])
        if len(set(types)) < len(types):
            self._note(Reason.REPEATED_ITEM, "memory_types")
        if intent is None or None in types or scope is None or requirement is None or target is None:
            return None
        known = tuple(dict.fromkeys(name for name in types if name is not None))
        return Plan(intent=intent, memory_types=known, time_scope=scope, requirement=requirement, evidence_target=target)

    def _read_step(self, row: Mapping[str, Any]) -> TraceStep | None:
        if not self._check_fields(row, ("role", "ids", "statement", "relation")):
            return None
        role, ids = self._read_choice(row["role"], Role, Reason.UNKNOWN_ROLE), self._read_ids(row["ids"])
        statement, relation = self._read_text(row["statement"]), self._read_choice(row["relation"], Relation, Reason.UNKNOWN_RELATION)
        if role is None or ids is None or statement is None or relation is None:
            return None
        return TraceStep(role=role, ids=ids, statement=statement, relation=relation)

    def _read_action(self, row: Mapping[str, Any]) -> MemoryAction | None:
        if not self._check_fields(row, ("action", "ids", "rationale"), optional=("statement",)):
            return None
        action, ids = self._read_choice(row["action"], Action, Reason.UNKNOWN_ACTION), self._read_ids(row["ids"])
        rationale = self._read_text(row["rationale"])
        is_stated = row.get("statement") is not None
        statement = self._read_text(row["statement"]) if is_stated else None
        if action is None or ids is None or rationale is None or (is_stated and statement is None):
            return None
        return MemoryAction(action=action, ids=ids, rationale=rationale, statement=statement)

    def _read_evidence(self, row: Mapping[str, Any]) -> Evidence | None:
        if not self._check_fields(row, ("statement", "ids")):
            return None
        statement, ids = self._read_text(row["statement"]), self._read_ids(row["ids"])
        return None if statement is None or ids is None else Evidence(statement=statement, ids=ids)

    def _check_fields(self, row: Mapping[str, Any], names: tuple[str, ...], optional: tuple[str, ...] = ()) -> bool:
        """Whether all fields are there. One that nobody asked for is told, and does no harm."""
        missing = [name for name in names if name not in row]
        unknown = [name for name in row if name not in (*names, *optional)]
        if missing:
            self._note(Reason.MISSING_FIELD, ", ".join(missing))
        if unknown:
            self._note(Reason.UNKNOWN_FIELD, ", ".join(unknown[:5]))
        return not missing

    def _read_list(self, value: Any, limit: int) -> list[Any] | None:
        if value is None:
            return self._note(Reason.NULL_LIST)
        if not isinstance(value, list):
            return self._note(Reason.WRONG_TYPE, f"{_name_type(value)} where a list is expected")
        if len(value) > limit:
            return self._note(Reason.TOO_MANY_ITEMS, f"{len(value)} items, at most {limit} are allowed")
        return value

    def _read_ids(self, value: Any) -> tuple[str, ...] | None:
        items = self._read_list(value, MAX_CANDIDATES)
        if items is None:
            return None
        if not all(isinstance(item, str) for item in items):
            return self._note(Reason.WRONG_TYPE, "an id is no text")
        ids = tuple(dict.fromkeys(normalise_id(item) for item in items))
        if len(ids) < len(items):
            self._note(Reason.REPEATED_ITEM, "ids")
        return ids

    def _read_text(self, value: Any) -> str | None:
        if not isinstance(value, str):
            return self._note(Reason.WRONG_TYPE, f"{_name_type(value)} where a text is expected")
        if not value.strip():
            return self._note(Reason.EMPTY_TEXT)
        if len(value) > MAX_TEXT:
            return self._note(Reason.TOO_LONG, f"{len(value)} characters, at most {MAX_TEXT} are allowed")
        return value.strip()

    def _read_choice(self, value: Any, choices: type[Choice], reason: Reason) -> Choice | None:
        if not isinstance(value, str):
            return self._note(Reason.WRONG_TYPE, f"{_name_type(value)} where one of {', '.join(choices)} is expected")
        if value not in list(choices):
            return self._note(reason, f"{shorten(value)}; known: {', '.join(choices)}")
        return choices(value)

    def _read_count(self, value: Any) -> int | None:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_EVIDENCE:
            return self._note(Reason.WRONG_TYPE, f"evidence_target is no number from 0 to {MAX_EVIDENCE}")
        return value


def _name_type(value: Any) -> str:
    """The JSON name of a value's type."""
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return "null" if value is None else names[type(value)]
