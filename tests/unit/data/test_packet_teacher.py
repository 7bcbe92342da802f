"""Teachers write packets that the one parser takes; rows hold what training needs, and the tokens of a packet read back as the packet."""

import asyncio
import json

import pyarrow.parquet as pq
import pytest

from napmem_rl.backend.tiny_packets import find_fixed_texts, save_tiny_policy
from napmem_rl.config.sections import AgentConfig
from napmem_rl.data.packet_demonstrations import build_packet_demonstrations, teach
from napmem_rl.data.packet_rows import PacketRow, save_packet_rows
from napmem_rl.data.packet_teacher import GoldTeacher, ModelTeacher, find_fault
from napmem_rl.data.rows import load_rows
from napmem_rl.errors import DataError
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.systems.memchain.candidate_file import parse_candidates
from napmem_rl.systems.memchain.candidates import Candidate
from napmem_rl.systems.memchain.config import RewardSettings
from napmem_rl.systems.memchain.packet import FULL, Intent, PacketForm, Relation, Role, render_packet
from napmem_rl.systems.memchain.parse import parse_packet

CANDIDATES = (
    Candidate(id="msg:5", text="Rosa works as a baker.", time="2024-02-01T10:00:00", speaker="User", source_ids=("msg:5",)),
    Candidate(id="msg:2", text="My sister is Rosa.", time="2024-01-01T10:00:00", speaker="User", source_ids=("msg:2",)),
    Candidate(id="msg:9", text="Kurt works as a pilot.", time="2024-03-01T10:00:00", speaker="User", source_ids=("msg:9",)),
)
TASK = Task(task_id="t", bank_id="b", question="Which job does User's sister have?", category="two_hop", needs_memory=True)
KEY = AnswerKey(task_id="t", references=("baker",), evidence_ids=("msg:2", "msg:5"))


def write(teacher, key=KEY, candidates=CANDIDATES, form=FULL):
    return asyncio.run(teacher.write(TASK, key, candidates, form))


class ScriptedChat:
    """Gives its replies in turn."""

    name = "scripted"

    def __init__(self, *replies):
        self.replies, self.seen = list(replies), []

    async def chat(self, messages, *, schema=None, max_tokens=None):
        self.seen.append([dict(message) for message in messages])
        return self.replies.pop(0)


def test_the_gold_teacher_writes_the_evidence_in_the_order_of_time_and_nothing_else():
    packet = write(GoldTeacher())
    assert [(step.ids, step.role, step.relation) for step in packet.trace] == [
        (("msg:2",), Role.BRIDGE, Relation.SUPPORTS),
        (("msg:5",), Role.ANSWER, Relation.NONE),
    ]
    assert [item.statement for item in packet.evidence] == ["2024-01-01 User: My sister is Rosa.", "2024-02-01 User: Rosa works as a baker."]
    assert packet.plan.intent is Intent.MULTI_HOP and packet.plan.evidence_target == 2


def test_where_retrieval_missed_a_part_of_the_evidence_there_is_no_packet():
    assert write(GoldTeacher(), candidates=CANDIDATES[:1]) is None
    assert write(GoldTeacher(), key=AnswerKey(task_id="t", references=("x",), evidence_ids=("msg:77",))) is None


@pytest.mark.parametrize("form", [FULL, PacketForm(has_plan=False), PacketForm(has_trace=False), PacketForm(has_actions=False)])
def test_a_taught_packet_has_no_fault_in_any_form(form):
    assert find_fault(render_packet(write(GoldTeacher(), form=form), form), KEY, CANDIDATES, form) is None


def test_a_model_that_teaches_is_told_its_fault_and_asked_again():
    good = render_packet(write(GoldTeacher()))
    chat = ScriptedChat('{"evidence": []}', good)
    packet = write(ModelTeacher(client=chat))
    assert packet == parse_packet(good, ["msg:2", "msg:5", "msg:9"]).packet
    assert "missing_field" in chat.seen[1][-1]["content"]
    assert '"baker"' in chat.seen[0][-1]["content"] and "msg:2, msg:5" in chat.seen[0][-1]["content"]


def test_a_model_whose_packets_stay_wrong_gives_none_and_is_counted():
    foreign = render_packet(write(GoldTeacher())).replace("msg:5", "msg:77")
    teacher = ModelTeacher(client=ScriptedChat("no", foreign), max_tries=2)
    assert write(teacher) is None
    assert teacher.refused == {"foreign_id": 1}


