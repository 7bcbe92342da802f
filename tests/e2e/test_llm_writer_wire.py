"""The `llm` writer over a real vLLM server on the CPU, with SmolLM2-135M and structured output. Skipped where either is not installed.

A model of this size writes nonsense: what is asserted is that its replies keep to their form, that the bank holds, and that every request is accounted for.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from napmem_rl.backend.smollm2 import PACKAGE, convert_smollm2
from napmem_rl.backend.vllm_cpu_name import find_version
from napmem_rl.llm.openai_client import OpenAIChat
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.build_report import BuildReport
from napmem_rl.memory.pyramid_builder import PyramidBuilder
from napmem_rl.memory.writers.llm import LLMWriter, LLMWriterConfig
from napmem_rl.memory.writers.llm_prompts import PROMPT_VERSION
from napmem_rl.memory.writers.llm_topics import TopicLimits
from napmem_rl.schema import Message

pytestmark = [
    pytest.mark.skipif(find_version("vllm-cpu") is None, reason="vllm-cpu is not installed: bash launch/install.sh vllm-cpu"),
    pytest.mark.skipif(find_version(PACKAGE.replace("_", "-")) is None, reason="the weights of SmolLM2 are not installed: see napmem_rl/backend/smollm2.py"),
]
START_S, STOP_S = 150.0, 20.0
NAME = "smollm2"
SERVE = (
    "import sys; from napmem_rl.backend.vllm_cpu_name import show_vllm_cpu_as_vllm; show_vllm_cpu_as_vllm(); "
    "from vllm.entrypoints.cli.main import main; sys.argv[0] = 'vllm'; sys.exit(main())"
)
DIALOGUE = [
    Message(message_id=f"msg:{number}", session_id="s1", role=role, speaker=speaker, text=text, time=f"2024-03-05T10:00:{number:02d}")
    for number, (role, speaker, text) in enumerate(
        [
            ("user", "Ana", "I moved to Oslo last week. I work as a nurse there."),
            ("assistant", "Helper", "How is your new home in Oslo?"),
            ("user", "Ana", "I like Oslo. As a nurse I work at night, so please never call me in the morning."),
            ("assistant", "Helper", "I will remember that."),
        ],
        start=1,
    )
]


@dataclass(frozen=True)
class Server:
    """A vLLM server that listens."""

    url: str

    def count_requests(self) -> int:
        """Completions that the server itself has counted."""
        text = urllib.request.urlopen(f"{self.url}/metrics", timeout=10).read().decode()
        return int(sum(float(value) for value in re.findall(r"^vllm:request_success_total\{[^}]*\} (\S+)$", text, re.MULTILINE)))


@dataclass(frozen=True)
class Built:
    """A finished build."""

    report: BuildReport
    writer: LLMWriter
    client: OpenAIChat
    path: Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """vLLM with small limits, in a process group of its own that ends with the tests."""
    directory = tmp_path_factory.mktemp("vllm_server")
    model = convert_smollm2(directory / NAME)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = f"serve {model} --host 127.0.0.1 --port {port} --served-model-name {NAME} --max-model-len 2048 --max-num-seqs 2 --dtype float32".split()
    arguments += ["--enforce-eager", "--no-enable-chunked-prefill", "--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}']
    quiet = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    cpu = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1", "TORCHDYNAMO_DISABLE": "1"}
    log = directory / "server.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE, *arguments], stdout=stream, stderr=subprocess.STDOUT, env=os.environ | cpu | quiet, start_new_session=True
        )
    try:
        wait_until_ready(process, f"http://127.0.0.1:{port}", log)
        yield Server(f"http://127.0.0.1:{port}")
    finally:
        end_group(process)


def wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Until the server answers; fails with the end of its log where it ends, or takes too long."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5)
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"vLLM did not start within {START_S:.0f} s (exit code {process.poll()}):\n{log.read_text(errors='replace')[-3000:]}")


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End the server and all that it started."""
    for way in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, way)
            process.wait(timeout=STOP_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


async def build(server: Server, path: Path, cache: Path) -> Built:
    """The dialogue as a bank, with replies so short that a model which never stops costs little."""
    client = OpenAIChat(
        model=NAME,
        base_url=f"{server.url}/v1",
        api_key_env="",
        max_retries=0,
        timeout_s=120.0,
        cache_dir=str(cache),
        cache_tag=PROMPT_VERSION,
        schema_mode="json_schema_full",
    )
    topics = TopicLimits(max_steps=2, max_actions=1, max_title_chars=20, max_summary_chars=40, max_narrative_chars=60)
    writer = LLMWriter(client, LLMWriterConfig(max_reply_tokens=160, max_records=1, max_record_chars=60, topics=topics))
    try:
        with BankWriter.open(path, bank_id="ana", writer=writer.name) as bank:
            builder = PyramidBuilder(bank, writer, max_profile_chars=60)
            await builder.add(DIALOGUE)
            return Built(await builder.finish(), writer, client, path)
    finally:
        await client.close()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("replies")


@pytest.fixture(scope="module")
def built(server: Server, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return asyncio.run(build(server, tmp_path_factory.mktemp("banks") / "ana", cache))


def test_the_bank_that_a_served_model_wrote_holds_and_its_records_rest_on_real_messages(built: Built) -> None:
    assert verify_bank(built.path) == []
    bank = MemoryBank.open(built.path)
    assert list(bank.messages) == DIALOGUE and len(bank.records) > 0 and bank.writer == f"llm:{NAME}"
    assert all(bank.message(source_id) is not None for record in bank.records for source_id in record.source_ids)
    merged = sum(len(revision.merged_ids) for record in bank.records for revision in bank.history(record.record_id))
    assert len(bank.records) == built.report.counts["records_stored"] - merged and built.report.version == bank.version


def test_structured_output_keeps_every_reply_to_its_form(built: Built) -> None:
    causes = {name.split(": ")[1] for name in built.writer.counts.repairs}
    assert causes <= {"content", "unknown_id", "truncated"}, built.writer.counts  # what no schema can ask for
    assert built.writer.counts.asked["extract"] == 2


def test_every_request_is_accounted_for_by_us_and_by_the_server(built: Built, server: Server) -> None:
    counts, usage = built.writer.counts, built.client.usage
    assert usage.num_requests + usage.num_cached == counts.asked.total() + counts.repairs.total()
    assert usage.num_requests == server.count_requests() and usage.num_unmetered == 0
    assert usage.prompt_tokens > 100 * usage.num_requests and 0 < usage.completion_tokens <= 160 * usage.num_requests
    assert counts.rejections.total() - counts.rejections["topics: out_of_steps"] <= counts.repairs.total()


def test_a_second_build_with_the_cache_sends_nothing_and_gives_the_same_bank(built: Built, server: Server, cache: Path, tmp_path: Path) -> None:
    before = server.count_requests()
    again = asyncio.run(build(server, tmp_path / "ana", cache))
    assert again.client.usage.num_requests == 0 and server.count_requests() == before
    assert again.client.usage.num_cached == built.client.usage.num_requests + built.client.usage.num_cached
    assert again.report.version == built.report.version and again.writer.counts == built.writer.counts
