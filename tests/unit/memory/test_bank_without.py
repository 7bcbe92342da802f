"""A bank as it would look without an item: what goes, what stays, and that nothing on disk changes."""

from __future__ import annotations

import asyncio

import pytest
from bank_maker import save_sample

from napmem_rl.errors import BankError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_without import BankWithout, find_hidden, reduce_text
from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.schema import ToolCall
from napmem_rl.tools.memory_tools import MemoryToolbox, ToolLimits


@pytest.fixture
def bank(tmp_path):
    save_sample(tmp_path / "ana")
    return MemoryBank.open(tmp_path / "ana", encoder=HashingEncoder())


def leave_out(bank, *names, with_dependents=False):
    return BankWithout(bank, find_hidden(bank, names, with_dependents=with_dependents))


def test_a_dropped_message_takes_with_it_what_rests_on_it_alone(bank):
    hidden = find_hidden(bank, ["msg:1"], with_dependents=False)
    assert (hidden.dropped, hidden.dependents, hidden.edited) == (("msg:1",), ("rec:1",), ("life.md",))
    hidden = find_hidden(bank, ["msg:3"], with_dependents=False)
    assert hidden.dependents == ("rec:3", "trk:2") and hidden.edited == ()


def test_with_dependents_everything_goes_that_rests_on_it_at_all(bank):
    hidden = find_hidden(bank, ["msg:1"], with_dependents=True)
    assert hidden.dependents == ("rec:1", "rec:2", "trk:1", "profile") and hidden.edited == ()
    without = leave_out(bank, "msg:1", with_dependents=True)
    assert without.file_names == ("bike.md",) and without.profile.text == "" and without.file("profile.md") is None


def test_what_is_dropped_is_found_nowhere_and_the_rest_has_no_link_to_it(bank):
    without = leave_out(bank, "msg:1")
    assert without.message("msg:1") is None and without.record("rec:1") is None and without.position("msg:1") is None
    assert "msg:1" not in {message.message_id for message in without.messages} and len(without.messages) == 4
    assert without.record("rec:2").source_ids == ("msg:2",) and without.provenance("rec:2") == ("msg:2",)
    assert all(message.message_id != "msg:1" for message in without.search_messages("I moved to Oslo", k=5))
    found = without.search_records("Ana moved to Oslo nurse", k=5)
    assert [record.record_id for record in found][0] == "rec:2" and found[0].source_ids == ("msg:2",)
    assert "She moved" not in without.file("life.md") and "She works. [rec:2]" in without.file("life.md")
    assert "Ana's move" not in without.file("life.md"), "nobody can tell what a summary without a link rests on"
    assert without.provenance("trk:1") == ("msg:2",)


def test_a_search_gives_the_next_best_in_place_of_what_is_hidden(bank):
    everything = [message.message_id for message in bank.search_messages("I moved to Oslo as a nurse", k=3)]
    without = [message.message_id for message in leave_out(bank, everything[0]).search_messages("I moved to Oslo as a nurse", k=3)]
    assert len(without) == 3 and everything[0] not in without


def test_files_are_dropped_by_name_or_id(bank):
    assert leave_out(bank, "bike.md").file_names == leave_out(bank, "trk:2").file_names == ("life.md", "profile.md")
    without = leave_out(bank, "profile.md")
    assert without.item("profile") is None and "profile.md" not in without.file_names and without.record("rec:4") is not None


def test_tools_over_it_tell_a_policy_that_the_id_is_unknown(bank):
    without = leave_out(bank, "msg:3")
    toolbox = MemoryToolbox(without, asked_at=None, limits=ToolLimits(), count_tokens=lambda text: len(text.split()))
    result = asyncio.run(toolbox.call(ToolCall(name="get_conversation", arguments={"message_ids": ["msg:3", "msg:4"]})))
    assert result.item_ids == ("msg:4",) and "Unknown message id msg:3." in result.text
    assert "bike.md" not in toolbox.file_names


def test_an_unknown_item_is_an_error_that_names_near_ones(bank):
    for name, near in (("msg:11", "msg:1"), ("bikes.md", "bike.md")):
        with pytest.raises(BankError, match=rf"holds no item '{name}'.*Did you mean .*{near}"):
            find_hidden(bank, [name], with_dependents=False)


def test_the_bank_stays_as_it_is(bank):
    bank.build_index()
    files = {path: path.read_bytes() for path in bank.path.rglob("*") if path.is_file()}
    leave_out(bank, "msg:1", "bike.md").search_records("nurse", k=3)
    assert {path: path.read_bytes() for path in bank.path.rglob("*") if path.is_file()} == files
    assert bank.record("rec:1") is not None and bank.search_records("moved to Oslo", k=1)[0].record_id == "rec:1"


def test_only_the_statements_that_rest_on_hidden_items_leave_a_text():
    assert reduce_text("Ana moved. [rec:7] She likes tea. [rec:8]", {"rec:7"}) == "She likes tea. [rec:8]"
    assert reduce_text("# Work\n- She works. [rec:8][rec:7]\n- She moved. [rec:7]", {"rec:7"}) == "# Work\n- She works. [rec:8]"
