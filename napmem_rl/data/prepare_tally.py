"""What is kept of a source while its banks are written: questions, groups, versions, counts, fingerprints, and what was repaired."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from napmem_rl.data.overlap import Fingerprints
from napmem_rl.data.rows import check_pairs
from napmem_rl.data.source import DataSource, Repair, SourcePart
from napmem_rl.data.splits import SPLITS, assign_splits, check_disjoint, hash_assignment, load_split_file, split_items
from napmem_rl.errors import DataError
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.tools.spec import shorten

Pairs = list[tuple[Task, AnswerKey]]
Rows = dict[str, Pairs]  # by split
_EXAMPLES = 2  # shown of each kind of repair


class Tally:
    """Everything of a source but its messages. Its parts are taken once, in order (`take_all`); then groups get their splits (`assign`)."""

    def __init__(self, source: DataSource) -> None:
        self._source = source
        self.groups: dict[str, str] = {}  # bank id -> group id
        self.versions: dict[str, str] = {}  # bank id -> version, by whoever builds the bank
        self.items: Pairs = []
        self.repairs: list[Repair] = []
        self.fingerprints = Fingerprints()
        self._num_messages = 0

    def take_all(self) -> Iterator[SourcePart]:
        """The parts of the source, each counted and handed on.

        Raises:
            DataError: a bank id stands twice, a question belongs to no bank or cannot be asked, or the source cannot be read.
        """
        for part in self._source.parts():
            for bank in part.banks:
                if bank.bank_id in self.groups:
                    raise DataError.of(f"source {self._source.name}", "a bank id stands twice", got=bank.bank_id, expected="unique ids")
                self.groups[bank.bank_id] = bank.group_id
                self._num_messages += len(bank.messages)
                if not self._source.is_generated:
                    self.fingerprints.add(bank.bank_id, bank.group_id, bank.messages)
            if part.items:
                check_pairs(f"of {self._source.name}", part.items)
            self.items += part.items
            self.repairs += part.repairs
            yield part
        if not self.groups:
            raise DataError.of(f"source {self._source.name}", "holds no users")
        homeless = [task for task, _ in self.items if task.bank_id not in self.groups]
        if homeless:
            problem = f"{len(homeless)} questions belong to no bank, the first is {homeless[0].task_id}"
            raise DataError.of(f"source {self._source.name}", problem, got=homeless[0].bank_id, expected=f"one of {len(self.groups)} banks")

    def assign(self, split_path: Path | None) -> dict[str, str]:
        """Group id -> split. Groups that share messages get one split, unless the source is a benchmark.

        Raises:
            DataError: a split file that is none, that has no place for a group, that trains on a benchmark, or that parts groups which share messages.
        """
        groups = set(self.groups.values())
        if self._source.is_benchmark:
            return self._assign_benchmark(split_path, groups)
        dropped = self.fingerprints.drop_phrases()
        if dropped:
            where = f"{dropped} texts"
            self.repairs.append(Repair(group_id="(all)", where=where, kind="phrases_not_compared", before="said by many users", after="not compared"))
        joined = {group: group for group in groups} | self.fingerprints.join_groups()
        if split_path is not None:
            assigned = load_split_file(split_path, groups)
            for group, first in joined.items():
                if assigned[group] != assigned[first]:
                    problem = f"{first} is in {assigned[first]} and {group} is in {assigned[group]}, but they share messages, directly or through others"
                    raise DataError.of(f"split file {split_path}", problem, fix="Put groups that share messages into one split.")
            return assigned
        by_first = assign_splits(joined.values())
        for group, first in sorted(joined.items()):
            if group != first:
                self.repairs.append(Repair(group_id=group, where="split", kind="groups_joined", before=group, after=f"same split as {first}: shared messages"))
        return {group: by_first[first] for group, first in joined.items()}

    def _assign_benchmark(self, split_path: Path | None, groups: set[str]) -> dict[str, str]:
        assigned = load_split_file(split_path, groups) if split_path is not None else dict.fromkeys(groups, "test")
        trained = sorted(group for group, split in assigned.items() if split == "train")
        if trained:
            problem = f"{self._source.name} is for evaluation alone, and {len(trained)} groups are in train"
            raise DataError.of(f"split file {split_path}", problem, got=trained[0], expected="dev or test")
        return assigned

    def split_rows(self, assigned: Mapping[str, str]) -> Rows:
        """The questions of each split that has some."""
        rows = split_items(self.items, self.groups, assigned)
        check_disjoint(rows, self.groups)
        return rows

    def describe(self, assigned: Mapping[str, str], rows: Rows) -> dict[str, Any]:
        """What data.json says: groups of each split, the hash of it all, banks with group, split and version, counts and repairs."""
        split = {name: sorted(group for group, given in assigned.items() if given == name) for name in SPLITS}
        return {
            "rows": {name: len(pairs) for name, pairs in rows.items()},
            "split": split,
            "assignment_sha256": hash_assignment(split, self.groups, {name: [task.task_id for task, _ in pairs] for name, pairs in rows.items()}),
            "banks": {bank: {"group": group, "split": assigned[group], "version": self.versions[bank]} for bank, group in self.groups.items()},
            "summary": {
                "banks": len(self.groups),
                "messages": self._num_messages,
                "questions": len(self.items),
                "questions_by_category": dict(sorted(Counter(task.category for task, _ in self.items).items())),
                "questions_by_kind": dict(sorted(Counter(str(key.kind) for _, key in self.items).items())),
                "questions_without_evidence": sum(1 for _, key in self.items if not key.evidence_ids),
                "repairs_by_kind": dict(sorted(Counter(repair.kind for repair in self.repairs).items())),
            },
            "repairs": [dataclasses.asdict(repair) for repair in self.repairs],
        }

    def describe_repairs(self) -> list[str]:
        """What was repaired, left out or found, as a table: kind, count, and some cases."""
        by_kind: dict[str, list[Repair]] = {}
        for repair in self.repairs:
            by_kind.setdefault(repair.kind, []).append(repair)
        if not by_kind:
            return ["nothing was repaired or left out"]
        width = max(len(kind) for kind in by_kind)
        lines = [f"repaired, left out or found (all cases in data.json):\n  {'kind':<{width}}  cases  for example"]
        for kind, repairs in sorted(by_kind.items()):
            shown = "; ".join(_describe_repair(repair) for repair in repairs[:_EXAMPLES])
            lines.append(f"  {kind:<{width}}  {len(repairs):>5}  {shown}")
        return lines


def _describe_repair(repair: Repair) -> str:
    change = f"{shorten(repair.before, 40)!r} → {shorten(repair.after, 40)!r}" if repair.after else f"left out: {shorten(repair.before, 40)!r}"
    return f"{repair.group_id}, {repair.where}: {change}"
