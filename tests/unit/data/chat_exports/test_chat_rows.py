"""OpenAI's JSON lines and ShareGPT: no times, few ids, many variants."""

from __future__ import annotations

import json

from chat_samples import read_export, read_value

ROW = {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "I lost my book."}, {"role": "assistant", "content": "Oh no."}]}


def write_lines(path, *rows):
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_each_line_is_a_conversation_without_times_and_the_system_message_is_left_out(tmp_path):
    other = {"messages": [{"role": "assistant", "content": "You are great!"}]}
    messages, tally = read_export(write_lines(tmp_path / "a.jsonl", ROW, other))
    assert [message.text for message in messages] == ["I lost my book.", "Oh no.", "You are great!"]
    assert {message.time for message in messages} == {"1970-01-01T00:00:00"} and tally.notes == {"time_unknown": 3}
    assert len({message.session_id for message in messages}) == 2 and tally.left_out == {"system": 1}


def test_a_bad_line_costs_that_line_alone_and_is_told_by_its_number(tmp_path):
    _, tally = read_export(write_lines(tmp_path / "a.jsonl", "{broken\n", "\n", ROW, "[1]\n"))
    assert tally.lost_conversations == {"not_json": 1, "not_a_conversation": 1}
    assert tally.places["conversation_not_json"] == ["a.jsonl, line 1"]
    assert tally.places["conversation_not_a_conversation"] == ["a.jsonl, line 4"]


def test_a_list_in_a_file_that_is_called_lines_is_read_as_the_list_that_it_is(tmp_path):
    assert len(read_export(write_lines(tmp_path / "a.jsonl", [ROW, ROW | {"id": "b"}]))[0]) == 4


def test_parts_tool_calls_and_names_are_mapped(tmp_path):
    parts = [{"type": "text", "text": "See this."}, {"type": "image_url", "image_url": {"url": "data:…"}}, {"type": "smell", "x": 1}]
    row = {
        "messages": [
            {"role": "user", "name": "Ana", "content": parts},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
            {"role": "tool", "content": "3"},
        ]
    }
    messages, tally = read_export(write_lines(tmp_path / "a.jsonl", row))
    assert [(message.speaker, message.text) for message in messages] == [("Ana", "See this.\n\n[image]\n\n[smell]")]
    assert tally.left_out == {"tool_call": 1, "tool_result": 1} and tally.notes["attachment"] == tally.notes["unknown_content"] == 1


def test_a_row_that_grew_keeps_the_ids_of_what_it_had(tmp_path):
    grown = {"messages": [*ROW["messages"], {"role": "user", "content": "I found it."}]}
    before, _ = read_export(write_lines(tmp_path / "a.jsonl", ROW))
    after, _ = read_export(write_lines(tmp_path / "a.jsonl", grown))
    assert [message.message_id for message in after[:2]] == [message.message_id for message in before]


def test_sharegpt_with_its_variants(tmp_path):
    rows = [
        {"id": "a_0", "conversations": [{"from": "gpt", "value": "Hello."}, {"from": "human", "value": "I moved to Oslo."}]},
        {
            "id": "b_0",
            "items": [{"from": "user", "value": "Hi, I am a nurse."}, {"role": "bot", "content": '<div class="markdown"><p>Great.</p><p>Really.</p></div>'}],
        },
        {"id": "c_0", "conversations": []},
    ]
    messages, tally = read_value(tmp_path, rows)
    assert [message.text for message in messages] == ["Hello.", "I moved to Oslo.", "Hi, I am a nurse.", "Great.\n\nReally."]
    assert [message.role for message in messages] == ["assistant", "user", "user", "assistant"]
    assert tally.notes["html"] == 1 and tally.lost_conversations == {"empty": 1} and messages[2].session_id == "b_0"


def test_a_users_words_that_hold_tags_are_left_as_they_are(tmp_path):
    rows = [{"id": "a", "conversations": [{"from": "human", "value": "<div>why does this not close?</div>"}]}]
    assert read_value(tmp_path, rows)[0][0].text == "<div>why does this not close?</div>"


def test_times_are_taken_where_a_variant_has_them(tmp_path):
    row = {"messages": [{"role": "user", "content": "I moved.", "timestamp": "2024-05-01T10:00:00+02:00"}, {"role": "assistant", "content": "Nice."}]}
    messages, tally = read_export(write_lines(tmp_path / "a.jsonl", row))
    assert [message.time for message in messages] == ["2024-05-01T08:00:00"] * 2 and tally.notes == {"time_borrowed": 1}


def test_nan_and_huge_numbers_do_not_cost_the_file(tmp_path):
    path = tmp_path / "c.json"
    path.write_text('[{"id": 123456789012345678901234567890, "score": NaN, "conversations": [{"from": "human", "value": "I moved."}]}]')
    assert [message.text for message in read_export(path)[0]] == ["I moved."]


def test_halves_of_surrogate_pairs_are_joined_or_replaced(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "a \\ud83d\\ude00 b \\ud83d"}]}\n')
    messages, tally = read_export(path)
    assert messages[0].text == "a 😀 b \ufffd" and tally.notes["broken_characters"] == 1


def test_any_encoding_of_json_is_read(tmp_path):
    text = json.dumps([{"id": "a", "conversations": [{"from": "human", "value": "Привет, 我搬家了"}]}], ensure_ascii=False)
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        (tmp_path / "c.json").write_bytes(text.encode(encoding))
        assert read_export(tmp_path / "c.json")[0][0].text == "Привет, 我搬家了", encoding
