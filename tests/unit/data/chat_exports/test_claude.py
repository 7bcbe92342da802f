"""Claude's exports: text wherever it stands, branches, accounts."""

from __future__ import annotations

import json

import pytest
from chat_samples import claude_chat, claude_message, make_uuid, read_export, read_value, write_zip

from napmem_rl.errors import DataError


def test_text_is_taken_from_content_or_from_the_old_field_and_what_was_pasted_stands_below(tmp_path):
    old = claude_message(1, "human", "I moved to Oslo.", content=[])
    new = claude_message(2, "assistant", "How nice.") | {"text": ""}
    pasted = claude_message(3, "human", "", attachments=[{"file_name": "notes.txt", "extracted_content": "Mia: door 3"}])
    messages, tally = read_value(tmp_path, [claude_chat([old, new, pasted])])
    assert [message.text for message in messages] == ["I moved to Oslo.", "How nice.", "[file: notes.txt]\nMia: door 3"]
    assert tally.notes == {"attachment_text": 1} and messages[0].time == "2024-04-24T22:01:00"


def test_thinking_and_tools_within_a_message_are_reported_and_alone_are_left_out(tmp_path):
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "tool_use", "name": "web"}, {"type": "text", "text": "Alfama."}]
    both = [claude_message(1, "assistant", "", content=parts), claude_message(2, "assistant", "", content=parts[1:2])]
    messages, tally = read_value(tmp_path, [claude_chat(both)])
    assert [message.text for message in messages] == ["Alfama."]
    assert tally.notes["part_not_kept"] == 1 and tally.left_out == {"tool_call": 1}


def test_of_an_edited_question_the_newest_branch_is_kept(tmp_path):
    root = "00000000-0000-4000-8000-000000000000"
    parents = [root, make_uuid(1001), root, make_uuid(1003)]
    chat = [
        claude_message(number, "human" if number % 2 else "assistant", f"Text {number}.", parent_message_uuid=parents[number - 1]) for number in range(1, 5)
    ]
    messages, tally = read_value(tmp_path, [claude_chat(chat)])
    assert [message.text for message in messages] == ["Text 3.", "Text 4."] and tally.left_out == {"other_branch": 2}


def test_a_chat_whose_messages_all_name_the_same_root_is_kept_whole(tmp_path):
    chat = [claude_message(number, "human", f"Text {number}.", parent_message_uuid="0") for number in range(1, 4)]
    assert len(read_value(tmp_path, [claude_chat(chat)])[0]) == 3


def test_parts_and_senders_that_nobody_knows_are_kept_and_noted(tmp_path):
    chat = [claude_message(1, "guest", "", content=[{"type": "poem", "text": "Roses."}, {"type": "sculpture"}])]
    messages, tally = read_value(tmp_path, [claude_chat(chat)])
    assert messages[0].text == "Roses.\n\n[sculpture]" and messages[0].speaker == "guest"
    assert tally.notes == {"unknown_content": 1, "unknown_role": 1}


def shared_export(tmp_path):
    """Two people's conversations in one zip."""
    chats = [claude_chat([claude_message(1, "human", "I am Ana.")]), claude_chat([claude_message(2, "human", "I am Bo.")], account={"uuid": "acc-2"}, uuid="x")]
    users = [{"uuid": "acc-1", "full_name": "Ana Ruiz", "email_address": "ana@mail.invalid"}, {"uuid": "acc-2", "full_name": "Bo Lund"}]
    return write_zip(tmp_path / "e.zip", {"conversations.json": json.dumps(chats).encode(), "users.json": json.dumps(users).encode(), "projects.json": b"[]"})


def test_of_a_shared_account_only_the_user_that_was_asked_for_is_imported(tmp_path):
    messages, tally = read_export(shared_export(tmp_path), user="bo lund")
    assert [(message.speaker, message.text) for message in messages] == [("Bo Lund", "I am Bo.")]
    assert tally.left_out == {"other_account": 1}


def test_a_shared_account_without_a_user_is_an_error_that_lists_the_names(tmp_path):
    with pytest.raises(DataError, match=r"several accounts.*Ana Ruiz, Bo Lund.*--user"):
        read_export(shared_export(tmp_path))


def test_conversations_without_messages_are_counted(tmp_path):
    messages, tally = read_value(tmp_path, [claude_chat([]), claude_chat([claude_message(1, "human", "Hi, I moved.")])])
    assert len(messages) == 1 and tally.lost_conversations == {"empty": 1}


def test_what_an_old_export_says_around_a_block_that_it_leaves_away_is_kept(tmp_path):
    block = "```\nThis block is not supported on your current device yet.\n```"
    both = [claude_message(1, "assistant", f"{block}\n\nAlfama is a district.", content=[]), claude_message(2, "assistant", block, content=[])]
    messages, tally = read_value(tmp_path, [claude_chat(both)])
    assert [message.text for message in messages] == ["Alfama is a district."]
    assert tally.left_out == {"tool_call": 1} and tally.notes == {"part_not_kept": 1}
