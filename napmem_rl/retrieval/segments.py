"""Search indexes on disk: sealed runs of passages that any later version of a bank with the same beginning reuses.

::

    <directory>/<level>-<number of passages>-<prefix key>-words/              inverted lists
    <directory>/<level>-<number of passages>-<prefix key>-tantivy/            inverted lists of very many passages
    <directory>/<level>-<number of passages>-<prefix key>-<encoder>-<digest>/ vectors of one encoder, half precision; a graph over very many

Each is a directory that comes whole or not at all, with a `meta.json` that holds a checksum of every file. All of it is derived: what is missing, damaged or
of another format is computed again, and the log says why.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from napmem_rl.atomic import swap_directories
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.retrieval.hnsw import HnswGraph
from napmem_rl.retrieval.passages import PassageSource
from napmem_rl.retrieval.postings import Postings
from napmem_rl.retrieval.tantivy_words import TantivyWords, write_tantivy

FORMAT = 1  # of these files and of the passages' texts: raise it where either changes
META = "meta.json"
WORDS = "words"
TANTIVY = "tantivy"
VECTORS = "vectors.npy"
GRAPH = "graph.faiss"
_LOG = logging.getLogger(__name__)
_CHUNK = 1 << 24  # bytes of one step of a checksum
_Part = TypeVar("_Part")


class SegmentStore:
    """The sealed runs of one level of one bank. A directory that cannot be written is a warning, never an error."""

    def __init__(self, directory: Path, level: str) -> None:
        """Args:
        directory: of the index; it need not exist.
        level: a name without a dash, e.g. "raw".
        """
        self._directory = directory
        self._level = level

    def load_words(self, source: PassageSource) -> Postings | None:
        """The longest stored inverted lists that `source` begins with, memory-mapped; None where there are none."""
        return self._load_longest(source, WORDS, _read_words)

    def load_tantivy(self, source: PassageSource) -> TantivyWords | None:
        """The longest stored lists of tantivy that `source` begins with; None where there are none."""
        return self._load_longest(source, TANTIVY, _read_tantivy)

    def load_graph(self, source: PassageSource, encoder: Encoder) -> tuple[HnswGraph, np.ndarray] | None:
        """The longest stored vectors that `source` begins with and the graph over them; None where there are none, or none with a graph."""
        return self._load_longest(source, name_vectors(encoder), lambda path, stop: _read_graph(path, stop, encoder), needs=GRAPH)

    def load_vectors(self, source: PassageSource, encoder: Encoder) -> np.ndarray | None:
        """The longest stored vectors of `encoder` that `source` begins with, [stop, dim] float16, memory-mapped; None where there are none."""
        return self._load_longest(source, name_vectors(encoder), lambda path, stop: _read_vectors(path, stop, encoder))

    def save_words(self, source: PassageSource, postings: Postings) -> bool:
        """Store the inverted lists of all of `source`, in place of shorter ones. This and the others below: True where that was done."""

        def write(path: Path) -> dict[str, Any]:
            for name in ("starts", "passages", "counts", "lengths"):
                np.save(path / f"{name}.npy", getattr(postings, name), allow_pickle=False)
            (path / "vocabulary.json").write_text(json.dumps(list(postings.vocabulary), ensure_ascii=False), encoding="utf-8")
            return {}

        return self._save(source, WORDS, write)

    def save_tantivy(self, source: PassageSource, base: TantivyWords | None) -> bool:
        """Store all of `source` in tantivy; what `base` holds is taken over as it is."""
        return self._save(source, TANTIVY, lambda path: {"num_words": write_tantivy(path / TANTIVY, source, base)})

    def save_vectors(self, source: PassageSource, encoder: Encoder, vectors: np.ndarray, *, with_graph: bool) -> bool:
        """Store the vectors of all of `source`, [n, dim] float16, in place of shorter ones. `with_graph`: and a graph over them, out of a shorter one's."""

        def write(path: Path) -> dict[str, Any]:
            np.save(path / VECTORS, vectors, allow_pickle=False)
            if with_graph:
                shorter = self.load_graph(source, encoder)  # one of our own, since it grows
                graph = shorter[0] if shorter else HnswGraph.build(vectors)
                graph.add(vectors)
                graph.save(path / GRAPH)
            return {"encoder": encoder.name, "dim": encoder.dim}

        return self._save(source, name_vectors(encoder), write)

    def _find(self, source: PassageSource, kind: str) -> Iterator[tuple[int, Path]]:
        """Stored runs that `source` begins with, longest first, as (number of passages, directory)."""
        pattern = re.compile(rf"{re.escape(self._level)}-(\d+)-([0-9a-f]+)-{re.escape(kind)}")
        names = [path.name for path in self._directory.glob(f"{self._level}-*")] if self._directory.is_dir() else []
        runs = [(int(match[1]), match[2], name) for name in names if (match := pattern.fullmatch(name))]
        for stop, key, name in sorted(runs, reverse=True):
            if stop <= len(source) and (source.prefix_key(stop) or "")[:16] == key:
                yield stop, self._directory / name

    def _load_longest(self, source: PassageSource, kind: str, read: Callable[[Path, int], _Part], *, needs: str = META) -> _Part | None:
        for stop, path in self._find(source, kind):
            if not (path / needs).exists():
                continue
            try:
                _check_files(path)
                return read(path, stop)
            except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
                _LOG.warning("%s cannot be used (%s); it is computed again", path, error)
        return None

    def _save(self, source: PassageSource, kind: str, write: Callable[[Path], dict[str, Any]]) -> bool:
        """Write one run as a whole and remove the shorter ones that it holds. False where that failed, or where the passages do not end with a commit."""
        stop, key = len(source), source.prefix_key(len(source))
        if key is None or stop == 0:
            return False
        path = self._directory / f"{self._level}-{stop}-{key[:16]}-{kind}"
        fresh = self._directory / f".{path.name}.{uuid.uuid4().hex}.tmp"
        try:
            fresh.mkdir(parents=True)
            meta = write(fresh)
            sums = {str(file.relative_to(fresh)): _sum_file(file) for file in fresh.rglob("*") if file.is_file()}
            (fresh / META).write_text(json.dumps({"format": FORMAT, "files": sums, **meta}), encoding="utf-8")
            swap_directories(fresh, path)
        except (OSError, ValueError, RuntimeError) as error:  # of the system, of tantivy, of faiss
            _LOG.warning("%s cannot be written (%s); each process computes it again", path, error)
            return False
        finally:
            shutil.rmtree(fresh, ignore_errors=True)  # after the swap this is the old one
        for shorter, old in self._find(source, kind):
            if shorter < stop:
                shutil.rmtree(old, ignore_errors=True)
        return True


