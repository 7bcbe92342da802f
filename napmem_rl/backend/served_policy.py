"""Checkpoints as policies of an evaluation, served here by vLLM or by the transformers engine.

One process starts the engine (`serve_engine`), any number of workers ask it (`build_any_policy`)::

    with serve_engine(recipe.policy, agent=recipe.agent, directory=out / "engine") as engine:   # None where nothing is to be served
        policy = build_any_policy(recipe.policy, memory=recipe.memory, agent=recipe.agent, evidence=evidence, engine=engine)
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napmem_rl.backend.run_checkpoints import SEAL, choose_checkpoint
from napmem_rl.backend.token_generate import TokenGenerate, TokenServer, compute_request_seed, find_end_ids
from napmem_rl.backend.vllm_cpu_name import BUILD, NAME, find_version
from napmem_rl.backend.vllm_server import START_TIMEOUT_S, HTTPTokenServer, ServerSize, check_vllm, is_cpu_build, run_vllm
from napmem_rl.config.evaluation_sections import NAVIGATING, PACKETS, SERVED, PacketSections, PolicyConfig
from napmem_rl.config.sections import AgentConfig, MemoryConfig
from napmem_rl.errors import ConfigError
from napmem_rl.evals.policies.model import Episode
from napmem_rl.evals.policies.registry import build_policy
from napmem_rl.evals.policy import Policy
from napmem_rl.llm.base import Generate
from napmem_rl.llm.token_context import encode_plain
from napmem_rl.tools.spec import ToolSpec

_STEP_DIR = re.compile(r"global_step_(\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineAddress:
    """Where a checkpoint is served; picklable. `base_url` is None for the transformers engine, which every worker loads for itself."""

    model: str  # HuggingFace directory, of a verl checkpoint its merged copy
    base_url: str | None


@contextmanager
def serve_engine(
    policy: PolicyConfig, *, agent: AgentConfig, directory: Path, max_concurrency: int = 64, start_timeout_s: float = START_TIMEOUT_S, host: str = "127.0.0.1"
) -> Iterator[EngineAddress | None]:
    """Make the checkpoint ready, start vLLM where it is asked for, and end it on leaving.

    Args:
        policy: `engine` and `model`; for endpoint and extractive nothing is started and None is given.
        agent: its context limits size the server.
        directory: for the server's log and a merged checkpoint.
        max_concurrency: attempts in flight.
        start_timeout_s: until vLLM answers.
        host: where vLLM listens; this machine's address where workers on other nodes ask.

    Raises:
        ConfigError: no such checkpoint, or the engine cannot serve it.
        BackendError: the server did not come up in time; the message holds the end of its log.
    """
    if policy.engine not in SERVED:
        yield None
        return
    model = find_model(Path(policy.model or ""), directory)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    context = find_context(policy, agent, config)
    if policy.engine == "transformers":
        yield EngineAddress(model=str(model), base_url=None)
        return
    check_vllm(config)
    size = ServerSize(max_context=context, max_sequences=max_concurrency)
    with run_vllm(model, size=size, log=directory / "vllm.log", start_timeout_s=start_timeout_s, host=host) as base_url:
        yield EngineAddress(model=str(model), base_url=base_url)


def build_any_policy(
    policy: PolicyConfig,
    *,
    memory: MemoryConfig,
    agent: AgentConfig,
    evidence: Mapping[str, tuple[str, ...]] | None = None,
    functions: Mapping[str, tuple[ToolSpec, ...]] | None = None,
    engine: EngineAddress | None = None,
    packets: PacketSections | None = None,
) -> Policy:
    """`napmem_rl.evals.policies.registry.build_policy` for every engine; `engine` is what `serve_engine` gave."""
    model = None
    if policy.engine in SERVED:
        if engine is None:
            raise ConfigError.of(f"policy.engine {policy.engine}", "is not served", fix="Enter `serve_engine` first.")
        model = ServedModel(policy, engine, max_context=find_context(policy, agent))
    return build_policy(policy, memory=memory, agent=agent, evidence=evidence, functions=functions, model=model, packets=packets)


class ServedModel:
    """A `PolicyModel` in exact token ids: prompts are the list of ids so far, never a history tokenised again."""

    def __init__(self, policy: PolicyConfig, engine: EngineAddress, *, max_context: int) -> None:
        """Args:
            policy: decoding.
            engine: where the checkpoint is.
            max_context: tokens of prompt and response together.
        """
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(engine.model)
        self._sampling = {"temperature": policy.temperature, "top_p": policy.top_p, "stop_token_ids": find_end_ids(self._tokenizer, _read_generation(engine))}
        self._server, self._engine = _build_server(engine, max_context)
        self.name = Path(policy.model or engine.model).name
        served_by = "transformers" if engine.base_url is None else BUILD if is_cpu_build() else NAME
        self.facts = {"served_by": f"{served_by} {find_version(served_by)}"}

    def count_tokens(self, text: str) -> int:
        """Tokens of a text as data."""
        return len(encode_plain(self._tokenizer, text))

    def build_generate(self, episode: Episode) -> Generate:
        """The token list of one episode; a turn's seed depends on the episode's seed, the task and the turn's number."""

        def seed_of_turn(turn: int) -> int:
            return compute_request_seed(episode.seed, step=0, task_id=episode.task_id, sample_index=0, turn_index=turn)

        return TokenGenerate(
            server=self._server,
            tokenizer=self._tokenizer,
            config=episode.limits,
            sampling=self._sampling | ({} if episode.schema is None else {"schema": episode.schema}),
            seed_of_turn=seed_of_turn,
            expects_one_version=False,
        )

    async def close(self) -> None:
        """Close connections, or the engine of this process."""
        if isinstance(self._server, HTTPTokenServer):
            await self._server.close()
        else:
            self._engine.close()


