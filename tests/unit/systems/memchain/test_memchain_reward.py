"""Every signal of equations 15 and 16, worked by hand, and the reward that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packet_maker import ANY_PACKETS, IDS, TEXTS, change, dump, make_row

from napmem_rl.errors import BackendError, ConfigError, DataError, JudgeError, LLMError
from napmem_rl.rewards.evidence import compute_support, find_content_words, render_source
from napmem_rl.rewards.judge import LexicalJudge
from napmem_rl.rewards.trace import compute_agreement
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.systems.memchain.actions import apply_actions
from napmem_rl.systems.memchain.config import InvalidActions, RewardSettings
from napmem_rl.systems.memchain.packet import Evidence, Packet, PacketForm, render_packet
from napmem_rl.systems.memchain.parse import parse_packet
from napmem_rl.systems.memchain.reward import (
    GATE_WEIGHTS,
    REWARD_WEIGHTS,
    Gates,
    PacketScore,
    Signals,
    compute_citations,
    compute_correctness,
    compute_evidence_support,
    compute_gates,
    compute_reward,
    compute_stability,
    find_cited_ids,
    find_reference_ids,
    score_packet,
)

TASK = Task(task_id="t1", bank_id="b", question="How many days after the offer did the move come?", category="c", needs_memory=True)
KEY = AnswerKey(task_id="t1", references=("12 days",), evidence_ids=("msg:1", "msg:2"))
GOOD = dump(make_row())


class Answerer:
    """F that gives the same answers whatever it reads, and notes what that was."""

    name = "scripted"

    def __init__(self, *answers: str, error: Exception | None = None) -> None:
        self.answers, self.error, self.seen = answers, error, []

    async def answer(self, question: str, evidence: Sequence[str], *, num_answers: int) -> Sequence[str]:
        self.seen.append((question, list(evidence), num_answers))
        if self.error is not None:
            raise self.error
        return self.answers


class CountingJudge(LexicalJudge):
    """The lexical judge, which notes what it was asked; "broken" has no verdict."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def judge(self, task, key, answer):
        self.asked.append(answer)
        if answer == "broken":
            raise JudgeError("no verdict")
        return await super().judge(task, key, answer)


async def score(text: str, *answers: str, task: Task = TASK, key: AnswerKey = KEY, error=None, judge=None, **settings) -> tuple[PacketScore, Answerer]:
    answerer, parsed = Answerer(*answers, error=error), parse_packet(text, IDS)
    result = await score_packet(
        task, key, parsed, apply_actions(parsed.packet, TEXTS), reference_ids=("msg:1", "msg:2"), sources=TEXTS,
        answerer=answerer, judge=judge or LexicalJudge(), settings=RewardSettings(**{"num_answers": len(answers) or 4} | settings),
    )  # fmt: skip
    return result, answerer


def gates_of(text: str, mode: InvalidActions = InvalidActions.SOFT, form: PacketForm | None = None) -> tuple[str, float]:
    """Which of j, v, i, h hold, and m."""
    gates = compute_gates(parse_packet(text, IDS, form or PacketForm()), form or PacketForm(), mode)
    held = "".join(letter for letter, name in zip("jvih", GATE_WEIGHTS, strict=True) if getattr(gates, name))
    return held, round(gates.multiplier, 9)


def test_the_weights_are_those_of_the_paper() -> None:
    assert tuple(GATE_WEIGHTS.values()) == (0.35, 0.25, 0.20, 0.20) and tuple(REWARD_WEIGHTS.values()) == (0.65, 0.15, 0.15, 0.05)


@pytest.mark.parametrize(
    ("text", "held", "multiplier"),
    [
        (GOOD, "jvih", 1.0),
        ("no object", "", 0.0),
        (f"<think>{GOOD}", "", 0.0),
        (f"Here: {GOOD}", "vih", 0.65),
        (change("actions", 0, action="STORE"), "jih", 0.75),
        (change("actions", 0, ids=["msg:77"]), "jvh", 0.80),
        (change("evidence", 0, ids=["msg:77"]), "jvh", 0.80),
        (change("trace", 0, ids=["msg:77"]), "jv", 0.60),
        (change("trace", 0, role="hint"), "ji", 0.55),
        (dump(make_row(trace=[])), "ji", 0.55),
        (dump(make_row(actions=None)), "jih", 0.75),
        (f"```\n{change('trace', 0, ids=['msg:77'], relation='x')}\n```", "i", 0.20),
        ("{}", "ji", 0.55),
    ],
)
def test_the_gate_is_the_weighted_sum_of_what_holds(text: str, held: str, multiplier: float) -> None:
    assert gates_of(text) == (held, pytest.approx(multiplier))