def name_vectors(encoder: Encoder) -> str:
    """The part of a directory's name that says whose vectors it holds."""
    digest = hashlib.sha256(encoder.name.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9.]+', '_', encoder.name)[:60]}-{digest}"


def _read_words(path: Path, stop: int) -> Postings:
    arrays = {name: np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ("starts", "passages", "counts", "lengths")}
    words = json.loads((path / "vocabulary.json").read_text(encoding="utf-8"))
    if len(arrays["lengths"]) != stop or len(arrays["starts"]) != len(words) + 1:
        raise ValueError(f"{len(arrays['lengths'])} passages and {len(words)} words; expected {stop} passages and one word a row")
    return Postings(vocabulary={word: row for row, word in enumerate(words)}, **{name: array.view(np.ndarray) for name, array in arrays.items()})


def _read_vectors(path: Path, stop: int, encoder: Encoder) -> np.ndarray:
    vectors = np.load(path / VECTORS, mmap_mode="r", allow_pickle=False)
    if vectors.shape != (stop, encoder.dim) or vectors.dtype != np.float16:
        raise ValueError(f"vectors {vectors.shape} of {vectors.dtype}; expected ({stop}, {encoder.dim}) of float16")
    return vectors


def _read_graph(path: Path, stop: int, encoder: Encoder) -> tuple[HnswGraph, np.ndarray]:
    vectors = _read_vectors(path, stop, encoder)
    return HnswGraph.load(path / GRAPH, vectors), vectors


def _read_tantivy(path: Path, stop: int) -> TantivyWords:
    return TantivyWords(path / TANTIVY, stop, json.loads((path / META).read_text(encoding="utf-8"))["num_words"])


def _check_files(path: Path) -> None:
    """Raise ValueError where a file is not what was written."""
    meta = json.loads((path / META).read_text(encoding="utf-8"))
    if meta["format"] != FORMAT:
        raise ValueError(f"format {meta['format']!r}, expected {FORMAT}")
    wrong = [name for name, checksum in meta["files"].items() if _sum_file(path / name) != checksum]
    if wrong:
        raise ValueError(f"damaged: {', '.join(wrong)}")


def _sum_file(path: Path) -> int:
    """CRC-32 of a file's content."""
    checksum = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return checksum
