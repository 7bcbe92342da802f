"""Rows for MemChain's training: questions with the candidates that the policy may cite, and a reference packet where a teacher has written one.

Beside the columns of `rows.py`:

======================  =========================================================================================================
column                  what
======================  =========================================================================================================
``candidates``          the boundary: C_q as JSON text (`systems/memchain/candidate_file.py: dump_candidates`)
``reference``           JSON text, for people and for checks: ids that hold the evidence, the teacher's packet, its evidence, how the reward is computed
======================  =========================================================================================================

The policy never sees ``reference``, nor ``answer_key``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from napmem_rl.data.rows import save_rows
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.systems.memchain.candidate_file import dump_candidates
from napmem_rl.systems.memchain.candidates import Candidate
from napmem_rl.systems.memchain.config import RewardSettings
from napmem_rl.systems.memchain.packet import Packet, normalise_id, render_packet
from napmem_rl.systems.memchain.reward import GATE_WEIGHTS, REWARD_WEIGHTS, find_reference_ids

CANDIDATES, REFERENCE = "candidates", "reference"
AGENT_NAME = "memchain"


@dataclass(frozen=True, kw_only=True, slots=True)
class PacketRow:
    """One question with its boundary; `packet` is None where the teacher has none."""

    task: Task
    key: AnswerKey
    candidates: tuple[Candidate, ...]
    packet: Packet | None = None

    @property
    def reference_ids(self) -> tuple[str, ...]:
        """Candidates that hold gold messages, in their order."""
        found = find_reference_ids(self.key.evidence_ids, {normalise_id(item.id): item.source_ids or (item.id,) for item in self.candidates})
        return tuple(normalise_id(item.id) for item in self.candidates if normalise_id(item.id) in found)


def save_packet_rows(path: Path, rows: Sequence[PacketRow], *, data_source: str, settings: RewardSettings) -> None:
    """Write rows to one parquet file, atomically. Raises DataError as `save_rows` does."""
    columns = {CANDIDATES: [dump_candidates(row.candidates) for row in rows], REFERENCE: [_render_reference(row, settings) for row in rows]}
    save_rows(path, [(row.task, row.key) for row in rows], data_source=data_source, agent_name=AGENT_NAME, columns=columns)


def _render_reference(row: PacketRow, settings: RewardSettings) -> str:
    evidence = [{"statement": item.statement, "ids": list(item.ids)} for item in row.packet.evidence] if row.packet is not None else []
    reward = {"gate": GATE_WEIGHTS, "signals": REWARD_WEIGHTS, "num_answers": settings.num_answers, "invalid_actions": str(settings.invalid_actions)}
    packet = render_packet(row.packet) if row.packet is not None else None
    return json.dumps({"ids": list(row.reference_ids), "packet": packet, "evidence": evidence, "reward": reward}, ensure_ascii=False)
