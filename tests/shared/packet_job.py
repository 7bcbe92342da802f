"""A tiny MemChain job's inputs: one bank a person, questions about where they live, and an untrained policy that knows the words of packets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PEOPLE = {"train": ("ana", "ben", "cleo", "dan"), "dev": ("eva", "finn", "gus", "hana")}
CITIES = ("oslo", "rome", "lima", "bern")


def build_pair(name: str, index: int) -> tuple[Any, Any]:
    """Question and key number `index` of the split `name`."""
    from napmem_rl.schema import AnswerKey, Task

    person, city, task_id = PEOPLE[name][index % 4], CITIES[index % 4], f"{name}-{index}"
    task = Task(task_id=task_id, bank_id=person, question=f"where does {person} live ?", category="fact", needs_memory=True, asked_at="2024-04-01T00:00:00")
    return task, AnswerKey(task_id=task_id, references=(city,), evidence_ids=("msg:1",))


def write_packet_data(directory: Path, *, num_train: int, num_dev: int = 4) -> list[Any]:
    """Banks, rows and `model`, the untrained policy. Returns rows with packets, taught by fixed rules."""
    from napmem_rl.backend.tiny_packets import save_tiny_policy
    from napmem_rl.data.packet_demonstrations import teach
    from napmem_rl.data.packet_teacher import GoldTeacher
    from napmem_rl.data.rows import save_rows
    from napmem_rl.data.splits import hash_assignment
    from napmem_rl.memory.bank import MemoryBank, save_bank
    from napmem_rl.schema import Message, Profile, Record, RecordType
    from napmem_rl.systems.memchain.candidates import BankViews, CandidateConfig, retrieve_candidates
    from napmem_rl.systems.memchain.packet import FULL

    for person, city in [pair for people in PEOPLE.values() for pair in zip(people, CITIES, strict=True)]:
        texts = {"msg:1": f"i live in {city}", "msg:2": "i like tea"}
        messages = [
            Message(message_id=name, session_id="s1", role="user", speaker=person, text=text, time=f"2024-03-0{number}T10:00:00")
            for number, (name, text) in enumerate(texts.items(), start=1)
        ]
        record = Record(record_id="rec:1", type=RecordType.FACT, text=texts["msg:1"], time=messages[0].time, source_ids=("msg:1",), session_id="s1")
        profile = Profile(text=f"{person} lives in {city}", time=messages[1].time, source_ids=("rec:1",))
        save_bank(directory / "banks" / person, bank_id=person, messages=messages, records=[record], tracks=[], profile=profile, writer="test")
    tasks = {}
    for name, count in (("train", num_train), ("dev", num_dev)):
        pairs = [build_pair(name, index) for index in range(count)]
        save_rows(directory / f"{name}.parquet", pairs, data_source="tiny")
        tasks[name] = [task.task_id for task, _ in pairs]
    groups = {person: person for people in PEOPLE.values() for person in people}
    meta = {"banks": {person: {"group": person} for person in groups}, "split": PEOPLE, "assignment_sha256": hash_assignment(PEOPLE, groups, tasks)}
    (directory / "data.json").write_text(json.dumps(meta))

    def find(task: Any) -> Any:
        return retrieve_candidates(task, BankViews(MemoryBank.open(directory / "banks" / task.bank_id), encoder=None), CandidateConfig(max_candidates=2))

    rows = teach([build_pair("train", index) for index in range(4)], find, GoldTeacher(), FULL).rows
    save_tiny_policy(directory / "model", rows, max_length=256, seed=0)
    return list(rows)


def learn_packets(path: Path, rows: Sequence[Any], agent: Any, *, steps: int = 80) -> None:
    """Train the tiny policy of a directory on packets, in place, by the quickstart's loop, which learns their form sooner than AdamW does."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from napmem_rl.algos.packing import PACKED_ATTENTION, register_packed_attention
    from napmem_rl.backend.tiny_sft import Document, SftSettings, train_sft
    from napmem_rl.data.packet_demonstrations import build_packet_demonstrations
    from napmem_rl.systems.memchain.packet import FULL

    register_packed_attention()
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation=PACKED_ATTENTION)
    made = build_packet_demonstrations(rows, AutoTokenizer.from_pretrained(path), form=FULL, agent=agent)
    documents = [Document(one.token_ids, one.loss_mask) for one in made]
    train_sft(model, lambda progress: list(documents), SftSettings(steps=steps, batch_size=16))
    model.save_pretrained(path)
