"""The actor in which verl's trainer runs. Imports verl only once it is there, so that the driver does not have to."""

from __future__ import annotations

from omegaconf import DictConfig


class JobRunner:
    """The body of the actor; verl's own `TaskRunnerV1` does the work."""

    def run(self, config: DictConfig) -> None:
        """Validate the config as verl's entry point does, then train to the end.

        Raises:
            ValueError, AssertionError: verl refuses the config.
            NapMemError: a worker of ours failed.
        """
        import verl.trainer.main_ppo as main_ppo
        from verl.trainer.ppo.utils import need_critic, need_reference_policy
        from verl.utils.config import validate_config

        from napmem_rl.backend.death_watch import name_dead
        from napmem_rl.backend.trainer import extend_trainer

        main_ppo.auto_set_device(config)
        validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
        extend_trainer(config.trainer.v1.trainer_mode)
        main_ppo.pprint = lambda *args, **kwargs: None  # it would print the whole config, which stands in resolved.yaml
        task_runner = main_ppo.TaskRunnerV1.__ray_metadata__.modified_class.__ray_actor_class__()
        try:
            task_runner.run(config)
        except Exception as error:  # boundary: whatever it was that failed, an actor that died is the reason
            named = name_dead(error)
            if named is None:
                raise
            raise named from error
