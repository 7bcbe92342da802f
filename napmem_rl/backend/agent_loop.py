"""Episodes inside verl: the agent-loop worker that runs them, and the manager that starts what they need.

verl loads the manager from `actor_rollout_ref.rollout.agent.agent_loop_manager_class`. Its workers run episodes of the job's system (`backend/systems.py`) for
rows whose `agent_name` is one of ours, ask a reward worker for the reward before anything enters the TransferQueue, and leave no row where there is no honest
reward: verl drops an empty output cleanly, and a note on the prompt tells the sampler why.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import ray
import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.experimental.agent_loop import AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.workers.rollout.llm_server import LLMServerClient

from napmem_rl.backend.bank_cache import BankCache, find_banks_dir
from napmem_rl.backend.bank_search import build_search
from napmem_rl.backend.death_watch import WATCH
from napmem_rl.backend.encoder_service import connect_encoder, needs_service, start_service
from napmem_rl.backend.episode_runner import EpisodeRunner, Outcome, RowRequest
from napmem_rl.backend.in_flight import NOTE_PREFIX, RepeatCounter
from napmem_rl.backend.plugin import ROLLOUT_NAME
from napmem_rl.backend.resuming_server import ResumingServer
from napmem_rl.backend.reward_workers import RewardPool, start_reward_workers
from napmem_rl.backend.settings import JobSettings
from napmem_rl.backend.systems import find_system
from napmem_rl.backend.token_generate import BatchingServer, ClientServer, TokenServer, find_end_ids
from napmem_rl.backend.trajectory_log import TrajectoryLog
from napmem_rl.data.packet_rows import CANDIDATES, REFERENCE
from napmem_rl.data.rows import AGENT_NAMES
from napmem_rl.errors import BackendError

logger = logging.getLogger(__name__)

MAX_SEARCH_THREADS = 64  # searches of one worker at a time; they wait for the encoder most of the while

_WorkerBase = AgentLoopWorkerTQ.__ray_metadata__.modified_class.__ray_actor_class__  # the class that verl wrapped into an actor
REPEAT = "napmem_repeat"  # column of a batch in which a task comes twice: how often the step had it before
_SEEDLESS_SERVERS = ("sglang", "trtllm")  # their sampling parameters have no `seed`


class NapMemAgentLoopWorker(_WorkerBase):
    """verl's worker with our episodes. `attach` must be called before the first batch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = JobSettings.from_config(self.config)
        self.runner: EpisodeRunner | None = None
        self._note_lock = asyncio.Lock()

    async def attach(self, *, worker_name: str, run_name: str, reward_workers: list[Any], encoder_service: Any | None, bank_versions: dict[str, str]) -> None:
        """Connect this worker to the services of its job.

        Raises:
            NapMemError: a service does not answer.
        """
        settings = self.settings
        # Python's default of a few threads would let a few searches through at a time, and the encoder would never see a batch
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(MAX_SEARCH_THREADS, thread_name_prefix="search"))
        encoder = await asyncio.to_thread(connect_encoder, settings.memory.encoder, encoder_service)
        report, names = settings.report, {"worker_name": worker_name, "run_name": run_name}
        log = TrajectoryLog(settings.trajectories_dir, **names, with_token_ids=report.token_ids) if report.trajectories else None
        self.runner = EpisodeRunner(
            settings=settings,
            tokenizer=self.tokenizer,
            end_ids=find_end_ids(self.tokenizer, self.model_config.generation_config, template_kwargs=settings.template_kwargs),
            server=self._build_server(),
            banks=BankCache(
                find_banks_dir(settings.banks_dir),
                versions=bank_versions,
                **build_search(settings.memory, encoder),
            ),
            rewards=RewardPool(reward_workers, first=int(worker_name), system=find_system(settings.system)),
            log=log,
        )

    def _build_server(self) -> TokenServer:
        """Whoever samples turns. Asynchronous trainers abort them when weights arrive; ours resume here, so verl's own resuming client is passed by."""
        server = self._build_plain_server()
        return server if self.settings.is_sync else ResumingServer(server)

    def _build_plain_server(self) -> TokenServer:
        rollout = self.rollout_config
        if rollout.name == ROLLOUT_NAME:
            ranks = rollout.tensor_model_parallel_size * rollout.data_parallel_size * rollout.pipeline_model_parallel_size
            num_servers = max(1, self.config.trainer.nnodes * self.config.trainer.n_gpus_per_node // ranks)
            return BatchingServer(self.llm_client, num_servers=num_servers)
        generate = functools.partial(LLMServerClient.generate, self.llm_client)
        return ClientServer(generate, passes_seed=rollout.name not in _SEEDLESS_SERVERS)

    async def _run_agent_loop(self, sampling_params: dict[str, Any], trajectory: dict[str, Any], *, agent_name: str, trace: bool = True, **kwargs: Any) -> None:
        """One session of one prompt. Rows of other agent loops go verl's way."""
        if agent_name not in AGENT_NAMES:
            return await super()._run_agent_loop(sampling_params, trajectory, agent_name=agent_name, trace=trace, **kwargs)
        is_validation = bool(trajectory["validate"])
        try:
            if self.runner is None:
                raise BackendError.of("agent-loop worker", "has not been attached to its services")
            step, sample = int(trajectory["step"]), int(kwargs["session_id"])
            place = {"step": step, "sample_index": sample, "repeat": int(kwargs.get(REPEAT, 0)), "is_validation": is_validation}
            request = RowRequest(row=kwargs, sampling=sampling_params, **place)
            outcome = await self.runner.run(request)
        except Exception as error:  # boundary: the prompt fails, and the sampler stops the job with these words
            await self._leave_note(kwargs, is_validation, cause="exception", detail=f"{type(error).__name__}: {error}")
            raise
        if outcome.sample is None:
            return await self._leave_note(kwargs, is_validation, cause=outcome.cause, detail=outcome.detail)
        kept = {name: value for name, value in kwargs.items() if name not in ("task", "answer_key", CANDIDATES, REFERENCE, REPEAT)}
        output = build_output(outcome, find_system(self.settings.system).logged_in_validation)
        return await self._agent_loop_postprocess(output, trajectory["validate"], **kept)

    async def _leave_note(self, row: dict[str, Any], is_validation: bool, *, cause: str, detail: str) -> None:
        """Tell the sampler why a session left no row. Tags are read, changed and written back, hence the lock."""
        async with self._note_lock:
            note = {f"{NOTE_PREFIX}{row['session_id']}": {"cause": cause, "detail": detail[:2000]}}
            await tq.async_kv_put(key=row["uid"], partition_id="val" if is_validation else "train", tag=note)


def build_output(outcome: Outcome, logged_in_validation: Sequence[str]) -> AgentLoopOutput:
    """A scored episode as verl wants it: one token list, the reward set, and what metrics and checks need in `extra_fields`."""
    sample, scored = outcome.sample, outcome.scored
    extra = {
        "min_global_steps": outcome.min_version,
        "max_global_steps": outcome.max_version,
        "reward_extra_info": {str(name): outcome.facts.get(name) for name in logged_in_validation},
        "facts": dict(outcome.facts),
        "task_id": scored.trajectory.task.task_id,
        "category": scored.trajectory.task.category,
        "status": str(scored.trajectory.status),
        "judge": scored.judge,
    }
    return AgentLoopOutput(
        prompt_ids=sample.prompt_ids,
        response_ids=sample.response_ids,
        response_mask=sample.response_mask,
        response_logprobs=sample.logprobs,
        reward_score=scored.reward,
        num_turns=2 * len(scored.trajectory.turns),
        metrics={"generate_sequences": outcome.generate_s, "tool_calls": outcome.tool_s, "compute_score": outcome.score_s},
        extra_fields=extra,
    )


class NapMemAgentLoopManager(AgentLoopManagerTQ):
    """verl's manager, with reward workers and one encoder per node beside its agent-loop workers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(NapMemAgentLoopWorker)
        self.settings = JobSettings.from_config(self.config)
        self._repeats = RepeatCounter()

    def generate_sequences(self, prompts: TensorDict) -> None:
        """As verl's, but tells apart the hand-outs of a task that one training step has twice, so that their samples do not have the same seeds."""
        if not ("validate" in prompts and prompts["validate"]):
            repeats = self._repeats.count(int(prompts["global_steps"]), [json.loads(task)["task_id"] for task in prompts["task"]])
            if any(repeats):
                prompts[REPEAT] = torch.tensor(repeats)
        super().generate_sequences(prompts)

    async def _init_agent_loop_workers(self) -> None:
        await super()._init_agent_loop_workers()
        settings, run_name = self.settings, uuid4().hex[:8]
        node_ids = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
        reward_workers = start_reward_workers(settings, node_ids=node_ids)
        homes = await asyncio.gather(*[worker.__ray_call__.remote(_find_node_id) for worker in self.agent_loop_workers])
        services = {}
        if needs_service(settings.memory.encoder):
            services = {node_id: start_service(settings.memory, node_id=node_id, job_name=run_name) for node_id in sorted(set(homes))}
        bank_versions = json.loads(settings.bank_versions_file.read_text(encoding="utf-8"))
        shared = {"run_name": run_name, "reward_workers": reward_workers, "bank_versions": bank_versions}
        attached = [
            worker.attach.remote(worker_name=str(index), encoder_service=services.get(home), **shared)
            for index, (worker, home) in enumerate(zip(self.agent_loop_workers, homes, strict=True))
        ]
        await asyncio.gather(*attached, *[worker.ready.remote() for worker in reward_workers])
        self.reward_workers, self.encoder_services = reward_workers, services  # actors live as long as these handles
        watched = {f"agent-loop worker {index}": worker for index, worker in enumerate(self.agent_loop_workers)}
        watched |= {f"encoder of node {node_id[:8]}": service for node_id, service in services.items()}
        for name, actor in watched.items():
            WATCH.add(name, actor)


def _find_node_id(worker: Any) -> str:
    """Runs inside an agent-loop worker."""
    import ray

    return ray.get_runtime_context().get_node_id()
