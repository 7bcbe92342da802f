"""What the policy writes: one packet o = (z, T, A, E) as a JSON object (arXiv 2607.24097, equations 5 to 11).

::

    {
      "plan":     {"intent", "memory_types", "time_scope", "requirement", "evidence_target"}    z = (iota, D, h, eta, b), eq. 6
      "trace":    [{"role", "ids", "statement", "relation"}, …]                                 t = (rho, I, u, delta), eq. 7
      "actions":  [{"action", "ids", "rationale", "statement"}, …]                              a = (v, I, gamma, e~), eq. 10
      "evidence": [{"statement", "ids"}, …]                                                     e with its provenance P(e), eq. 11
    }

The paper gives the five actions and the four time scopes. Its text names neither field names nor roles, and of relations and intents only examples: those here
are ours.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from napmem_rl.schema import RecordType

MAX_CANDIDATES = 24  # K of equation 1, appendix A.3
MAX_TRACE = 24  # steps; like the limits below ours, far above what a compact packet needs
MAX_ACTIONS = 48
MAX_EVIDENCE = 24  # statements
MAX_TEXT = 1000  # characters of a statement, rationale or requirement


class Intent(StrEnum):
    """The evidence intent iota: what kind of evidence a question needs."""

    LOOKUP = "lookup"  # one memory says it
    TEMPORAL = "temporal"  # when, how long, before or after what
    UPDATE = "update"  # which of several states holds
    MULTI_HOP = "multi_hop"  # one memory names what another tells of
    COMPARISON = "comparison"
    COUNT = "count"  # every mention has to be found
    PREFERENCE = "preference"  # tastes, constraints, what would suit someone


class TimeScope(StrEnum):
    """The temporal scope h."""

    CURRENT = "current"
    RECENT = "recent"
    HISTORICAL = "historical"
    ANY = "any"


class Role(StrEnum):
    """The role rho of a trace step."""

    ANSWER = "answer"  # says what the question asks for
    BRIDGE = "bridge"  # names what another memory tells of
    CONTEXT = "context"  # needed to read another memory: who, where, when
    OLD_STATE = "old_state"  # held once
    NEW_STATE = "new_state"  # holds since
    CONFLICT = "conflict"  # says otherwise, and has to be weighed
    CONSTRAINT = "constraint"  # a limit or an exception to a preference


class Relation(StrEnum):
    """The relation delta of a trace step to the next one; the last step has none."""

    SUPPORTS = "supports"
    CONTRASTS = "contrasts"
    UPDATES = "updates"  # the next step holds an older or newer state of the same thing
    RESOLVES = "resolves"  # settles what the next step leaves open
    NONE = "none"


class Action(StrEnum):
    """The action vocabulary of equation 9."""

    KEEP = "KEEP"  # the record as it is
    DROP = "DROP"  # produces no evidence
    MERGE = "MERGE"  # several records in one statement
    REFINE = "REFINE"  # a record, compressed
    ADD = "ADD"  # derived from the cited records: a date, a duration, a comparison, a relation


PRODUCING = (Action.KEEP, Action.MERGE, Action.REFINE, Action.ADD)  # "KEEP, MERGE, REFINE, and ADD produce final evidence; DROP does not"
REWRITING = (Action.MERGE, Action.REFINE, Action.ADD)  # need a statement of their own


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """z, the question-conditioned evidence plan."""

    intent: Intent
    memory_types: tuple[RecordType, ...]
    time_scope: TimeScope
    requirement: str  # eta: what the evidence has to show
    evidence_target: int  # b: about how many statements are enough; soft, never checked against E


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceStep:
    """t, one step of the grounded trace."""

    role: Role
    ids: tuple[str, ...]
    statement: str
    relation: Relation


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryAction:
    """a, one action. The statement of KEEP and DROP is not read: KEEP's evidence is the record itself."""

    action: Action
    ids: tuple[str, ...]
    rationale: str
    statement: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """e, one statement of the active memory, with the candidates P(e) that support it."""

    statement: str
    ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Packet:
    """o = (z, T, A, E), as far as it could be read. `plan` is None where none was asked for, or none could be read."""

    plan: Plan | None
    trace: tuple[TraceStep, ...] = ()
    actions: tuple[MemoryAction, ...] = ()
    evidence: tuple[Evidence, ...] = ()