def test_an_invalid_action_can_close_the_whole_gate() -> None:
    for text in (change("actions", 0, action="STORE"), change("actions", 0, ids=["msg:77"]), change("actions", 1, ids=["msg:1"]), dump(make_row(actions=None))):
        assert gates_of(text)[1] > 0.7 and gates_of(text, InvalidActions.ZERO)[1] == 0.0
    assert gates_of(change("evidence", 0, ids=["msg:77"]), InvalidActions.ZERO)[1] == pytest.approx(0.80)


def test_without_a_trace_in_the_form_nothing_is_paid_for_one() -> None:
    form = PacketForm(has_plan=False, has_trace=False, has_actions=False)
    bare = dump({"evidence": make_row()["evidence"]})
    assert gates_of(bare, form=form) == ("jvi", 1.0)
    assert gates_of(f"Here: {bare}", form=form) == ("vi", pytest.approx(0.45 / 0.80))
    assert gates_of("{}", form=form) == ("ji", pytest.approx(0.55 / 0.80))
    assert gates_of("no object", form=form) == ("", 0.0)


@pytest.mark.parametrize(
    ("verdicts", "correctness", "stability"),
    [
        ((), 0.0, 0.0),
        ((True,), 1.0, 1.0),
        ((False,), 0.0, 0.0),
        ((True, True, True, True), 1.0, 1.0),
        ((False, False, False, False), 0.0, 0.0),
        ((True, False, True, True), 0.75, 0.5),
        ((True, False, False, True), 0.5, 1 / 6),
        ((True, False, False, False), 0.25, 0.0),
    ],
)
def test_correctness_is_the_mean_and_stability_the_share_of_pairs_that_are_both_correct(verdicts, correctness: float, stability: float) -> None:
    assert (compute_correctness(verdicts), compute_stability(verdicts)) == (correctness, pytest.approx(stability))


@given(st.lists(st.booleans(), min_size=2, max_size=8))
def test_stability_counts_pairs(verdicts: list[bool]) -> None:
    pairs = [(a, b) for index, a in enumerate(verdicts) for b in verdicts[index + 1 :]]
    assert compute_stability(verdicts) == pytest.approx(sum(a and b for a, b in pairs) / len(pairs))
    assert compute_stability(verdicts) <= compute_correctness(verdicts)


def test_agreement_is_precision_recall_and_f1_of_distinct_ids() -> None:
    agreement = compute_agreement(["a", "b", "c", "c"], ["a", "d"])
    assert (agreement.precision, agreement.recall, agreement.f1) == (pytest.approx(1 / 3), 0.5, pytest.approx(0.4))
    assert compute_agreement(["a"], []).f1 == compute_agreement([], ["a"]).f1 == compute_agreement(["b"], ["a"]).f1 == 0.0


def test_citations_are_those_of_trace_and_evidence_and_not_of_actions() -> None:
    packet = parse_packet(change("evidence", 1, ids=["msg:3", "msg:77"]), IDS).packet
    assert find_cited_ids(packet) == {"msg:1", "msg:2", "msg:3", "msg:77"}
    assert compute_citations(packet, ("msg:1", "msg:2")).f1 == pytest.approx(2 * 2 / 6)
    assert compute_citations(None, ("msg:1",)).f1 == 0.0


def test_content_words_are_stemmed_and_hold_single_digits() -> None:
    assert find_content_words("The moves came 3 days after the 15th of March.") == {"move", "came", "day", "after", "15", "march", "3"}
    assert compute_support("Ana moved to Oslo in 2020.", ["Ana: I moved to Oslo."]) == 0.75
    assert compute_support("It is not.", ["It is not."]) == compute_support("Ana moved.", []) == 0.0
    assert compute_support("Ana lives in Oslo", ["Ana: hi", "Oslo", "lives"]) == 1.0


def test_a_source_names_its_day_and_speaker() -> None:
    source = render_source("We moved.", time="2024-03-05T13:56:00", speaker="Ana")
    assert source == "2024-03-05 Tuesday 5 March 2024 Ana: We moved." and render_source("We moved.") == "We moved."
    assert compute_support("Ana moved on 5 March 2024, a Tuesday.", [source]) == 1.0


def test_support_counts_words_of_cited_candidates_that_the_trace_cites_too() -> None:
    item = Evidence(statement="We moved to Oslo in winter.", ids=("msg:2",))  # moved, oslo of we, moved, oslo, winter are in msg:2; "we" too
    expected = compute_support(item.statement, [TEXTS["msg:2"]])
    assert 0.5 < expected < 1.0
    assert compute_evidence_support([item], ["msg:2"], TEXTS) == expected
    assert compute_evidence_support([item], ["msg:1"], TEXTS) == 0.0
    two = [Evidence(statement="Oslo", ids=("msg:2",)), Evidence(statement="Rome", ids=("msg:2",))]
    assert compute_evidence_support(two, IDS, TEXTS) == 0.5 and compute_evidence_support([], IDS, TEXTS) == 0.0


