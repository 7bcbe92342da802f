"""Everything that asking a recorded question again takes: the policy, its bank as it was, the key and the judge."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

from napmem_rl.backend.bank_search import build_search
from napmem_rl.backend.evaluation_workers import Banks, WorkerSpec
from napmem_rl.backend.recorded_policy import OWN_ENGINE, OtherPolicy, find_seed, list_doubts, open_model
from napmem_rl.backend.served_policy import build_any_policy, serve_engine
from napmem_rl.data.rows import load_rows
from napmem_rl.errors import ReplayError
from napmem_rl.evals.counterfactual import Asker
from napmem_rl.evals.policies.navigator import Navigator
from napmem_rl.evals.policy import Policy
from napmem_rl.evals.recordings import Evaluated, Recording, Trained
from napmem_rl.evals.replay_scores import load_benchmark
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.storage import find_bank_dir
from napmem_rl.retrieval.encoder import load_encoder
from napmem_rl.rewards.judge import LLMJudge, build_judge
from napmem_rl.schema import AnswerKey
from napmem_rl.tools.spec import MEMORY_TOOLS

BuildPolicy = Callable[[frozenset[str]], Policy]


@contextlib.asynccontextmanager
async def open_asker(recording: Recording, other: OtherPolicy, *, tokenizer: Path | None = None, banks: Path | None = None) -> AsyncIterator[Asker]:
    """Ready to ask the recorded question again.

    Args:
        recording: whose question.
        other: weights or an engine in place of the recorded ones.
        tokenizer, banks: where a training run's are now, if they have moved.

    Raises:
        ReplayError: the policy, the bank's version or the key is not there any more.
        NapMemError: the engine, the endpoint or the bank cannot be used.
    """
    judge, origin = build_judge(recording.judge), recording.origin
    try:
        if isinstance(origin, Evaluated):
            opening, engine = _open_evaluated(recording, origin, other), other.engine or origin.recipe.policy.engine
        else:
            opening, engine = _open_trained(recording, origin, other, tokenizer, banks), OWN_ENGINE
        async with opening as (build_policy, bank, key):
            asked = {"task": recording.trajectory.task, "key": key, "bank": bank, "seed": find_seed(recording)}
            yield Asker(build_policy, judge, **asked, notes=list_doubts(recording, engine))
    finally:
        if isinstance(judge, LLMJudge):
            await judge.close()


@contextlib.asynccontextmanager
async def _open_evaluated(recording: Recording, origin: Evaluated, other: OtherPolicy) -> AsyncIterator[tuple[BuildPolicy, MemoryBank, AnswerKey]]:
    benchmark, task = await asyncio.to_thread(load_benchmark, origin), recording.trajectory.task
    if benchmark.sha256 != origin.data_hash:
        raise ReplayError.of(f"questions at {origin.data_dir}", "are not those that were evaluated", fix="Evaluate again.")
    if task.task_id not in benchmark.keys:
        raise ReplayError.of(f"task {task.task_id}", f"is not among the questions of {origin.data_dir} any more")
    recipe = replace(origin.recipe, policy=other.apply(origin.recipe.policy))
    if recipe.packets is not None:
        problem, expected = "reads candidates of MemChain, which are not retrieved again without a memory", "another policy.access"
        raise ReplayError.of(f"evaluation of {benchmark.name}", problem, got=recipe.policy.access, expected=expected)
    policies: list[Policy] = []
    with tempfile.TemporaryDirectory(prefix="napmem-counterfactual-") as scratch:
        with serve_engine(recipe.policy, agent=recipe.agent, directory=Path(scratch)) as address:
            spec = WorkerSpec.of(recipe, [benchmark], engine=address, functions=benchmark.functions)

            def build_policy(hidden: frozenset[str]) -> Policy:
                """One policy for all banks; the oracle anew, since it is handed its evidence."""
                if not policies or spec.evidence:
                    left = {task_id: tuple(item_id for item_id in ids if item_id not in hidden) for task_id, ids in spec.evidence.items()}
                    sections = {"memory": recipe.memory, "agent": recipe.agent, "functions": spec.functions or None}
                    policies.append(build_any_policy(recipe.policy, evidence=left or None, engine=address, **sections))
                return policies[-1]

            try:
                yield build_policy, await Banks(spec).open(benchmark.name, task.bank_id), benchmark.keys[task.task_id]
            finally:
                for policy in policies:
                    await policy.close()


@contextlib.asynccontextmanager
async def _open_trained(
    recording: Recording, origin: Trained, other: OtherPolicy, tokenizer: Path | None, banks: Path | None
) -> AsyncIterator[tuple[BuildPolicy, MemoryBank, AnswerKey]]:
    bank, key = await asyncio.to_thread(_open_bank, recording, origin, banks), await asyncio.to_thread(_find_key, recording, origin)
    async with open_model(recording, other, tokenizer=tokenizer) as opened:
        limits = {"agent": recording.agent, "top_k": recording.memory.top_k, "tools": MEMORY_TOOLS, "functions": None}
        navigator = Navigator(opened.model, **limits, name=opened.model.name, facts=opened.model.facts)
        yield lambda hidden: navigator, bank, key


def _open_bank(recording: Recording, origin: Trained, given: Path | None) -> MemoryBank:
    """The task's bank in the version that the run had."""
    bank_id, memory = recording.trajectory.task.bank_id, recording.memory
    place = origin.run.find_banks(given)
    if place is None:
        named = origin.run.setting("napmem.memory.banks")
        raise ReplayError.of(f"run {origin.run.name}", "its banks are not where they were", got=named, fix="Give --banks DIR.")
    version = (origin.run.provenance.get("banks") or {}).get(bank_id)
    encoder = None if memory.ranking == "bm25" else load_encoder(memory.encoder, device="cpu")
    return MemoryBank.open(find_bank_dir(place, bank_id), version=version, **build_search(memory, encoder))


def _find_key(recording: Recording, origin: Trained) -> AnswerKey:
    """The answer key of the task, out of the run's own rows."""
    task_id = recording.trajectory.task.task_id
    names = [origin.run.setting(f"verl.data.{name}", []) for name in ("train_files", "val_files")]
    files = [Path(path) for given in names for path in ([given] if isinstance(given, str) else given)]
    for path in dict.fromkeys(path for path in files if path.is_file()):
        for task, key in load_rows(path):
            if task.task_id == task_id:
                return key
    raise ReplayError.of(f"task {task_id}", "has no answer key: it is not in the run's rows any more", got=[str(path) for path in files])
