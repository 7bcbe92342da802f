"""The page of a bank as a file: what is in it, what had no room, and that no text of it can become markup."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from bank_maker import make_levels, make_message, make_record, save_sample
from hypothesis import given
from hypothesis import strategies as st

from napmem_rl import cli
from napmem_rl.errors import BankError, DataError
from napmem_rl.memory.bank import save_bank
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.changes import Changes
from napmem_rl.report.bank_data import select_items
from napmem_rl.report.bank_page import render_bank_page, write_bank_page
from napmem_rl.schema import RecordOperation, RecordRevision


def read_data(path: Path) -> dict:
    """The JSON of a written page."""
    found = re.search(r'<script type="application/json" id="bank-data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(found[1])


def test_the_page_holds_all_levels_and_fetches_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    version = save_sample(tmp_path / "ana")
    assert cli.main(["show", str(tmp_path / "ana"), "--out", str(tmp_path / "page.html")]) == 0
    assert "4 of 4 records, 5 of 5 messages" in capsys.readouterr().out
    text, data = (tmp_path / "page.html").read_text(encoding="utf-8"), read_data(tmp_path / "page.html")
    assert data["counts"] == {"messages": 5, "records": 4, "tracks": 2, "sessions": 1} and data["notices"] == []
    assert ["version", version] in data["facts"] and data["period"] == ["2024-03-01", "2024-03-05"]
    assert data["records"]["sources"][1] == ["msg:1", "msg:2"] and {track["file"]: track["records"] for track in data["tracks"]}["life.md"] == [
        "rec:1",
        "rec:2",
    ]
    assert "default-src 'none'" in text and not re.search(r"(?:src|href)=\"(?:https?:)?//|@import|url\(", text.split('<script type="application/json"')[0])


def test_an_updated_record_tells_what_it_was_before(tmp_path: Path) -> None:
    save_sample(tmp_path / "ana")
    with BankWriter.open(tmp_path / "ana", bank_id="ana", writer="hand") as writer:
        newer = make_record(3, "Ana sold the bike.", source_ids=("msg:3", "msg:5"), time="2024-03-05T10:00:00")
        tracks = tuple(track for track in writer.tracks if track.track_id == "trk:1")
        writer.commit(Changes(revisions=(RecordRevision(operation=RecordOperation.UPDATE, record=newer),), tracks=tracks))
    data = read_data(write_bank_page(tmp_path / "ana", out=tmp_path / "page.html").path)
    assert data["records"]["before"] == {"rec:3": [{"time": "2024-03-03T10:00:00", "text": "Ana bought a red bike."}]}


def test_an_older_version_is_shown_as_it_was(tmp_path: Path) -> None:
    first = save_sample(tmp_path / "ana")
    with BankWriter.open(tmp_path / "ana", bank_id="ana", writer="hand") as writer:
        writer.commit(Changes(messages=(make_message(9),)))
    assert len(read_data(write_bank_page(tmp_path / "ana", out=tmp_path / "a.html", version=first).path)["messages"]["id"]) == 5
    assert len(read_data(write_bank_page(tmp_path / "ana", out=tmp_path / "b.html").path)["messages"]["id"]) == 6
    with pytest.raises(BankError):
        write_bank_page(tmp_path / "ana", out=tmp_path / "c.html", version="0000000000000000")


def test_what_has_no_room_is_left_out_in_order_and_said(tmp_path: Path) -> None:
    save_sample(tmp_path / "ana")
    written = write_bank_page(tmp_path / "ana", out=tmp_path / "page.html", max_messages=4)
    data = read_data(written.path)
    assert data["messages"]["id"] == ["msg:1", "msg:2", "msg:3", "msg:4"]  # records rest on these; msg:5 is newer, but nothing rests on it
    assert data["counts"]["messages"] == 5
    assert data["notices"][0].startswith("This page holds 4 of 5 messages: those that shown records rest on first, then the newest.")
    assert "4 of 5 messages" in written.describe()


def test_texts_beyond_the_room_are_counted_for_records_and_messages() -> None:
    levels = make_levels()
    chosen = select_items(levels["messages"], levels["records"], max_messages=10, max_characters=80)
    assert chosen.records == (2, 3) and sum(len(levels["records"][place].text) for place in chosen.records) <= 40
    assert {2, 3} <= set(chosen.messages) and chosen.notices[0].startswith("This page holds 2 of 4 records: the newest and 3 of 5 messages")


def test_a_page_is_not_written_into_the_bank(tmp_path: Path) -> None:
    save_sample(tmp_path / "ana")
    with pytest.raises(DataError, match="inside of the bank"):
        write_bank_page(tmp_path / "ana", out=tmp_path / "ana" / "page.html")
    assert not (tmp_path / "ana" / "page.html").exists()


def test_an_empty_bank_has_a_page_too(tmp_path: Path) -> None:
    levels = make_levels(messages=(make_message(1),), records=(), tracks=())
    save_bank(tmp_path / "ana", bank_id="ana", writer="hand", **levels | {"profile": type(levels["profile"])(text="", time="", source_ids=())})
    assert read_data(write_bank_page(tmp_path / "ana", out=tmp_path / "page.html").path)["records"]["id"] == []


@given(st.text(), st.text())
def test_no_text_ends_the_script_that_holds_it(name: str, text: str) -> None:
    hostile = f"</script><!--<script>{text}]]>"
    page = render_bank_page(name + hostile, {"profile": {"text": hostile}})
    assert page.count("<script") == 2 and page.count("</script>") == 2
    found = re.search(r'id="bank-data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(found[1])["profile"]["text"] == hostile
