"""Where else a forgotten text may stand: caches of a language model's replies, and run directories. Looked through, and cleaned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from napmem_rl.errors import ConfigError
from napmem_rl.memory.forgetting import ForgetPlan
from napmem_rl.memory.text_traces import Traces
from napmem_rl.memory.trace_files import Action, TracedFile, clean_file, find_entries, trace_run

_WORDS = {
    Action.CLEANED: "what quotes it gives way to a mark",
    Action.REMOVED: "removed",
    Action.LEFT: "of no kind that can be cleaned: look at it by hand",
    Action.UNREAD: "cannot be unpacked: look at it by hand",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Where a text is quoted. Computed before anything is changed."""

    traces: Traces
    entries: dict[Path, list[Path]]  # by cache
    runs: dict[Path, list[TracedFile]]

    def describe(self) -> Iterator[str]:
        """One line for each cache, and one for each file of a run that quotes it."""
        for directory, paths in self.entries.items():
            yield f"cache {directory}: {len(paths)} entries quote it"
        for directory, files in self.runs.items():
            quoting = [file for file in files if file.action is not Action.WEIGHTS]
            yield f"run {directory}: {len(quoting)} files quote it" if quoting else f"run {directory}: no file quotes it"
            yield from (f"  {file.path.relative_to(directory) if file.path != directory else file.path.name}: {_WORDS[file.action]}" for file in quoting)
            if num_weights := len(files) - len(quoting):
                yield f"  {num_weights} files of weights: a model that was trained on it may have learned it, which no command can undo; train again without it"
        if (self.entries or self.runs) and self.traces.num_short:
            yield f"{self.traces.num_short} texts are too short to be looked for there"

    def clean(self) -> Counter[Action]:
        """Remove the entries, clean the files; returns what was done how often. Again is no harm: a cleaned file quotes nothing."""
        done: Counter[Action] = Counter()
        for path in (path for paths in self.entries.values() for path in paths):
            path.unlink(missing_ok=True)
            done[Action.REMOVED] += 1
        for file in (file for files in self.runs.values() for file in files):
            clean_file(file, self.traces)
            done[file.action] += 1
        return done


def find_places(plan: ForgetPlan, caches: Sequence[Path], runs: Sequence[Path]) -> Places:
    """Look for what goes in some directories.

    Raises:
        ConfigError: one is not there.
    """
    for option, directories in (("--caches", caches), ("--runs", runs)):
        for directory in directories:
            if not directory.exists():
                raise ConfigError.of(f"{option} {directory}", "is not there", fix="Nothing was changed.")
    kept = [text for message in plan.left for text in (message.text, message.caption) if text]
    kept += [revision.record.text for revision in plan.remains.revisions]
    traces = Traces(plan.texts, kept=kept) if caches or runs else Traces(())
    return Places(traces=traces, entries={path: find_entries(path, traces) for path in caches}, runs={path: trace_run(path, traces) for path in runs})
