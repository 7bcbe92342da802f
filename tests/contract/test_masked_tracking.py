"""verl's trainer hands its configuration to W&B through a name in its module, which ours has taken."""

from __future__ import annotations

import inspect

from verl.trainer.ppo.v1 import trainer_base
from verl.utils import tracking

from napmem_rl.backend.trainer import MaskedTracking


def test_what_verls_trainer_logs_its_settings_with_masks_them(monkeypatch):
    given = {}
    monkeypatch.setattr(tracking.Tracking, "__init__", lambda self, *args, config=None, **options: given.update(config=config, **options))
    assert trainer_base.Tracking is MaskedTracking and "self.logger = Tracking(" in inspect.getsource(trainer_base.PPOTrainer.fit)
    settings = {"trainer": {"logger": ["wandb"]}, "ray_kwargs": {"env_vars": {"WANDB_API_KEY": "1" * 40}}, "judge": {"base_url": "https://u:p4ssword@h/v1"}}
    trainer_base.Tracking(project_name="p", config=settings)
    assert given["project_name"] == "p" and given["config"]["trainer"] == {"logger": ["wandb"]}
    assert given["config"]["ray_kwargs"]["env_vars"]["WANDB_API_KEY"] == "***" and given["config"]["judge"]["base_url"] == "https://u:***@h/v1"
