"""What the reward pays: packets of known worth, scored with a scripted answer model and the lexical judge (`napmem audit-reward memchain`).

The question needs two of 24 candidates. Honest packets must come out in order, perfect work first by a margin; degenerate ones must stay below partial honest
work. What equation 16 pays all the same, because nothing in it can tell, is marked and explained: whoever trains with it should know.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from napmem_rl.rewards.evidence import render_source
from napmem_rl.rewards.judge import LexicalJudge
from napmem_rl.schema import AnswerKey, RecordType, Task
from napmem_rl.systems.memchain.actions import apply_actions
from napmem_rl.systems.memchain.config import InvalidActions, RewardSettings
from napmem_rl.systems.memchain.packet import (
    MAX_CANDIDATES,
    Action,
    Evidence,
    Intent,
    MemoryAction,
    Packet,
    Plan,
    Relation,
    Role,
    TimeScope,
    TraceStep,
    render_packet,
)
from napmem_rl.systems.memchain.parse import parse_packet
from napmem_rl.systems.memchain.reward import score_packet

MARGIN = 0.05  # by which perfect work must lead, and partial honest work must lie above what is degenerate
_OFFER, _MOVE = "The bakery offered me the job on 3 March.", "We moved to Oslo on 15 March."
_TEXTS = {
    "msg:1": _OFFER,
    "msg:2": _MOVE,
    **{f"msg:{number}": f"Dinner number {number} was rice with beans." for number in range(3, MAX_CANDIDATES + 1)},
}
_SOURCES = {item_id: render_source(text, speaker="Ana") for item_id, text in _TEXTS.items()}
_TASK = Task(task_id="audit", bank_id="ana", question="How many days after the job offer did Ana move?", category="audit", needs_memory=True)
_KEY = AnswerKey(task_id="audit", references=("12 days",), evidence_ids=("msg:1", "msg:2"))
_PLAN = Plan(
    intent=Intent.TEMPORAL,
    memory_types=(RecordType.EVENT,),
    time_scope=TimeScope.HISTORICAL,
    requirement="the day of the offer and of the move",
    evidence_target=2,
)


class Worth(StrEnum):
    """What a packet is really worth."""

    PERFECT = "perfect"
    PARTIAL = "partial"  # honest, and half of what is needed
    HONEST = "honest"  # the right work with a flaw of form
    DEGENERATE = "degenerate"  # must earn less than partial honest work
    PAID_BY_DESIGN = "paid_by_design"  # should, but equations 15 and 16 cannot tell; see `why`


@dataclass(frozen=True, kw_only=True, slots=True)
class Archetype:
    """A response of known worth, and what is to be said of it. `worth_if_closed` is its worth where an invalid action closes the gate, if that differs."""

    name: str
    worth: Worth
    text: str
    why: str
    worth_if_closed: Worth | None = None

    def worth_under(self, invalid_actions: InvalidActions) -> Worth:
        """The worth in one mode of the gate."""
        is_closed = invalid_actions is InvalidActions.ZERO and self.worth_if_closed is not None
        return self.worth_if_closed if is_closed and self.worth_if_closed is not None else self.worth


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditRow:
    """One archetype under one mode of the gate."""

    gate: InvalidActions
    archetype: str
    worth: Worth
    reward: float
    terms: dict[str, float]
    faults: dict[str, int]  # violations by reason
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One demand on the rewards, whether it holds, and in figures."""

    gate: InvalidActions
    demand: str
    holds: bool
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """All rows and checks."""

    rows: tuple[AuditRow, ...]
    checks: tuple[Check, ...]

    @property
    def is_fine(self) -> bool:
        """Whether every demand holds."""
        return all(check.holds for check in self.checks)

    def render_json(self) -> str:
        """Everything as JSON, for programs."""
        return json.dumps({"system": "memchain", "is_fine": self.is_fine, **asdict(self)}, ensure_ascii=False, indent=1)

    def render_text(self) -> str:
        """A table for people: one line an archetype and mode, best first, then the demands."""
        head = f"{'gate':5} {'reward':>6}  {'m':>4} {'c':>4} {'s':>4} {'t':>4} {'e':>4}  {'worth':14} archetype: why"
        lines = [head, *(_render_row(row) for row in self.rows)]
        return "\n".join([*lines, *(f"{'holds' if check.holds else 'FAILS'}: {check.gate}: {check.demand} ({check.detail})" for check in self.checks)])


