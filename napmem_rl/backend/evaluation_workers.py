"""Who makes the attempts of an evaluation: this process, or Ray actors that each run a share of them.

Answers come back to the one who asked, which alone writes. An actor that dies is started again by Ray, once and on its node; what it was asked goes to another
actor, once, and is then told as not asked.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napmem_rl.backend.bank_cache import BankCache
from napmem_rl.backend.bank_search import build_search
from napmem_rl.config.evaluation_recipe import EvaluationRecipe
from napmem_rl.config.evaluation_sections import NAVIGATING, PACKETS, SEARCHING, SERVED
from napmem_rl.errors import BackendError, BankError
from napmem_rl.evals.evaluation import AttemptRequest, AttemptRunner, NotAsked
from napmem_rl.evals.policies.registry import build_policy
from napmem_rl.evals.prepared import Benchmark
from napmem_rl.evals.result_rows import AnswerRow
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.retrieval.encoder import Encoder, load_encoder
from napmem_rl.tools.spec import ToolSpec

if TYPE_CHECKING:
    from napmem_rl.backend.served_policy import EngineAddress

MAX_RESTARTS = 1  # of one actor
MAX_OFFERS = 2  # actors that one attempt is offered to
START_TIMEOUT_S = 600.0  # of an actor, its policy and its encoder
_RESTART_WAIT_S = 1.0
_MAX_RESTART_WAIT_S = 120.0  # until an actor that is being started again takes calls
_WITH_SEARCH = (*NAVIGATING, *PACKETS, *SEARCHING)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSpec:
    """All that a worker is built from; picklable. `versions` is benchmark -> bank id -> content version, `banks_dirs` benchmark -> directory of banks."""

    recipe: EvaluationRecipe
    engine: EngineAddress | None
    banks_dirs: Mapping[str, str]
    versions: Mapping[str, Mapping[str, str]]
    evidence: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    functions: Mapping[str, tuple[ToolSpec, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        recipe: EvaluationRecipe,
        benchmarks: Sequence[Benchmark],
        *,
        engine: EngineAddress | None = None,
        functions: Mapping[str, tuple[ToolSpec, ...]] | None = None,
    ) -> WorkerSpec:
        """The specification of a run. Gold evidence goes along for the oracle alone."""
        evidence = {task_id: ids for benchmark in benchmarks for task_id, ids in benchmark.evidence.items()} if recipe.policy.access == "oracle" else {}
        return cls(
            recipe=recipe,
            engine=engine,
            banks_dirs={benchmark.name: str(benchmark.banks_dir) for benchmark in benchmarks},
            versions={benchmark.name: dict(benchmark.versions) for benchmark in benchmarks},
            evidence=evidence,
            functions=functions or {},
        )


class Banks:
    """The banks of all benchmarks, opened as they are asked for. For one event loop."""

    def __init__(self, spec: WorkerSpec) -> None:
        memory = spec.recipe.memory
        encoder = load_worker_encoder(spec.recipe)
        search = build_search(memory, encoder)
        self._versions = spec.versions
        self._caches = {
            name: BankCache(Path(directory), versions=spec.versions[name], **search)
            for name, directory in spec.banks_dirs.items()
        }

    async def open(self, benchmark: str, bank_id: str) -> MemoryBank:
        """Raises BankError where it is missing, broken, not listed or of another version."""
        if bank_id not in self._versions[benchmark]:
            raise BankError.of(f"bank {bank_id}", "is not listed in data.json", fix="Prepare the directory again with launch/prepare_data.py.")
        return await self._caches[benchmark].get(bank_id)


def load_worker_encoder(recipe: EvaluationRecipe) -> Encoder | None:
    """The encoder of searches, where the policy searches and the ranking asks for vectors."""
    memory = recipe.memory
    if recipe.policy.access not in _WITH_SEARCH or memory.ranking == "bm25" or memory.encoder == "none":
        return None
    if recipe.policy.engine != "transformers" and memory.encoder != "hashing":  # else the engine needs the threads more
        import torch

        torch.set_num_threads(memory.encoder_threads)
    return load_encoder(memory.encoder, device=memory.encoder_device)


def build_runner(spec: WorkerSpec) -> AttemptRunner:
    """Policy and banks of one process; call it within the event loop that will use it."""
    recipe = spec.recipe
    given = {"memory": recipe.memory, "agent": recipe.agent, "functions": spec.functions or None, "packets": recipe.packets}
    evidence = spec.evidence if recipe.policy.access == "oracle" else None
    if recipe.policy.engine in SERVED:
        from napmem_rl.backend.served_policy import build_any_policy  # imports what takes seconds

        policy = build_any_policy(recipe.policy, evidence=evidence, engine=spec.engine, **given)
    else:
        policy = build_policy(recipe.policy, evidence=evidence, **given)
    return AttemptRunner(policy, Banks(spec).open, token_ids=recipe.evaluation.token_ids)


class EvaluationWorker:
    """The actor's body."""

    def __init__(self, spec: WorkerSpec) -> None:
        from napmem_rl.backend.stacks import arm_stacks

        arm_stacks()
        self._spec = spec
        self._runner: AttemptRunner | None = None

    async def ready(self) -> str:
        """The id of the node that it runs on, once the policy is built."""
        import ray

        self._find_runner()
        return ray.get_runtime_context().get_node_id()

    async def run(self, request: AttemptRequest) -> AnswerRow | NotAsked:
        """One attempt; see `AttemptRunner.run`."""
        return await self._find_runner().run(request)

    async def close(self) -> None:
        """Free what the policy holds."""
        if self._runner is not None:
            await self._runner.close()

    def _find_runner(self) -> AttemptRunner:
        if self._runner is None:  # within the actor's event loop
            self._runner = build_runner(self._spec)
        return self._runner