class Part(StrEnum):
    """A part of a packet, by the name of its field; `packet` is the object as a whole."""

    PACKET = "packet"
    PLAN = "plan"
    TRACE = "trace"
    ACTIONS = "actions"
    EVIDENCE = "evidence"


@dataclass(frozen=True, kw_only=True, slots=True)
class PacketForm:
    """Which parts a packet has: all of them in the paper, all but one in its ablations (Table 5, `FORMS`)."""

    has_plan: bool = True
    has_trace: bool = True
    has_actions: bool = True

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that a packet of this form holds, in their order. Evidence always is one."""
        asked = ((self.has_plan, Part.PLAN), (self.has_trace, Part.TRACE), (self.has_actions, Part.ACTIONS), (True, Part.EVIDENCE))
        return tuple(part for is_asked, part in asked if is_asked)


FULL = PacketForm()
FORMS: Mapping[str, PacketForm] = {  # by what a recipe's `memchain.ablation` says
    "none": FULL,
    "no_plan": PacketForm(has_plan=False),
    "no_trace": PacketForm(has_trace=False),
    "no_actions": PacketForm(has_actions=False),
}


class Reason(StrEnum):
    """What is wrong with a packet."""

    EMPTY = "empty"  # nothing after the thinking
    BAD_THINKING = "bad_thinking"  # not closed, several blocks, or text before it
    NOT_JSON = "not_json"  # no JSON object can be read
    DUPLICATE_KEY = "duplicate_key"  # a field given twice has two readings
    NOT_UNICODE = "not_unicode"  # half of a surrogate pair
    EXTRA_TEXT = "extra_text"  # text around the object, a code fence included
    MISSING_FIELD = "missing_field"
    UNKNOWN_FIELD = "unknown_field"
    NULL_LIST = "null_list"
    WRONG_TYPE = "wrong_type"
    EMPTY_TEXT = "empty_text"
    TOO_LONG = "too_long"
    TOO_MANY_ITEMS = "too_many_items"
    REPEATED_ITEM = "repeated_item"  # the same step, action, statement or id again
    UNKNOWN_ACTION = "unknown_action"
    UNKNOWN_ROLE = "unknown_role"
    UNKNOWN_RELATION = "unknown_relation"
    UNKNOWN_CHOICE = "unknown_choice"  # of intent, memory type or time scope
    FOREIGN_ID = "foreign_id"  # outside the candidates
    EMPTY_TRACE = "empty_trace"
    STEP_WITHOUT_IDS = "step_without_ids"
    ACTION_WITHOUT_IDS = "action_without_ids"
    ADD_WITHOUT_SUPPORT = "add_without_support"
    MERGE_OF_ONE = "merge_of_one"
    KEEP_AND_DROP = "keep_and_drop"  # of one id
    ACTION_WITHOUT_STATEMENT = "action_without_statement"  # MERGE, REFINE or ADD
    EVIDENCE_WITHOUT_PROVENANCE = "evidence_without_provenance"


NOT_AN_OBJECT = frozenset({Reason.EMPTY, Reason.BAD_THINKING, Reason.NOT_JSON, Reason.DUPLICATE_KEY, Reason.NOT_UNICODE})


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """One thing that is wrong: a reason to count, where, and words for people.

    Example: Violation(reason=Reason.MERGE_OF_ONE, part=Part.ACTIONS, index=2, detail="MERGE cites msg:4 alone")
    """

    reason: Reason
    part: Part
    index: int | None = None  # of the item within its part
    detail: str = ""

    def describe(self) -> str:
        """E.g. ``actions[2]: merge_of_one (MERGE cites msg:4 alone)``."""
        where = self.part if self.index is None else f"{self.part}[{self.index}]"
        return f"{where}: {self.reason}" + (f" ({self.detail})" if self.detail else "")


def normalise_id(text: str) -> str:
    """A candidate id without outer whitespace and in one Unicode form (NFC): the same id, typed in two ways."""
    return unicodedata.normalize("NFC", text.strip())


def render_packet(packet: Packet, form: PacketForm = FULL) -> str:
    """The packet as the policy should write it, one line of JSON; `parse_packet` reads it back."""
    parts: dict[str, Any] = {}
    if form.has_plan:
        assert packet.plan is not None, "render_packet: a packet of this form needs a plan"
        plan = packet.plan
        parts["plan"] = {
            "intent": plan.intent,
            "memory_types": list(plan.memory_types),
            "time_scope": plan.time_scope,
            "requirement": plan.requirement,
            "evidence_target": plan.evidence_target,
        }
    if form.has_trace:
        parts["trace"] = [{"role": step.role, "ids": list(step.ids), "statement": step.statement, "relation": step.relation} for step in packet.trace]
    if form.has_actions:
        parts["actions"] = [_render_action(action) for action in packet.actions]
    parts["evidence"] = [{"statement": item.statement, "ids": list(item.ids)} for item in packet.evidence]
    return json.dumps(parts, ensure_ascii=False)


def build_packet_schema(form: PacketForm = FULL, candidate_ids: Sequence[str] | None = None) -> dict[str, Any]:
    """The JSON Schema of a packet.

    Args:
        form: which parts it has.
        candidate_ids: ids that may be cited; None leaves them open. For guided decoding in evaluation.

    The parser is stricter: rules between items (KEEP and DROP of one id) are no matter of a schema.
    """
    id_schema: dict[str, Any] = {"type": "string", "minLength": 1} if candidate_ids is None else {"enum": list(candidate_ids)}
    schemas = {Part.PLAN: _plan_schema(), Part.TRACE: _trace_schema(id_schema), Part.ACTIONS: _actions_schema(id_schema)}
    schemas[Part.EVIDENCE] = _list_schema({"statement": _TEXT, "ids": _ids_schema(id_schema)}, maximum=MAX_EVIDENCE)
    return _object_schema({str(part): schemas[part] for part in form.parts})


_TEXT: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": MAX_TEXT}


def _plan_schema() -> dict[str, Any]:
    return _object_schema(
        {
            "intent": _choice_schema(Intent),
            "memory_types": {"type": "array", "items": _choice_schema(RecordType), "uniqueItems": True, "maxItems": len(RecordType)},
            "time_scope": _choice_schema(TimeScope),
            "requirement": _TEXT,
            "evidence_target": {"type": "integer", "minimum": 0, "maximum": MAX_EVIDENCE},
        }
    )


def _trace_schema(id_schema: dict[str, Any]) -> dict[str, Any]:
    step = {"role": _choice_schema(Role), "ids": _ids_schema(id_schema), "statement": _TEXT, "relation": _choice_schema(Relation)}
    return _list_schema(step, maximum=MAX_TRACE) | {"minItems": 1}


def _actions_schema(id_schema: dict[str, Any]) -> dict[str, Any]:
    """One object per kind: how many ids and whether a statement is needed depends on the action."""
    statement = {"anyOf": [_TEXT, {"type": "null"}]}
    plain = {"action": _choice_schema((Action.KEEP, Action.DROP)), "ids": _ids_schema(id_schema), "rationale": _TEXT}
    rewriting = {"action": _choice_schema((Action.REFINE, Action.ADD)), "ids": _ids_schema(id_schema), "rationale": _TEXT, "statement": _TEXT}
    merging = rewriting | {"action": _choice_schema((Action.MERGE,)), "ids": _ids_schema(id_schema) | {"minItems": 2}}
    kept = _object_schema(plain | {"statement": statement}) | {"required": list(plain)}
    return {"type": "array", "items": {"anyOf": [kept, _object_schema(rewriting), _object_schema(merging)]}, "maxItems": MAX_ACTIONS, "uniqueItems": True}


def _ids_schema(id_schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": id_schema, "minItems": 1, "maxItems": MAX_CANDIDATES, "uniqueItems": True}


def _choice_schema(choices: Sequence[StrEnum] | type[StrEnum]) -> dict[str, Any]:
    return {"enum": [str(choice) for choice in choices]}


def _list_schema(fields: dict[str, Any], *, maximum: int) -> dict[str, Any]:
    return {"type": "array", "items": _object_schema(fields), "maxItems": maximum, "uniqueItems": True}


def _object_schema(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _render_action(action: MemoryAction) -> dict[str, Any]:
    row = {"action": action.action, "ids": list(action.ids), "rationale": action.rationale}
    return row if action.statement is None else row | {"statement": action.statement}
