"""The run of an evaluation: which attempts there are, which are still to be made, and how they are made side by side.

Knows neither Ray nor an engine: `ask` is whatever makes one attempt, here or in another process. The one who calls writes; nobody else does.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from napmem_rl.errors import BankError, DataError
from napmem_rl.evals.answer_log import AnswerLog, Identity, is_error
from napmem_rl.evals.policy import Attempt, Policy
from napmem_rl.evals.result_rows import AnswerRow
from napmem_rl.evals.trajectory_rows import render_trajectory
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.schema import Status, Task

MAX_FAILURES_IN_A_ROW = 20  # of the endpoint or engine: then it is down, and asking on would only write error rows
_TELL_EVERY_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptRequest:
    """One attempt to be made; all that a worker needs beside the bank."""

    benchmark: str
    task: Task
    sample: int
    seed: int
    group_id: str

    @property
    def identity(self) -> Identity:
        """As of the answer that it becomes."""
        return self.task.task_id, self.sample


@dataclass(frozen=True, kw_only=True, slots=True)
class NotAsked:
    """An attempt that could not be made at all, and why: its bank is missing, or the task cannot be put to this policy."""

    benchmark: str
    task_id: str
    sample: int
    reason: str


@dataclass(kw_only=True, slots=True)
class RunOutcome:
    """What a run did. `stopped` says in words why it ended early; "" where it went through."""

    num_asked: int = 0
    num_errors: int = 0
    not_asked: list[NotAsked] = field(default_factory=list)
    stopped: str = ""
    seconds: float = 0.0  # from the first attempt to the last


OpenBank = Callable[[str, str], Awaitable[MemoryBank]]  # benchmark, bank id
Ask = Callable[[AttemptRequest], Awaitable[AnswerRow | NotAsked]]


def compute_attempt_seed(seed: int, *, benchmark: str, task_id: str, sample: int) -> int:
    """The seed of one attempt, the same in whatever order and wherever attempts are made. In [0, 2^31)."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{benchmark}/{task_id}/{sample}".encode()).digest()[:4], "big") >> 1


def plan_attempts(tasks: Iterable[Task], groups: Mapping[str, str], *, benchmark: str, samples: int, seed: int) -> list[AttemptRequest]:
    """All attempts of a benchmark: task by task, a task's samples side by side.

    Args:
        tasks: in order.
        groups: bank id -> group; a bank without one is a group of its own.
        benchmark: its name.
        samples: attempts a task.
        seed: of the evaluation.
    """
    return [
        AttemptRequest(
            benchmark=benchmark,
            task=task,
            sample=sample,
            seed=compute_attempt_seed(seed, benchmark=benchmark, task_id=task.task_id, sample=sample),
            group_id=groups.get(task.bank_id, task.bank_id),
        )
        for task in tasks
        for sample in range(samples)
    ]


def select_pending(requests: Iterable[AttemptRequest], answers: Mapping[Identity, AnswerRow]) -> list[AttemptRequest]:
    """Attempts without an answer, or whose answer is an error of ours."""
    return [request for request in requests if request.identity not in answers or is_error(answers[request.identity])]


class AttemptRunner:
    """Makes attempts with one policy; many at once."""

    def __init__(self, policy: Policy, open_bank: OpenBank, *, token_ids: bool) -> None:
        self._policy, self._open_bank, self._token_ids = policy, open_bank, token_ids

    async def run(self, request: AttemptRequest) -> AnswerRow | NotAsked:
        """One attempt as its row, or why it could not be made."""
        try:
            bank = await self._open_bank(request.benchmark, request.task.bank_id)
            attempt = await self._policy.answer(request.task, bank, seed=request.seed)
        except DataError as error:
            reason = f"bank: {error.message}" if isinstance(error, BankError) else error.message
            return NotAsked(benchmark=request.benchmark, task_id=request.task.task_id, sample=request.sample, reason=reason)
        return build_row(request, attempt, token_ids=self._token_ids)

    async def close(self) -> None:
        """Free what the policy holds."""
        await self._policy.close()


