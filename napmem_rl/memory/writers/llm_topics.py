"""The topic writer's loop: the model names actions, the desk carries them out or refuses, the model reads what came of them (NapMem section 3.2, "Topic
tracks": "an agent-driven writing process")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from napmem_rl.errors import PolicyOutputError
from napmem_rl.llm.base import ChatClient
from napmem_rl.llm.structured import Fault, FaultCounts, ask_object
from napmem_rl.memory.topic_desk import MAX_NARRATIVE_CHARS, MAX_SUMMARY_CHARS, MAX_TITLE_CHARS, MAX_TRACKS
from napmem_rl.memory.writers import llm_prompts as prompts
from napmem_rl.memory.writers.base import TopicDesk
from napmem_rl.schema import Track

OUT_OF_STEPS, OUT_OF_ROOM = "topics: out_of_steps", "topics: out_of_room"


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicLimits:
    """How long a loop may be, and what it may show and write."""

    max_steps: int = 10  # requests of one loop, repairs aside
    max_actions: int = 10  # of one reply
    max_records: int = 25  # new records in one loop
    max_loop_chars: int = 40_000  # of the whole conversation of a loop
    max_title_chars: int = MAX_TITLE_CHARS
    max_summary_chars: int = MAX_SUMMARY_CHARS
    max_narrative_chars: int = MAX_NARRATIVE_CHARS


async def write_topics(
    client: ChatClient, desk: TopicDesk, new_records: Sequence[Mapping[str, Any]], *, limits: TopicLimits, counts: FaultCounts, max_tokens: int
) -> Fault | None:
    """One loop over the desk, to its `finish`.

    It ends early, keeping what was written, after `max_steps`, when the conversation is full, or after two replies in a row that could not be used; each is
    counted as a rejection.

    Args:
        client: the model.
        desk: the round's tracks.
        new_records: as the model is shown them.
        limits: of the loop.
        counts: counted up here.
        max_tokens: of one reply.

    Returns:
        The fault of a reply that ended the loop, if one did.

    Raises:
        LLMError: the endpoint failed.
    """
    schema = prompts.build_topic_schema(
        max_actions=limits.max_actions,
        title_chars=limits.max_title_chars,
        summary_chars=limits.max_summary_chars,
        narrative_chars=limits.max_narrative_chars,
    )
    data = {"files": _list_files(desk), "new_records": list(new_records)}
    messages = prompts.build_messages(prompts.TOPICS.replace("MAX_FILES", str(MAX_TRACKS)), data)
    for step in range(limits.max_steps):
        room = limits.max_loop_chars - sum(len(message["content"]) for message in messages)
        if room <= 0:
            counts.rejections[OUT_OF_ROOM] += 1
            return None
        actions = await ask_object(client, messages, step="topics", schema=schema, read=lambda value: value["actions"], counts=counts, max_tokens=max_tokens)
        if isinstance(actions, Fault):
            return actions
        results, is_finished = run_actions(desk, actions, room=room)
        if is_finished:
            return None
        told = {"results": results, "replies_left": limits.max_steps - step - 1}
        messages = [*messages, {"role": "assistant", "content": prompts.dump_data({"actions": actions})}, {"role": "user", "content": prompts.dump_data(told)}]
    counts.rejections[OUT_OF_STEPS] += 1
    return None


def run_actions(desk: TopicDesk, actions: Sequence[Mapping[str, Any]], *, room: int) -> tuple[list[dict[str, Any]], bool]:
    """Carry out actions in order; one that is refused changes nothing and does not stop the next.

    Args:
        desk: the round's tracks.
        actions: as the schema has them.
        room: characters that files which are read may take in all.

    Returns:
        One result an action, and whether the writer has finished. A `finish` beside a refusal does not count: the writer has not read the refusal yet.
    """
    results: list[dict[str, Any]] = []
    for action in actions:
        try:
            result = {"ok": True, **_run_action(desk, action)}
            room -= len(result.get("narrative", ""))
            if room < 0:
                result = {"ok": False, "problem": "there is no room to show this file any more; write what you can without it, and finish"}
        except PolicyOutputError as error:
            result = {"ok": False, "problem": error.message}
        results.append({"do": action["do"], **result})
    is_refused = any(not result["ok"] for result in results)
    is_finished = any(action["do"] == "finish" for action in actions)
    return results, is_finished and not is_refused


def _run_action(desk: TopicDesk, action: Mapping[str, Any]) -> dict[str, Any]:
    """What the model is told of one action. Raises PolicyOutputError where the desk refuses it."""
    parts = {name: action[name] for name in ("title", "summary", "narrative") if name in action}
    match action["do"]:
        case "list":
            return {"files": _list_files(desk)}
        case "read":
            return _show_track(desk.read_track(action["file"]))
        case "create":
            return {"file": desk.create_track(**parts).file_name}
        case "update":
            return {"file": desk.update_track(action["file"], **parts).file_name}
        case "edit":
            return {"file": desk.edit_track(action["file"], old=action["old"], new=action["new"]).file_name}
        case "merge":
            return {"file": desk.merge_tracks(action["files"], **parts).file_name}
        case "drop":
            desk.drop_track(action["file"])
        case "request_profile":
            desk.request_profile()
    return {}


def _list_files(desk: TopicDesk) -> list[dict[str, Any]]:
    return [
        {"file": track.file_name, "title": track.title, "summary": track.summary, "newest": track.time, "num_records": len(track.record_ids)}
        for track in desk.list_tracks()
    ]


def _show_track(track: Track) -> dict[str, Any]:
    return {"file": track.file_name, "title": track.title, "summary": track.summary, "newest": track.time, "narrative": track.narrative}
