"""ChatGPT's `conversations.json`: a list of conversations, each a tree of messages.

The chat that its user saw last is the path from the root to `current_node`. Answers that were generated again, and questions that were edited, are on other
branches: they are left out and counted. What is known of the format: `mapping{id: {id, parent, children, message | null}}`, a message with `author.role`,
`content`, `create_time` (seconds; may be null), `recipient`, `metadata`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from napmem_rl.data.chat_exports.chatgpt_content import Content, read_content
from napmem_rl.data.chat_exports.conversation import Conversation, Said
from napmem_rl.data.chat_exports.roles import Party, find_party, name_speaker
from napmem_rl.data.chat_exports.tally import LeftOut, LostConversation, Note, Tally
from napmem_rl.data.chat_exports.values import as_id, as_list, as_object, as_text, read_moment

FORMAT = "chatgpt"


def is_conversation(value: Any) -> bool:
    """Whether this is one of ChatGPT's conversations."""
    return isinstance(value, dict) and isinstance(value.get("mapping"), dict)


def read_conversation(value: Mapping[str, Any], where: str, tally: Tally, user: str | None) -> Conversation | None:
    """One conversation.

    Args:
        value: what the export holds of it.
        where: its place, for people.
        tally: counts every message of the tree.
        user: the user's name; None for "User".

    Returns:
        None where there is no message at all, which is counted.
    """
    nodes = {name: node for name, node in value["mapping"].items() if isinstance(node, dict)}
    for name in value["mapping"].keys() - nodes.keys():
        tally.read_message()
        tally.leave_out(LeftOut.NOT_A_MESSAGE, f"{where}, node {name[:60]}")
    filled = [name for name, node in nodes.items() if node.get("message") is not None]
    if not filled:
        tally.lose_conversation(LostConversation.EMPTY, where)
        return None
    tally.num_conversations += 1
    tally.read_message(len(filled))
    path = _walk(nodes, _find_leaf(value, nodes, where, tally), where, tally)
    on_path = set(path)
    for name in filled:
        if name not in on_path:
            tally.leave_out(LeftOut.OTHER_BRANCH, f"{where}, node {name[:60]}")
    key = as_id(value.get("conversation_id")) or as_id(value.get("id"))
    identity = (FORMAT, *path[:2])
    said = tuple(_read_node(nodes[name], name, key or "", where, tally, user) for name in path if nodes[name].get("message") is not None)
    time = read_moment(value.get("create_time"))[0] or read_moment(value.get("update_time"))[0]
    return Conversation(key=key, identity=identity, said=tuple(one for one in said if one is not None), time=time)


def _find_leaf(value: Mapping[str, Any], nodes: Mapping[str, Any], where: str, tally: Tally) -> str:
    """`current_node`; where it names nothing, the newest node without children, the last one of those without times."""
    current = value.get("current_node")
    if isinstance(current, str) and current in nodes:
        return current
    tally.note(Note.CURRENT_NODE_MISSING, where)
    parents = {as_text(node.get("parent")) for node in nodes.values()}
    leaves = [name for name in nodes if name not in parents and as_object(nodes[name].get("message"))] or list(nodes)
    times = {name: read_moment(as_object(nodes[name].get("message")).get("create_time"))[0] or "" for name in leaves}
    return max(reversed(leaves), key=lambda name: times[name])


def _walk(nodes: Mapping[str, Any], leaf: str, where: str, tally: Tally) -> list[str]:
    """Node names from the root to the leaf. A parent that a node does not name is sought among those that name it as a child."""
    fathers: dict[str, str] | None = None
    path, seen = [leaf], {leaf}
    while True:
        parent = nodes[path[-1]].get("parent")
        if not isinstance(parent, str) or parent not in nodes:
            if fathers is None:
                fathers = {child: name for name, node in nodes.items() for child in as_list(node.get("children")) if isinstance(child, str)}
            was_named, parent = parent is not None, fathers.get(path[-1]) or fathers.get(as_text(parent))  # of one that was deleted: its own parent
            if was_named or parent is not None:
                tally.note(Note.TREE_REPAIRED, f"{where}, node {path[-1][:60]}")
            if parent is None:
                return path[::-1]
        if parent in seen:
            tally.note(Note.TREE_REPAIRED, f"{where}, node {path[-1][:60]}")
            return path[::-1]
        path.append(parent)
        seen.add(parent)


def _read_node(node: Mapping[str, Any], name: str, key: str, where: str, tally: Tally, user: str | None) -> Said | None:
    """The message of a node on the path; None where it is left out, which is counted."""
    where = f"{where}, node {name[:60]}"
    message = node["message"]
    if not isinstance(message, dict):
        tally.leave_out(LeftOut.NOT_A_MESSAGE, where)
        return None
    content = read_content(message)
    role = as_object(message.get("author")).get("role")
    party = find_party(role)
    reason = _find_reason(message, party, content)
    if reason is not None:
        tally.leave_out(reason, where)
        return None
    for note in content.notes:
        tally.note(note, where)
    if party in (Party.UNKNOWN, Party.SYSTEM) and not content.is_instructions:
        tally.note(Note.UNKNOWN_ROLE, where)
    time, is_unreadable = read_moment(message.get("create_time"))
    if is_unreadable:
        tally.note(Note.TIME_UNREADABLE, where)
    role, speaker = name_speaker(Party.USER if content.is_instructions else party, role, user)
    own_id = as_id(message.get("id")) or name
    identity = (FORMAT, key, own_id) if not content.is_instructions else (FORMAT, "instructions", content.text)
    return Said(
        own_id=None if content.is_instructions else own_id,
        identity=identity,
        role=role,
        speaker=speaker,
        text=content.text,
        time=time,
        where=where,
        is_instructions=content.is_instructions,
    )


def _find_reason(message: Mapping[str, Any], party: Party, content: Content) -> LeftOut | None:
    """Why a message on the path is not part of a memory; None for one that is."""
    if party is Party.TOOL:
        return LeftOut.TOOL_RESULT
    if content.reason is LeftOut.THINKING:
        return content.reason
    if content.is_instructions:
        return None if content.text else LeftOut.EMPTY
    if not content.text:
        return content.reason or LeftOut.EMPTY
    if party is Party.SYSTEM:
        return LeftOut.SYSTEM
    if as_object(message.get("metadata")).get("is_visually_hidden_from_conversation") is True:
        return LeftOut.HIDDEN
    recipient = message.get("recipient")
    if isinstance(recipient, str) and recipient not in ("all", ""):
        return LeftOut.TOOL_CALL
    return content.reason
