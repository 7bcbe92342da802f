"""RMM over many users: Ray actors that live through users side by side, and one learner actor for each scope, the only one that changes its reranker.

A draw and its citations may be some updates apart where users share a learner; beyond `online.max_staleness` the citations are left out and counted. An actor
that dies fails the users it held, who are named; the same command goes on with them. Without workers everything runs in this process.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from napmem_rl.atomic import write_file
from napmem_rl.backend.evaluation_workers import open_ray
from napmem_rl.config.rmm_recipe import RmmRecipe
from napmem_rl.data.rows import load_rows
from napmem_rl.errors import BackendError, DataError, NapMemError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.storage import find_bank_dir
from napmem_rl.memory.versions import list_versions
from napmem_rl.memory.writer_settings import build_client
from napmem_rl.memory.writers.base import MemoryWriter
from napmem_rl.retrieval.encoder import Encoder, load_encoder
from napmem_rl.retrieval.rerank_learner import Reranking
from napmem_rl.retrieval.rerank_state import name_scope
from napmem_rl.schema import RerankDecision, Task
from napmem_rl.systems.rmm.online import LifeSettings, UserLife, live_through
from napmem_rl.systems.rmm.prepared import write_prepared_directory
from napmem_rl.systems.rmm.prospective import OfflineTopicWriter, TopicMemoryWriter
from napmem_rl.systems.rmm.retrospective import Answerer, ModelAnswerer, SimulatedCiter
from napmem_rl.systems.rmm.scope import ScopedLearner


class ScopeServer:
    """The learner of one scope, as an actor or in this process; see `ScopedLearner`."""

    def __init__(self, recipe: RmmRecipe, scope: str, encoder: str, dim: int) -> None:
        out = Path(recipe.online.out)
        versions = {path.name: [commit.version for commit in list_versions(path)] for path in sorted((out / "banks").glob("*")) if path.is_dir()}
        options = {"save_every": recipe.online.save_every, "max_staleness": recipe.online.max_staleness, "versions": versions}
        path = out / "states" / f"{scope.replace(':', '-')}.npz"
        identity = {"scope": scope, "encoder": encoder, "dim": dim, "settings": recipe.rerank, "ranking": recipe.memory.ranking}
        self._scoped = ScopedLearner.open(path, **identity, **options)

    async def draw(self, ids: Sequence[str], query: np.ndarray, memories: np.ndarray, *, prior: np.ndarray | None = None) -> Reranking:
        return await self._scoped.draw(ids, query, memories, prior=prior)

    async def rank(self, ids: Sequence[str], query: np.ndarray, memories: np.ndarray, *, prior: np.ndarray | None = None) -> Reranking:
        return await self._scoped.rank(ids, query, memories, prior=prior)

    async def learn(self, reranking: Reranking, cited: Sequence[bool], *, bank_id: str | None = None) -> RerankDecision | None:
        return await self._scoped.learn(reranking, cited, bank_id=bank_id)

    async def skip(self, bank_id: str) -> None:
        self._scoped.skip(bank_id)

    async def count_done(self, bank_id: str) -> int:
        return self._scoped.count_done(bank_id)

    async def note_bank(self, bank_id: str, version: str) -> None:
        self._scoped.note_bank(bank_id, version)

    async def close(self) -> dict[str, Any]:
        """Save and let others write. Returns counts, usefulness and alarm."""
        learner = self._scoped.learner
        self._scoped.close()
        return {**asdict(learner.counts), "usefulness": learner.usefulness, "alarm": learner.alarm, "usefulness_over_steps": learner.usefulness_over_steps}


class RemoteScope:
    """A `ScopeServer` in an actor."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._handle, name).remote


class LifeWorker:
    """Lives through users one after the other, as an actor or in this process."""

    def __init__(self, recipe: RmmRecipe, evidence: dict[str, tuple[str, ...]]) -> None:
        self._recipe = recipe
        self._encoder = load_recipe_encoder(recipe)
        self._client = build_client(recipe.llm) if recipe.asks_model else None
        out, online = Path(recipe.online.out), recipe.online
        simulated = SimulatedCiter(evidence, flip=online.flip, seed=recipe.rerank.seed) if online.answerer == "simulated" else None
        self._answerer: Answerer = simulated or ModelAnswerer(self._client)
        shape = {"num_candidates": recipe.rerank.num_candidates, "ranking": recipe.memory.ranking, "is_learning": online.is_learning}
        self._settings = LifeSettings(banks_dir=out / "banks", answers_dir=out / "answers", **shape)

    async def live(self, bank_id: str, tasks: Sequence[Task], scope: Any) -> int:
        """One user; returns the questions answered now. `scope`: a `ScopeServer`, or the handle of its actor."""
        source = MemoryBank.open(find_bank_dir(Path(self._recipe.data.dir) / "banks", bank_id))
        life = UserLife(bank_id=bank_id, messages=tuple(source.messages), tasks=tuple(tasks))
        client = scope if isinstance(scope, ScopeServer) else RemoteScope(scope)
        return await live_through(life, self._settings, client, self._answerer, self._build_writer, self._encoder)

    def _build_writer(self) -> MemoryWriter:
        return OfflineTopicWriter() if self._recipe.online.writer == "rules" else TopicMemoryWriter(self._client.fork())


def load_recipe_encoder(recipe: RmmRecipe) -> Encoder:
    """The encoder of topic memories."""
    if recipe.memory.encoder != "hashing":
        import torch

        torch.set_num_threads(recipe.memory.encoder_threads)
    encoder = load_encoder(recipe.memory.encoder)
    assert encoder is not None, "load_rmm_recipe refuses memory.encoder none"
    return encoder