def test_what_was_left_out_is_counted_by_why():
    pairs = [(TASK, KEY)] * 3 + [(TASK, AnswerKey(task_id="t", references=("x",), evidence_ids=("msg:70",)))]
    good = render_packet(write(GoldTeacher()))
    misses = render_packet(write(GoldTeacher(), key=AnswerKey(task_id="t", references=("x",), evidence_ids=("msg:9",))))
    taught = teach(pairs, lambda task: CANDIDATES, ModelTeacher(client=ScriptedChat("no", good, misses), max_tries=1), FULL)
    assert len(taught.rows) == 1 and taught.left_out["the evidence is not among the candidates"] == 1
    refused = {why: number for why, number in taught.left_out.items() if "refused" in why}
    assert sorted(refused.values()) == [1, 1] and any("misses_the_evidence" in why for why in refused)


def test_rows_hold_the_boundary_the_reference_and_how_the_reward_is_computed(tmp_path):
    row = PacketRow(task=TASK, key=KEY, candidates=CANDIDATES, packet=write(GoldTeacher()))
    save_packet_rows(tmp_path / "train.parquet", [row], data_source="test", settings=RewardSettings())
    assert load_rows(tmp_path / "train.parquet") == [(TASK, KEY)]
    (stored,) = pq.read_table(tmp_path / "train.parquet").to_pylist()
    assert stored["agent_name"] == "memchain" and parse_candidates(stored["candidates"], what="c") == CANDIDATES
    reference = json.loads(stored["reference"])
    assert reference["ids"] == ["msg:5", "msg:2"] and len(reference["evidence"]) == 2
    assert reference["reward"]["num_answers"] == 4 and reference["reward"]["signals"]["correctness"] == 0.65


def test_a_column_of_candidates_that_was_changed_is_refused():
    for text in ("null", '[{"id": "msg:1"}]', '[{"id": "a", "text": "x"}, {"id": "a", "text": "y"}]', "nonsense"):
        with pytest.raises(DataError, match="candidates of row t"):
            parse_candidates(text, what="candidates of row t")


def test_questions_that_need_no_memory_or_have_no_packet_are_left_out_and_counted():
    control = Task(task_id="c", bank_id="b", question="Which number is 1 plus 1?", category="control", needs_memory=False)
    lost = Task(task_id="l", bank_id="b", question="Which pet does Kurt have?", category="fact", needs_memory=True)
    pairs = [
        (TASK, KEY),
        (control, AnswerKey(task_id="c", references=("2",))),
        (lost, AnswerKey(task_id="l", references=("Coco",), evidence_ids=("msg:70",))),
    ]
    taught = teach(pairs, lambda task: CANDIDATES, GoldTeacher(), FULL)
    assert [row.task.task_id for row in taught.rows] == ["t"] and sorted(taught.left_out.values()) == [1, 1]


def test_the_tiny_policys_tokens_of_a_packet_read_back_as_that_packet(tmp_path):
    from transformers import AutoTokenizer

    rows = teach([(TASK, KEY)], lambda task: CANDIDATES, GoldTeacher(), FULL).rows
    save_tiny_policy(tmp_path / "tiny", rows, max_length=256, seed=0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tiny")
    (made,) = build_packet_demonstrations(rows, tokenizer, form=FULL, agent=AgentConfig(max_context_tokens=256, max_turn_tokens=128))
    learnt = [token for token, is_learnt in zip(made.token_ids, made.loss_mask, strict=True) if is_learnt]
    assert tokenizer.decode(learnt[-1:]) == "<|end|>" and made.loss_mask[0] == 0
    parsed = parse_packet(tokenizer.decode(learnt[:-1]), ["msg:2", "msg:5", "msg:9"])
    assert parsed.violations == () and [item.ids for item in parsed.packet.evidence] == [("msg:2",), ("msg:5",)]
    assert parsed.packet.evidence[0].statement.split() == "2024-01-01 User : My sister is Rosa .".split()
    assert any(text.startswith('{"plan": {"intent": "multi_hop"') for text in find_fixed_texts([rows[0].packet], FULL))


def test_packets_beyond_the_limits_are_an_error_where_none_is_left(tmp_path):
    from transformers import AutoTokenizer

    rows = teach([(TASK, KEY)], lambda task: CANDIDATES, GoldTeacher(), FULL).rows
    save_tiny_policy(tmp_path / "tiny", rows, max_length=256, seed=0)
    with pytest.raises(DataError, match="0 within the limits"):
        build_packet_demonstrations(rows, AutoTokenizer.from_pretrained(tmp_path / "tiny"), form=FULL, agent=AgentConfig(max_turn_tokens=8))
