"""From an episode to its reward, or to an abstention."""

from __future__ import annotations

import asyncio

import pytest

from napmem_rl.config.sections import AgentConfig
from napmem_rl.errors import DataError, JudgeError
from napmem_rl.llm.scripted import ScriptedChat
from napmem_rl.rewards.judge import LexicalJudge, LLMJudge
from napmem_rl.rewards.verdict import Verdict
from napmem_rl.schema import AnswerKey, AnswerKind, Level, ScoredTrajectory, Status, Task, ToolCall, ToolResult, Trajectory, Turn
from napmem_rl.systems.napmem.reward import score_trajectory

KEY = AnswerKey(task_id="t1", references=("Oslo",))
YES = '{"verdict": "correct", "reason": "fits"}'


class NeverAsked:
    """A judge whose being asked is a failure of the test."""

    name = "never"

    async def judge(self, task: Task, key: AnswerKey, answer: str) -> Verdict:
        raise AssertionError("the judge was asked")


def as_trajectory(answer: str | None, *, calls: int = 1, status: Status = Status.COMPLETED, needs_memory: bool = True) -> Trajectory:
    task = Task(task_id="t1", bank_id="b1", question="Where?", category="fact", needs_memory=needs_memory)
    result = ToolResult(call=ToolCall(name="search_records", arguments={"query": "x"}), text="…", is_success=True, level=Level.RECORD)
    turns = tuple(Turn(text="call", tool_results=(result,)) for _ in range(calls))
    return Trajectory(task=task, turns=turns, final_answer=answer, status=status, detail="why")


def score(trajectory: Trajectory, judge: object | None = None, key: AnswerKey = KEY) -> ScoredTrajectory:
    return asyncio.run(score_trajectory(trajectory, key, judge or LexicalJudge(), AgentConfig()))


@pytest.mark.parametrize(
    ("trajectory", "reward", "terms"),
    [
        (as_trajectory("Oslo"), 1.0, (1, 1, 1)),
        (as_trajectory("Oslo", calls=0), 0.0, (1, 1, 0)),
        (as_trajectory("Rome"), -0.5, (1, 0, 1)),
        (as_trajectory("Rome", calls=0), -1.0, (1, 0, 0)),
        (as_trajectory("Oslo", calls=0, needs_memory=False), 1.0, (1, 1, 1)),
        (as_trajectory("Oslo", calls=1, needs_memory=False), 0.0, (1, 1, 0)),
    ],
)
def test_a_completed_episode_gets_the_reward_of_its_terms(trajectory: Trajectory, reward: float, terms: tuple[int, int, int]) -> None:
    scored = score(trajectory)
    assert scored.reward == reward and scored.judge == "lexical"
    assert scored.terms == {"format": terms[0], "correct": terms[1], "appropriate_use": terms[2]}


@pytest.mark.parametrize(("status", "use"), [(Status.OVER_BUDGET, 0.0), (Status.TRUNCATED, 1.0), (Status.ERROR_PARSE, 1.0)])
def test_an_episode_without_a_final_answer_costs_minus_one_and_the_judge_is_not_asked(status: Status, use: float) -> None:
    scored = score(as_trajectory(None, calls=4, status=status), NeverAsked())
    assert (scored.reward, dict(scored.terms)) == (-1.0, {"format": 0.0, "correct": 0.0, "appropriate_use": use})


@pytest.mark.parametrize("status", [Status.ERROR_TOOL, Status.ERROR_LLM])
def test_our_own_failures_are_abstained_from(status: Status) -> None:
    scored = score(as_trajectory(None, status=status), NeverAsked())
    assert (scored.reward, scored.abstained, dict(scored.terms)) == (None, f"{status}: why", {})


def test_a_judge_without_a_verdict_is_abstained_from_and_never_scored_zero() -> None:
    scored = score(as_trajectory("Oslo"), LLMJudge(ScriptedChat(["maybe", "maybe", "maybe"])))
    assert scored.reward is None and scored.abstained.startswith("judge: ") and "gave no verdict" in scored.abstained
    assert dict(scored.terms) == {"format": 1.0, "appropriate_use": 1.0}
    assert score(as_trajectory("Oslo"), LLMJudge(ScriptedChat([JudgeError("down")]))).reward is None


def test_the_key_of_another_task_and_a_larger_budget_are_data_errors() -> None:
    with pytest.raises(DataError, match="answer key of another task"):
        score(as_trajectory("Oslo"), key=AnswerKey(task_id="t2", references=("Oslo",)))
    with pytest.raises(DataError, match="ran under another budget; got 5; expected at most 4"):
        score(as_trajectory("Oslo", calls=5))


def test_an_unanswerable_question_pays_for_saying_so_and_not_for_an_answer() -> None:
    key = AnswerKey(task_id="t1", references=("Ana told of no cat.",), kind=AnswerKind.UNANSWERABLE)
    assert score(as_trajectory("I don't know."), key=key).reward == 1.0
    assert score(as_trajectory("Oslo"), key=key).reward == -0.5
    assert score(as_trajectory("Oslo"), LLMJudge(ScriptedChat([YES])), key).reward == 1.0, "a model decides where one is asked"


def test_a_rubric_is_abstained_from_by_the_lexical_judge_and_scored_by_a_model() -> None:
    key = AnswerKey(task_id="t1", references=("Suggests trains, since Ana does not fly.",), kind=AnswerKind.RUBRIC)
    scored = score(as_trajectory("Take the night train."), key=key)
    assert scored.reward is None and "cannot judge a rubric" in scored.abstained and "correct" not in scored.terms
    assert score(as_trajectory("Take the night train."), LLMJudge(ScriptedChat([YES])), key).reward == 1.0
