"""One real GRPO job, shared by all end-to-end tests: start-up is most of its time.

A tiny Llama, briefly taught to answer or to search and answer, trains for two steps through launch/grpo.py: Ray, two FSDP2 learners over gloo, the
transformers rollout server, agent-loop and reward workers. The judge is an HTTP endpoint of this process that babbles over questions about "fog".
"""

from __future__ import annotations

import functools
import json
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from finished_job import FinishedJob
from grpo_launch import build_launch
from judge_endpoint import serve_judge
from packet_job import learn_packets

CITIES = ("oslo", "rome", "lima", "bern")
PEOPLE = ("ana", "ben", "cleo", "dan")
LONG = 30  # repetitions of a question of five tokens
NUM_STEPS = 12  # that the rows suffice for; the shared job takes two


def grade(messages: list[dict[str, Any]], *, unclear: tuple[str, ...] = ("fog",)) -> str:
    """By equality; something that is no verdict about what is unclear."""
    said = [message["content"] for message in messages if message["role"] == "user"][0]
    try:
        data = json.loads(said)
        verdict = "correct" if data["answer"].strip() in data["references"] else "incorrect"
        return "Well, who knows?" if any(word in data["question"] for word in unclear) else json.dumps({"verdict": verdict, "reason": "compared"})
    except ValueError:
        return "ready"


@pytest.fixture(scope="session")
def judge_url() -> Iterator[str]:
    """Base URL of the judge's endpoint."""
    url, stop = serve_judge(grade)
    yield url
    stop()


@pytest.fixture(scope="session")
def job_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared directory: rows, banks, model."""
    directory = tmp_path_factory.mktemp("grpo_data")
    write_banks(directory / "banks")
    write_rows(directory)
    write_model(directory / "model")
    return directory


@pytest.fixture(scope="session")
def finished_job(job_data: Path, judge_url: str, tmp_path_factory: pytest.TempPathFactory) -> FinishedJob:
    """The job, run once."""
    return run_job("tiny_grpo.yaml", job_data, judge_url, tmp_path_factory.mktemp("grpo_run") / "run")


@pytest.fixture(scope="session")
def async_job(job_data: Path, judge_url: str, tmp_path_factory: pytest.TempPathFactory) -> FinishedJob:
    """The asynchronous job, run once."""
    return run_job("tiny_async.yaml", job_data, judge_url, tmp_path_factory.mktemp("async_run") / "run")


@pytest.fixture(scope="session")
def memchain_job(tmp_path_factory: pytest.TempPathFactory) -> FinishedJob:
    """launch/sft.py on packets of a teacher, then two steps of TMPO, by the smoke recipes. The judge gives no verdict about hobbies and jobs."""
    from napmem_rl.data.prepare import prepare
    from napmem_rl.data.sources import build_synthetic
    from napmem_rl.retrieval.encoder import load_encoder

    data_dir, run_dir = tmp_path_factory.mktemp("memchain") / "data", tmp_path_factory.mktemp("memchain_run") / "run"
    prepare(build_synthetic(12, seed=0), data_dir, inputs=[], encoder=load_encoder("hashing"), report=lambda line: None)
    recipes = Path(__file__).parents[2] / "recipes" / "memchain"
    started = time.monotonic()
    start = write_packet_policy(recipes / "sft_smoke.yaml", data_dir)
    keys = [f"model.path={start}", "trainer.total_epochs=1", "optim.lr=1e-4"]
    taught = run_launcher([str(recipes / "sft_smoke.yaml"), f"data.dir={data_dir}", *keys], script="sft.py")
    url, stop = serve_judge(functools.partial(grade, unclear=("hobby", "job")))
    judge = ["judge.kind=openai", f"judge.base_url={url}", "judge.model=judge", "judge.api_key_env=JUDGE_KEY", "judge.max_retries=0"]
    done = run_launcher([str(recipes / "smoke.yaml"), f"data.dir={data_dir}", f"trainer.default_local_dir={run_dir}", *judge], script="tmpo.py")
    stop()
    output = taught.stdout + taught.stderr + done.stdout + done.stderr
    return FinishedJob(run_dir, data_dir, output, taught.returncode or done.returncode, time.monotonic() - started)


def write_packet_policy(recipe_path: Path, data_dir: Path) -> Path:
    """The tiny policy of a recipe, which knows the form of packets. Returns its directory."""
    from napmem_rl.backend.sft_packets import prepare_tiny, teach_rows
    from napmem_rl.config.sft_recipe import load_sft_recipe

    recipe = load_sft_recipe(recipe_path, [f"data.dir={data_dir}"])
    rows = teach_rows(recipe, lambda line: None)
    path = prepare_tiny(recipe, rows, lambda line: None)
    learn_packets(path, rows.rows, recipe.agent, steps=240)
    return path


@pytest.fixture(scope="session")
def vllm_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data for jobs with vLLM. Questions are so long that vLLM keeps their beginnings from step to step."""
    directory = tmp_path_factory.mktemp("vllm_data")
    write_banks(directory / "banks")
    write_rows(directory, times=LONG)
    write_model(directory / "model", times=LONG, width=64)  # vLLM knows no attention head of 24
    return directory


@pytest.fixture(scope="session")
def vllm_job(vllm_data: Path, judge_url: str, tmp_path_factory: pytest.TempPathFactory) -> FinishedJob:
    """The job with vLLM as its rollout server, run once."""
    return run_job("tiny_grpo.yaml", vllm_data, judge_url, tmp_path_factory.mktemp("vllm_run") / "run", "actor_rollout_ref.rollout.name=vllm")