def test_saying_a_statement_again_changes_no_support() -> None:
    item, other = Evidence(statement="Oslo", ids=("msg:2",)), Evidence(statement="Rome", ids=("msg:2",))
    assert compute_evidence_support([item] * 9 + [other], IDS, TEXTS) == 0.5


def test_the_reward_is_the_gate_times_the_weighted_signals() -> None:
    gates = Gates(strict_json=False, schema_valid=True, ids_valid=True, trace_valid=True, multiplier=0.65)
    signals = Signals(correctness=0.5, stability=1 / 6, citations=0.4, support=1.0)
    assert compute_reward(gates, signals) == pytest.approx(0.65 * (0.325 + 0.025 + 0.06 + 0.05))


def test_references_are_the_candidates_that_rest_on_gold_messages() -> None:
    sources = {"msg:1": ("msg:1",), "rec:5": ("msg:2", "msg:9"), "rec:6": ("msg:8",), "chunk": ()}
    assert find_reference_ids(("msg:1", "msg:9", "msg:100"), sources) == {"msg:1", "rec:5"}


async def test_a_good_packet_earns_what_its_terms_say() -> None:
    result, answerer = await score(GOOD, "12 days", "12 days", "two weeks", "12 days")
    assert answerer.seen == [(TASK.question, ["The bakery offered the job on 3 March.", "The move to Oslo was on 15 March."], 4)]
    terms = result.terms
    assert (terms["gate"], terms["correctness"], terms["stability"], terms["citations"]) == (1.0, 0.75, 0.5, 1.0)
    assert result.reward == pytest.approx(0.65 * 0.75 + 0.15 * 0.5 + 0.15 + 0.05 * terms["support"])
    assert result.answers == ("12 days", "12 days", "two weeks", "12 days") and result.judge == "lexical"


async def test_equal_answers_are_judged_once_and_blank_ones_not_at_all() -> None:
    judge = CountingJudge()
    result, _ = await score(GOOD, "12 days", "12 days", " ", "no", judge=judge)
    assert sorted(judge.asked) == ["12 days", "no"] and result.terms["correctness"] == 0.5


async def test_without_evidence_the_answer_model_is_not_asked() -> None:
    for text in ("{}", "nothing", dump(make_row(evidence=[], actions=[]))):
        result, answerer = await score(text)
        assert answerer.seen == [] and result.terms["correctness"] == 0.0
    assert (await score("{}"))[0].reward == (await score("nothing"))[0].reward == 0.0


@pytest.mark.parametrize(
    ("error", "answers", "cause"),
    [
        (LLMError("down"), (), "answer model scripted: down"),
        (BackendError("gone"), (), "answer model scripted: gone"),
        (None, ("broken", "12 days"), "judge: no verdict"),
        (None, ("12 days",), "answer model scripted: answer model scripted: gave another number of answers; got 1; expected 3"),
    ],
)
async def test_a_failure_of_the_answer_model_or_the_judge_gives_no_reward(error, answers, cause: str) -> None:
    settings = {"num_answers": 3} if answers == ("12 days",) else {}
    result, _ = await score(GOOD, *answers, error=error, judge=CountingJudge(), **settings)
    assert result.reward is None and result.abstained == cause and result.terms["gate"] == 1.0 and "correctness" not in result.terms


async def test_options_are_shown_to_the_answer_model() -> None:
    task = replace(TASK, options=("10 days", "12 days"))
    result, answerer = await score(GOOD, "B", task=task, key=replace(KEY, references=("B",)))
    assert answerer.seen[0][0].split("\n")[1:3] == ["A. 10 days", "B. 12 days"] and result.terms["correctness"] == 1.0


async def test_wrong_keys_and_settings_are_refused() -> None:
    with pytest.raises(DataError, match="another task"):
        await score(GOOD, "x", key=replace(KEY, task_id="t2"))
    with pytest.raises(ConfigError, match="num_answers"):
        RewardSettings(num_answers=0)


@settings(max_examples=40)
@given(ANY_PACKETS, st.lists(st.booleans(), max_size=4))
def test_every_signal_and_the_reward_lie_in_0_to_1(packet: Packet, verdicts: list[bool]) -> None:
    parsed = parse_packet(render_packet(packet), IDS)
    composition = apply_actions(parsed.packet, TEXTS)
    gates = compute_gates(parsed)
    support = compute_evidence_support(composition.evidence, {item_id for step in composition.trace for item_id in step.ids}, TEXTS)
    citations = compute_citations(parsed.packet, ("msg:1", "msg:2")).f1
    signals = Signals(correctness=compute_correctness(verdicts), stability=compute_stability(verdicts), citations=citations, support=support)
    for value in (gates.multiplier, signals.correctness, signals.stability, citations, support, compute_reward(gates, signals)):
        assert 0.0 <= value <= 1.0 + 1e-9
