"""What a memory is worth and what it costs, in one run: coverage, recall, latency, scale and storage.

A part whose needs are absent (no data, no model) is absent from the figures, with the reason; it is never zero. `launch/bench_memory.py` is the command.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from napmem_rl.data.locomo import load_locomo
from napmem_rl.data.source import SourceSet
from napmem_rl.data.splits import load_split_file
from napmem_rl.errors import ConfigError, NapMemError
from napmem_rl.evals.memory_coverage import measure_coverage
from napmem_rl.evals.memory_latency import measure_latency
from napmem_rl.evals.memory_recall import measure_recall
from napmem_rl.evals.memory_scale import measure_scale
from napmem_rl.evals.memory_storage import measure_storage
from napmem_rl.retrieval.encoder import CachedEncoder, Encoder, load_encoder

PARTS = ("coverage", "recall", "latency", "scale", "storage")
DEFAULT_SIZES = (1_000, 10_000, 100_000)
CACHED_TEXTS = 60_000

Row = Mapping[str, Any]


class Absent(Exception):
    """A part cannot be measured here; the message says why."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkRun:
    """What one run measures, and with what.

    Attributes:
        locomo: LoCoMo's JSON file; None: coverage, recall and storage are absent.
        split: a split file, to report each split by itself.
        encoder_name: as in recipes: "minilm", "hashing", "none" or a model directory.
        sizes: messages of the banks that scale and latency are measured on.
        report: takes progress, one line at a time.
    """

    locomo: Path | None
    split: Path | None = None
    encoder_name: str = "minilm"
    sizes: Sequence[int] = DEFAULT_SIZES
    report: Callable[[str], None]

    def measure(self, parts: Sequence[str]) -> dict[str, Any]:
        """Measure these parts, one after the other.

        Returns:
            The machine, and for each part its seconds and either "rows" or "absent" with the reason.

        Raises:
            ConfigError: an unknown part.
        """
        unknown = [part for part in parts if part not in PARTS]
        if unknown:
            raise ConfigError.of("memory benchmark", "unknown part", got=unknown[0], expected=f"one of {', '.join(PARTS)}")
        figures: dict[str, Any] = {"machine": describe_machine(), "encoder": self.encoder_name}
        for part in parts:
            started = time.perf_counter()
            try:
                measured: dict[str, Any] = {"rows": list(getattr(self, f"_measure_{part}")())}
            except (Absent, NapMemError) as error:
                measured = {"absent": str(error)}
            figures[part] = {"seconds": round(time.perf_counter() - started, 1), **measured}
            self.report(f"{part}: {figures[part].get('absent') or 'done'}, {figures[part]['seconds']} s")
        return figures

    @cached_property
    def _source(self) -> SourceSet:
        if self.locomo is None:
            raise Absent("no LoCoMo file was given (--locomo FILE)")
        return load_locomo(self.locomo)

    @cached_property
    def _encoder(self) -> Encoder | None:
        """Shared by all parts: no text is encoded twice."""
        encoder = load_encoder(self.encoder_name)
        return None if encoder is None else CachedEncoder(encoder, max_texts=CACHED_TEXTS)

    @cached_property
    def _split_of(self) -> Mapping[str, str] | None:
        return None if self.split is None else load_split_file(self.split, self._source.groups.values())

    def _measure_coverage(self) -> list[Row]:
        return measure_coverage(self._source, encoder=self._encoder, split_of=self._split_of, report=self.report)

    def _measure_recall(self) -> list[Row]:
        return measure_recall(self._source, encoder=self._encoder, split_of=self._split_of, report=self.report)

    def _measure_latency(self) -> list[Row]:
        if importlib.util.find_spec("faiss") is None:
            raise Absent("faiss is not installed")
        return measure_latency(self.sizes, report=self.report)

    def _measure_scale(self) -> Iterator[Row]:
        for size in self.sizes:
            with tempfile.TemporaryDirectory() as scratch:
                yield measure_scale(size, Path(scratch))
            self.report(f"scale: {size} messages")

    def _measure_storage(self) -> list[Row]:
        return [measure_storage(self._source.banks, report=self.report)]


def describe_machine() -> str:
    """For whoever reads the figures elsewhere, e.g. "x86_64, 2 cores, Python 3.11.7"."""
    return f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}"


def render_figures(figures: Mapping[str, Any]) -> str:
    """The figures as text, a table a part."""
    blocks = [f"{figures['machine']}; encoder {figures['encoder']}"]
    for part in PARTS:
        if part not in figures:
            continue
        measured = figures[part]
        body = f"absent: {measured['absent']}" if "absent" in measured else render_rows(measured["rows"])
        blocks.append(f"{part} ({measured['seconds']} s)\n{body}")
    return "\n\n".join(blocks)


def render_rows(rows: Sequence[Row]) -> str:
    """Rows as a text table, upright or on its side, whichever is narrower."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    upright = [names, *([_render_value(row.get(name)) for name in names] for row in rows)]
    aside = [list(line) for line in zip(*upright, strict=True)]
    return min((_align(upright), _align(aside)), key=lambda text: len(text.partition("\n")[0]))


def _align(cells: Sequence[Sequence[str]]) -> str:
    """Lines of cells, the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]) for line in cells)


def _render_value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
