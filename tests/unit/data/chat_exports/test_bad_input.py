"""Files that are cut off, empty, encrypted, of something else, or far larger than they look; and exports of shapes that nobody has seen."""

from __future__ import annotations

import copy
import json
import zipfile
from typing import Any

import pytest
from chat_samples import claude_chat, claude_message, gpt_chain, read_export, read_value, write_json, write_zip
from hypothesis import given, settings
from hypothesis import strategies as st

from napmem_rl.errors import DataError, NapMemError
from napmem_rl.memory.pyramid import Ledger, check_message

CHATS = json.dumps([gpt_chain(f"c{number}", ["I moved to Oslo.", "Nice."], first_id=number * 10) for number in range(30)]).encode()


def test_vendors_zips_are_read_without_unpacking_and_split_files_are_one_export(tmp_path):
    parts = {f"conversations-{number:03d}.json": json.dumps([gpt_chain(f"c{number}", ["Hi, I moved."], first_id=number * 10)]).encode() for number in range(3)}
    path = write_zip(tmp_path / "export.zip", {**parts, "user.json": b"{}", "chat.html": b"<html>", "file-1.png": b"x", "__MACOSX/._conversations.json": b"x"})
    messages, tally = read_export(path)
    assert len(messages) == 3 and len(tally.files) == 3 and sorted(tmp_path.iterdir()) == [path]


def test_a_zip_that_is_cut_off_is_named_as_such(tmp_path):
    path = write_zip(tmp_path / "export.zip", {"conversations.json": CHATS})
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match="cut off or broken.*Get the export again"):
        read_export(path)


def test_a_zip_whose_content_is_damaged_is_named_as_such(tmp_path):
    path = write_zip(tmp_path / "export.zip", {"conversations.json": CHATS})
    content = bytearray(path.read_bytes())
    content[200:260] = bytes(60)
    path.write_bytes(content)
    with pytest.raises(DataError, match="export.zip, conversations.json.*cut off or broken"):
        read_export(path)


def test_what_is_no_zip_no_export_or_empty_is_named_as_such(tmp_path):
    for name, content, problem in (
        ("a.zip", b"hello", "no zip file"),
        ("b.json", b"", "is empty"),
        ("c.json", b"   ", "no export that is known"),
        ("d.json", b'{"a": 1}', "no export that is known"),
        ("e.txt", b"Dear diary", "no export that is known"),
        ("f.json", b"[]", "no export that is known"),
        ("g.png", b"\x89PNG\r\n\x1a\n", "no export that is known"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=problem):
            read_export(tmp_path / name)
    with pytest.raises(DataError, match="holds no chats"):
        read_export(write_zip(tmp_path / "h.zip", {"photo.jpg": b"x"}))


def test_a_zip_that_unpacks_to_far_more_than_chats_do_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("conversations.json", "w") as stream:
        for _ in range(70):
            stream.write(b" " * (1 << 20))
    with pytest.raises(DataError, match="unpacks from .* which no chats do"):
        read_export(path)


def test_a_json_file_that_is_cut_off_says_where_and_partial_takes_what_stands_before(tmp_path):
    path = tmp_path / "conversations.json"
    path.write_bytes(CHATS[: len(CHATS) // 2])
    with pytest.raises(DataError, match=r"is cut off at byte [\d,]+, after 15 whole conversations.*--partial"):
        read_export(path)
    messages, tally = read_export(path, partial=True)
    assert len(messages) == 30 and "cut off" in tally.problems[0]


def test_errors_do_not_quote_what_people_said(tmp_path):
    path = tmp_path / "conversations.json"
    path.write_bytes(CHATS[:-40] + b"{{{" + CHATS[-40:])
    with pytest.raises(DataError) as caught:
        read_export(path)
    assert "Oslo" not in str(caught.value) and "is not JSON" in str(caught.value)


def test_a_list_within_an_object_is_found(tmp_path):
    assert len(read_value(tmp_path, {"version": 2, "conversations": [gpt_chain("c1", ["Hi.", "Ho."])]})[0]) == 2
    assert len(read_value(tmp_path, gpt_chain("c1", ["Hi.", "Ho."]))[0]) == 2


def test_a_member_with_an_unknown_format_can_be_forced_and_then_says_what_it_lacks(tmp_path):
    with pytest.raises(DataError, match="no line begins with a date"):
        read_export(write_json(tmp_path / "a.json", [1]), format="whatsapp")


SAMPLES: list[Any] = [
    [gpt_chain("c1", ["I moved.", {"content_type": "multimodal_text", "parts": ["x", {"content_type": "image_asset_pointer"}]}, "Ho."])],
    [claude_chat([claude_message(1, "human", "Hi."), claude_message(2, "assistant", "Ho.", attachments=[{"file_name": "a", "extracted_content": "b"}])])],
    [{"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi."}]}, {"role": "assistant", "content": "Ho."}]}],
    [{"id": "a", "conversations": [{"from": "human", "value": "Hi."}, {"from": "gpt", "value": "<p>Ho.</p>"}]}],
]
JUNK: list[Any] = [
    None,
    True,
    -1,
    1e300,
    10**30,
    "",
    "\ud800",
    [],
    {},
    [[]],
    ["a", {"b": 1}],
    {"type": "zzz"},
    {"content_type": "new", "text": "t"},
    float("nan"),
]


def list_places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(found for key, one in inner for found in list_places(one, (*place, key)))]


@settings(max_examples=150)
@given(st.data())
def test_exports_of_shapes_that_nobody_has_seen_are_accounted_for(tmp_path_factory, data):
    value = copy.deepcopy(data.draw(st.sampled_from(SAMPLES)))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.sampled_from(list_places(value)))
        target = value
        for key in place[:-1]:
            target = target[key]
        if not place:
            continue
        change = data.draw(st.sampled_from(["replace", "remove", "add"]))
        if change == "replace":
            target[place[-1]] = copy.deepcopy(data.draw(st.sampled_from(JUNK)))
        elif change == "remove":
            del target[place[-1]]
        elif isinstance(target, list):
            target.append(copy.deepcopy(data.draw(st.sampled_from(JUNK))))
        else:
            target["new_key"] = target[place[-1]]
    try:
        messages, tally = read_value(tmp_path_factory.mktemp("export"), value)
    except NapMemError as error:
        assert "no export that is known" in error.message
        return
    assert not tally.lost_conversations["unreadable"], tally.places
    ledger = Ledger()
    for message in messages:
        assert list(check_message(message, ledger)) == []
        ledger.add_message(message)
