"""The `napmem bank` commands."""

from __future__ import annotations

import pytest
from bank_maker import make_message, make_record

from napmem_rl.cli import main
from napmem_rl.memory.bank import save_bank
from napmem_rl.schema import Profile, Track


@pytest.fixture
def bank_dir(tmp_path):
    """Three messages, a record each, a track of the first two, a profile of the first."""
    texts = ("My sister is Mia.", "Mia lives in Oslo.", "I prefer tea.")
    messages = [make_message(number, text, speaker="User") for number, text in enumerate(texts, 1)]
    facts = ("User's sister is Mia.", "Mia lives in Oslo.", "User prefers tea.")
    records = [make_record(number, text) for number, text in enumerate(facts, 1)]
    narrative = "- sister [rec:1]\n- Oslo [rec:2]"
    track = Track(
        track_id="trk:1", file_name="mia.md", title="Mia", summary="The sister.", narrative=narrative, time=records[1].time, record_ids=("rec:1", "rec:2")
    )
    profile = Profile(text="- User's sister is Mia. [rec:1]", time=records[0].time, source_ids=("rec:1",))
    save_bank(tmp_path / "bank", bank_id="u1", messages=messages, records=records, tracks=[track], profile=profile, writer="hand")
    return tmp_path / "bank"


def test_verify_says_fine_or_lists_problems_and_fails(bank_dir, capsys):
    assert main(["bank", "verify", str(bank_dir)]) == 0
    assert "fine" in capsys.readouterr().out
    messages = bank_dir / "messages.jsonl"
    messages.write_text(messages.read_text().replace("Oslo", "Rome"))
    assert main(["bank", "verify", str(bank_dir)]) == 1
    assert "messages.jsonl line 2: was changed after version" in capsys.readouterr().out


def test_show_lists_what_a_bank_holds(bank_dir, capsys):
    assert main(["bank", "show", str(bank_dir)]) == 0
    out = capsys.readouterr().out
    assert "3 messages, 3 records, 1 tracks" in out and "trk:1  mia.md" in out


@pytest.mark.parametrize("item", ["trk:1", "mia.md"])
def test_show_follows_an_item_down_to_the_messages(bank_dir, capsys, item):
    assert main(["bank", "show", str(bank_dir), item]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == [
        "  rec:1 2024-03-01T10:00:00 fact: User's sister is Mia.",
        "    msg:1 2024-03-01T10:00:00 User: My sister is Mia.",
        "  rec:2 2024-03-02T10:00:00 fact: Mia lives in Oslo.",
        "    msg:2 2024-03-02T10:00:00 User: Mia lives in Oslo.",
    ]


def test_show_of_the_profile_ends_at_messages(bank_dir, capsys):
    assert main(["bank", "show", str(bank_dir), "profile"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "    msg:1 2024-03-01T10:00:00 User: My sister is Mia."


def test_bad_input_gives_one_message_and_a_status(bank_dir, capsys):
    assert main(["bank", "show", str(bank_dir), "rec:99"]) == 1
    assert capsys.readouterr().err == "napmem: bank u1: holds no item 'rec:99'. Ids look like msg:12, rec:7, trk:3 or profile.\n"
    assert main(["bank", "show", str(bank_dir / "nothing")]) == 1
    assert "there is no such directory" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["bank", "erase", str(bank_dir)])
    assert stopped.value.code == 2
