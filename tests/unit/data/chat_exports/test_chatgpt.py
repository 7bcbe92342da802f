"""ChatGPT's exports: the path that the chat shows, whatever its content is made of, and every message accounted for."""

from __future__ import annotations

from chat_samples import gpt_chain, gpt_node, make_uuid, read_value


def tree(nodes, current="n9", **more):
    return [{"conversation_id": "c1", "create_time": 1714000000.0, "mapping": {node["id"]: node for node in nodes}, "current_node": current, **more}]


def one(content, role="user", **more):
    """A conversation of one message."""
    return tree([gpt_node("r", None, ["n9"], None, None), gpt_node("n9", "r", [], role, content, **more)])


def test_answers_that_were_generated_again_are_left_out_and_counted(tmp_path):
    nodes = [gpt_node("r", None, ["q"], None, None), gpt_node("q", "r", ["old", "n9"], "user", "Where is Mia?")]
    nodes += [gpt_node("old", "q", [], "assistant", "In Rome."), gpt_node("n9", "q", [], "assistant", "In Oslo.")]
    messages, tally = read_value(tmp_path, tree(nodes))
    assert [message.text for message in messages] == ["Where is Mia?", "In Oslo."]
    assert tally.num_read == 3 and tally.left_out == {"other_branch": 1}
    assert tally.places["other_branch"] == ["conversations.json, conversation 1, node old"]


def test_without_a_current_node_the_newest_branch_is_the_chat(tmp_path):
    nodes = [gpt_node("r", None, ["q"], None, None), gpt_node("q", "r", ["a", "b"], "user", "Where is Mia?")]
    nodes += [
        gpt_node("a", "q", [], "assistant", "In Rome.", create_time=1714000900.0),
        gpt_node("b", "q", [], "assistant", "In Oslo.", create_time=1714000100.0),
    ]
    messages, tally = read_value(tmp_path, tree(nodes, current=None))
    assert [message.text for message in messages] == ["Where is Mia?", "In Rome."]
    assert tally.notes["current_node_missing"] == 1


def test_a_tree_with_a_missing_parent_or_a_circle_still_gives_its_messages(tmp_path):
    nodes = [gpt_node("q", None, ["n9"], "user", "Hello there."), gpt_node("n9", "gone", [], "assistant", "Good day.")]
    messages, tally = read_value(tmp_path, tree(nodes))
    assert [message.text for message in messages] == ["Hello there.", "Good day."] and tally.notes["tree_repaired"] == 1
    nodes = [gpt_node("q", "n9", ["n9"], "user", "Hello there."), gpt_node("n9", "q", ["q"], "assistant", "Good day.")]
    messages, tally = read_value(tmp_path, tree(nodes))
    assert [message.text for message in messages] == ["Hello there.", "Good day."] and tally.notes["tree_repaired"] == 1


def test_images_voice_and_attachments_become_marks_in_their_place(tmp_path):
    parts = ["Look.", {"content_type": "image_asset_pointer", "asset_pointer": "file://x"}, {"content_type": "audio_transcription", "text": "I moved."}]
    metadata = {"attachments": [{"name": "beach [1].jpg", "mime_type": "image/jpeg"}, {"name": "plan.pdf", "mime_type": "application/pdf"}]}
    messages, tally = read_value(tmp_path, one({"content_type": "multimodal_text", "parts": parts}, metadata=metadata))
    assert messages[0].text == "Look.\n\n[image: beach (1).jpg]\n\nI moved.\n\n[file: plan.pdf]"
    assert tally.notes["attachment"] == 1


def test_tool_calls_tool_results_thinking_system_and_hidden_messages_are_left_out_each_under_its_name(tmp_path):
    kinds = [("system", "Be brief.", {}), ("assistant", {"content_type": "code", "text": "search('x')"}, {"recipient": "web"})]
    kinds += [("tool", {"content_type": "execution_output", "text": "3"}, {}), ("assistant", {"content_type": "thoughts", "thoughts": []}, {})]
    kinds += [("user", "secret", {"metadata": {"is_visually_hidden_from_conversation": True}}), ("assistant", "  ", {}), ("assistant", "Done.", {})]
    names = ["r", *(f"n{number}" for number in range(3, 10))]
    nodes = [gpt_node("r", None, ["n3"], None, None)]
    nodes += [gpt_node(name, before, [], role, content, **more) for name, before, (role, content, more) in zip(names[1:], names, kinds, strict=False)]
    messages, tally = read_value(tmp_path, tree(nodes))
    assert [message.text for message in messages] == ["Done."] and tally.num_read == 7
    assert tally.left_out == {"system": 1, "tool_call": 1, "tool_result": 1, "thinking": 1, "hidden": 1, "empty": 1}


