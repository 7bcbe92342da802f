"""TMPO's reward of one packet (arXiv 2607.24097, appendix B.2), every signal a pure function.

::

    m = 0.35 j + 0.25 v + 0.20 i + 0.20 h                     equation 15, the structural gate
    R = m (0.65 c + 0.15 s + 0.15 t + 0.05 e)                 equation 16

The gate judges the packet as it was written; c and s the answers that the frozen model F gives from E, which is composed after foreign ids are gone. A response
without a JSON object gets 0. Definitions that the paper leaves open are ours and stand with each function. What comes out of 16 by design, and cannot be told
from honest work by it, is listed by `napmem audit-reward memchain`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from napmem_rl.errors import BackendError, DataError, JudgeError, LLMError
from napmem_rl.rewards.evidence import compute_support
from napmem_rl.rewards.judge import Judge
from napmem_rl.rewards.trace import Agreement, compute_agreement
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.systems.memchain.actions import Composition
from napmem_rl.systems.memchain.config import InvalidActions, RewardSettings
from napmem_rl.systems.memchain.packet import FULL, Evidence, Packet, PacketForm, Part, Reason
from napmem_rl.systems.memchain.parse import ParsedPacket
from napmem_rl.systems.memchain.prompts import render_question

GATE_WEIGHTS = {"strict_json": 0.35, "schema_valid": 0.25, "ids_valid": 0.20, "trace_valid": 0.20}  # of j, v, i, h
REWARD_WEIGHTS = {"correctness": 0.65, "stability": 0.15, "citations": 0.15, "support": 0.05}  # of c, s, t, e
_NOT_OF_THE_SCHEMA = frozenset({Reason.EXTRA_TEXT, Reason.FOREIGN_ID})  # what j and i are there for


class AnswerModel(Protocol):
    """F, the frozen answer model. It sees the question and E, and nothing else."""

    name: str

    async def answer(self, question: str, evidence: Sequence[str], *, num_answers: int) -> Sequence[str]:
        """`num_answers` answers, sampled one by one. Raises LLMError or BackendError where there are none."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Gates:
    """The structural signals, each 0 or 1, and their weighted mean m in [0, 1]. A signal of a part that packets do without is None, and has no weight."""

    strict_json: bool  # j
    schema_valid: bool  # v
    ids_valid: bool  # i
    trace_valid: bool | None  # h
    multiplier: float  # m


@dataclass(frozen=True, kw_only=True, slots=True)
class Signals:
    """The graded signals, each in [0, 1]."""

    correctness: float  # c
    stability: float  # s
    citations: float  # t
    support: float  # e


@dataclass(frozen=True, kw_only=True, slots=True)
class PacketScore:
    """The reward of one packet, or why it has none; `terms` are its unweighted parts."""

    reward: float | None
    terms: Mapping[str, float]
    answers: tuple[str, ...] = ()
    abstained: str | None = None
    judge: str = ""


def compute_gates(parsed: ParsedPacket, form: PacketForm = FULL, invalid_actions: InvalidActions = InvalidActions.SOFT) -> Gates:
    """The structural gate of equation 15, over the packet as it was written.

    - j: the text after the thinking is exactly one JSON object;
    - v: the object is a packet without fault, its ids aside: every field there and of its type, every action, role and relation known, no rule broken;
    - i: every id cited in trace, actions and evidence is a candidate's;
    - h: the trace has at least one step, and every step is without fault, its ids included. None where the form has no trace: then nothing is paid for one, and
      m = (0.35 j + 0.25 v + 0.20 i) / 0.80.

    Without an object all are 0, and so is m. With `InvalidActions.ZERO` m is 0 as soon as anything is wrong with an action.
    """
    if parsed.packet is None:
        return Gates(strict_json=False, schema_valid=False, ids_valid=False, trace_valid=False if form.has_trace else None, multiplier=0.0)
    is_traced = bool(parsed.packet.trace) and not any(violation.part is Part.TRACE for violation in parsed.violations)
    gates = {
        "strict_json": parsed.is_strict,
        "schema_valid": all(violation.reason in _NOT_OF_THE_SCHEMA for violation in parsed.violations),
        "ids_valid": not parsed.has(Reason.FOREIGN_ID),
        "trace_valid": is_traced if form.has_trace else None,
    }
    is_closed = invalid_actions is InvalidActions.ZERO and any(violation.part is Part.ACTIONS for violation in parsed.violations)
    weights = {name: GATE_WEIGHTS[name] for name, holds in gates.items() if holds is not None}
    held = sum(weight for name, weight in weights.items() if gates[name])
    return Gates(**gates, multiplier=0.0 if is_closed else held / sum(weights.values()))


def compute_correctness(verdicts: Sequence[bool]) -> float:
    """c: the mean of the verdicts over the answers of F; 0 without an answer, which is what an empty E gives."""
    return _average(float(verdict) for verdict in verdicts)


def compute_stability(verdicts: Sequence[bool]) -> float:
    """s: the share of pairs of answers that are both correct; of one answer, whether it is. Always giving the same wrong answer is worth 0.

    With n of K answers correct it is n (n - 1) / (K (K - 1)). With a deterministic answer model all K verdicts are one: then s = c, and s tells nothing more.

    Example: 3 of 4 correct give 3 pairs of 6, 0.5.
    """
    num_answers, num_correct = len(verdicts), sum(verdicts)
    if num_answers < 2:
        return float(num_correct)
    return num_correct * (num_correct - 1) / (num_answers * (num_answers - 1))


