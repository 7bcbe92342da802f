"""The schema for guided decoding holds nothing that engines refuse, and the extractive packet is one that the parser has nothing against."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from packet_maker import GOOD_PACKETS, IDS, TEXTS, make_row

from napmem_rl.schema import Task
from napmem_rl.systems.memchain.candidates import Candidate, index_memories
from napmem_rl.systems.memchain.fixed_packets import extract_packet
from napmem_rl.systems.memchain.guide import build_guide
from napmem_rl.systems.memchain.packet import FORMS, FULL, Action, Packet, render_packet
from napmem_rl.systems.memchain.parse import parse_packet

TASK = Task(task_id="t1", bank_id="b", question="When did the move come?", category="c", needs_memory=True)


def walk(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, list):
        for part in schema:
            yield from walk(part)
    elif isinstance(schema, dict):
        yield schema
        for part in schema.values():
            yield from walk(part)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_guide_holds_what_engines_take_alone(form) -> None:
    guide = build_guide(form, IDS)
    assert list(guide["properties"]) == [str(part) for part in form.parts]  # engines keep this order
    for part in walk(guide):
        assert "uniqueItems" not in part
        if part.get("type") == "object":
            assert part["required"] == list(part["properties"]) and part["additionalProperties"] is False


@settings(max_examples=30)
@given(GOOD_PACKETS)
def test_every_packet_without_fault_fits_the_guide(packet: Packet) -> None:
    row = json.loads(render_packet(packet))
    for action in row["actions"]:
        if action["action"] in (Action.KEEP, Action.DROP):
            action.pop("statement", None)  # which nobody reads
    jsonschema.validate(row, build_guide(FULL, IDS))


def test_a_guide_lets_no_foreign_id_and_no_statement_of_keep_pass() -> None:
    guide = build_guide(FULL, IDS)
    for wrong in (
        make_row(evidence=[{"statement": "x", "ids": ["msg:9"]}]),
        make_row(actions=[{"action": "KEEP", "ids": ["msg:1"], "rationale": "r", "statement": "a new one"}]),
        make_row(actions=[{"action": "MERGE", "ids": ["msg:1"], "rationale": "r", "statement": "x"}]),
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, guide)


def test_without_candidates_there_is_nothing_to_guide_to() -> None:
    assert build_guide(FULL, ()) is None


def test_the_extractive_packet_keeps_the_first_candidates_in_the_order_of_time() -> None:
    days = {"msg:1": "2024-03-09T10:00:00", "msg:2": "2024-03-02T10:00:00", "msg:3": "2024-03-01T10:00:00"}
    candidates = [Candidate(id=item_id, text=TEXTS[item_id], time=time, speaker="Ana") for item_id, time in days.items()]
    packet = extract_packet(TASK, candidates, number=2)
    assert [item.ids for item in packet.evidence] == [("msg:2",), ("msg:1",)]
    assert packet.evidence[0].statement == "2024-03-02 Ana: We moved to Oslo on 15 March."
    assert [action.action for action in packet.actions] == [Action.KEEP]
    assert parse_packet(render_packet(packet), index_memories(candidates)).violations == ()
    assert extract_packet(TASK, []) is None
