"""The careless teacher drops what it has traced for its share of the questions, and writes what the gold teacher writes for the others."""

import asyncio
import dataclasses

import pytest

from napmem_rl.data.careless_teacher import CarelessTeacher
from napmem_rl.data.packet_teacher import GoldTeacher
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.systems.memchain.actions import apply_actions
from napmem_rl.systems.memchain.candidates import Candidate, index_memories
from napmem_rl.systems.memchain.packet import render_packet
from napmem_rl.systems.memchain.parse import parse_packet

CANDIDATES = (
    Candidate(id="msg:5", text="Rosa works as a baker.", time="2024-02-01T10:00:00", speaker="User", source_ids=("msg:5",)),
    Candidate(id="msg:2", text="My sister is Rosa.", time="2024-01-01T10:00:00", speaker="User", source_ids=("msg:2",)),
)


def pair(number):
    task = Task(task_id=f"t{number}", bank_id="b", question="Which job does User's sister have?", category="two_hop", needs_memory=True)
    return task, AnswerKey(task_id=task.task_id, references=("baker",), evidence_ids=("msg:2", "msg:5"))


def cited(teacher, number):
    packet = asyncio.run(teacher.write(*pair(number), CANDIDATES))
    return [item.ids for item in packet.evidence]


@pytest.mark.parametrize(("rate", "ids"), [(0.0, [("msg:2",), ("msg:5",)]), (1.0, [])])
def test_the_rate_is_the_share_of_packets_that_drop_their_evidence(rate, ids):
    assert [cited(CarelessTeacher(rate=rate), number) for number in range(5)] == [ids] * 5


def test_a_careless_packet_is_well_formed_and_traces_the_evidence_all_the_same():
    packet = asyncio.run(CarelessTeacher(rate=1.0).write(*pair(0), CANDIDATES))
    parsed = parse_packet(render_packet(packet), ["msg:5", "msg:2"])
    assert parsed.violations == () and [step.ids for step in parsed.packet.trace] == [("msg:2",), ("msg:5",)]
    assert apply_actions(parsed.packet, index_memories(CANDIDATES)).evidence == ()


def test_a_questions_draw_depends_on_its_id_and_the_seed_alone():
    first, second = CarelessTeacher(rate=0.6), CarelessTeacher(rate=0.6, seed=1)
    drawn = [cited(first, number) for number in range(40)]
    assert drawn == [cited(first, number) for number in range(40)] != [cited(second, number) for number in range(40)]
    assert 0.4 < sum(ids == [] for ids in drawn) / 40 < 0.8


def test_where_the_gold_teacher_has_no_packet_there_is_none():
    task, key = pair(0)
    key = dataclasses.replace(key, evidence_ids=("msg:70",))
    for teacher in (GoldTeacher(), CarelessTeacher(rate=1.0)):
        assert asyncio.run(teacher.write(task, key, CANDIDATES)) is None
