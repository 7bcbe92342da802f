"""The run of an evaluation: what is asked, in which width, what is written, and how it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from napmem_rl.errors import BankError, DataError
from napmem_rl.evals.answer_log import AnswerLog, load_answers
from napmem_rl.evals.evaluation import (
    MAX_FAILURES_IN_A_ROW,
    AttemptRequest,
    AttemptRunner,
    NotAsked,
    RunOutcome,
    compute_attempt_seed,
    plan_attempts,
    run_attempts,
    select_pending,
)
from napmem_rl.evals.policy import Attempt
from napmem_rl.schema import Status, Task, Trajectory


def make_task(number: int, bank_id: str = "ana") -> Task:
    return Task(task_id=f"q:{number}", bank_id=bank_id, question=f"Question {number}?", category="fact", needs_memory=True)


def plan(count: int, *, samples: int = 1, seed: int = 0) -> list[AttemptRequest]:
    return plan_attempts([make_task(number) for number in range(count)], {"ana": "g"}, benchmark="b", samples=samples, seed=seed)


class EchoPolicy:
    """Answers with its seed; `failing` task ids fail at the endpoint. Counts how many attempts are in flight."""

    name, facts = "echo", {}

    def __init__(self, failing: set[str] | None = None) -> None:
        self.failing, self.in_flight, self.widest = failing or set(), 0, 0

    async def answer(self, task: Task, bank: object, *, seed: int) -> Attempt:
        self.in_flight += 1
        self.widest = max(self.widest, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        if task.task_id in self.failing:
            trajectory = Trajectory(task=task, turns=(), final_answer=None, status=Status.ERROR_LLM, detail="no connection")
        elif task.question == "unaskable":
            raise DataError.of(f"task {task.task_id}", "has more options than letters")
        else:
            trajectory = Trajectory(task=task, turns=(), final_answer=str(seed), status=Status.COMPLETED)
        return Attempt(trajectory=trajectory, latency_s=0.1)

    async def close(self) -> None:
        """Nothing."""


async def open_bank(benchmark: str, bank_id: str) -> object:
    if bank_id == "gone":
        raise BankError.of("bank gone", "does not exist")
    return object()


def run(tmp_path: Path, requests: list[AttemptRequest], policy: EchoPolicy, *, width: int = 8, stop_after: int | None = None) -> RunOutcome:
    async def go() -> RunOutcome:
        stop, log = asyncio.Event(), AnswerLog(tmp_path / "answers.jsonl")
        runner = AttemptRunner(policy, open_bank, token_ids=True)  # type: ignore[arg-type]
        asked = 0

        async def ask(request: AttemptRequest) -> object:
            nonlocal asked
            result = await runner.run(request)
            asked += 1
            if asked == stop_after:
                stop.set()
            return result

        try:
            return await run_attempts(requests, ask, {"b": log}, max_concurrency=width, stop=stop, report=lambda line: None)  # type: ignore[arg-type]
        finally:
            log.close()

    return asyncio.run(go())


def test_every_attempt_is_made_once_and_its_row_says_whose_it_is(tmp_path: Path) -> None:
    policy, requests = EchoPolicy(), plan(20, samples=2)
    outcome = run(tmp_path, requests, policy)
    rows = load_answers(tmp_path / "answers.jsonl")
    assert (outcome.num_asked, outcome.num_errors, outcome.stopped) == (40, 0, "") and set(rows) == {request.identity for request in requests}
    assert all(row.group_id == "g" and row.trajectory["final_answer"] == str(row.seed) for row in rows.values())
    assert policy.widest == 8


def test_seeds_differ_by_everything_that_tells_attempts_apart_and_by_nothing_else() -> None:
    base = {"benchmark": "b", "task_id": "q", "sample": 0}
    others = [compute_attempt_seed(0, **base | change) for change in ({}, {"benchmark": "c"}, {"task_id": "r"}, {"sample": 1})]
    others.append(compute_attempt_seed(1, **base))
    assert len(set(others)) == 5 and all(0 <= seed < 2**31 for seed in others)
    assert [request.seed for request in plan(5)] == [request.seed for request in plan(9)[:5]]


def test_only_what_is_unanswered_or_failed_is_asked_again(tmp_path: Path) -> None:
    requests = plan(6)
    run(tmp_path, requests[:4], EchoPolicy(failing={"q:1"}))
    pending = select_pending(requests, load_answers(tmp_path / "answers.jsonl"))
    assert [request.task.task_id for request in pending] == ["q:1", "q:4", "q:5"]
    run(tmp_path, pending, EchoPolicy())
    assert not select_pending(requests, load_answers(tmp_path / "answers.jsonl"))


def test_a_stopped_run_that_goes_on_gives_the_rows_of_one_that_was_not(tmp_path: Path) -> None:
    requests = plan(30, samples=2)
    outcome = run(tmp_path / "a", requests, EchoPolicy(), stop_after=17)
    assert outcome.stopped and 17 <= outcome.num_asked < 60
    run(tmp_path / "a", select_pending(requests, load_answers(tmp_path / "a" / "answers.jsonl")), EchoPolicy(), width=3)
    run(tmp_path / "b", requests, EchoPolicy())
    assert load_answers(tmp_path / "a" / "answers.jsonl") == load_answers(tmp_path / "b" / "answers.jsonl")


def test_an_endpoint_that_is_down_ends_the_run_with_its_words(tmp_path: Path) -> None:
    requests = plan(200)
    outcome = run(tmp_path, requests, EchoPolicy(failing={request.task.task_id for request in requests[10:]}), width=4)
    assert "20 attempts in a row failed" in outcome.stopped and "no connection" in outcome.stopped
    assert MAX_FAILURES_IN_A_ROW <= outcome.num_errors < MAX_FAILURES_IN_A_ROW + 4 and outcome.num_asked == 10 + outcome.num_errors
    assert len(select_pending(requests, load_answers(tmp_path / "answers.jsonl"))) == 190


def test_single_failures_between_answers_do_not_end_the_run(tmp_path: Path) -> None:
    outcome = run(tmp_path, plan(100), EchoPolicy(failing={f"q:{number}" for number in range(0, 100, 2)}), width=1)
    assert (outcome.num_asked, outcome.num_errors, outcome.stopped) == (100, 50, "")


def test_a_missing_bank_and_an_unaskable_task_are_named_and_hold_nothing_up(tmp_path: Path) -> None:
    tasks = [make_task(0), make_task(1, bank_id="gone"), make_task(2)]
    odd = Task(task_id="q:3", bank_id="ana", question="unaskable", category="fact", needs_memory=True)
    requests = plan_attempts([*tasks, odd], {}, benchmark="b", samples=1, seed=0)
    outcome = run(tmp_path, requests, EchoPolicy())
    assert outcome.num_asked == 2 and set(load_answers(tmp_path / "answers.jsonl")) == {("q:0", 0), ("q:2", 0)}
    reasons = {one.task_id: one.reason for one in outcome.not_asked}
    assert reasons == {"q:1": "bank: bank gone: does not exist", "q:3": "task q:3: has more options than letters"}
    assert all(isinstance(one, NotAsked) for one in outcome.not_asked)


def test_a_defect_ends_the_run_and_keeps_what_is_written(tmp_path: Path) -> None:
    class Broken(EchoPolicy):
        async def answer(self, task: Task, bank: object, *, seed: int) -> Attempt:
            if task.task_id == "q:5":
                raise RuntimeError("a bug")
            return await super().answer(task, bank, seed=seed)

    with pytest.raises(RuntimeError, match="a bug"):
        run(tmp_path, plan(50), Broken(), width=1)
    assert len(load_answers(tmp_path / "answers.jsonl")) == 5
