"""Parts of a job without Ray: bank cache, reward pool, encoder service, trajectory log, settings, run files."""

import asyncio
import dataclasses
import json
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import ray
from omegaconf import OmegaConf

from napmem_rl.backend import encoder_service, reward_workers, trajectory_log
from napmem_rl.backend.bank_cache import BankCache
from napmem_rl.backend.encoder_service import EncoderService, RemoteEncoder, connect_encoder, needs_service
from napmem_rl.backend.reward_workers import WORKER_DIED, RewardPool, RewardWorker, drop_tokens
from napmem_rl.backend.run_files import keep_previous
from napmem_rl.backend.settings import JobSettings
from napmem_rl.backend.trajectory_log import TrajectoryLog
from napmem_rl.config.sections import AgentConfig, JobConfig, JudgeConfig, MemoryConfig, ReportConfig, RewardConfig
from napmem_rl.errors import BackendError, BankError
from napmem_rl.memory.bank import save_bank
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.changes import Changes
from napmem_rl.schema import (
    AnswerKey,
    Level,
    Message,
    Profile,
    Record,
    RecordType,
    ScoredTrajectory,
    Status,
    Task,
    ToolCall,
    ToolResult,
    Track,
    Trajectory,
    Turn,
)

TASK = Task(task_id="t1", bank_id="ana", question="Where?", category="fact", needs_memory=True)
KEY = AnswerKey(task_id="t1", references=("Oslo",))


def make_trajectory() -> Trajectory:
    call = ToolCall(name="search_records", arguments={"query": "home"})
    result = ToolResult(call=call, text="rec:1 …", is_success=True, level=Level.RECORD, item_ids=("rec:1",), message_ids=("msg:1",))
    first = Turn(text="call", tool_results=(result,), prompt_ids=(1, 2), response_ids=(3,), rollout_logprobs=(-0.1,), policy_version=4)
    last = Turn(text="<answer>Oslo</answer>", prompt_ids=(1, 2, 3, 9), response_ids=(5,), rollout_logprobs=(-0.2,), policy_version=4)
    return Trajectory(task=TASK, turns=(first, last), final_answer="Oslo", status=Status.COMPLETED)


def make_bank(path) -> str:
    message = Message(message_id="msg:1", session_id="s1", role="user", speaker="Ana", text="I live in Oslo.", time="2024-03-01T10:00:00")
    record = Record(record_id="rec:1", type=RecordType.FACT, text="Ana lives in Oslo.", time=message.time, source_ids=("msg:1",), session_id="s1")
    track = Track(track_id="trk:home", file_name="home.md", title="Home", summary="Oslo", narrative="Oslo.", time=message.time, record_ids=("rec:1",))
    profile = Profile(text="Ana lives in Oslo.", time=message.time, source_ids=("rec:1",))
    return save_bank(path, bank_id="ana", messages=[message], records=[record], tracks=[track], profile=profile, writer="test")


def test_a_bank_is_opened_once_however_many_episodes_ask_for_it_at_the_same_time(tmp_path, monkeypatch):
    versions = {"ana": make_bank(tmp_path / "ana")}
    opened = []
    cache = BankCache(tmp_path, encoder=None, versions=versions, rrf_k=60)
    open_bank = cache._open
    monkeypatch.setattr(cache, "_open", lambda bank_id: opened.append(bank_id) or open_bank(bank_id))

    async def ask():
        return await asyncio.gather(*[cache.get("ana") for _ in range(5)])

    banks = asyncio.run(ask())
    assert opened == ["ana"]
    assert all(bank is banks[0] for bank in banks)


def test_banks_not_of_this_job_or_without_its_version_are_refused(tmp_path):
    make_bank(tmp_path / "ana")
    cache = BankCache(tmp_path, encoder=None, versions={"ana": "other"}, rrf_k=60)
    with pytest.raises(BankError, match="holds no version other"):
        asyncio.run(cache.get("ana"))
    with pytest.raises(BankError, match="not a bank of this job"):
        asyncio.run(cache.get("../secrets"))


def test_a_bank_that_has_grown_since_the_job_started_is_read_as_it_was(tmp_path):
    version = make_bank(tmp_path / "ana")
    message = Message(message_id="msg:new", session_id="s9", role="user", speaker="Ana", text="Later.", time="2024-09-01")
    with BankWriter.open(tmp_path / "ana", bank_id="ana", writer="test") as writer:
        assert writer.commit(Changes(messages=(message,))) != version
    bank = asyncio.run(BankCache(tmp_path, encoder=None, versions={"ana": version}, rrf_k=60).get("ana"))
    assert bank.version == version and bank.message("msg:new") is None


