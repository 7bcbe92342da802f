"""Which episodes a page of limited size shows: whole groups, every way to fail, the first and the last step, and the rest evenly over the steps."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from napmem_rl.report.episodes import Entry

EDGE_SHARE = 0.2  # of the places go to the first step, and as many to the last
MAX_BYTES = 9_000_000  # of trajectory lines without token ids

Group = tuple[Entry, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The chosen groups in order, and how they were chosen, in words."""

    groups: tuple[Group, ...]
    num_all: int
    how: str

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All chosen episodes."""
        return tuple(itertools.chain.from_iterable(self.groups))


def build_groups(entries: Sequence[Entry]) -> list[Group]:
    """Siblings together, in order of kind, step and task, each group by sample number."""
    groups: dict[tuple[str, int, str, str, int], list[Entry]] = defaultdict(list)
    for entry in entries:
        groups[entry.group].append(entry)
    return [tuple(sorted(groups[key], key=lambda entry: (entry.sample, entry.line))) for key in sorted(groups)]


def choose_groups(entries: Sequence[Entry], *, max_episodes: int, max_bytes: int = MAX_BYTES) -> Selection:
    """Choose groups until `max_episodes` or `max_bytes` is reached; the same run gives the same choice.

    In this order: for each cause of failure one group, then the first and the last step of training and of validation, then groups evenly over all steps.
    """
    groups = build_groups(entries)
    total = sum(len(group) for group in groups)
    if total <= max_episodes and sum(_size(group) for group in groups) <= max_bytes:
        return Selection(groups=tuple(groups), num_all=total, how="all episodes of the run")
    chosen: dict[int, Group] = {}
    room, size = max_episodes, max_bytes
    for index in _in_order_of_worth(groups, max_episodes):
        group = groups[index]
        if index not in chosen and len(group) <= room and _size(group) <= size:
            chosen[index] = group
            room, size = room - len(group), size - _size(group)
    how = "whole groups: one of each way to fail, some of the first and the last step, the rest evenly over the steps"
    return Selection(groups=tuple(chosen[index] for index in sorted(chosen)), num_all=total, how=how)


def _in_order_of_worth(groups: Sequence[Group], max_episodes: int) -> Iterator[int]:
    """Indices of groups, the most telling first; an index may come twice."""
    seen: set[str] = set()
    for index, group in enumerate(groups):
        causes = {entry.cause for entry in group if entry.cause is not None}
        if causes - seen:
            seen |= causes
            yield index
    yield from _edges(groups, max_episodes)
    by_step: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        by_step[group[0].kind, group[0].step].append(index)
    steps = [by_step[key] for key in sorted(by_step)]
    for place in range(max(map(len, steps), default=0)):  # one group of each step, the steps spread, then a second one of each, …
        yield from (steps[number][place] for number in spread(len(steps)) if place < len(steps[number]))


def _edges(groups: Sequence[Group], max_episodes: int) -> Iterator[int]:
    for kind in sorted({group[0].kind for group in groups}):
        steps = [group[0].step for group in groups if group[0].kind == kind]
        for edge in dict.fromkeys((min(steps), max(steps))):
            room = EDGE_SHARE * max_episodes
            for index, group in enumerate(groups):
                if group[0].kind == kind and group[0].step == edge and room >= len(group):
                    room -= len(group)
                    yield index


def spread(count: int) -> list[int]:
    """The numbers below `count` in an order whose every beginning is spread over the whole, e.g. 5 gives [0, 4, 2, 1, 3]."""
    if count <= 0:
        return []
    order, seen = [0], {0}
    if count > 1:
        order.append(count - 1)
        seen.add(count - 1)
    parts = 2
    while len(order) < count:
        for k in range(1, parts, 2):
            number = round(k * (count - 1) / parts)
            if number not in seen:
                seen.add(number)
                order.append(number)
        parts *= 2
    return order


def _size(group: Group) -> int:
    return sum(entry.shown_size for entry in group)