def find_model(path: Path, directory: Path) -> Path:
    """The HuggingFace directory of a checkpoint.

    Args:
        path: such a directory, or verl's ``global_step_<N>`` of a run, or a run directory (its latest checkpoint).
        directory: where a merged copy goes; one that is there already is used.

    Raises:
        ConfigError: neither.
        CheckpointError: an unfinished or broken checkpoint.
    """
    if (path / "config.json").is_file():
        return path
    match = _STEP_DIR.fullmatch(path.name)
    if not path.is_dir() or (match is None and not any(_STEP_DIR.fullmatch(entry.name) for entry in path.iterdir())):
        expected = "a HuggingFace directory, verl's global_step_<N>, or a run directory with checkpoints"
        raise ConfigError.of(f"policy.model {path}", "holds no checkpoint", expected=expected)
    run_dir = path.resolve().parent if match else path
    step = choose_checkpoint(run_dir, step=int(match[1]) if match else None).step
    seal = run_dir / f"global_step_{step}" / SEAL
    stamp = hashlib.sha256(seal.read_bytes() + str(seal.stat().st_mtime_ns).encode()).hexdigest()[:12]  # another training in the same place is another
    merged = directory / f"global_step_{step}-{stamp}"
    if not merged.exists():
        from napmem_rl.backend.export import export_checkpoint  # imports verl, which takes seconds

        export_checkpoint(run_dir, merged, step=step)
    return merged


def find_context(policy: PolicyConfig, agent: AgentConfig, model_config: Mapping[str, Any] | None = None) -> int:
    """Tokens that one episode may take, prompt and answer together.

    Raises:
        ConfigError: more than the model was made for, where `model_config` says.
    """
    is_limited_by_agent = policy.access in (*NAVIGATING, *PACKETS)
    needed = agent.max_context_tokens if is_limited_by_agent else policy.max_context_tokens + policy.max_answer_tokens
    text = {} if model_config is None else model_config.get("text_config", model_config)
    limit = text.get("max_position_embeddings")
    if limit is not None and needed > limit:
        keys = "agent.max_context_tokens" if is_limited_by_agent else "policy.max_context_tokens and policy.max_answer_tokens together"
        raise ConfigError.of(keys, "is more than the model's context", got=needed, expected=f"at most {limit}")
    return needed


def _read_generation(engine: EngineAddress) -> Any:
    from transformers import GenerationConfig

    return GenerationConfig.from_pretrained(engine.model) if (Path(engine.model) / "generation_config.json").is_file() else None


def _build_server(engine: EngineAddress, max_context: int) -> tuple[TokenServer, Any]:
    """(who samples, the engine of this process or None)."""
    if engine.base_url is not None:
        return HTTPTokenServer(engine.base_url), None
    from transformers import AutoModelForCausalLM

    from napmem_rl.backend.engine_transformers import TransformersEngine
    from napmem_rl.backend.local_policy import EngineServer

    model = AutoModelForCausalLM.from_pretrained(engine.model, attn_implementation="sdpa").eval()
    local = TransformersEngine(model, max_context=max_context)
    return EngineServer(local), local
