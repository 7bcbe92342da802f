"""What a packet is, and what the parser says of everything else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from packet_maker import GOOD_PACKETS, IDS, change, dump, make_row

from napmem_rl.systems.memchain.packet import FULL, PacketForm, Part, Reason, build_packet_schema, render_packet
from napmem_rl.systems.memchain.parse import parse_packet

GOOD = dump(make_row())
ADD = {"action": "ADD", "ids": [], "rationale": "r", "statement": "s"}


def reasons(text: str, ids=IDS, form=FULL) -> list[str]:
    return [violation.reason for violation in parse_packet(text, ids, form).violations]


def test_a_packet_is_read_as_it_was_written() -> None:
    parsed = parse_packet(GOOD, IDS)
    assert parsed.violations == () and parsed.is_strict and not parsed.is_failure
    packet = parsed.packet
    assert (packet.plan.intent, packet.plan.evidence_target) == ("temporal", 2)
    assert [(step.role, step.ids, step.relation) for step in packet.trace] == [("context", ("msg:1",), "supports"), ("answer", ("msg:2",), "none")]
    assert [action.action for action in packet.actions] == ["KEEP", "DROP", "ADD"] and packet.actions[2].statement == "The move came 12 days after the offer."
    assert packet.evidence[1].statement == "The move to Oslo was on 15 March."
    assert json.loads(render_packet(packet)) == make_row()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", Reason.EMPTY),
        ("<think>Let me see.</think>  ", Reason.EMPTY),
        ("I keep msg:1.", Reason.NOT_JSON),
        (f"[{GOOD}]", Reason.EXTRA_TEXT),
        (GOOD[:-1], Reason.NOT_JSON),
        (f"{GOOD} {GOOD}", Reason.NOT_JSON),
        (f"Here it is: {GOOD}", Reason.EXTRA_TEXT),
        (f"```json\n{GOOD}\n```", Reason.EXTRA_TEXT),
        (f"{GOOD}\nDone.", Reason.EXTRA_TEXT),
        (f"<think>{GOOD}", Reason.BAD_THINKING),
        (f"<think>a</think><think>b</think>{GOOD}", Reason.BAD_THINKING),
        (f"First <think>a</think>{GOOD}", Reason.BAD_THINKING),
        (GOOD.replace('"trace":', '"evidence": [], "trace":'), Reason.DUPLICATE_KEY),
        (GOOD.replace('"msg:1"', '"\\ud800"', 1), Reason.NOT_UNICODE),
        (GOOD.replace('"evidence_target": 2', '"evidence_target": NaN'), Reason.NOT_JSON),
        (dump(make_row(evidence=None)), Reason.NULL_LIST),
        (dump(make_row(actions=None)), Reason.NULL_LIST),
        (dump(make_row(trace={})), Reason.WRONG_TYPE),
        (dump(make_row(trace=[])), Reason.EMPTY_TRACE),
        (dump(make_row(notes="x")), Reason.UNKNOWN_FIELD),
        (dump({name: value for name, value in make_row().items() if name != "plan"}), Reason.MISSING_FIELD),
        (dump(make_row(evidence=[{"statement": f"s{number}", "ids": ["msg:1"]} for number in range(25)])), Reason.TOO_MANY_ITEMS),
        (dump(make_row(evidence=make_row()["evidence"][:1] * 2)), Reason.REPEATED_ITEM),
        (dump(make_row(actions=[ADD])), Reason.ADD_WITHOUT_SUPPORT),
        (dump(make_row(plan=make_row()["plan"] | {"time_scope": "soon"})), Reason.UNKNOWN_CHOICE),
        (dump(make_row(plan=make_row()["plan"] | {"evidence_target": True})), Reason.WRONG_TYPE),
        (change("trace", 0, role="hint"), Reason.UNKNOWN_ROLE),
        (change("trace", 0, relation="causes"), Reason.UNKNOWN_RELATION),
        (change("trace", 0, ids=[]), Reason.STEP_WITHOUT_IDS),
        (change("trace", 0, statement=" "), Reason.EMPTY_TEXT),
        (change("trace", 0, ids=["msg:1", "msg:77"]), Reason.FOREIGN_ID),
        (change("actions", 0, action="keep"), Reason.UNKNOWN_ACTION),
        (change("actions", 0, ids=["msg:1", "msg:1"]), Reason.REPEATED_ITEM),
        (change("actions", 0, ids=[12]), Reason.WRONG_TYPE),
        (change("actions", 0, ids=None), Reason.NULL_LIST),
        (change("actions", 0, ids=[]), Reason.ACTION_WITHOUT_IDS),
        (change("actions", 0, rationale=...), Reason.MISSING_FIELD),
        (change("actions", 2, statement=None), Reason.ACTION_WITHOUT_STATEMENT),
        (change("actions", 2, action="MERGE", ids=["msg:1"]), Reason.MERGE_OF_ONE),
        (change("evidence", 0, ids=[]), Reason.EVIDENCE_WITHOUT_PROVENANCE),
        (change("evidence", 0, ids=["rec:1"]), Reason.FOREIGN_ID),
        (change("evidence", 0, statement="x" * 1001), Reason.TOO_LONG),
    ],
)
def test_each_fault_has_its_reason_and_no_other(text: str, reason: Reason) -> None:
    assert reasons(text) == [reason]


def test_keeping_and_dropping_one_id_is_told_of_both_actions() -> None:
    parsed = parse_packet(change("actions", 1, ids=["msg:1", "msg:3"]), IDS)
    assert [(found.reason, found.part, found.index) for found in parsed.violations] == [
        (Reason.KEEP_AND_DROP, Part.ACTIONS, 0),
        (Reason.KEEP_AND_DROP, Part.ACTIONS, 1),
    ]
    assert parsed.violations[0].describe() == "actions[0]: keep_and_drop (msg:1)"


def test_an_empty_object_holds_nothing_and_is_a_parse_failure() -> None:
    parsed = parse_packet("{}", IDS)
    assert parsed.packet is not None and not (parsed.packet.plan or parsed.packet.trace or parsed.packet.actions or parsed.packet.evidence)
    assert parsed.is_failure and parsed.count_reasons() == {"empty_trace": 1, "missing_field": 1}


def test_a_packet_inside_the_thinking_is_none() -> None:
    draft = dump(make_row(evidence=[]))
    parsed = parse_packet(f"<think>Perhaps {draft}</think>\n{GOOD}", IDS)
    assert parsed.thinking == f"Perhaps {draft}" and len(parsed.packet.evidence) == 2 and parsed.violations == ()
    assert parse_packet(f"{draft} or so</think>{GOOD}", IDS).violations == ()  # opened by the chat template
    assert parse_packet(f"<think>{GOOD}</think>I am done.", IDS).packet is None


def test_tags_quoted_from_a_memory_are_text() -> None:
    parsed = parse_packet(change("evidence", 0, statement="She wrote <think> and </think><tool_call>."), IDS)
    assert parsed.violations == () and parsed.packet.evidence[0].statement == "She wrote <think> and </think><tool_call>."


def test_unicode_ids_are_one_id_in_either_form_and_around_blanks() -> None:
    composed, split = "msg:caf\u00e9", "msg:cafe\u0301"
    text = change("evidence", 0, ids=[f" {split} "])
    assert parse_packet(text, (*IDS, composed)).packet.evidence[0].ids == (composed,)
    assert reasons(text, (*IDS, composed)) == []
    assert reasons(change("evidence", 0, ids=["msg:\u0661"])) == [Reason.FOREIGN_ID]  # an Arabic 1 is not a 1


def test_a_form_without_parts_asks_for_none_of_them() -> None:
    bare = PacketForm(has_plan=False, has_trace=False, has_actions=False)
    assert reasons(dump({"evidence": make_row()["evidence"]}), form=bare) == []
    assert reasons(GOOD, form=bare) == [Reason.UNKNOWN_FIELD]


def test_a_packet_of_100_kb_is_read_or_refused_at_once() -> None:
    wide = dump(make_row(actions=[make_row()["actions"][0]] * 1500))
    texts = [wide, "{" * 100_000, '{"a":' * 20_000, "{}" * 50_000, '{"plan": "' + "x" * 100_000 + '"}', "[" * 100_000]
    found = [reasons(text) for text in texts]
    assert len(wide) > 100_000 and found[0] == [Reason.TOO_MANY_ITEMS] and Reason.NOT_JSON in found[1] and all(found)


@given(st.text() | st.text(alphabet='{}[]":,ae12 \\u<think/>\n'))
def test_no_text_makes_the_parser_raise(text: str) -> None:
    parsed = parse_packet(text, IDS)
    assert parsed.packet is not None or len(parsed.violations) == 1


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["ids", "action", "role", "statement", "x"]), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(["plan", "trace", "actions", "evidence"]), _JSON | st.lists(_JSON, max_size=3)))
def test_no_object_makes_the_parser_raise_and_a_packet_without_fault_fits_the_schema(row: dict) -> None:
    parsed = parse_packet(json.dumps(row), IDS)
    fits = Draft202012Validator(build_packet_schema()).is_valid(row)
    assert fits or parsed.violations


@given(st.integers(0, len(GOOD)), st.sampled_from(["", '"', "{", "}", "null", ",", "\\", "KEEP"]), st.integers(0, 4))
def test_no_broken_packet_makes_the_parser_raise(position: int, inserted: str, num_cut: int) -> None:
    parse_packet(GOOD[:position] + inserted + GOOD[position + num_cut :], IDS)


_VALUES = st.sampled_from(
    [None, True, 0, 2, 2.5, "", "x", "x" * 1001, [], ["msg:1"], ["msg:1", "msg:1"], ["msg:1"] * 30, {}, "KEEP", "MERGE", "none", ["fact"]]
)
_PLACES = st.sampled_from(
    [("plan",), ("trace",), ("evidence",), ("more",)]
    + [("plan", name) for name in ("intent", "memory_types", "time_scope", "requirement", "evidence_target", "more")]
    + [("trace", 1, name) for name in ("role", "ids", "statement", "relation", "more")]
    + [("actions", 2, name) for name in ("action", "ids", "rationale", "statement", "more")]
    + [("evidence", 0, name) for name in ("statement", "ids", "more")]
)


@settings(max_examples=80)
@given(_PLACES, _VALUES, st.booleans())
def test_whatever_replaces_a_field_the_parser_passes_nothing_that_the_schema_refuses(place: tuple, value: object, is_left_out: bool) -> None:
    row = make_row()
    holder = row
    for part in place[:-1]:
        holder = holder[part]
    holder[place[-1]] = value
    if is_left_out:
        del holder[place[-1]]
    if not Draft202012Validator(build_packet_schema()).is_valid(row):
        assert parse_packet(dump(row), IDS).violations, row


@settings(max_examples=30)
@given(GOOD_PACKETS)
def test_packets_come_back_as_they_were_rendered_and_fit_the_schema(packet) -> None:
    text = render_packet(packet)
    parsed = parse_packet(text, IDS)
    assert parsed.packet == packet and parsed.violations == ()
    assert not list(Draft202012Validator(build_packet_schema(candidate_ids=IDS)).iter_errors(json.loads(text)))


def test_the_schema_refuses_what_a_schema_can_see() -> None:
    validator = Draft202012Validator(build_packet_schema(candidate_ids=IDS))
    assert validator.is_valid(make_row())
    for text in (
        change("trace", 0, ids=["msg:77"]), change("actions", 2, action="MERGE", ids=["msg:1"]), change("actions", 2, statement=None),
        change("evidence", 0, ids=[]), change("actions", 0, action="keep"), dump(make_row(trace=[])), dump(make_row(actions=None)),
    ):  # fmt: skip
        assert not validator.is_valid(json.loads(text))