def run_online(recipe: RmmRecipe, *, report: Callable[[str], None]) -> dict[str, Any]:
    """All users of the split, as far as they are not done; writes summary.json beside banks, states and answers, and returns it.

    What is written is a prepared directory too, which launch/evaluate.py asks.

    Raises:
        DataError: the prepared directory cannot be used, or a state belongs to something else or is being written.
    """
    started = time.perf_counter()
    pairs = load_rows(Path(recipe.data.dir) / f"{recipe.data.split}.parquet")
    users: dict[str, list[Task]] = {}
    for task, _ in pairs:
        users.setdefault(task.bank_id, []).append(task)
    users = dict(itertools.islice(users.items(), recipe.online.max_users))
    evidence = {task.task_id: key.evidence_ids for task, key in pairs}
    run = _run_here if recipe.online.workers == 0 else _run_on_ray
    answered, failed, scopes = run(recipe, users, evidence, report)
    for scope, facts in scopes.items():
        if facts["alarm"]:
            report(f"alarm, {scope}: {facts['alarm']}")
    summary = {"users": len(users), "questions_answered": answered, "failed": failed, "scopes": scopes, "answerer": recipe.online.answerer}
    summary["seconds"] = round(time.perf_counter() - started, 1)
    write_prepared_directory(Path(recipe.data.dir), Path(recipe.online.out), split=recipe.data.split, left_out=failed)
    write_file(Path(recipe.online.out) / "summary.json", json.dumps(summary, indent=2) + "\n")
    return summary


def find_scope(recipe: RmmRecipe, bank_id: str) -> str:
    """The scope that a user's citations teach."""
    name = {"user": bank_id, "domain": Path(recipe.data.dir).name, "global": ""}[recipe.online.scope]
    return name_scope(recipe.online.scope, name)


Outcome = tuple[int, dict[str, str], dict[str, dict[str, Any]]]  # questions answered, why users failed, facts by scope


def _run_here(recipe: RmmRecipe, users: dict[str, list[Task]], evidence: dict[str, tuple[str, ...]], report: Callable[[str], None]) -> Outcome:
    """One user after the other, in order."""
    worker, encoder = LifeWorker(recipe, evidence), load_recipe_encoder(recipe)
    answered, failed, facts = 0, {}, {}
    servers: dict[str, ScopeServer] = {}
    try:
        for bank_id, tasks in users.items():
            scope = find_scope(recipe, bank_id)
            server = servers.get(scope) or servers.setdefault(scope, ScopeServer(recipe, scope, encoder.name, encoder.dim))
            try:
                answered += asyncio.run(worker.live(bank_id, tasks, server))
                report(f"{bank_id}: done")
            except NapMemError as error:
                failed[bank_id] = error.message
                report(f"{bank_id}: failed: {error}")
    finally:
        facts = {scope: asyncio.run(server.close()) for scope, server in servers.items()}
    return answered, failed, facts


def _run_on_ray(recipe: RmmRecipe, users: dict[str, list[Task]], evidence: dict[str, tuple[str, ...]], report: Callable[[str], None]) -> Outcome:
    """Users side by side over `online.workers` actors."""
    with open_ray():
        return asyncio.run(_share_out(recipe, users, evidence, report))


async def _share_out(recipe: RmmRecipe, users: dict[str, list[Task]], evidence: dict[str, tuple[str, ...]], report: Callable[[str], None]) -> Outcome:
    import ray

    encoder = load_recipe_encoder(recipe)
    workers = [ray.remote(LifeWorker).options(num_cpus=0).remote(recipe, evidence) for _ in range(min(recipe.online.workers, len(users)))]
    open_scopes: dict[str, Any] = {}
    waiting, failed, facts, answered = iter(users.items()), {}, {}, [0]

    async def close(scope: str) -> None:
        handle = open_scopes.pop(scope)
        facts[scope] = await handle.close.remote()
        ray.kill(handle)

    async def work(worker: Any) -> None:
        for bank_id, tasks in waiting:
            scope = find_scope(recipe, bank_id)
            if scope not in open_scopes:
                open_scopes[scope] = ray.remote(ScopeServer).options(num_cpus=0).remote(recipe, scope, encoder.name, encoder.dim)
            try:
                num_answered = await worker.live.remote(bank_id, tasks, open_scopes[scope])
                answered[0] += num_answered  # not in one line: others add meanwhile
                report(f"{bank_id}: done")
            except ray.exceptions.RayError as error:
                failed[bank_id] = _describe(error)
                report(f"{bank_id}: failed: {failed[bank_id]}")
            if recipe.online.scope == "user":
                await _close_or_note(close, scope, failed, bank_id)

    await asyncio.gather(*(work(worker) for worker in workers))
    for scope in list(open_scopes):
        await _close_or_note(close, scope, failed, scope)
    return answered[0], failed, facts


async def _close_or_note(close: Callable[[str], Any], scope: str, failed: dict[str, str], name: str) -> None:
    import ray

    try:
        await close(scope)
    except ray.exceptions.RayError as error:
        failed.setdefault(name, _describe(error))


def _describe(error: Exception) -> str:
    """Why, in one line: the words of an error of ours where it was one."""
    cause = getattr(error, "cause", None) or error
    if isinstance(cause, DataError | BackendError | NapMemError):
        return cause.message
    return " ".join(str(cause).split())[:300]
