"""What of verl, transformers and torch the CPU platform, the packed attention and the rollout server hold on to. A failure names the hook that moved."""

import asyncio
import importlib
import inspect

import pytest

import napmem_rl.backend.plugin as plugin


@pytest.fixture(autouse=True)
def cpu_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    plugin.register_platform()


def test_verl_takes_the_cpu_platform_only_where_the_environment_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.plugin.platform import platform_manager

    assert platform_manager._detect_platform_name() == "cpu", "VERL_PLATFORM"
    assert platform_manager._create_platform("cpu").device_name == "cpu", "PlatformRegistry.get"
    monkeypatch.delenv("VERL_PLATFORM")
    assert "cpu" in platform_manager.PlatformRegistry.registered_names()
    assert platform_manager._detect_platform_name() != "cpu", "PlatformBase.is_platform_available: a CPU-only head node would pick the CPU by itself"


def test_the_platform_class_implements_all_that_verl_asks_of_one() -> None:
    from verl.plugin.platform import PlatformBase, PlatformRegistry

    platform = PlatformRegistry.get("cpu")
    assert platform is not None and issubclass(platform, PlatformBase), "PlatformRegistry.register"
    assert not inspect.isabstract(platform), f"PlatformBase has new abstract methods: {platform.__abstractmethods__}"
    assert platform().ray_resource_options(1) == {"num_gpus": 1}, "PlatformBase.ray_resource_options"


def test_transfer_queue_names_its_controller_in_two_places_of_one_module_and_ours_turns_both() -> None:
    from transfer_queue import interface

    assert inspect.getsource(interface).count('namespace="transfer_queue"') == 2, "separate_queue"
    assert 'ray.get_actor("TransferQueueController", namespace=' in inspect.getsource(interface._init_from_existing)
    assert "TransferQueueController.options(" in inspect.getsource(interface.init)


def test_the_plugin_may_be_imported_twice() -> None:
    assert importlib.reload(plugin).ROLLOUT_NAME == "transformers"


def test_verls_process_group_still_needs_and_takes_our_backend_string(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    import verl.utils.distributed as verl_distributed

    patched = verl_distributed.initialize_global_process_group_ray
    assert getattr(patched, "is_gloo_alone", False), "initialize_global_process_group_ray is not ours any more"
    source = inspect.getsource(verl_distributed)
    assert "cpu:gloo,{get_device_name()}:{get_nccl_backend()}" in source, "verl builds another backend string: is use_gloo_alone still needed?"
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "DIST_INIT_METHOD": f"file://{tmp_path}/store"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="cpu"):
        torch.distributed.init_process_group(backend="cpu:gloo,cpu:gloo", rank=0, world_size=1, init_method=f"file://{tmp_path}/other")
    patched()
    try:
        assert "gloo" in torch.distributed.get_backend()
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("model_type", ["language_model", "value_model"])
def test_the_engine_registry_gives_our_engine_on_the_cpu(model_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.workers.engine.base import EngineRegistry

    monkeypatch.setenv("VERL_ENGINE_DEVICE", "cpu")
    assert EngineRegistry.get_engine_cls(model_type, "fsdp2").__module__ == "napmem_rl.platforms.cpu_engine", "EngineRegistry"


def test_verl_still_pins_memory_for_a_forward_only_model_and_our_engine_steps_in() -> None:
    from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

    source = inspect.getsource(FSDPEngine._build_fsdp_module)
    assert "self.engine_config.offload_policy or self.engine_config.forward_only" in source and "CPUOffloadPolicy(pin_memory=True)" in source, (
        "FSDPEngine._build_fsdp_module no longer pins memory for forward_only: is napmem_rl.platforms.cpu_engine still needed?"
    )


def test_the_rollout_registries_take_our_entries() -> None:
    from verl.workers.rollout.base import get_rollout_class
    from verl.workers.rollout.replica import get_rollout_replica_class

    from napmem_rl.backend.rollout_transformers import TransformersReplica, TransformersWeightSender

    assert get_rollout_class("transformers", "async") is TransformersWeightSender, "verl.workers.rollout.base._ROLLOUT_REGISTRY"
    assert get_rollout_replica_class("transformers") is TransformersReplica, "RolloutReplicaRegistry"


def test_weights_for_a_server_that_is_not_there_are_a_backend_error_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    import ray

    from napmem_rl.backend.rollout_transformers import TransformersWeightSender
    from napmem_rl.errors import BackendError

    def find_nothing(name: str) -> None:
        raise ValueError(f"Failed to look up actor with name '{name}'")

    monkeypatch.setattr(ray, "get_actor", find_nothing)
    sender = object.__new__(TransformersWeightSender)
    sender.config, sender.replica_rank, sender._server = SimpleNamespace(name="transformers"), 0, None
    with pytest.raises(BackendError, match="rollout server .*0.*: is not there to take weights"):
        asyncio.run(sender._send({}, is_last=True, version=1))


def test_the_server_answers_every_call_that_verl_makes_of_a_replica() -> None:
    import verl.workers.rollout.llm_server as llm_server
    from verl.workers.rollout.replica import RolloutReplica

    from napmem_rl.backend.rollout_transformers import TransformersServer

    for name in (
        "abort_all_requests clear_kv_cache generate release_kv_cache resume_generation resume_kv_cache sleep start_profile stop_profile wake_up"
    ).split():
        assert name == "generate" or f"server.{name}.remote" in inspect.getsource(RolloutReplica), f"RolloutReplica.{name} moved"
        assert inspect.iscoroutinefunction(getattr(TransformersServer, name)), f"TransformersServer.{name}"
    assert "server.generate.remote" in inspect.getsource(llm_server.LLMServerClient.generate), "LLMServerClient.generate"
    accepted = inspect.signature(TransformersServer.generate).parameters
    assert {"request_id", "prompt_ids", "sampling_params", "image_data", "video_data"} <= set(accepted), "LLMServerClient.generate's arguments"


def test_transformers_takes_our_attention_and_builds_no_mask_for_a_packed_batch() -> None:
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig
    from transformers.masking_utils import create_causal_mask

    from napmem_rl.algos.packing import PACKED_ATTENTION, packed_attention

    assert AttentionInterface._global_mapping[PACKED_ATTENTION] is packed_attention, "AttentionInterface.register"
    assert PACKED_ATTENTION in AttentionMaskInterface._global_mapping, "AttentionMaskInterface.register"
    config = LlamaConfig(attn_implementation=PACKED_ATTENTION)
    embeddings, positions = torch.zeros(1, 5, 8), torch.tensor([[0, 1, 2, 0, 1]])
    mask = create_causal_mask(config=config, inputs_embeds=embeddings, attention_mask=None, past_key_values=None, position_ids=positions)
    assert mask is None, "create_causal_mask builds a mask for napmem_varlen"