def test_an_opening_that_failed_for_any_reason_is_tried_again(tmp_path):
    version = make_bank(tmp_path / "ana")
    cache = BankCache(tmp_path, encoder=None, versions={"ana": version}, rrf_k=60)
    errors = [OSError(24, "Too many open files")]
    cache._open = lambda bank_id: bank_id if not errors else (_ for _ in ()).throw(errors.pop())  # type: ignore[method-assign]

    async def ask():
        with pytest.raises(OSError, match="Too many"):
            await cache.get("ana")
        return await cache.get("ana")

    assert asyncio.run(ask()) == "ana"


def test_the_least_recently_used_bank_is_closed_first(tmp_path):
    version = make_bank(tmp_path / "ana")
    cache = BankCache(tmp_path, encoder=None, versions={"ana": version, "a": version, "b": version}, rrf_k=60, max_open=2)
    cache._open = lambda bank_id: bank_id  # type: ignore[method-assign]

    async def ask():
        for bank_id in ("a", "b", "a", "ana"):
            await cache.get(bank_id)

    asyncio.run(ask())
    assert list(cache._opening) == ["a", "ana"]


class FakeRewardWorker:
    """Stands in for an actor handle."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.seen = list(errors), []
        self.worker = RewardWorker(JudgeConfig(), AgentConfig())
        self.score = SimpleNamespace(remote=self._score)

    async def _score(self, trajectory, key):
        self.seen.append(trajectory)
        if self.errors:
            raise self.errors.pop(0)
        return await self.worker.score(trajectory, key)


def test_a_trajectory_is_scored_without_its_tokens_and_comes_back_with_them():
    worker = FakeRewardWorker()
    scored, facts = asyncio.run(RewardPool([worker]).score(make_trajectory(), KEY))
    assert scored.reward == 1.0 and facts["correctness"] == 1.0
    assert worker.seen[0].turns[1].prompt_ids == () and worker.seen[0].turns[1].text == "<answer>Oslo</answer>"
    assert scored.trajectory.turns[1].prompt_ids == (1, 2, 3, 9)


def test_workers_take_turns_and_another_steps_in_for_one_that_died(monkeypatch):
    monkeypatch.setattr(reward_workers, "RETRY_WAIT_S", 0.0)
    first, second = FakeRewardWorker(ray.exceptions.ActorDiedError()), FakeRewardWorker()
    scored, _ = asyncio.run(RewardPool([first, second]).score(make_trajectory(), KEY))
    assert scored.reward == 1.0
    assert (len(first.seen), len(second.seen)) == (1, 1)


def test_when_every_worker_dies_the_trajectory_is_abstained_from_and_never_scored_zero(monkeypatch):
    monkeypatch.setattr(reward_workers, "RETRY_WAIT_S", 0.0)
    worker = FakeRewardWorker(*[ray.exceptions.ActorDiedError() for _ in range(3)])
    scored, facts = asyncio.run(RewardPool([worker]).score(make_trajectory(), KEY))
    assert scored.reward is None and scored.abstained.startswith(WORKER_DIED)
    assert facts["num_abstained"] == 1


def test_a_worker_that_restarts_is_waited_for_because_ray_refuses_its_calls_meanwhile(monkeypatch):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(reward_workers.asyncio, "sleep", sleep)
    worker = FakeRewardWorker(ray.exceptions.ActorUnavailableError("restarting", None), ray.exceptions.ActorUnavailableError("restarting", None))
    scored, _ = asyncio.run(RewardPool([worker]).score(make_trajectory(), KEY))
    assert scored.reward == 1.0
    assert slept == [reward_workers.RETRY_WAIT_S] * 2


def test_a_reward_workers_own_defect_is_not_retried_into_silence():
    worker = FakeRewardWorker(KeyError("defect"))
    with pytest.raises(KeyError):
        asyncio.run(RewardPool([worker]).score(make_trajectory(), KEY))


def test_dropping_tokens_keeps_text_and_calls():
    bare = drop_tokens(make_trajectory())
    assert [turn.response_ids for turn in bare.turns] == [(), ()]
    assert bare.tool_results == make_trajectory().tool_results


class CountingEncoder:
    name, dim = "counting", 2

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def encode(self, texts):
        self.batches.append(list(texts))
        time.sleep(0.01)
        if "bad" in texts:
            raise ValueError("cannot encode")
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


def build_service(monkeypatch) -> tuple[EncoderService, CountingEncoder]:
    encoder = CountingEncoder()
    monkeypatch.setattr(encoder_service, "load_encoder", lambda spec, device: encoder)
    return EncoderService(MemoryConfig(encoder="counting")), encoder


def test_requests_that_arrive_together_are_encoded_in_one_batch(monkeypatch):
    async def ask():
        service, encoder = build_service(monkeypatch)
        rows = await asyncio.gather(service.encode(["a", "bb"]), service.encode(["ccc"]), service.encode([]))
        return encoder, rows

    encoder, rows = asyncio.run(ask())
    assert encoder.batches == [["a", "bb", "ccc"]]
    assert [block[:, 0].tolist() for block in rows] == [[1, 2], [3], []]


def test_an_encoder_that_fails_fails_its_batch_and_serves_the_next(monkeypatch):
    async def ask():
        service, _ = build_service(monkeypatch)
        first = await asyncio.gather(service.encode(["bad"]), return_exceptions=True)
        return first, await service.encode(["a"])

    (error,), rows = asyncio.run(ask())
    assert isinstance(error, ValueError)
    assert rows[0, 0] == 1


def test_a_long_queue_is_cut_into_batches_of_bounded_size(monkeypatch):
    async def ask():
        service, encoder = build_service(monkeypatch)
        await asyncio.gather(*[service.encode(["x"] * 100) for _ in range(5)])
        return encoder

    assert [len(batch) for batch in asyncio.run(ask()).batches] == [200, 200, 100]


def test_a_dead_service_is_a_backend_error(monkeypatch):
    def raise_death(*args, **kwargs):
        raise ray.exceptions.ActorDiedError()

    monkeypatch.setattr(ray, "get", raise_death)
    service = SimpleNamespace(encode=SimpleNamespace(remote=lambda texts: None))
    with pytest.raises(BackendError, match="ActorDiedError"):
        RemoteEncoder(service, name="x", dim=2).encode(["a"])


def test_cheap_encoders_need_no_service():
    assert not needs_service("none") and not needs_service("hashing") and needs_service("minilm")
    assert connect_encoder("none", None) is None
    assert connect_encoder("hashing", None).name == "hashing-512"
    with pytest.raises(BackendError, match="no service"):
        connect_encoder("minilm", None)


def test_trajectories_are_whole_lines_that_say_what_happened(tmp_path):
    log = TrajectoryLog(tmp_path / "trajectories", worker_name="0", run_name="abc")
    scored = ScoredTrajectory(trajectory=make_trajectory(), reward=1.0, terms={"C": 1.0}, judge="lexical")
    threads = [
        threading.Thread(target=log.append, args=(scored,), kwargs={"step": 2, "sample_index": i, "is_validation": False, "data_source": "d"}) for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [json.loads(line) for line in log.path(2, is_validation=False).read_text().splitlines()]
    assert sorted(line["sample"] for line in lines) == list(range(8))
    first = lines[0]
    assert (first["status"], first["reward"], first["policy_version"], first["run"]) == ("completed", 1.0, 4, "abc")
    assert first["turns"][0]["calls"][0]["message_ids"] == ["msg:1"]
    assert "references" not in json.dumps(first)
    assert log.path(2, is_validation=True).name == "val_000002.worker_0.jsonl"


def test_a_line_is_whole_although_the_system_takes_it_in_pieces(tmp_path, monkeypatch):
    real = trajectory_log.os.write
    monkeypatch.setattr(trajectory_log.os, "write", lambda file, content: real(file, bytes(content)[:7]))
    log = TrajectoryLog(tmp_path, worker_name="0", run_name="abc")
    log.append(ScoredTrajectory(trajectory=make_trajectory(), reward=1.0), step=1, sample_index=3, is_validation=False, data_source="d")
    assert json.loads(log.path(1, is_validation=False).read_text())["sample"] == 3


def make_settings() -> JobSettings:
    return JobSettings(
        memory=MemoryConfig(),
        agent=AgentConfig(max_tool_steps=2),
        reward=RewardConfig(),
        judge=JudgeConfig(),
        report=ReportConfig(),
        job=JobConfig(),
        banks_dir="/banks",
        run_dir="/run",
        seed=7,
        is_sync=True,
        job_name="abc",
    )


def test_settings_survive_the_trip_through_verls_config():
    config = OmegaConf.create({"napmem": make_settings().as_config(), "trainer": {}})
    assert JobSettings.from_config(config) == make_settings()


def test_trajectories_lie_in_the_run_directory_unless_report_dir_says_otherwise():
    assert str(make_settings().trajectories_dir) == "/run/trajectories"
    assert str(dataclasses.replace(make_settings(), report=ReportConfig(dir="/shared/episodes")).trajectories_dir) == "/shared/episodes"


def test_a_job_not_started_through_this_project_is_told_so():
    with pytest.raises(BackendError, match="launch/grpo.py"):
        JobSettings.from_config(OmegaConf.create({"trainer": {}}))


def test_an_earlier_metrics_file_is_kept_aside(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for text in ("first", "second"):
        path.write_text(text)
        keep_previous(path)
    assert not path.exists()
    assert (tmp_path / "metrics.1.jsonl").read_text() == "first"
    assert (tmp_path / "metrics.2.jsonl").read_text() == "second"
