"""A small MemChain packet about two memories, ways to change it, and packets drawn at random."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from napmem_rl.schema import RecordType
from napmem_rl.systems.memchain.packet import (
    Action,
    Evidence,
    Intent,
    MemoryAction,
    Packet,
    Plan,
    Relation,
    Role,
    TimeScope,
    TraceStep,
)

TEXTS = {
    "msg:1": "The bakery offered me the job on 3 March.",
    "msg:2": "We moved to Oslo on 15 March.",
    "msg:3": "I had soup for lunch.",
    "msg:4": "The soup was cold.",
}
IDS = tuple(TEXTS)


def make_row(**changes: Any) -> dict[str, Any]:
    """A packet without fault as plain JSON data; `changes` replace its parts."""
    row = {
        "plan": {"intent": "temporal", "memory_types": ["event"], "time_scope": "historical", "requirement": "both days", "evidence_target": 2},
        "trace": [
            {"role": "context", "ids": ["msg:1"], "statement": "The offer came on 3 March.", "relation": "supports"},
            {"role": "answer", "ids": ["msg:2"], "statement": "The move was on 15 March.", "relation": "none"},
        ],
        "actions": [
            {"action": "KEEP", "ids": ["msg:1"], "rationale": "holds the first day"},
            {"action": "DROP", "ids": ["msg:3", "msg:4"], "rationale": "about food"},
            {"action": "ADD", "ids": ["msg:1", "msg:2"], "rationale": "the days between", "statement": "The move came 12 days after the offer."},
        ],
        "evidence": [
            {"statement": "The bakery offered the job on 3 March.", "ids": ["msg:1"]},
            {"statement": "The move to Oslo was on 15 March.", "ids": ["msg:2"]},
        ],
    }
    return row | changes


def dump(row: Any) -> str:
    """The text of a packet, as a policy would write it."""
    return json.dumps(row, ensure_ascii=False)


def change(part: str, index: int, **changes: Any) -> str:
    """The packet of `make_row` with fields of one item replaced; a field set to `...` is left out."""
    row = make_row()
    item = row[part][index] | changes
    row[part][index] = {name: value for name, value in item.items() if value is not ...}
    return dump(row)


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).map(str.strip).filter(bool)
_CITED = st.lists(st.sampled_from(IDS), min_size=1, max_size=3, unique=True).map(tuple)
_ANY_CITED = st.lists(st.sampled_from((*IDS, "msg:9", "rec:é")), max_size=3, unique=True).map(tuple)
PLANS = st.builds(
    Plan,
    intent=st.sampled_from(Intent),
    memory_types=st.lists(st.sampled_from(RecordType), unique=True).map(tuple),
    time_scope=st.sampled_from(TimeScope),
    requirement=_TEXT,
    evidence_target=st.integers(0, 24),
)


def _draw_packets(ids: st.SearchStrategy, actions: st.SearchStrategy) -> st.SearchStrategy[Packet]:
    steps = st.builds(TraceStep, role=st.sampled_from(Role), ids=ids, statement=_TEXT, relation=st.sampled_from(Relation))
    evidence = st.builds(Evidence, statement=_TEXT, ids=ids)

    def some(items: st.SearchStrategy, least: int = 0) -> st.SearchStrategy:
        return st.lists(items, min_size=least, max_size=4, unique=True).map(tuple)

    return st.builds(Packet, plan=PLANS, trace=some(steps, 1), actions=some(actions), evidence=some(evidence))


_PAIR = st.lists(st.sampled_from(IDS), min_size=2, max_size=3, unique=True).map(tuple)
GOOD_PACKETS = _draw_packets(
    _CITED,
    st.one_of(
        st.builds(MemoryAction, action=st.just(Action.KEEP), ids=_CITED, rationale=_TEXT),
        st.builds(MemoryAction, action=st.sampled_from((Action.REFINE, Action.ADD)), ids=_CITED, rationale=_TEXT, statement=_TEXT),
        st.builds(MemoryAction, action=st.just(Action.MERGE), ids=_PAIR, rationale=_TEXT, statement=_TEXT),
    ),
)
ANY_PACKETS = _draw_packets(_ANY_CITED, st.builds(MemoryAction, action=st.sampled_from(Action), ids=_ANY_CITED, rationale=_TEXT, statement=st.none() | _TEXT))
