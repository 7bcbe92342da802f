"""Trajectories of a run: a light index of every line, then the lines that are wanted, one at a time.

A run may hold hundreds of thousands of episodes, so the first pass keeps where each line lies and what is needed to choose and to count, not its text.
"""

from __future__ import annotations

import graphlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napmem_rl.report.run_data import Problem, read_lines
from napmem_rl.schema import Status

TRAIN, VALIDATION = "train", "validation"
TOKEN_FIELDS = ("new_prompt_ids", "response_ids")  # of a turn; for `napmem replay`
MAX_TEXT = 20_000  # characters of one text that the page holds
MAX_CAUSE = 90
_FILE = re.compile(r"(step|val)_(\d+)\.worker_.*\.jsonl")
_ASIDE = re.compile(r"\s*\([^()]*\)")
_VARIABLE = re.compile(r"\d+|'[^']*'|\"[^\"]*\"")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: where it lies, and what it is."""

    path: Path
    offset: int  # bytes
    line: int
    kind: str  # TRAIN or VALIDATION
    step: int
    run: str
    task_id: str
    repeat: int
    sample: int
    status: str
    category: str
    reward: float | None
    cause: str | None  # why it has no reward, or did not end well; None where all is well
    calls_by_level: tuple[tuple[str, int], ...]
    num_failed_calls: int
    num_cut_results: int
    size: int  # bytes of the line
    shown_size: int  # of that, without token ids, which no page holds

    @property
    def group(self) -> tuple[str, int, str, str, int]:
        """Episodes of one prompt in one step: the siblings that GRPO compares. A task that a step had twice is two prompts."""
        return (self.kind, self.step, self.run, self.task_id, self.repeat)


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeIndex:
    """Every episode that counts, in order of kind, step, task and sample. `num_repeated` were left out: a later start of the job ran their steps again."""

    entries: tuple[Entry, ...]
    num_repeated: int
    num_bytes: int


def index_episodes(directory: Path, problems: list[Problem], *, pattern: str = "*.jsonl") -> EpisodeIndex:
    """Read every trajectory file once.

    Args:
        directory: holds step_<n>.worker_<m>.jsonl and val_<n>.worker_<m>.jsonl.
        problems: each line that is no episode is added here.
        pattern: of the names of files to read.
    """
    if not directory.is_dir():
        problems.append(Problem(file=str(directory), line=None, text="does not exist: there are no trajectories to show"))
        return EpisodeIndex(entries=(), num_repeated=0, num_bytes=0)
    entries: list[Entry] = []
    order = graphlib.TopologicalSorter[str]()
    for path in sorted(directory.glob(pattern)):
        found = _FILE.fullmatch(path.name)
        if not found:
            continue
        runs: list[str] = []
        for entry in _index_file(path, VALIDATION if found[1] == "val" else TRAIN, problems):
            entries.append(entry)
            if not runs or runs[-1] != entry.run:
                runs.append(entry.run)
        _add_order(order, runs)
    latest = _latest_runs(entries, order)
    kept = [entry for entry in entries if latest[entry.kind, entry.step] == entry.run]
    kept.sort(key=lambda entry: (entry.kind, entry.step, entry.task_id, entry.repeat, entry.sample))
    return EpisodeIndex(entries=tuple(kept), num_repeated=len(entries) - len(kept), num_bytes=sum(entry.size for entry in kept))


def load_episodes(entries: Sequence[Entry]) -> dict[Entry, dict[str, Any]]:
    """The episodes of these lines, ready for the page; each file is opened once."""
    episodes = {}
    by_file = sorted(entries, key=lambda entry: (entry.path, entry.offset))
    for path, members in itertools.groupby(by_file, key=lambda entry: entry.path):
        with path.open("rb") as stream:
            for entry in members:
                stream.seek(entry.offset)
                episodes[entry] = shape_episode(json.loads(stream.read(entry.size)), entry)
    return episodes


def shape_episode(raw: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
    """One episode as plain data of known types, whatever its line holds beside them; overlong texts are cut and say so."""
    return {
        "kind": entry.kind,
        "step": entry.step,
        "run": entry.run,
        "sample": entry.sample,
        "task": entry.task_id,
        "source": _text(raw.get("data_source")),
        "bank": _text(raw.get("bank_id")),
        "type": entry.category,
        "needs_memory": raw.get("needs_memory") if isinstance(raw.get("needs_memory"), bool) else None,
        "question": _text(raw.get("question")),
        "options": [_text(option) for option in _list(raw.get("options"))],
        "asked_at": _text(raw.get("asked_at")),
        "status": entry.status,
        "detail": _text(raw.get("detail")),
        "answer": None if raw.get("final_answer") is None else _text(raw["final_answer"]),
        "reward": entry.reward,
        "abstained": None if raw.get("abstained") is None else _text(raw["abstained"]),
        "cause": entry.cause,
        "terms": {_text(name): _number(value) for name, value in _mapping(raw.get("terms")).items()},
        "judge": _text(raw.get("judge")),
        "version": _number(raw.get("policy_version")),
        "turns": [_shape_turn(_mapping(turn)) for turn in raw["turns"]],
        "packet": _shape_packet(raw["packet"]) if isinstance(raw.get("packet"), Mapping) else None,
    }


def _shape_turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "text": _text(turn.get("text")),
        "error": None if turn.get("error") is None else _text(turn["error"]),
        "prompt_tokens": _number(turn.get("num_prompt_tokens")),
        "response_tokens": _number(turn.get("num_response_tokens")),
        "calls": [_shape_call(_mapping(call)) for call in _list(turn.get("calls"))],
    }


def _shape_packet(packet: Mapping[str, Any]) -> dict[str, Any]:
    """MemChain's packet (`systems/memchain/rendering.py`): what was read, written and made of it."""
    plan = packet.get("plan")
    candidates = [_mapping(item) for item in _list(packet.get("candidates"))]
    actions = [_mapping(item) for item in _list(packet.get("actions"))]
    return {
        "candidates": [{name: _text(item.get(name)) for name in ("id", "time", "speaker", "text")} for item in candidates],
        "plan": None if not isinstance(plan, Mapping) else {_text(name): _text(_join(value)) for name, value in plan.items()},
        "trace": [_shape_entry(_mapping(item), "role", "statement", "relation") for item in _list(packet.get("trace"))],
        "actions": [_shape_entry(item, "action", "rationale", "statement") for item in actions],
        "evidence": [_shape_entry(_mapping(item), "statement") for item in _list(packet.get("evidence"))],
        "origin": _text(packet.get("evidence_origin")),
        "removed": [_text(_mapping(item).get("why")) for item in _list(packet.get("removed"))],
        "faults": [_text(fault) for fault in _list(packet.get("faults"))],
        "facts": {_text(name): _number(value) for name, value in _mapping(packet.get("facts")).items()},
    }