class WorkerPool:
    """Hands attempts to the actor with the fewest in flight."""

    def __init__(self, actors: Sequence[Any], *, num_nodes: int = 1) -> None:
        """Args:
            actors: of `EvaluationWorker`, ready.
            num_nodes: that they run on.
        """
        self._actors, self.num_nodes = list(actors), num_nodes
        self._in_flight = [0] * len(self._actors)
        self._dead: dict[int, str] = {}
        self.num_handed_on = 0  # attempts that went to another actor

    async def run(self, request: AttemptRequest) -> AnswerRow | NotAsked:
        """One attempt. Raises what the worker raised, where that is a defect and not its death."""
        from ray.exceptions import ActorUnavailableError, RayError

        from napmem_rl.backend.death_watch import means_death

        problem = ""
        for offer in range(MAX_OFFERS):
            place = self._choose()
            if place is None:
                break
            self.num_handed_on += offer > 0
            self._in_flight[place] += 1
            try:
                return await self._call(place, request)
            except RayError as error:
                if not (means_death(error) or isinstance(error, ActorUnavailableError)):
                    raise
                problem = " ".join(str(error).split())[:200]
                if not await self._comes_back(place):
                    self._dead[place] = problem
            finally:
                self._in_flight[place] -= 1
        problem = problem or "; ".join(self._dead.values())
        reason = f"the worker died {MAX_OFFERS} times ({problem})" if self._choose() is not None else f"all workers died ({problem})"
        return NotAsked(benchmark=request.benchmark, task_id=request.task.task_id, sample=request.sample, reason=reason)

    async def _call(self, place: int, request: AttemptRequest) -> AnswerRow | NotAsked:
        from ray.exceptions import RayTaskError

        from napmem_rl.backend.death_watch import find_origin

        try:
            return await self._actors[place].run.remote(request)
        except RayTaskError as error:
            raise find_origin(error) from error

    async def _comes_back(self, place: int) -> bool:
        """Wait until Ray has started an actor again; False where it does not."""
        from ray.exceptions import ActorUnavailableError, RayError

        waited = 0.0
        while waited < _MAX_RESTART_WAIT_S:
            try:
                await self._actors[place].ready.remote()
                return True
            except ActorUnavailableError:
                await asyncio.sleep(_RESTART_WAIT_S)
                waited += _RESTART_WAIT_S
            except RayError:
                return False
        return False

    def _choose(self) -> int | None:
        alive = [place for place in range(len(self._actors)) if place not in self._dead]
        return min(alive, key=lambda place: self._in_flight[place], default=None)


@contextmanager
def start_pool(spec: WorkerSpec, *, num_workers: int, max_concurrency: int) -> Iterator[WorkerPool]:
    """Actors over a Ray that is there already (RAY_ADDRESS, or this process's own), else over one of this machine that ends with the block.

    Args:
        spec: what each actor is built from.
        num_workers: how many, at least one.
        max_concurrency: attempts in flight over all of them.

    Raises:
        BackendError: Ray or the actors did not come up.
        whatever building the policy raises.
    """
    import ray

    from napmem_rl.backend.death_watch import find_origin

    with open_ray():
        width = max(1, -(-max_concurrency // num_workers)) + 1  # one call is asking whether it is ready
        remote = ray.remote(EvaluationWorker)
        options = {"num_cpus": 0, "max_restarts": MAX_RESTARTS, "max_concurrency": width}
        actors = [remote.options(**options, scheduling_strategy=place).remote(spec) for place in _choose_places(num_workers)]
        try:
            nodes = ray.get([actor.ready.remote() for actor in actors], timeout=START_TIMEOUT_S)
        except ray.exceptions.GetTimeoutError as error:
            raise BackendError.of("evaluation workers", f"were not ready after {START_TIMEOUT_S:.0f} s") from error
        except ray.exceptions.RayTaskError as error:
            raise find_origin(error) from error
        except ray.exceptions.RayError as error:
            raise BackendError.of("evaluation workers", f"did not start ({' '.join(str(error).split())[:300]})") from error
        yield WorkerPool(actors, num_nodes=len(set(nodes)))


def _choose_places(num_workers: int) -> list[Any]:
    """Where each actor is to run: node after node of those with processors. Ray's SPREAD and soft affinity leave nodes empty where actors take no processor.

    Of a node that is lost the actors are lost too: the others do their share.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU"))
    if not nodes:
        return ["DEFAULT"] * num_workers
    return [NodeAffinitySchedulingStrategy(nodes[number % len(nodes)], soft=False) for number in range(num_workers)]


def find_host(num_workers: int) -> str:
    """The address at which a server of this process is reached by workers on other nodes; "127.0.0.1" where all of them are here."""
    if not num_workers or not os.environ.get("RAY_ADDRESS"):
        return "127.0.0.1"
    import ray

    return ray.util.get_node_ip_address()


@contextmanager
def open_ray() -> Iterator[None]:
    """The Ray that is there, else one of this machine that ends with the block. Raises BackendError where it does not start."""
    import ray

    from napmem_rl.backend.watchdog import keep_sigterm

    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {} if os.environ.get("RAY_ADDRESS") else {"address": "local", "include_dashboard": False}
    try:
        with keep_sigterm():
            ray.init(**options, logging_level=logging.WARNING, log_to_driver=False)
    except (RuntimeError, ConnectionError, ValueError) as error:
        raise BackendError.of("Ray", f"did not start ({type(error).__name__}: {error})") from error
    try:
        yield
    finally:
        ray.shutdown()

