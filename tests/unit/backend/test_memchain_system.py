"""MemChain behind the engine's seam: candidates without an answer, a packet as one token list, its reward, and failures that are ours."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from judge_endpoint import serve_judge
from packet_maker import dump, make_row

from napmem_rl.backend.bank_cache import BankCache
from napmem_rl.backend.episode_runner import EpisodeRunner, RowRequest
from napmem_rl.backend.memchain_system import CandidateSource
from napmem_rl.backend.reward_workers import RewardWorker
from napmem_rl.backend.settings import JobSettings
from napmem_rl.backend.systems import SYSTEMS, find_system
from napmem_rl.backend.tiny_policy import build_tokenizer
from napmem_rl.backend.token_generate import SampledTurn
from napmem_rl.backend.trajectory_log import TrajectoryLog
from napmem_rl.config.sections import AgentConfig, AnswererConfig, JobConfig, JudgeConfig, MemChainConfig, MemoryConfig, ReportConfig, RewardConfig
from napmem_rl.errors import BankError, ConfigError, DataError, LLMError
from napmem_rl.memory.bank import save_bank
from napmem_rl.schema import AnswerKey, Message, Profile, Record, RecordType, Task, as_json
from napmem_rl.systems.memchain.answer_models import EndpointAnswerer, WorldAnswerer, build_answer_model
from napmem_rl.systems.memchain.candidate_file import dump_candidates, save_candidates
from napmem_rl.systems.memchain.candidates import Candidate

TASK = Task(task_id="t1", bank_id="ana", question="Which pet does Mia have?", category="fact", needs_memory=True, asked_at="2024-03-05T10:00:00")
KEY = AnswerKey(task_id="t1", references=("Coco",), evidence_ids=("msg:1",))
TEXTS = ("Mia has a pet named Coco.", "Leo works as a judge.", "Mia has a pet named Ziggy.")
PACKET = dump(
    make_row(
        trace=[{"role": "answer", "ids": ["msg:1"], "statement": TEXTS[0], "relation": "none"}],
        actions=[{"action": "KEEP", "ids": ["msg:1"], "rationale": "needed"}],
        evidence=[{"statement": TEXTS[0], "ids": ["msg:1"]}],
    )
)
TOKENIZER = build_tokenizer(["Which pet does Mia have ?"], max_length=512, plain=[PACKET, '{"no": 1}', "sorry"])
END = TOKENIZER.eos_token_id


class ScriptedServer:
    """Samples the given texts."""

    def __init__(self, *texts):
        self.texts = list(texts)

    async def generate(self, request_id, prompt_ids, sampling):
        ids = (*TOKENIZER(self.texts.pop(0), add_special_tokens=False)["input_ids"], END)
        return SampledTurn(token_ids=ids, logprobs=(-0.5,) * len(ids), min_version=1, max_version=1, is_length_stop=False)


@pytest.fixture
def bank(tmp_path):
    """A bank with one message a day; the last one is later than the question."""
    messages = [
        Message(message_id=f"msg:{number}", session_id=f"s{number}", role="user", speaker="User", text=text, time=f"2024-03-0{2 * number}T10:00:00")
        for number, text in enumerate(TEXTS, start=1)
    ]
    record = Record(record_id="rec:1", type=RecordType.FACT, text=TEXTS[0], time=messages[0].time, source_ids=("msg:1",), session_id="s1")
    profile = Profile(text="pets", time=messages[0].time, source_ids=("rec:1",))
    version = save_bank(tmp_path / "ana", bank_id="ana", messages=messages, records=[record], tracks=[], profile=profile, writer="test")
    return BankCache(tmp_path, encoder=None, versions={"ana": version}, rrf_k=60)


def build_runner(tmp_path, bank, server, *, rewards=None):
    sections = {"memory": MemoryConfig(encoder="none"), "reward": RewardConfig(), "judge": JudgeConfig(), "report": ReportConfig(), "job": JobConfig()}
    place = {"banks_dir": str(tmp_path), "run_dir": str(tmp_path), "job_name": "test", "seed": 1, "is_sync": True}
    agent = AgentConfig(max_context_tokens=200, max_turn_tokens=64)
    settings = JobSettings(agent=agent, **sections, **place, system="memchain", answerer=AnswererConfig(kind="worlds"))
    return EpisodeRunner(
        settings=settings,
        tokenizer=TOKENIZER,
        end_ids=(END,),
        server=server,
        banks=bank,
        rewards=rewards or RewardWorker(settings.judge, agent, system="memchain", answerer=settings.answerer),
        log=TrajectoryLog(tmp_path / "trajectories", worker_name="0", run_name="r"),
    )


def play(tmp_path, bank, text, **changes):
    row = {"task": json.dumps(as_json(TASK)), "answer_key": json.dumps(as_json(KEY)), "data_source": "d", **changes}
    request = RowRequest(row=row, sampling={"temperature": 1.0}, step=3, sample_index=0, is_validation=False)
    return asyncio.run(build_runner(tmp_path, bank, ScriptedServer(text)).run(request))


def test_a_packet_becomes_one_token_list_with_the_reward_of_equation_16(tmp_path, bank):
    outcome = play(tmp_path, bank, PACKET)
    assert outcome.scored.reward == pytest.approx(1.0), "all gates, a right answer every time, the gold candidate cited, everything supported"
    assert outcome.sample.response_mask == [1, 1] and outcome.sample.logprobs == [-0.5, -0.5]
    facts = outcome.facts
    assert (facts["correctness"], facts["stability"], facts["citations"], facts["parsed"], facts["actions/fact/KEEP"]) == (1, 1, 1, 1, 1)
    (line,) = (tmp_path / "trajectories" / "step_000003.worker_0.jsonl").read_text().splitlines()
    logged = json.loads(line)
    packet = logged["packet"]
    assert packet["evidence"] == [{"statement": TEXTS[0], "ids": ["msg:1"]}] and {item["id"] for item in packet["candidates"]} == {"msg:1"}


@pytest.mark.parametrize(("text", "fault"), [("sorry", "faults/not_json"), ('{"no": 1}', "faults/missing_field")])
def test_what_is_no_packet_is_trained_on_with_no_reward_at_all(tmp_path, bank, text, fault):
    outcome = play(tmp_path, bank, text)
    assert outcome.scored.reward == 0.0 and outcome.sample is not None and outcome.cause == ""
    assert outcome.facts["parsed"] == 0 and outcome.facts[fault] >= 1


def test_candidates_are_retrieved_without_the_key_and_nothing_later_than_the_question_is_among_them(bank):
    source = CandidateSource(MemChainConfig(), bank)

    async def find_twice():
        return await asyncio.gather(source.find(TASK, {}), source.find(TASK, {}))

    first, second = asyncio.run(find_twice())
    assert first is second and {item.id for item in first} == {"msg:1"}, "msg:3 tells of Mia too, but later"


def test_the_player_never_gets_the_answer_key(tmp_path, bank):
    runner = build_runner(tmp_path, bank, ScriptedServer(PACKET))
    seen = []
    plain = runner._player.play

    async def watch(task, row, generate):
        seen.append(dict(row))
        return await plain(task, row, generate)

    runner._player.play = watch
    row = {"task": json.dumps(as_json(TASK)), "answer_key": json.dumps(as_json(KEY)), "data_source": "d"}
    asyncio.run(runner.run(RowRequest(row=row, sampling={"temperature": 1.0}, step=3, sample_index=0, is_validation=False)))
    assert [sorted(row) for row in seen] == [["data_source", "task"]]


def test_a_row_that_holds_its_candidates_needs_no_search(tmp_path, bank):
    own = (Candidate(id="msg:1", text=TEXTS[0], source_ids=("msg:1",)),)
    outcome = play(tmp_path, bank, PACKET, candidates=dump_candidates(own))
    assert outcome.facts["candidates_shown"] == 1 and outcome.scored.reward == pytest.approx(1.0)


def test_candidates_out_of_a_file_are_those_of_the_task_or_an_error(tmp_path, bank):
    save_candidates(tmp_path / "c.jsonl", {"t1": [Candidate(id="w:7", text="x")], "late": [Candidate(id="w:8", text="x", time="2025-01-01T00:00:00")]})
    source = CandidateSource(MemChainConfig(candidates=str(tmp_path / "c.jsonl")), bank)
    assert [item.id for item in asyncio.run(source.find(TASK, {}))] == ["w:7"]
    for task_id, words in (("other", "do not have a task"), ("late", "late")):
        task = Task(task_id=task_id, bank_id="ana", question="q", category="c", needs_memory=True, asked_at=TASK.asked_at)
        with pytest.raises(DataError, match=words):
            asyncio.run(source.find(task, {}))


def test_a_bank_that_failed_to_open_is_asked_for_again(bank):
    source = CandidateSource(MemChainConfig(), bank)
    stranger = Task(task_id="t2", bank_id="bob", question="q", category="c", needs_memory=True)
    for _ in range(2):
        with pytest.raises(BankError):
            asyncio.run(source.find(stranger, {}))
    assert source._held == {} and source._views == {}


class FailingAnswerer:
    name = "down"

    async def answer(self, question, evidence, *, num_answers):
        raise LLMError("endpoint is down")


def test_a_failing_answer_model_is_an_abstention_and_never_a_reward_of_zero(tmp_path, bank):
    rewards = RewardWorker(JudgeConfig(), AgentConfig(), system="memchain", answerer=AnswererConfig(kind="worlds"))
    rewards._scorer._answerer = FailingAnswerer()
    row = {"task": json.dumps(as_json(TASK)), "answer_key": json.dumps(as_json(KEY)), "data_source": "d"}
    runner = build_runner(tmp_path, bank, ScriptedServer(PACKET), rewards=rewards)
    outcome = asyncio.run(runner.run(RowRequest(row=row, sampling={"temperature": 1.0}, step=3, sample_index=0, is_validation=False)))
    assert outcome.sample is None and outcome.scored.reward is None
    assert outcome.cause == "answer_model" and "endpoint is down" in outcome.detail and outcome.facts["num_abstained"] == 1


def test_a_judge_that_answers_prose_is_an_abstention_of_its_own_kind(tmp_path, bank):
    url, stop = serve_judge(lambda messages: "I would say that this is right!")
    judge = JudgeConfig(kind="openai", model="j", base_url=url, api_key_env="", max_retries=0)
    rewards = RewardWorker(judge, AgentConfig(), system="memchain", answerer=AnswererConfig(kind="worlds"))
    row = {"task": json.dumps(as_json(TASK)), "answer_key": json.dumps(as_json(KEY)), "data_source": "d"}
    runner = build_runner(tmp_path, bank, ScriptedServer(PACKET), rewards=rewards)
    outcome = asyncio.run(runner.run(RowRequest(row=row, sampling={"temperature": 1.0}, step=3, sample_index=0, is_validation=False)))
    stop()
    assert outcome.sample is None and outcome.scored.reward is None and outcome.cause == "judge" and "right!" in outcome.detail
    assert outcome.facts["parsed"] == 1 and outcome.facts["num_abstained"] == 1, "the packet itself is known, and logged"


def test_what_an_episode_took_is_measured(tmp_path, bank):
    facts = play(tmp_path, bank, PACKET).facts
    assert 0 < facts["evidence_tokens"] <= facts["candidate_tokens"] and facts["truncated/turn"] == facts["truncated/context"] == 0
    assert min(facts[name] for name in ("retrieval_s", "packet_s", "answer_s")) > 0


def test_an_unknown_system_or_answer_model_is_named():
    assert set(SYSTEMS) == {"napmem", "memchain"}
    with pytest.raises(ConfigError, match="napmem or memchain"):
        find_system("icml")
    with pytest.raises(ConfigError, match="openai, served or worlds"):
        build_answer_model(AnswererConfig(kind="oracle"))


class _Endpoint(BaseHTTPRequestHandler):
    """Fails as often as told, then answers with the seed of the request."""

    failures = 0
    seen: list = []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).seen.append(body)
        is_down = type(self).failures > 0
        type(self).failures -= 1
        message = {"role": "assistant", "content": f"<think>hm</think>answer {body.get('seed')}"}
        reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        content = json.dumps({"error": "down"} if is_down else reply).encode()
        self.send_response(503 if is_down else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def endpoint():
    _Endpoint.failures, _Endpoint.seen = 0, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {"base_url": f"http://127.0.0.1:{server.server_port}/v1", "model": "m", "api_key_env": "", "max_retries": 0}
    server.shutdown()
    server.server_close()


def test_the_answers_to_a_packet_are_sampled_apart_see_evidence_alone_and_are_asked_for_once(endpoint, tmp_path):
    config = AnswererConfig(**endpoint, cache_dir=str(tmp_path / "cache"))

    async def ask(answerer):
        return await asyncio.gather(*(answerer.answer("q?", ["e1", "e2\n- e3"], num_answers=3) for _ in range(2)))

    first, second = asyncio.run(ask(EndpointAnswerer(config)))
    assert first == second == ["answer 0", "answer 1", "answer 2"] and len(_Endpoint.seen) == 3
    assert _Endpoint.seen[0]["messages"][1]["content"] == "Evidence:\n- e1\n- e2 - e3\n\nQuestion: q?"
    assert asyncio.run(ask(EndpointAnswerer(config)))[0] == first and len(_Endpoint.seen) == 3, "out of the cache on disk"


def test_an_endpoint_that_is_down_for_a_while_is_waited_for_and_one_that_stays_down_is_given_up(endpoint, monkeypatch):
    monkeypatch.setattr("napmem_rl.systems.memchain.answer_models.FIRST_WAIT_S", 0.01)
    _Endpoint.failures = 3
    assert asyncio.run(EndpointAnswerer(AnswererConfig(**endpoint)).answer("q", ["e"], num_answers=1)) == ["answer 0"]
    _Endpoint.failures = 10**6
    with pytest.raises(LLMError):
        asyncio.run(EndpointAnswerer(AnswererConfig(**endpoint, patience_s=0.05)).answer("q", ["e"], num_answers=1))


def test_the_reader_of_synthetic_users_takes_the_newest_statement():
    answers = asyncio.run(
        WorldAnswerer().answer(
            "Which phone does User have now?", ["2024-01-01 User : I bought a phone Sony .", "2024-02-01 User: I bought a phone Nokia."], num_answers=2
        )
    )
    assert answers == ["Nokia", "Nokia"]
