"""Packets without one of their parts (Table 5): the switch changes schema, prompt, parser, teacher and reward together, and the figures are worked by hand."""

from __future__ import annotations

import jsonschema
import pytest
from packet_maker import IDS, TEXTS, dump, make_row

from napmem_rl.config.sections import PACKET_ABLATIONS
from napmem_rl.rewards.judge import LexicalJudge
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.systems.memchain.actions import Origin, apply_actions
from napmem_rl.systems.memchain.candidates import Candidate
from napmem_rl.systems.memchain.config import InvalidActions, RewardSettings
from napmem_rl.systems.memchain.packet import FORMS, Part, Reason, build_packet_schema, render_packet
from napmem_rl.systems.memchain.parse import parse_packet
from napmem_rl.systems.memchain.prompts import build_messages
from napmem_rl.systems.memchain.reward import score_packet

TASK = Task(task_id="t1", bank_id="b", question="How many days after the offer did the move come?", category="c", needs_memory=True)
KEY = AnswerKey(task_id="t1", references=("12 days",), evidence_ids=("msg:1", "msg:2"))
CANDIDATES = tuple(Candidate(id=item_id, text=text) for item_id, text in TEXTS.items())
LEFT_OUT = {"no_plan": Part.PLAN, "no_trace": Part.TRACE, "no_actions": Part.ACTIONS}


class HalfRight:
    """F that is right in two of four answers: c = 1/2, s = 1/6."""

    name = "half-right"

    async def answer(self, question, evidence, *, num_answers):
        return ["12 days", "two weeks", "12 days", "a month"]


def row_of(ablation: str) -> dict:
    return {name: part for name, part in make_row().items() if name != LEFT_OUT.get(ablation)}


async def score(ablation: str, row: dict, **settings):
    form = FORMS[ablation]
    parsed = parse_packet(dump(row), IDS, form)
    return await score_packet(
        TASK, KEY, parsed, apply_actions(parsed.packet, TEXTS), reference_ids=KEY.evidence_ids, sources=TEXTS,
        answerer=HalfRight(), judge=LexicalJudge(), settings=RewardSettings(**settings), form=form,
    )  # fmt: skip


def test_a_recipe_names_the_forms_that_there_are() -> None:
    assert tuple(FORMS) == PACKET_ABLATIONS


@pytest.mark.parametrize("ablation", PACKET_ABLATIONS)
def test_schema_prompt_and_parser_ask_for_the_same_parts(ablation: str) -> None:
    form, row = FORMS[ablation], row_of(ablation)
    jsonschema.validate(row, build_packet_schema(form, IDS))
    parsed = parse_packet(dump(row), IDS, form)
    assert parsed.violations == () and parse_packet(render_packet(parsed.packet, form), IDS, form).packet == parsed.packet
    system = build_messages(TASK, CANDIDATES, form)[0]["content"]
    assert [part for part in (Part.PLAN, Part.TRACE, Part.ACTIONS, Part.EVIDENCE) if f'- "{part}":' in system] == list(form.parts)
    if ablation != "none":
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(make_row(), build_packet_schema(form, IDS))
        assert [found.reason for found in parse_packet(dump(make_row()), IDS, form).violations] == [Reason.UNKNOWN_FIELD]


@pytest.mark.parametrize("ablation", PACKET_ABLATIONS)
async def test_a_packet_without_fault_earns_what_it_earns_with_all_parts(ablation: str) -> None:
    """c = 1/2, s = 1/6, t = 1; e = 5/5 and 5/5 content words of "The bakery offered the job on 3 March." and "The move to Oslo was on 15 March."."""
    result = await score(ablation, row_of(ablation))
    assert result.terms["gate"] == 1.0 and result.terms["citations"] == 1.0
    assert ("trace_valid" in result.terms) == (ablation != "no_trace")
    assert result.reward == pytest.approx(0.65 / 2 + 0.15 / 6 + 0.15 + 0.05 * result.terms["support"])


@pytest.mark.parametrize(("ablation", "gate"), [("no_plan", 0.75), ("no_trace", 0.55 / 0.80), ("no_actions", 0.75)])
async def test_a_part_that_nobody_asked_for_costs_v_alone(ablation: str, gate: float) -> None:
    assert (await score(ablation, make_row())).terms["gate"] == pytest.approx(gate)


async def test_without_a_trace_citations_and_support_rest_on_the_evidence_alone() -> None:
    """The trace would cite msg:1 and msg:2; the evidence cites msg:2 and msg:3. With it t = F1 of {1, 2, 3} and {1, 2} = 4/5, without it of {2, 3}: 1/2."""
    evidence = [{"statement": "The move to Oslo was on 15 March.", "ids": ["msg:2"]}, {"statement": "I had soup for lunch.", "ids": ["msg:3"]}]
    full, bare = await score("none", make_row(evidence=evidence)), await score("no_trace", row_of("no_trace") | {"evidence": evidence})
    assert (full.terms["citations"], bare.terms["citations"]) == (pytest.approx(0.8), pytest.approx(0.5))
    moved = bare.terms["support"] - 0.5  # the soup is in msg:3, word for word: half of the mean
    assert full.terms["support"] == pytest.approx(moved) and moved > 0.3  # the trace does not cite msg:3, so it counts for nothing there


async def test_without_a_plan_the_reward_reads_none() -> None:
    broken = make_row(plan={"intent": "unheard of"})
    assert (await score("none", broken)).terms["gate"] == pytest.approx(0.75)
    assert (await score("no_plan", row_of("no_plan"))).terms["gate"] == 1.0


async def test_without_actions_empty_evidence_has_nothing_to_fall_back_on() -> None:
    """Algorithm 1, line 9 takes the outputs of actions; a form without them goes to line 10."""
    full = parse_packet(dump(make_row(evidence=[])), IDS)
    bare = parse_packet(dump(row_of("no_actions") | {"evidence": []}), IDS, FORMS["no_actions"])
    assert apply_actions(full.packet, TEXTS).origin is Origin.ACTIONS and apply_actions(bare.packet, TEXTS).origin is Origin.NONE
    result = await score("no_actions", row_of("no_actions") | {"evidence": []}, invalid_actions=InvalidActions.SOFT)
    assert result.reward == pytest.approx(0.15 * 1.0) and result.answers == ()  # t by the trace, and nothing else
