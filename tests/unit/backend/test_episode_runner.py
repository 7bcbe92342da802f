"""A row of the dataset becomes one token list with a reward, or a reason why not; the server and the judge are stand-ins."""

import asyncio
import copy
import dataclasses
import json

import pytest

from napmem_rl.backend.bank_cache import BankCache
from napmem_rl.backend.episode_runner import EpisodeRunner, RowRequest, build_sampling, find_abstention
from napmem_rl.backend.reward_workers import RewardWorker
from napmem_rl.backend.settings import JobSettings
from napmem_rl.backend.tiny_policy import build_tokenizer
from napmem_rl.backend.token_generate import SampledTurn
from napmem_rl.backend.trajectory_log import TrajectoryLog
from napmem_rl.config.sections import AgentConfig, JobConfig, JudgeConfig, MemoryConfig, ReportConfig, RewardConfig
from napmem_rl.errors import BackendError, DataError
from napmem_rl.memory.bank import save_bank
from napmem_rl.schema import AnswerKey, Message, Profile, Record, RecordType, ScoredTrajectory, Status, Task, ToolCall, Track, Trajectory, as_json
from napmem_rl.tools.parse import render_call

WORDS = "where does ana live ? ana lives in oslo rec:1 msg:1 2024-03-01 fact : . [ ] i no records found rome"
TOKENIZER = build_tokenizer([WORDS], max_length=256)
END = TOKENIZER.eos_token_id
TASK = Task(task_id="t1", bank_id="ana", question="where does ana live ?", category="fact", needs_memory=True)
KEY = AnswerKey(task_id="t1", references=("oslo",), evidence_ids=("msg:1",))
SEARCH = render_call(ToolCall(name="search_records", arguments={"query": "ana"}), "hermes")


class ScriptedServer:
    def __init__(self, *texts: str, error: Exception | None = None) -> None:
        self.texts, self.error, self.seeds, self.prompts = list(texts), error, [], []

    async def generate(self, request_id, prompt_ids, sampling):
        self.seeds.append(sampling["seed"])
        self.prompts.append(prompt_ids)
        if self.error is not None:
            raise self.error
        ids = (*TOKENIZER(self.texts.pop(0), add_special_tokens=False)["input_ids"], END)
        return SampledTurn(token_ids=ids, logprobs=(-0.25,) * len(ids), min_version=2, max_version=2, is_length_stop=False)


@pytest.fixture
def build(tmp_path):
    message = Message(message_id="msg:1", session_id="s1", role="user", speaker="ana", text="i live in oslo", time="2024-03-01T10:00:00")
    record = Record(record_id="rec:1", type=RecordType.FACT, text="ana lives in oslo", time=message.time, source_ids=("msg:1",), session_id="s1")
    track = Track(track_id="trk:home", file_name="home.md", title="home", summary="oslo", narrative="oslo", time=message.time, record_ids=("rec:1",))
    profile = Profile(text="ana lives in oslo", time=message.time, source_ids=("rec:1",))
    version = save_bank(tmp_path / "ana", bank_id="ana", messages=[message], records=[record], tracks=[track], profile=profile, writer="test")
    settings = JobSettings(
        memory=MemoryConfig(encoder="none"),
        agent=AgentConfig(system_prompt=False, max_context_tokens=200, max_turn_tokens=32),
        reward=RewardConfig(),
        judge=JudgeConfig(),
        report=ReportConfig(),
        job=JobConfig(),
        banks_dir=str(tmp_path),
        run_dir=str(tmp_path),
        seed=1,
        is_sync=True,
        job_name="abc",
    )

    def build_runner(server, tokenizer=TOKENIZER, **changes) -> EpisodeRunner:
        return EpisodeRunner(
            settings=dataclasses.replace(settings, **changes),
            tokenizer=tokenizer,
            end_ids=(END,),
            server=server,
            banks=BankCache(tmp_path, encoder=None, versions={"ana": version}, rrf_k=60),
            rewards=RewardWorker(JudgeConfig(), settings.agent),
            log=TrajectoryLog(tmp_path / "trajectories", worker_name="0", run_name="r"),
        )

    return build_runner


def make_request(**changes) -> RowRequest:
    row = {"task": json.dumps(as_json(TASK)), "answer_key": json.dumps(as_json(KEY)), "data_source": "d", "extra_info": {"index": 0}}
    request = RowRequest(row=row, sampling={"temperature": 1.0}, step=3, sample_index=1, is_validation=False)
    return dataclasses.replace(request, **changes)


