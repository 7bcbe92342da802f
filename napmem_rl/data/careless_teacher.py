"""A teacher whose packets are not good enough, so that what is learnt from them leaves something for the reward to teach."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from napmem_rl.data.packet_teacher import GoldTeacher
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.systems.memchain.candidates import Candidate
from napmem_rl.systems.memchain.fixed_packets import extract_packet
from napmem_rl.systems.memchain.packet import FULL, Packet, PacketForm


@dataclass(frozen=True, kw_only=True, slots=True)
class CarelessTeacher:
    """Writes what `GoldTeacher` writes, but for a share `rate` of the questions remembers only what it read last: a packet of the last candidate alone,
    which retrieval ranked lowest, whatever it says.

    Above one half that habit is the mode of what a policy learns and not its tail: with a good mode, reward would rise by sharpening alone, and greedy
    decoding would have nothing to gain. A question's draw depends on its id and the seed alone.
    """

    rate: float  # in [0, 1]
    seed: int = 0
    name: str = "careless"

    async def write(self, task: Task, key: AnswerKey, candidates: Sequence[Candidate], form: PacketForm = FULL) -> Packet | None:
        """See `Teacher`; None where the gold teacher has none, so that both teach the same questions."""
        packet = await GoldTeacher().write(task, key, candidates, form)
        is_careless = random.Random(f"careless-{self.seed}-{task.task_id}").random() < self.rate
        return extract_packet(task, candidates[-1:]) if packet is not None and is_careless else packet
