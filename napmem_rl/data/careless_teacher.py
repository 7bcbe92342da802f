"""A teacher whose packets are not good enough, so that what is learnt from them leaves something for the reward to teach."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from napmem_rl.data.packet_teacher import GoldTeacher
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.systems.memchain.candidates import Candidate
from napmem_rl.systems.memchain.packet import FULL, Action, Packet, PacketForm


@dataclass(frozen=True, kw_only=True, slots=True)
class CarelessTeacher:
    """Writes what `GoldTeacher` writes, but for a share `rate` of the questions drops what it has traced: the answer model is given no evidence then.

    Above one half that habit is the mode of what a policy learns and not its tail: with a good mode, reward would rise by sharpening alone, and greedy
    decoding would have nothing to gain. A question's draw depends on its id and the seed alone.
    """

    rate: float  # in [0, 1]
    seed: int = 0
    name: str = "careless"

    async def write(self, task: Task, key: AnswerKey, candidates: Sequence[Candidate], form: PacketForm = FULL) -> Packet | None:
        """See `Teacher`; None where the gold teacher has none, so that both teach the same questions."""
        packet = await GoldTeacher().write(task, key, candidates, form)
        if packet is None or random.Random(f"careless-{self.seed}-{task.task_id}").random() >= self.rate:
            return packet
        dropped = tuple(replace(action, action=Action.DROP, rationale="not needed") for action in packet.actions)
        return replace(packet, actions=dropped, evidence=())
