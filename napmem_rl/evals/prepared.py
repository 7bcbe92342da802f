"""A benchmark as launch/prepare_data.py has left it: questions with keys, the groups of their banks, and the versions that the banks must have."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from napmem_rl.data.control_files import FunctionKey, FunctionTask, load_functions
from napmem_rl.data.rows import load_rows
from napmem_rl.data.splits import META, SPLITS, read_json
from napmem_rl.errors import ConfigError, DataError
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.tools.spec import ToolSpec

DEFAULT_SPLITS = ("test", "dev")  # the first that is there, unless one is named


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """One split of a prepared directory. `groups` and `versions` are by bank id, of all banks of the directory."""

    name: str
    directory: Path
    split: str
    items: tuple[tuple[Task, AnswerKey], ...]
    num_available: int  # questions of the split before `limit`
    groups: Mapping[str, str]
    versions: Mapping[str, str]
    source: str  # what the data is, e.g. "locomo"
    sha256: str  # of data.json and the split's rows: what was asked of
    function_tasks: tuple[tuple[FunctionTask, FunctionKey], ...] = ()  # control tasks that ask for function calls

    @property
    def banks_dir(self) -> Path:
        """Holds a directory a bank."""
        return self.directory / "banks"

    @property
    def keys(self) -> dict[str, AnswerKey]:
        """By task id."""
        return {task.task_id: key for task, key in self.items}

    @property
    def evidence(self) -> dict[str, tuple[str, ...]]:
        """Gold message ids by task id, for a policy that is given them."""
        return {task.task_id: key.evidence_ids for task, key in self.items}

    @property
    def functions(self) -> dict[str, tuple[ToolSpec, ...]]:
        """What each control task with functions offers, by task id."""
        return {one.task.task_id: one.functions for one, _ in self.function_tasks}


def load_benchmarks(wanted: Sequence[str], named: Mapping[str, str], *, limit: int | None, seed: int) -> list[Benchmark]:
    """Each benchmark that is asked for.

    Args:
        wanted: names of `named`, directories, or DIR:split.
        named: the recipe's `benchmarks`.
        limit: questions of each, drawn by `seed`; None takes all.

    Raises:
        ConfigError: no such directory, name or split; two benchmarks of one name.
        DataError: a directory that cannot be used.
    """
    benchmarks = [_load(text, named, limit, seed) for text in wanted]
    names = [benchmark.name for benchmark in benchmarks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError.of("--on", f"names {twice[0]} twice", got=list(wanted), fix="Give one of the directories a name of its own, under `benchmarks`.")
    return benchmarks


def _load(text: str, named: Mapping[str, str], limit: int | None, seed: int) -> Benchmark:
    place = named.get(text, text)
    directory, split = _split_place(place)
    if not (directory / META).is_file():
        known = f" Names of the recipe: {', '.join(sorted(named))}." if named else ""
        what = f"benchmark {text}"
        fix = f"Prepare it with launch/prepare_data.py.{known}"
        raise ConfigError.of(what, "is no prepared directory", got=str(directory), expected=f"a directory that holds {META}", fix=fix)
    available = [name for name in SPLITS if (directory / f"{name}.parquet").is_file()]
    if split is None:
        split = next((name for name in DEFAULT_SPLITS if name in available), None)
    if split not in available:
        expected = " or ".join(available) or "a split with questions"
        raise ConfigError.of(f"benchmark {text}", f"has no split {split or ' or '.join(DEFAULT_SPLITS)}", expected=f"{directory}:{expected}")
    name = text if text in named else f"{directory.resolve().name}-{split}"
    return load_split(directory.resolve(), split, name=name, limit=limit, seed=seed)


def _split_place(place: str) -> tuple[Path, str | None]:
    """DIR or DIR:split. A directory whose own name ends so is taken as it is."""
    path = Path(place).expanduser()
    head, sign, tail = place.rpartition(":")
    if sign and not path.is_dir() and (tail in SPLITS or (Path(head).expanduser() / META).is_file()):
        return Path(head).expanduser(), tail
    return path, None


def load_split(directory: Path, split: str, *, name: str, limit: int | None = None, seed: int = 0) -> Benchmark:
    """One split of a prepared directory. A question whose bank is not listed stays: it is counted when it cannot be asked.

    Raises:
        DataError: data.json or the rows cannot be used.
    """
    meta = read_json(directory / META, f"data directory {directory}")
    banks = meta.get("banks") if isinstance(meta, dict) else None
    if not isinstance(banks, dict) or not all(isinstance(bank, dict) and {"group", "version"} <= set(bank) for bank in banks.values()):
        fix = "Prepare the directory again with launch/prepare_data.py."
        raise DataError.of(f"data directory {directory}", f"{META} lists no banks with group and version", fix=fix)
    rows = directory / f"{split}.parquet"
    items = load_rows(rows)
    drawn = items if limit is None or limit >= len(items) else draw(items, limit, seed)
    return Benchmark(
        name=name,
        directory=directory,
        split=split,
        items=tuple(drawn),
        num_available=len(items),
        groups={bank_id: str(bank["group"]) for bank_id, bank in banks.items()},
        versions={bank_id: str(bank["version"]) for bank_id, bank in banks.items()},
        source=str(meta.get("source", "")),
        sha256=_hash_files(directory / META, rows),
        function_tasks=tuple(load_functions(directory, [task for task, _ in drawn])),
    )


def draw(items: Sequence[tuple[Task, AnswerKey]], limit: int, seed: int) -> list[tuple[Task, AnswerKey]]:
    """`limit` questions, the same for one seed, in their order."""
    places = sorted(random.Random(seed).sample(range(len(items)), limit))
    return [items[place] for place in places]


def _hash_files(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