def find_cited_ids(packet: Packet) -> frozenset[str]:
    """What a packet puts forward as evidence: the ids of its trace and of its evidence, foreign ones too, which cost precision. Actions cite what they drop."""
    return frozenset(item_id for item in (*packet.trace, *packet.evidence) for item_id in item.ids)


def compute_citations(packet: Packet | None, reference_ids: Collection[str]) -> Agreement:
    """t is the F1 of what this returns: precision and recall of the cited ids against the reference ids.

    Args:
        packet: what was written.
        reference_ids: candidates that hold the evidence (`find_reference_ids`). None of them (none is known, or retrieval missed them all) makes t 0 for every
            packet of the group, which changes no group-relative advantage.
    """
    return compute_agreement(find_cited_ids(packet) if packet is not None else (), reference_ids)


def compute_evidence_support(evidence: Sequence[Evidence], traced_ids: Collection[str], sources: Mapping[str, str]) -> float:
    """e: the mean support of the final statements, each counted once; 0 without any.

    The support of a statement is the share of its content words that occur in those of its cited candidates that the trace cites too. A statement whose
    candidates are nowhere in the trace has 0.

    Args:
        evidence: E after composition.
        traced_ids: ids that the trace cites; all candidates where the form has no trace.
        sources: text of each candidate with its speaker and day (`rewards.evidence.render_source`), by id.
    """
    traced = frozenset(traced_ids)
    return _average(compute_support(item.statement, [sources[item_id] for item_id in item.ids if item_id in traced]) for item in dict.fromkeys(evidence))


def compute_reward(gates: Gates, signals: Signals) -> float:
    """R of equation 16, in [0, 1]."""
    return gates.multiplier * sum(weight * getattr(signals, name) for name, weight in REWARD_WEIGHTS.items())


def find_reference_ids(evidence_ids: Collection[str], source_ids: Mapping[str, Collection[str]]) -> frozenset[str]:
    """The candidates that hold gold messages by provenance.

    Args:
        evidence_ids: gold message ids of the answer key.
        source_ids: of each candidate, the messages that it rests on.
    """
    gold = frozenset(evidence_ids)
    return frozenset(item_id for item_id, sources in source_ids.items() if gold & frozenset(sources))


async def score_packet(
    task: Task,
    key: AnswerKey,
    parsed: ParsedPacket,
    composition: Composition,
    *,
    reference_ids: Collection[str],
    sources: Mapping[str, str],
    answerer: AnswerModel,
    judge: Judge,
    settings: RewardSettings,
    form: PacketForm = FULL,
) -> PacketScore:
    """Reward one packet. F is asked only where there is evidence (Algorithm 1, line 10).

    No honest reward exists where F or the judge failed: the score abstains, and is never 0 for that.

    Args:
        task, key: the question and what counts as its answer.
        parsed, composition: the packet as written, and the evidence out of it.
        reference_ids: candidates that hold the evidence.
        sources: text of each candidate with speaker and day, by id.

    Raises:
        DataError: the key belongs to another task, or cannot be used.
    """
    if key.task_id != task.task_id:
        raise DataError.of(f"packet of task {task.task_id}", "was given the answer key of another task", got=key.task_id)
    gates = compute_gates(parsed, form, settings.invalid_actions)
    agreement = compute_citations(parsed.packet, reference_ids)
    traced = {item_id for step in composition.trace for item_id in step.ids} if form.has_trace else set(sources)
    support = compute_evidence_support(composition.evidence, traced, sources)
    known = {name: float(holds) for name in GATE_WEIGHTS if (holds := getattr(gates, name)) is not None}
    known |= {"gate": gates.multiplier, "citations": agreement.f1, "support": support}
    known |= {"citation_precision": agreement.precision, "citation_recall": agreement.recall}
    try:
        answers, verdicts = await _ask(task, key, composition, answerer, judge, settings.num_answers)
    except (LLMError, BackendError) as error:
        who = "judge" if isinstance(error, JudgeError) else f"answer model {answerer.name}"
        return PacketScore(reward=None, terms=known, abstained=f"{who}: {error}", judge=judge.name)
    signals = Signals(correctness=compute_correctness(verdicts), stability=compute_stability(verdicts), citations=agreement.f1, support=support)
    terms = known | {"correctness": signals.correctness, "stability": signals.stability}
    return PacketScore(reward=compute_reward(gates, signals), terms=terms, answers=answers, judge=judge.name)


async def _ask(
    task: Task, key: AnswerKey, composition: Composition, answerer: AnswerModel, judge: Judge, num_answers: int
) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    """The answers of F and whether each is correct. The judge is asked once about equal answers; a blank one is incorrect without asking."""
    if not composition.evidence:
        return (), ()
    answers = tuple(await answerer.answer(render_question(task), [item.statement for item in composition.evidence], num_answers=num_answers))
    if len(answers) != num_answers:
        raise BackendError.of(f"answer model {answerer.name}", "gave another number of answers", got=len(answers), expected=str(num_answers))
    distinct = [answer for answer in dict.fromkeys(answers) if answer.strip()]
    judged = await asyncio.gather(*(judge.judge(task, key, answer) for answer in distinct))
    verdicts = {answer: verdict.is_correct for answer, verdict in zip(distinct, judged, strict=True)}
    return answers, tuple(verdicts.get(answer, False) for answer in answers)


def _average(values: Iterable[float]) -> float:
    """The mean; 0 where there is nothing."""
    items = list(values)
    return sum(items) / len(items) if items else 0.0