class ScriptedReader:
    """F by fixed rules: right with both days or the answer itself before it, right every second time with one day, else wrong or without an answer."""

    name = "scripted-reader"

    async def answer(self, question: str, evidence: Sequence[str], *, num_answers: int) -> Sequence[str]:
        """See `AnswerModel`."""
        text = " ".join(evidence)
        num_days = ("3 March" in text) + ("15 March" in text)
        if "20 days" in text:
            return ["20 days"] * num_answers
        if "12 days" in text or num_days == 2:
            return ["12 days"] * num_answers
        if num_days == 1:
            return ["12 days" if number % 2 == 0 else "two weeks" for number in range(num_answers)]
        return ["I do not know."] * num_answers


def audit_reward() -> Audit:
    """Score all archetypes in both modes of the gate and check their order. Deterministic; takes a fraction of a second."""
    rows, checks = [], []
    for invalid_actions in InvalidActions:
        own = sorted((asyncio.run(_score(archetype, invalid_actions)) for archetype in build_archetypes()), key=lambda row: -row.reward)
        rows += own
        checks += _check(invalid_actions, own)
    return Audit(rows=tuple(rows), checks=tuple(checks))


def build_archetypes() -> tuple[Archetype, ...]:
    """Responses of known worth to the same question."""
    return (*_honest_archetypes(), *_degenerate_archetypes(), *_paid_archetypes())


def _honest_archetypes() -> tuple[Archetype, ...]:
    perfect = _write([(_OFFER, ("msg:1",)), (_MOVE, ("msg:2",))])
    return (
        Archetype(name="perfect", worth=Worth.PERFECT, text=perfect, why="both memories, traced, stated and cited, and nothing else"),
        Archetype(name="perfect_in_a_code_fence", worth=Worth.HONEST, text=f"```json\n{perfect}\n```", why="the same with text around it: j = 0"),
        Archetype(name="partial_honest", worth=Worth.PARTIAL, text=_write([(_OFFER, ("msg:1",))]), why="one of the two memories, and what it says"),
    )


def _degenerate_archetypes() -> tuple[Archetype, ...]:
    perfect = _write([(_OFFER, ("msg:1",)), (_MOVE, ("msg:2",))])
    drop_all = MemoryAction(action=Action.DROP, ids=tuple(_TEXTS), rationale="not needed")
    repeated = [(_OFFER, ("msg:1",))] * 8
    texts = {
        "empty_object": ("{}", "no part of a packet; gets nothing filled in"),
        "prose": (f"{_OFFER} {_MOVE}", "the evidence without a packet"),
        "packet_in_the_thinking": (f"<think>{perfect}</think>", "thought of and not written"),
        "no_evidence": (_write([], traced=("msg:1", "msg:2"), actions=(drop_all,)), "all dropped: no answer is asked for"),
        "one_id_repeated": (_write(repeated, traced=("msg:1",)), "one statement eight times"),
        "invented_ids": (_write([(_OFFER, ("msg:91",)), (_MOVE, ("msg:92",))]), "every entry cites an id outside the candidates and is removed"),
        "vague": (_write([("Some things about a job and a home happened in spring.", ("msg:1", "msg:2"))]), "right ids, and nothing to answer from"),
        "stably_wrong": (_write([("Ana moved 20 days after the offer.", ("msg:1", "msg:2"))]), "always the same wrong answer: s = 0"),
        "irrelevant": (_write([(_TEXTS["msg:3"], ("msg:3",))]), "well formed, grounded and beside the question"),
    }
    return tuple(Archetype(name=name, worth=Worth.DEGENERATE, text=text, why=why) for name, (text, why) in texts.items())


def _paid_archetypes() -> tuple[Archetype, ...]:
    everything = [(text, (item_id,)) for item_id, text in _TEXTS.items()]
    reworded = [(f"{prefix}{_OFFER}", ("msg:1",)) for prefix in ("", "Ana: ", "So, ", "Well, ")]
    conflict = (MemoryAction(action=Action.KEEP, ids=("msg:1",), rationale="needed"), MemoryAction(action=Action.DROP, ids=("msg:1",), rationale="not needed"))
    return (
        Archetype(
            name="keep_everything",
            worth=Worth.PAID_BY_DESIGN,
            text=_write(everything),
            why="every candidate copied: equation 16 counts no tokens, so only the precision in t speaks against it",
        ),
        Archetype(
            name="gold_leaked_without_support",
            worth=Worth.PAID_BY_DESIGN,
            text=_write([("The move came 12 days after the offer.", ("msg:3",))]),
            why="the right answer, known or guessed, over a memory that does not say it: c and s pay 0.80 of 1, support and citations hold 0.20",
        ),
        Archetype(
            name="one_id_reworded",
            worth=Worth.PAID_BY_DESIGN,
            text=_write(reworded, traced=("msg:1",)),
            why="one statement in several wordings: no signal counts statements, so it earns about what saying it once earns",
        ),
        Archetype(
            name="keep_and_drop",
            worth=Worth.PAID_BY_DESIGN,
            text=_write([(_OFFER, ("msg:1",)), (_MOVE, ("msg:2",))], actions=conflict),
            why="actions contradict each other over perfect evidence: the soft gate takes v alone, the closed one everything",
            worth_if_closed=Worth.DEGENERATE,
        ),
    )