def test_an_episode_becomes_one_token_list_with_its_reward_mask_and_versions(build):
    outcome = asyncio.run(build(ScriptedServer(SEARCH, "<answer>oslo</answer>")).run(make_request()))
    sample = outcome.sample
    assert outcome.scored.reward == 1.0
    sampled = [token for token, is_sampled in zip(sample.response_ids, sample.response_mask, strict=True) if is_sampled]
    assert TOKENIZER.decode(sampled).count("<|end|>") == 2
    assert sample.response_mask[0] == 1 and sample.response_mask[-1] == 1 and 0 in sample.response_mask
    assert {value for value, is_sampled in zip(sample.logprobs, sample.response_mask, strict=True) if is_sampled} == {-0.25}
    assert (outcome.min_version, outcome.max_version) == (2, 2)
    assert outcome.facts["correctness"] == 1.0 and outcome.facts["num_evidence_hits"] == 1
    assert outcome.cause == ""


def test_each_sample_of_a_group_is_seeded_apart_and_the_same_way_in_every_run(build):
    first, second, again = (ScriptedServer("<answer>oslo</answer>") for _ in range(3))
    asyncio.run(build(first).run(make_request(sample_index=0)))
    asyncio.run(build(second).run(make_request(sample_index=1)))
    asyncio.run(build(again).run(make_request(sample_index=0)))
    assert first.seeds == again.seeds != second.seeds


def test_a_broken_engine_leaves_no_sample_but_a_counted_cause_and_a_line_in_the_log(build, tmp_path):
    outcome = asyncio.run(build(ScriptedServer(error=BackendError("server died"))).run(make_request()))
    assert outcome.sample is None
    assert (outcome.cause, outcome.scored.reward) == ("error_llm", None)
    (line,) = (tmp_path / "trajectories" / "step_000003.worker_0.jsonl").read_text().splitlines()
    assert json.loads(line)["status"] == "error_llm" and "server died" in json.loads(line)["detail"]


def test_a_row_without_an_answer_stops_with_an_error_that_names_it(build):
    row = {**make_request().row, "answer_key": json.dumps({"task_id": "t1", "references": []})}
    with pytest.raises(DataError, match="has no answer"):
        asyncio.run(build(ScriptedServer()).run(make_request(row=row)))


def test_the_policy_never_sees_the_answer_key(build):
    server = ScriptedServer("<answer>rome</answer>")
    outcome = asyncio.run(build(server).run(make_request()))
    assert outcome.scored.reward is not None and outcome.scored.reward < 1
    assert TOKENIZER("oslo", add_special_tokens=False)["input_ids"][0] not in outcome.sample.prompt_ids


@pytest.mark.parametrize("is_validation, own, expected", [(True, 0.0, 0.0), (True, -1.0, 1.0), (True, None, 1.0), (False, 0.0, 1.0)])
def test_a_validation_row_may_bring_its_own_temperature_and_a_training_row_may_not(is_validation, own, expected):
    request = make_request(is_validation=is_validation, row={"extra_info": {"index": 0, "temperature": own}})
    assert build_sampling(request)["temperature"] == expected


def test_a_prompt_that_leaves_no_room_is_an_abstention_of_its_own_kind():
    trajectory = Trajectory(task=TASK, turns=(), final_answer=None, status=Status.TRUNCATED)
    cause, detail = find_abstention(ScoredTrajectory(trajectory=trajectory, reward=-1.0))
    assert cause == "no_tokens" and "max_context_tokens" in detail


def test_arguments_of_the_chat_template_shape_the_prompt(build):
    tokenizer = copy.deepcopy(TOKENIZER)
    tokenizer.chat_template = "{%- if city is defined -%}{{ city + ' ' }}{%- endif -%}" + TOKENIZER.chat_template
    plain, told = ScriptedServer("<answer>oslo</answer>"), ScriptedServer("<answer>oslo</answer>")
    asyncio.run(build(plain, tokenizer).run(make_request()))
    asyncio.run(build(told, tokenizer, template_kwargs={"city": "rome"}).run(make_request()))
    assert told.prompts[0] == [*TOKENIZER("rome", add_special_tokens=False)["input_ids"], *plain.prompts[0]]
