"""A tiny training run's directory, recorded by the real episode runner, log and engine: a bank, a tiny policy, resolved.yaml, trajectories."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from bank_maker import TEXTS, save_sample

from napmem_rl.backend.bank_cache import BankCache
from napmem_rl.backend.episode_runner import EpisodeRunner, RowRequest
from napmem_rl.backend.reward_workers import RewardWorker
from napmem_rl.backend.settings import JobSettings
from napmem_rl.backend.tiny_policy import END, build_tokenizer
from napmem_rl.backend.token_generate import SampledTurn
from napmem_rl.backend.trajectory_log import TrajectoryLog
from napmem_rl.config.sections import AgentConfig, JobConfig, JudgeConfig, MemoryConfig, ReportConfig, RewardConfig
from napmem_rl.data.rows import save_rows
from napmem_rl.schema import AnswerKey, Task, ToolCall, as_json
from napmem_rl.tools.parse import render_call

WORDS = " ".join((*TEXTS, "Where does Ana live ? Ana moved to Oslo works rec msg fact event preference [ ] : - 2024-03-01 user Rome lives no found Unknown"))
TASK = Task(task_id="ana-1", bank_id="ana", question="Where does Ana live ?", category="fact", needs_memory=True)
KEY = AnswerKey(task_id="ana-1", references=("Oslo",), evidence_ids=("msg:1",))
SEARCH = render_call(ToolCall(name="search_records", arguments={"query": "Ana moved to"}), "hermes")
ANSWER = "<answer>Oslo</answer>"
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1}
AGENT = AgentConfig(system_prompt=False, max_context_tokens=400, max_turn_tokens=12)


class ScriptedServer:
    """A `TokenServer` that says the given texts."""

    def __init__(self, tokenizer: Any, *texts: str) -> None:
        self._tokenizer, self._texts = tokenizer, list(texts)

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: dict[str, Any]) -> SampledTurn:
        ids = (*self._tokenizer(self._texts.pop(0), add_special_tokens=False)["input_ids"], self._tokenizer.convert_tokens_to_ids(END))
        return SampledTurn(token_ids=ids, logprobs=(-0.25,) * len(ids), min_version=0, max_version=0, is_length_stop=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunMaker:
    """Writes a run directory; `tokenizer` is already saved at `policy_dir`, beside a model where there is one."""

    run_dir: Path
    policy_dir: Path
    tokenizer: Any
    agent: AgentConfig = AGENT
    token_ids: bool = True

    def record(self, server: Any, *, step: int = 3, sample: int = 1, sampling: dict[str, Any] | None = None, task: Task = TASK, key: AnswerKey = KEY) -> Path:
        """Play one episode into the run's log; returns the file."""
        banks, data = self.run_dir / "data" / "banks", self.run_dir / "data"
        version = save_sample(banks / "ana")
        save_rows(data / "train.parquet", [(task, key)], data_source="test")
        settings = self._settings(banks)
        self._write_settings(settings, data, version)
        log = TrajectoryLog(settings.trajectories_dir, worker_name="0", run_name="r1", with_token_ids=self.token_ids)
        runner = EpisodeRunner(
            settings=settings,
            tokenizer=self.tokenizer,
            end_ids=(self.tokenizer.eos_token_id,),
            server=server,
            banks=BankCache(banks, encoder=None, versions={"ana": version}, ranking="fused", rrf_k=60),
            rewards=RewardWorker(settings.judge, settings.agent),
            log=log,
        )
        row = {"task": json.dumps(as_json(task)), "answer_key": json.dumps(as_json(key)), "data_source": "test"}
        asyncio.run(runner.run(RowRequest(row=row, sampling=sampling or SAMPLING, step=step, sample_index=sample, is_validation=False)))
        return log.path(step, is_validation=False)

    def _settings(self, banks: Path) -> JobSettings:
        sections = {"memory": MemoryConfig(encoder="none"), "reward": RewardConfig(), "judge": JudgeConfig(), "report": ReportConfig(), "job": JobConfig()}
        place = {"banks_dir": str(banks), "run_dir": str(self.run_dir), "job_name": "test"}
        return JobSettings(agent=self.agent, **sections, **place, seed=7, is_sync=True)

    def _write_settings(self, settings: JobSettings, data: Path, version: str) -> None:
        ours = {name: dataclasses.asdict(getattr(settings, name)) for name in ("memory", "agent", "reward", "judge", "report", "job")}
        ours["memory"]["banks"] = settings.banks_dir
        verl = {
            "actor_rollout_ref": {"model": {"path": str(self.policy_dir), "tokenizer_path": None}, "rollout": {"name": "transformers"}},
            "data": {"train_files": str(data / "train.parquet"), "val_files": str(data / "train.parquet"), "apply_chat_template_kwargs": {}},
        }
        (self.run_dir / "resolved.yaml").write_text(yaml.safe_dump({"napmem": ours, "verl": verl}))
        (self.run_dir / "provenance.json").write_text(json.dumps({"banks": {"ana": version}}))


def make_tokenizer(directory: Path) -> Any:
    """The tiny policy's tokenizer over the sample bank's words, saved."""
    tokenizer = build_tokenizer([WORDS], max_length=400)
    tokenizer.save_pretrained(directory)
    return tokenizer


def edit_line(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the one line of a trajectory file."""
    line = json.loads(path.read_text())
    change(line)
    path.write_text(json.dumps(line) + "\n")