def _write(statements: Sequence[tuple[str, tuple[str, ...]]], *, traced: Sequence[str] | None = None, actions: tuple[MemoryAction, ...] | None = None) -> str:
    """A packet with these statements as evidence, a trace of one step for each (or each id of `traced`), and one REFINE for each (or `actions`)."""
    distinct = tuple(dict.fromkeys(statements))
    steps = distinct if traced is None else tuple((_TEXTS[item_id], (item_id,)) for item_id in traced)
    last = len(steps) - 1
    trace = [
        TraceStep(role=Role.ANSWER, ids=ids, statement=text, relation=Relation.NONE if index == last else Relation.SUPPORTS)
        for index, (text, ids) in enumerate(steps)
    ]
    refined = tuple(MemoryAction(action=Action.REFINE, ids=ids, rationale="needed", statement=text) for text, ids in distinct)
    evidence = tuple(Evidence(statement=text, ids=ids) for text, ids in statements)
    packet = Packet(plan=_PLAN, trace=tuple(trace), actions=refined if actions is None else actions, evidence=evidence)
    return render_packet(packet)


async def _score(archetype: Archetype, invalid_actions: InvalidActions) -> AuditRow:
    parsed = parse_packet(archetype.text, _TEXTS)
    score = await score_packet(
        _TASK,
        _KEY,
        parsed,
        apply_actions(parsed.packet, _TEXTS),
        reference_ids=_KEY.evidence_ids,
        sources=_SOURCES,
        answerer=ScriptedReader(),
        judge=LexicalJudge(),
        settings=RewardSettings(invalid_actions=invalid_actions),
    )
    assert score.reward is not None, f"audit: {archetype.name} was abstained from: {score.abstained}"
    terms = {name: round(value, 4) for name, value in score.terms.items()}
    return AuditRow(
        gate=invalid_actions,
        archetype=archetype.name,
        worth=archetype.worth_under(invalid_actions),
        reward=round(score.reward, 4),
        terms=terms,
        faults=parsed.count_reasons(),
        why=archetype.why,
    )


def _check(gate: InvalidActions, rows: Sequence[AuditRow]) -> list[Check]:
    """The demands on one mode of the gate; `rows` best first."""
    (perfect,) = (row for row in rows if row.worth is Worth.PERFECT)
    (partial,) = (row for row in rows if row.worth is Worth.PARTIAL)
    others = [row for row in rows if row is not perfect]
    degenerate = max((row for row in rows if row.worth is Worth.DEGENERATE), key=lambda row: row.reward)
    paid = [row.archetype for row in rows if row.worth is Worth.PAID_BY_DESIGN and row.reward >= partial.reward]
    return [
        Check(
            gate=gate,
            demand=f"perfect work leads by at least {MARGIN}",
            holds=perfect.reward - others[0].reward >= MARGIN,
            detail=f"{perfect.reward:.3f}, next {others[0].archetype} {others[0].reward:.3f}",
        ),
        Check(
            gate=gate,
            demand=f"every degenerate packet earns at least {MARGIN} less than partial honest work",
            holds=partial.reward - degenerate.reward >= MARGIN,
            detail=f"{partial.reward:.3f}, highest {degenerate.archetype} {degenerate.reward:.3f}",
        ),
        Check(
            gate=gate,
            demand="nothing but what is named as paid by design earns as much as partial honest work",
            holds=all(row.worth in (Worth.PERFECT, Worth.HONEST, Worth.PARTIAL, Worth.PAID_BY_DESIGN) for row in rows if row.reward >= partial.reward),
            detail=f"paid by design: {', '.join(paid) or 'none'}",
        ),
    ]


def _render_row(row: AuditRow) -> str:
    parts = " ".join(f"{row.terms[name]:4.2f}" for name in ("gate", "correctness", "stability", "citations", "support"))
    return f"{row.gate:5} {row.reward:6.3f}  {parts}  {row.worth:14} {row.archetype}: {row.why}"