def run_job(recipe: str, data_dir: Path, judge_url: str, run_dir: Path, *overrides: str) -> FinishedJob:
    """Run a recipe of this directory to its end."""
    arguments = [f"data.dir={data_dir}", f"trainer.default_local_dir={run_dir}", f"judge.base_url={judge_url}", *overrides]
    started = time.monotonic()
    done = run_launcher([str(Path(__file__).with_name(recipe)), *arguments])
    return FinishedJob(run_dir, data_dir, done.stdout + done.stderr, done.returncode, time.monotonic() - started)


def run_launcher(arguments: list[str], *, timeout_s: float = 600.0, script: str = "grpo.py") -> subprocess.CompletedProcess[str]:
    """A script of launch/ in a process of its own, as a user starts it."""
    return subprocess.run(**build_launch(*arguments, script=script), capture_output=True, text=True, timeout=timeout_s)


def write_banks(directory: Path) -> None:
    """One bank per person: where they live and what they like."""
    from napmem_rl.memory.bank import save_bank
    from napmem_rl.schema import Message, Profile, Record, RecordType, Track

    for person, city in zip(PEOPLE, CITIES, strict=True):
        time_of = "2024-03-0{}T10:00:00".format
        messages = [
            Message(message_id="msg:1", session_id="s1", role="user", speaker=person, text=f"i live in {city}", time=time_of(1)),
            Message(message_id="msg:2", session_id="s1", role="user", speaker=person, text="i like tea", time=time_of(2)),
        ]
        records = [
            Record(record_id="rec:1", type=RecordType.FACT, text=f"{person} lives in {city}", time=time_of(1), source_ids=("msg:1",), session_id="s1"),
            Record(record_id="rec:2", type=RecordType.PREFERENCE, text=f"{person} likes tea", time=time_of(2), source_ids=("msg:2",), session_id="s1"),
        ]
        track = Track(track_id="trk:home", file_name="home.md", title="home", summary=city, narrative=city, time=time_of(1), record_ids=("rec:1",))
        profile = Profile(text=f"{person} lives in {city}", time=time_of(2), source_ids=("rec:1", "trk:home"))
        save_bank(directory / person, bank_id=person, messages=messages, records=records, tracks=[track], profile=profile, writer="test")


def write_rows(directory: Path, *, times: int = 1) -> None:
    """Four questions a step, the last of each four about fog, where the judge gives no verdict. Each is asked `times` over, which makes it long."""
    from napmem_rl.data.rows import save_rows
    from napmem_rl.schema import AnswerKey, Task

    def pair(name: str, index: int) -> tuple[Task, AnswerKey]:
        person, city = PEOPLE[index % 4], CITIES[index % 4]
        question = " ".join([f"does {person} like fog ?" if index % 4 == 3 else f"where does {person} live ?"] * times)
        task = Task(task_id=f"{name}-{index}", bank_id=person, question=question, category="fact", needs_memory=True, asked_at="2024-04-01T00:00:00")
        return task, AnswerKey(task_id=task.task_id, references=(city,), evidence_ids=("msg:1",))

    save_rows(directory / "train.parquet", [pair("train", i) for i in range(4 * NUM_STEPS)], data_source="tiny")
    save_rows(directory / "dev.parquet", [pair("dev", i) for i in range(4)], data_source="tiny")


def write_model(directory: Path, *, times: int = 1, width: int = 48) -> None:
    """A Llama of two small layers that mostly writes well-formed episodes: an answer at once, or a search and then an answer. `times` as in the rows."""
    import torch

    from napmem_rl.backend.tiny_policy import build_model, build_tokenizer, save_policy
    from napmem_rl.schema import ToolCall
    from napmem_rl.tools.parse import render_call

    texts = [*PEOPLE, *CITIES, "where does live ? does like fog ? i live in lives in likes tea"]
    texts += ["rec:1 2024-03-01 fact: . [msg:1] rec:2 2024-03-02 preference: [msg:2] msg:1 msg:2 no records found"]
    tokenizer = build_tokenizer(texts, max_length=512)
    rng = random.Random(0)

    def episode() -> list[int]:
        index = rng.randrange(4)
        person, city = PEOPLE[index], CITIES[index]
        question = " ".join([rng.choice([f"where does {person} live ?", f"does {person} like fog ?"])] * times)
        messages = [{"role": "user", "content": question}]
        if rng.random() < 0.5:
            call = render_call(ToolCall(name="search_records", arguments={"query": f"{person} live"}), "hermes")
            found = f"rec:1 2024-03-01 fact: {person} lives in {city} [msg:1]\nrec:2 2024-03-02 preference: {person} likes tea [msg:2]"
            messages += [{"role": "assistant", "content": call}, {"role": "tool", "content": found}]
        messages.append({"role": "assistant", "content": f"<answer>{rng.choice([city, rng.choice(CITIES)])}</answer>"})
        return tokenizer(tokenizer.apply_chat_template(messages, tokenize=False), add_special_tokens=False)["input_ids"]

    model = build_model(tokenizer, seed=0, width=width, layers=2, heads=2, ffn=96)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(80):
        rows = [episode() for _ in range(16)]
        width = max(map(len, rows))
        ids = torch.tensor([row + [tokenizer.pad_token_id] * (width - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        labels = ids.masked_fill(mask == 0, -100)
        labels[:, : 5 * (times - 1)] = -100  # repetitions teach nothing
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    save_policy(model, tokenizer, directory)