def build_row(request: AttemptRequest, attempt: Attempt, *, token_ids: bool) -> AnswerRow:
    """An attempt as it is written down."""
    return AnswerRow(
        benchmark=request.benchmark,
        task_id=request.task.task_id,
        sample=request.sample,
        seed=request.seed,
        group_id=request.group_id,
        trajectory=render_trajectory(attempt.trajectory, with_token_ids=token_ids),
        context_ids=attempt.context_ids,
        context_ranked=attempt.context_ranked,
        prompt_tokens=attempt.prompt_tokens,
        completion_tokens=attempt.completion_tokens,
        latency_s=round(attempt.latency_s, 6),
        retrieval_s=round(attempt.retrieval_s, 6),
        details=attempt.details,
    )


async def run_attempts(
    requests: Sequence[AttemptRequest],
    ask: Ask,
    logs: Mapping[str, AnswerLog],
    *,
    max_concurrency: int,
    stop: asyncio.Event | None = None,
    report: Callable[[str], None] = print,
) -> RunOutcome:
    """Make attempts side by side and write each as it ends.

    Args:
        requests: what is to be asked, in order.
        ask: makes one attempt.
        logs: benchmark -> where its answers go.
        max_concurrency: attempts in flight.
        stop: once set, nothing more is asked, what is in flight is given up, and the run ends.
        report: takes progress, one line at a time.

    Raises:
        whatever `ask` or the disk raises: what was written stays, and the run can go on from there.
    """
    run = _Run(requests, ask, logs, stop or asyncio.Event(), report)
    return await run.go(min(max_concurrency, max(1, len(requests))))


class _Run:
    """One call of `run_attempts`."""

    def __init__(
        self, requests: Sequence[AttemptRequest], ask: Ask, logs: Mapping[str, AnswerLog], stop: asyncio.Event, report: Callable[[str], None]
    ) -> None:
        self._waiting, self._num = iter(requests), len(requests)
        self._ask, self._logs, self._stop, self._report = ask, logs, stop, report
        self._outcome = RunOutcome()
        self._failures_in_a_row = 0
        self._started = time.monotonic()

    async def go(self, width: int) -> RunOutcome:
        asking = [asyncio.create_task(self._ask_in_turn()) for _ in range(width)]
        stopping, telling = asyncio.create_task(self._stop.wait()), asyncio.create_task(self._tell())
        try:
            waiting = set(asking)
            while waiting and not stopping.done():
                done, _ = await asyncio.wait({*waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
                waiting -= done
                for task in done - {stopping}:
                    task.result()  # raises what went wrong
        finally:
            for task in (*asking, stopping, telling):
                task.cancel()
            await asyncio.gather(*asking, stopping, telling, return_exceptions=True)
        if stopping.done() and not stopping.cancelled() and not self._outcome.stopped:
            self._outcome.stopped = "it was asked to stop"
        self._outcome.seconds = time.monotonic() - self._started
        return self._outcome

    async def _ask_in_turn(self) -> None:
        for request in self._waiting:
            self._take(await self._ask(request))
            if self._stop.is_set():
                return

    def _take(self, result: AnswerRow | NotAsked) -> None:
        """Write what came back and count it; ask for a stop where the endpoint is down."""
        if isinstance(result, NotAsked):
            self._outcome.not_asked.append(result)
            return
        self._logs[result.benchmark].append(result)
        self._outcome.num_asked += 1
        failed = is_error(result)
        self._outcome.num_errors += failed
        is_endpoint = result.trajectory["status"] == Status.ERROR_LLM
        self._failures_in_a_row = self._failures_in_a_row + 1 if is_endpoint else 0
        if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
            self._outcome.stopped = f"{MAX_FAILURES_IN_A_ROW} attempts in a row failed at the endpoint or engine; the last: {result.trajectory['detail']}"
            self._stop.set()

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(_TELL_EVERY_S)
            done, seconds = self._outcome.num_asked, time.monotonic() - self._started
            errors = f", {self._outcome.num_errors} of them errors" if self._outcome.num_errors else ""
            self._report(f"[{seconds:.0f} s] {done:,} of {self._num:,} attempts{errors}; {done / seconds:.1f} a second")
