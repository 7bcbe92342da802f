"""What workers of a training job must know of a recipe: our typed sections, carried in the sub-tree `napmem` of verl's config.

verl hands its whole config to every agent-loop worker, so nothing else has to travel. The sub-tree is written by `napmem_rl.backend.train` alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from napmem_rl.config.sections import SECTIONS, AgentConfig, AnswererConfig, JobConfig, JudgeConfig, MemChainConfig, MemoryConfig, ReportConfig, RewardConfig
from napmem_rl.errors import BackendError
from napmem_rl.llm.served import ServedEndpoint
from napmem_rl.report.run_data import TRAJECTORIES_DIR

SUBTREE = "napmem"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSettings:
    """One job as its workers see it.

    `system` names the entry of `backend/systems.py` whose episodes run. `job_name` is new at each start and keeps jobs that share a cluster apart.
    `seed` starts the chain of per-request seeds; `is_sync` says that every rollout of a step must come from one weight version; `template_kwargs` go to the
    chat template (`data.apply_chat_template_kwargs`). `served` is the model beside training, known once verl has started it (`backend/served_model.py`).
    """

    memory: MemoryConfig
    agent: AgentConfig
    reward: RewardConfig
    judge: JudgeConfig
    report: ReportConfig
    job: JobConfig
    banks_dir: str
    run_dir: str
    seed: int
    is_sync: bool
    job_name: str
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    system: str = "napmem"
    memchain: MemChainConfig = field(default_factory=MemChainConfig)
    answerer: AnswererConfig = field(default_factory=AnswererConfig)
    served: ServedEndpoint | None = None

    @property
    def trajectories_dir(self) -> Path:
        """Where trajectories are written, one JSON line each."""
        return Path(self.report.dir) if self.report.dir else Path(self.run_dir) / TRAJECTORIES_DIR

    @property
    def bank_versions_file(self) -> Path:
        """JSON of bank id → content version, as found before the job started."""
        return Path(self.run_dir) / "bank_versions.json"

    def as_config(self) -> dict[str, Any]:
        """Plain data, ready for verl's config."""
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> JobSettings:
        """Read the sub-tree back out of verl's config.

        Args:
            config: verl's whole config as a worker got it (a DictConfig or a plain mapping).

        Raises:
            BackendError: the sub-tree is missing: the job was not started through napmem_rl.
        """
        tree = config.get(SUBTREE)
        if tree is None:
            raise BackendError.of(f"config key {SUBTREE}", "is missing", fix="Start the job with launch/grpo.py, not with verl's own entry point.")
        if hasattr(tree, "_metadata"):  # a DictConfig
            from omegaconf import OmegaConf

            tree = OmegaConf.to_container(tree, resolve=True)
        values = {name: SECTIONS[name](**value) if name in SECTIONS else value for name, value in dict(tree).items()}
        served = values.pop("served", None)
        return cls(**values, served=ServedEndpoint(**{**served, "urls": tuple(served["urls"])}) if served else None)
