"""Which of the memories that a search showed were of use later in a trajectory: rewards for a reranker, in any system.

A memory counts as used where a later turn of the policy names its id: in a call that opens it (get_records, get_conversation), in a packet that cites it, in an
answer. Trajectories that failed by our fault teach nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from napmem_rl.schema import Trajectory

_ID = re.compile(r"\b(?:msg|rec|trk):[\w.#-]*\w")


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchUse:
    """One search: what was asked, what was shown, what of it was used.

    Example: SearchUse(query="move to Oslo", item_ids=("rec:7", "rec:9"), used=(True, False))
    """

    query: str
    item_ids: tuple[str, ...]  # [M]
    used: tuple[bool, ...]  # [M]


def find_search_uses(trajectory: Trajectory) -> list[SearchUse]:
    """Every search of a trajectory that showed something, with what the turns after it named."""
    if trajectory.status.is_ours:
        return []
    named_after: set[str] = set()
    uses: list[SearchUse] = []
    for turn in reversed(trajectory.turns):
        for result in reversed(turn.tool_results):
            query = result.call.arguments.get("query")
            if isinstance(query, str) and result.item_ids:
                used = tuple(item_id in named_after for item_id in result.item_ids)
                uses.append(SearchUse(query=query, item_ids=result.item_ids, used=used))
        named_after |= set(_ID.findall(turn.text))
    return uses[::-1]


def find_packet_uses(trajectory: Trajectory, packet: Mapping[str, Any]) -> list[SearchUse]:
    """Candidates that a packet was made of, with what its trace and evidence cite; records and messages apart.

    Args:
        trajectory: the packet's; its question is what was searched for. One that failed by our fault, or whose packet could not be read, teaches nothing.
        packet: as a line of trajectories or answers holds it, with `candidates` ({id}), `cited` ids and the `faults` of its text.
    """
    if trajectory.status.is_ours or trajectory.final_answer is None:
        return []
    cited = set(packet["cited"])
    uses = []
    for prefix in ("rec:", "msg:"):
        ids = tuple(item["id"] for item in packet["candidates"] if item["id"].startswith(prefix))
        if ids:
            uses.append(SearchUse(query=trajectory.task.question, item_ids=ids, used=tuple(item_id in cited for item_id in ids)))
    return uses
