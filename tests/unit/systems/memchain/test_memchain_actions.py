"""Algorithm 1 from packet to evidence, and that nothing is ever filled in."""

from __future__ import annotations

from hypothesis import given, settings
from packet_maker import ANY_PACKETS, IDS, TEXTS, change, dump, make_row

from napmem_rl.systems.memchain.actions import EMPTY, Origin, apply_actions
from napmem_rl.systems.memchain.packet import Action, Evidence, Packet, Part, Reason
from napmem_rl.systems.memchain.parse import parse_packet


def compose(text: str):
    return apply_actions(parse_packet(text, IDS).packet, TEXTS)


def test_the_evidence_of_a_good_packet_is_its_own() -> None:
    composition = compose(dump(make_row()))
    assert (composition.origin, composition.removed) == (Origin.PACKET, ())
    assert [item.statement for item in composition.evidence] == ["The bakery offered the job on 3 March.", "The move to Oslo was on 15 March."]


def test_nothing_comes_out_of_nothing() -> None:
    nothing = Packet(plan=None)
    assert apply_actions(None, TEXTS) == apply_actions(nothing, TEXTS) == compose("{}") == EMPTY


def test_an_entry_that_cites_a_foreign_id_is_removed_as_a_whole() -> None:
    composition = compose(change("evidence", 0, ids=["msg:1", "msg:77"]))
    assert [item.ids for item in composition.evidence] == [("msg:2",)] and composition.origin is Origin.PACKET
    assert [(found.reason, found.part, found.index) for found in composition.removed] == [(Reason.FOREIGN_ID, Part.EVIDENCE, 0)]


def test_without_evidence_of_its_own_a_packet_gives_what_its_actions_produce() -> None:
    composition = compose(dump(make_row(evidence=[])))
    assert composition.origin is Origin.ACTIONS
    assert composition.evidence == (
        Evidence(statement=TEXTS["msg:1"], ids=("msg:1",)),
        Evidence(statement="The move came 12 days after the offer.", ids=("msg:1", "msg:2")),
    )


def test_a_packet_that_drops_all_gives_no_evidence() -> None:
    row = make_row(evidence=[], actions=[{"action": "DROP", "ids": list(IDS), "rationale": "r"}])
    assert (compose(dump(row)).evidence, compose(dump(row)).origin) == ((), Origin.NONE)


def test_actions_are_checked_again_after_foreign_ones_are_gone() -> None:
    """A DROP that cites a foreign id goes first, so that the KEEP of the same id is in conflict with nothing any more."""
    drop = {"action": "DROP", "ids": ["msg:1", "msg:77"], "rationale": "r"}
    keep = {"action": "KEEP", "ids": ["msg:1"], "rationale": "r"}
    composition = compose(dump(make_row(evidence=[], actions=[drop, keep])))
    assert composition.evidence == (Evidence(statement=TEXTS["msg:1"], ids=("msg:1",)),)
    conflict = compose(dump(make_row(evidence=[], actions=[drop | {"ids": ["msg:1"]}, keep])))
    assert conflict.evidence == () and [found.reason for found in conflict.removed] == [Reason.KEEP_AND_DROP] * 2


def test_what_was_removed_is_told_by_its_place_in_the_packet() -> None:
    items = [{"statement": "a", "ids": ["msg:77"]}, {"statement": "b", "ids": ["msg:1"]}, {"statement": "c", "ids": []}]
    removed = compose(dump(make_row(evidence=items))).removed
    assert [(found.index, found.reason) for found in removed] == [(0, Reason.FOREIGN_ID), (2, Reason.EVIDENCE_WITHOUT_PROVENANCE)]


@settings(max_examples=60)
@given(ANY_PACKETS)
def test_evidence_is_the_packets_own_or_a_valid_actions_and_cites_candidates_alone(packet: Packet) -> None:
    composition = apply_actions(packet, TEXTS)
    valid = [item for item in packet.evidence if item.ids and set(item.ids) <= set(TEXTS)]
    assert (composition.origin is Origin.NONE) == (not composition.evidence)
    if valid:
        assert list(composition.evidence) == valid
        return
    stated = {(action.statement, action.ids) for action in packet.actions if action.action in (Action.MERGE, Action.REFINE, Action.ADD)}
    kept = {item_id for action in packet.actions if action.action is Action.KEEP for item_id in action.ids}
    dropped = {item_id for action in composition.actions if action.action is Action.DROP for item_id in action.ids}
    for item in composition.evidence:
        assert item.ids and set(item.ids) <= set(TEXTS)
        is_kept = len(item.ids) == 1 and item.ids[0] in kept - dropped and item.statement == TEXTS[item.ids[0]]
        assert is_kept or (item.statement, item.ids) in stated


@settings(max_examples=60)
@given(ANY_PACKETS)
def test_what_is_left_of_a_packet_breaks_no_rule_and_composing_again_changes_nothing(packet: Packet) -> None:
    first = apply_actions(packet, TEXTS)
    again = apply_actions(Packet(plan=None, trace=first.trace, actions=first.actions, evidence=first.evidence), TEXTS)
    assert again.removed == () and (again.evidence, again.trace, again.actions) == (first.evidence, first.trace, first.actions)