def test_custom_instructions_are_the_users_words_and_are_kept_once(tmp_path):
    content = {"content_type": "user_editable_context", "user_profile": "I teach chemistry.", "user_instructions": "Be brief."}
    conversations = [one(content)[0] | {"conversation_id": key} for key in ("c1", "c2")]
    messages, tally = read_value(tmp_path, conversations)
    assert [message.text for message in messages] == ["About me: I teach chemistry.\n\nHow to answer me: Be brief."] and messages[0].role == "user"
    assert tally.merged == {"same_instructions": 1}


def test_kinds_of_content_that_nobody_knows_keep_their_text_or_are_named(tmp_path):
    messages, tally = read_value(tmp_path, one({"content_type": "hologram", "text": "I bought a kayak."}))
    assert messages[0].text == "I bought a kayak." and tally.notes["unknown_content"] == 1
    both = [one({"content_type": "hologram", "blob": 3})[0], one("Fine.")[0] | {"conversation_id": "c2"}]
    messages, tally = read_value(tmp_path, both)
    assert [message.text for message in messages] == ["Fine."] and tally.left_out == {"no_text": 1}


def test_a_role_that_nobody_knows_is_kept_as_another_than_the_user(tmp_path):
    messages, tally = read_value(tmp_path, one("Welcome.", role="moderator"))
    assert (messages[0].role, messages[0].speaker) == ("assistant", "moderator") and tally.notes["unknown_role"] == 1


def test_a_message_without_a_time_borrows_its_neighbours_and_keeps_its_place(tmp_path):
    conversation = gpt_chain("c1", ["One.", "Two.", "Three."])
    nodes = list(conversation["mapping"].values())
    nodes[2]["message"]["create_time"] = None
    messages, tally = read_value(tmp_path, [conversation])
    assert [message.text for message in messages] == ["One.", "Two.", "Three."]
    assert [message.time[11:] for message in messages] == ["23:06:40", "23:06:40", "23:08:40"] and tally.notes == {"time_borrowed": 1}


def test_times_as_texts_milliseconds_and_nonsense_are_understood_or_reported(tmp_path):
    conversation = gpt_chain("c1", ["One.", "Two.", "Three."])
    times = iter(["1714000000.5", 1714000060123, "yesterday"])
    for node in list(conversation["mapping"].values())[1:]:
        node["message"]["create_time"] = next(times)
    messages, tally = read_value(tmp_path, [conversation])
    assert [message.time[11:] for message in messages] == ["23:06:40", "23:07:40", "23:07:40"]
    assert tally.notes == {"time_unreadable": 1, "time_borrowed": 1}


def test_long_ids_stay_as_they_are_and_short_ones_get_that_of_their_conversation(tmp_path):
    messages, _ = read_value(tmp_path, [gpt_chain("c1", ["One."], first_id=5), *one("Two.")])
    assert [message.message_id for message in messages] == [f"msg:{make_uuid(5)}", "msg:c1.n9"]


def test_a_conversation_that_was_resumed_after_days_is_two_sessions(tmp_path):
    messages, _ = read_value(tmp_path, [gpt_chain("c1", ["One.", "Two.", "Three."], step=3 * 86400.0)])
    assert [message.session_id for message in messages] == ["c1", "c1#2", "c1#3"]


def test_marks_of_citations_are_cut_off(tmp_path):
    messages, tally = read_value(tmp_path, one("Oslo is in Norway\ue200cite\ue202turn0search1\ue201.", role="assistant"))
    assert messages[0].text == "Oslo is in Norway." and tally.notes["citation_marks"] == 1


def test_things_that_are_no_conversations_are_counted_with_their_places(tmp_path):
    messages, tally = read_value(tmp_path, [gpt_chain("c1", ["One."]), None, 7, {"title": "x"}, {"mapping": {}}, {"mapping": {"a": 3}}])
    assert len(messages) == 1 and tally.lost_conversations == {"not_a_conversation": 3, "empty": 2}
    assert tally.places["conversation_not_a_conversation"][0] == "conversations.json, conversation 2"
    assert tally.left_out == {"not_a_message": 1}


def test_what_was_said_before_a_deleted_node_is_kept(tmp_path):
    nodes = [gpt_node("r", None, ["q"], None, None), gpt_node("q", "r", ["gone"], "user", "Hello there."), gpt_node("n9", "gone", [], "user", "Still there?")]
    messages, tally = read_value(tmp_path, tree(nodes))
    assert [message.text for message in messages] == ["Hello there.", "Still there?"] and tally.notes["tree_repaired"] == 1


def test_a_number_among_the_parts_is_kept_and_noted(tmp_path):
    messages, tally = read_value(tmp_path, one({"content_type": "text", "parts": ["Room", 5, None]}))
    assert messages[0].text == "Room\n\n5" and tally.notes["unknown_content"] == 1


def test_conversations_by_their_ids_are_read_like_a_list(tmp_path):
    listed = [gpt_chain(f"c{number}", ["Hello there.", "Good day."], first_id=10 * number) for number in (1, 2)]
    expected, _ = read_value(tmp_path, listed)
    messages, tally = read_value(tmp_path, {chat["conversation_id"]: chat for chat in listed})
    assert messages == expected and tally.num_conversations == 2
