"""Attempts over Ray actors: the same answers as from one process, also where an actor dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from prepared_maker import write_prepared

from napmem_rl.backend.evaluation_workers import WorkerPool, WorkerSpec, build_runner, start_pool
from napmem_rl.backend.scripted_endpoint import MODEL, serve_scripted
from napmem_rl.config.evaluation_recipe import load_evaluation_recipe
from napmem_rl.evals.evaluation import AttemptRequest, NotAsked, plan_attempts
from napmem_rl.evals.prepared import Benchmark, load_split
from napmem_rl.evals.result_rows import AnswerRow

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    return load_split(write_prepared(tmp_path_factory.mktemp("workers") / "things", users=2, questions=8), "test", name="things")


@pytest.fixture(scope="module")
def spec(benchmark: Benchmark) -> Iterator[WorkerSpec]:
    with serve_scripted(latency_s=0.5) as url:
        settings = [f"policy.model={MODEL}", f"policy.base_url={url}", "policy.api_key_env=''", "evaluation.workers=2"]
        yield WorkerSpec.of(load_evaluation_recipe("passive_bm25", settings), [benchmark])


def plan(benchmark: Benchmark) -> list[AttemptRequest]:
    return plan_attempts([task for task, _ in benchmark.items], benchmark.groups, benchmark="things", samples=2, seed=0)


def find_answers(rows: list[AnswerRow | NotAsked]) -> dict[tuple[str, int], tuple[str, int]]:
    assert not [row for row in rows if isinstance(row, NotAsked)]
    return {row.identity: (row.trajectory["final_answer"], row.seed) for row in rows if isinstance(row, AnswerRow)}


async def ask_all(pool: WorkerPool, requests: list[AttemptRequest], *, kill: bool = False) -> list[AnswerRow | NotAsked]:
    asking = [asyncio.create_task(pool.run(request)) for request in requests]
    if kill:
        await asyncio.sleep(0.2)  # all are in flight
        ray.kill(pool._actors[0], no_restart=True)
    return list(await asyncio.gather(*asking))


def test_actors_answer_as_one_process_does_and_a_dead_one_is_stood_in_for(benchmark: Benchmark, spec: WorkerSpec) -> None:
    async def ask_here() -> list[AnswerRow | NotAsked]:
        runner = build_runner(spec)
        try:
            return list(await asyncio.gather(*(runner.run(request) for request in plan(benchmark))))
        finally:
            await runner.close()

    here = find_answers(asyncio.run(ask_here()))
    assert len(here) == 32
    with start_pool(spec, num_workers=2, max_concurrency=32) as pool:
        assert find_answers(asyncio.run(ask_all(pool, plan(benchmark)))) == here and pool.num_handed_on == 0
        assert find_answers(asyncio.run(ask_all(pool, plan(benchmark), kill=True))) == here and 0 < pool.num_handed_on <= 16
        ray.kill(pool._actors[1], no_restart=True)
        lost = asyncio.run(ask_all(pool, plan(benchmark)[:3]))
    assert all(isinstance(one, NotAsked) and "worker" in one.reason and "died" in one.reason for one in lost)
