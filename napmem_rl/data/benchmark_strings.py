"""A scan of prompts, recipes, code, tests and docs for words of a benchmark: what stands in a prompt is known to the policy before it is asked.

Questions, options and answers are cut into runs of `RUN` words (letters and digits, in lower case); a text of a file that holds one of them, over line breaks
too, is found. A question or answer of `WHOLE` to `RUN` - 1 words is looked for as a whole. Shorter ones are words that any text may hold, and are passed over.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from napmem_rl.data.source import DataSource
from napmem_rl.errors import DataError

RUN = 8
WHOLE = 6
_WORD = re.compile(r"\w+")
_SHOWN = 5
SCANNED = ("napmem_rl/**/*.py", "launch/**/*.py", "tests/**/*.py", "recipes/**/*.yaml", "docs/*.md", "*.md")


@dataclass(frozen=True, slots=True)
class Finding:
    """Words of a benchmark's task in a file."""

    path: Path
    words: str
    task_id: str


def index_runs(sources: Iterable[DataSource]) -> dict[str, str]:
    """Run of words -> a task whose question, option or answer holds it."""
    runs: dict[str, str] = {}
    for source in sources:
        for part in source.parts():
            for task, key in part.items:
                for text in (task.question, *task.options, *key.references):
                    runs |= dict.fromkeys(_cut(text), task.task_id)
    return runs


def scan(files: Iterable[Path], runs: Mapping[str, str]) -> list[Finding]:
    """What of a benchmark stands in files: at most one finding a file and task."""
    lengths = sorted({run.count(" ") + 1 for run in runs})
    found: dict[tuple[Path, str], Finding] = {}
    for path in files:
        words = _words(path.read_text(encoding="utf-8", errors="replace"))
        for length in lengths:
            for start in range(len(words) - length + 1):
                run = " ".join(words[start : start + length])
                if run in runs:
                    found.setdefault((path, runs[run]), Finding(path, run, runs[run]))
    return list(found.values())


def find_scanned_files(root: Path) -> list[Path]:
    """Everything that a project holds in words: code with its prompts and demonstrations, recipes, tests and docs."""
    return sorted({path for pattern in SCANNED for path in root.glob(pattern)})


def check_no_benchmark_strings(files: Sequence[Path], sources: Iterable[DataSource]) -> None:
    """Refuse files that hold words of a benchmark.

    Raises:
        DataError: it names files, words and tasks.
    """
    findings = scan(files, index_runs(sources))
    if findings:
        shown = "; ".join(f"{finding.path} holds {finding.words!r} of {finding.task_id}" for finding in findings[:_SHOWN])
        more = f" (and {len(findings) - _SHOWN} more)" if len(findings) > _SHOWN else ""
        raise DataError.of("prompts and recipes", f"hold words of a benchmark: {shown}{more}", fix="Write samples of your own.")


def _cut(text: str) -> Iterator[str]:
    words = _words(text)
    if WHOLE <= len(words) < RUN:
        yield " ".join(words)
    for start in range(len(words) - RUN + 1):
        yield " ".join(words[start : start + RUN])


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