def _join(value: Any) -> Any:
    """Several texts as one."""
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _shape_entry(item: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {"ids": [_text(item_id) for item_id in _list(item.get("ids"))]} | {name: _text(item.get(name)) for name in names}


def _shape_call(call: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": _text(call.get("name")),
        "arguments": {_text(name): _text(value) for name, value in _mapping(call.get("arguments")).items()},
        "text": _text(call.get("text")),
        "ok": bool(call.get("is_success")),
        "failure": None if call.get("failure") is None else _text(call["failure"]),
        "level": _text(call.get("level")),
        "items": [_text(item) for item in _list(call.get("item_ids"))],
        "messages": [_text(item) for item in _list(call.get("message_ids"))],
        "latency_s": _number(call.get("latency_s")),
        "cut": bool(call.get("is_truncated")),
    }


def find_cause(status: str, detail: str, abstained: str | None) -> str | None:
    """Why an episode has no reward or did not end well, with what differs from case to case taken out; None for a completed one with a reward.

    Example: ``("error_parse", "tool call holds no valid JSON (… char 62)", None)`` gives ``"error_parse: tool call holds no valid JSON"``.
    """
    if abstained is None and status == Status.COMPLETED:
        return None
    if abstained is not None:
        text = f"no reward: {abstained}"
    else:
        text = f"{status}: {detail}" if detail else status
    while (shorter := _ASIDE.sub("", text)) != text:  # from the innermost brackets outwards
        text = shorter
    words = " ".join(_VARIABLE.sub("…", text).split())
    return words if len(words) <= MAX_CAUSE else words[: MAX_CAUSE - 1] + "…"


def _index_file(path: Path, kind: str, problems: list[Problem]) -> Iterator[Entry]:
    for number, offset, line in read_lines(path):
        try:
            yield _index_line(json.loads(line), path, kind, number, offset, len(line))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problems.append(Problem(file=path.name, line=number, text=f"is no episode ({type(error).__name__}: {error})"))


def _index_line(raw: Mapping[str, Any], path: Path, kind: str, line: int, offset: int, size: int) -> Entry:
    calls = [call for turn in raw["turns"] for call in turn.get("calls", [])]
    levels = sorted({str(call.get("level")) for call in calls})
    abstained = None if raw.get("abstained") is None else str(raw["abstained"])
    status = str(raw["status"])
    return Entry(
        path=path,
        offset=offset,
        line=line,
        kind=kind,
        step=int(raw["step"]),
        run=str(raw.get("run", "")),
        task_id=str(raw["task_id"]),
        repeat=int(raw.get("repeat", 0)),
        sample=int(raw.get("sample", 0)),
        status=status,
        category=str(raw.get("category", "")),
        reward=_number(raw.get("reward")),
        cause=find_cause(status, str(raw.get("detail") or ""), abstained),
        calls_by_level=tuple((level, sum(str(call.get("level")) == level for call in calls)) for level in levels),
        num_failed_calls=sum(not call.get("is_success") for call in calls),
        num_cut_results=sum(bool(call.get("is_truncated")) for call in calls),
        size=size,
        shown_size=size - _count_id_bytes(raw["turns"]),
    )


def _count_id_bytes(turns: Sequence[Mapping[str, Any]]) -> int:
    """Bytes of the token ids of a line, as JSON writes them."""
    return sum(len(repr(ids)) for turn in turns for name in TOKEN_FIELDS if (ids := turn.get(name)) is not None)


def _add_order(order: graphlib.TopologicalSorter[str], runs: Sequence[str]) -> None:
    """Lines are appended, so a run whose lines come later in a file started later."""
    if len(set(runs)) != len(runs):  # two jobs wrote at once: no order to learn
        runs = sorted(set(runs))
    for run in runs:
        order.add(run)
    for earlier, later in zip(runs, runs[1:], strict=False):
        order.add(later, earlier)


def _latest_runs(entries: Sequence[Entry], order: graphlib.TopologicalSorter[str]) -> dict[tuple[str, int], str]:
    """The run that counts for each kind and step."""
    try:
        rank = {run: place for place, run in enumerate(order.static_order())}
    except graphlib.CycleError:
        rank = {run: place for place, run in enumerate(dict.fromkeys(entry.run for entry in entries))}
    latest: dict[tuple[str, int], str] = {}
    for entry in entries:
        key = (entry.kind, entry.step)
        if key not in latest or rank[entry.run] > rank[latest[key]]:
            latest[key] = entry.run
    return latest


def _text(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}\n[… {len(text) - MAX_TEXT:,} more characters in the run's files]"


def _number(value: Any) -> float | None:
    if isinstance(value, bool | int | float) and math.isfinite(value):
        return value
    return None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
