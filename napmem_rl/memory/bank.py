"""A user's memory bank: a verified, read-only snapshot to look things up in.

Nothing changes a bank that is open; `save_bank` puts a new version in its place as a whole (see `storage` for the files).
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from napmem_rl.atomic import write_file
from napmem_rl.errors import BankError
from napmem_rl.memory.pyramid import PROFILE_FILE, PROFILE_ID, Pyramid, find_problems, trace_messages
from napmem_rl.memory.storage import MANIFEST, StoredBank, load_stored_bank, render_files, render_manifest, write_directory
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.retrieval.hybrid import RRF_K, HybridIndex
from napmem_rl.schema import Level, Message, Profile, Record, Track

_LOG = logging.getLogger(__name__)


class MemoryBank:
    """Read-only snapshot of one user's memory. Safe to read and search from several threads.

    Attributes: `path`, `bank_id`, `version`, `writer`, `messages`, `records`, `tracks`, `profile`, `file_names`.
    """

    def __init__(self, path: Path, stored: StoredBank, *, encoder: Encoder | None = None, rrf_k: int = RRF_K) -> None:
        """For `open`, which verifies what is given here."""
        self.path = path
        self.bank_id = stored.bank_id
        self.version = stored.version
        self.writer = stored.writer
        self.messages: tuple[Message, ...] = stored.pyramid.messages
        self.records: tuple[Record, ...] = stored.pyramid.records
        self.tracks: tuple[Track, ...] = stored.pyramid.tracks
        self.profile: Profile = stored.pyramid.profile
        self.file_names: tuple[str, ...] = tuple(sorted(stored.files))
        self._files = dict(stored.files)
        self._messages = {message.message_id: message for message in self.messages}
        self._records = {record.record_id: record for record in self.records}
        self._traces = trace_messages(stored.pyramid)
        self._encoder = encoder
        self._rrf_k = rrf_k
        self._indexes: dict[Level, HybridIndex] = {}
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path, *, encoder: Encoder | None = None, expected_version: str | None = None, rrf_k: int = RRF_K) -> MemoryBank:
        """Read a bank, checking every file's hash and every provenance link.

        Args:
            path: the bank's directory.
            encoder: for dense search; None for BM25 alone.
            expected_version: refuse any other version.
            rrf_k: the constant of the rank fusion.

        Raises:
            BankError: missing, broken, or of another version.
        """
        path = Path(path)
        problems: list[str] = []
        stored = load_stored_bank(path, problems)
        if stored is not None and not problems:
            problems = find_problems(stored.pyramid)
        if stored is None or problems:
            raise _error_of(f"bank {path}", problems, fix="See `napmem bank verify`, or build the bank again.")
        if expected_version not in (None, stored.version):
            fix = "Build it again, or use the data it belongs to."
            raise BankError.of(f"bank {path}", "is of another version", got=stored.version, expected=expected_version, fix=fix)
        return cls(path, stored, encoder=encoder, rrf_k=rrf_k)

    def message(self, message_id: str) -> Message | None:
        """The message of this id, or None."""
        return self._messages.get(message_id)

    def record(self, record_id: str) -> Record | None:
        """The record of this id, or None."""
        return self._records.get(record_id)

    def item(self, item_id: str) -> Message | Record | Track | Profile | None:
        """The item of any level with this id; None for an id that the bank does not hold."""
        if item_id == PROFILE_ID:
            return self.profile
        return self.message(item_id) or self.record(item_id) or next((track for track in self.tracks if track.track_id == item_id), None)

    def file(self, name: str) -> str | None:
        """The Markdown file of exactly this name (a track's, or "profile.md"), front matter included; None for any other string. Never touches the disk."""
        return self._files.get(name)

    def item_of_file(self, name: str) -> Track | Profile | None:
        """The track or profile that a file of `file_names` holds, or None."""
        if name == PROFILE_FILE:
            return self.profile
        return next((track for track in self.tracks if track.file_name == name), None)

    def provenance(self, item_id: str) -> tuple[str, ...]:
        """Ids of the messages that an item of any level rests on, each once; a message rests on itself.

        Raises:
            BankError: no such item.
        """
        if item_id not in self._traces:
            raise BankError.of(f"bank {self.bank_id}", f"holds no item {item_id!r}", fix="Ids look like msg:12, rec:7, trk:3 or profile.")
        return self._traces[item_id]

    def search_records(self, query: str, *, k: int, before: str | None = None) -> list[Record]:
        """The k records that fit the query best, best first; only those at or before the time `before` (ISO 8601) take part."""
        return [self.records[position] for position in self._index(Level.RECORD).search(query, k=k, before=before)]

    def search_messages(self, query: str, *, k: int, before: str | None = None) -> list[Message]:
        """The k messages that fit the query best, best first; only those at or before the time `before` (ISO 8601) take part."""
        return [self.messages[position] for position in self._index(Level.RAW).search(query, k=k, before=before)]

    def build_index(self) -> None:
        """Build both search indexes now rather than at the first search, and leave the vectors on disk for the next process."""
        self._index(Level.RECORD)
        self._index(Level.RAW)

    def _index(self, level: Level) -> HybridIndex:
        index = self._indexes.get(level)
        if index is None:
            with self._lock:
                index = self._indexes.get(level) or self._build_index(level)
                self._indexes[level] = index
        return index

    def _build_index(self, level: Level) -> HybridIndex:
        if level is Level.RAW:
            texts, times = [render_message_passage(message) for message in self.messages], [message.time for message in self.messages]
        else:
            texts, times = [render_record_passage(record) for record in self.records], [record.time for record in self.records]
        vectors = None if self._encoder is None or not texts else self._load_vectors(level, texts, self._encoder)
        return HybridIndex(texts, times, encoder=self._encoder, vectors=vectors, rrf_k=self._rrf_k)

    def _load_vectors(self, level: Level, texts: Sequence[str], encoder: Encoder) -> np.ndarray:
        """Vectors of the passages, [n, dim] float32, from index/ where they are there and fit; computed and left there otherwise."""
        digest = hashlib.sha256(encoder.name.encode()).hexdigest()[:8]
        path = self.path / "index" / f"{re.sub(r'[^A-Za-z0-9.-]+', '_', encoder.name)[:60]}-{digest}.{self.version}.{level}.npy"
        try:
            vectors = np.load(path, allow_pickle=False)
            if vectors.shape == (len(texts), encoder.dim) and vectors.dtype == np.float32 and np.isfinite(vectors).all():
                return vectors
            _LOG.warning("%s does not fit the bank; its vectors are computed again", path)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, EOFError) as error:
            _LOG.warning("%s cannot be read (%s); its vectors are computed again", path, error)
        vectors = encoder.encode(texts)
        stream = io.BytesIO()
        np.save(stream, vectors)
        try:
            write_file(path, stream.getvalue())
        except OSError as error:
            _LOG.warning("%s cannot be written (%s); the vectors are computed again by each process", path, error)
        return vectors


def save_bank(
    path: Path, *, bank_id: str, messages: Sequence[Message], records: Sequence[Record], tracks: Sequence[Track], profile: Profile, writer: str
) -> str:
    """Write a bank as a whole, in place of the one at `path` if there is one.

    Args:
        path: the bank's directory; its parents are made.
        bank_id: whose memory it is.
        messages, records, tracks, profile: the levels, linked by ids.
        writer: what built the upper levels, e.g. "rules".

    Returns:
        The content version: the same content under the same bank id has the same version.

    Raises:
        BankError: a link does not hold, or `path` holds something that is no bank. The old bank stays as it was, as after any other failure.
    """
    path = Path(path)
    pyramid = Pyramid(messages=tuple(messages), records=tuple(records), tracks=tuple(sorted(tracks, key=lambda track: track.file_name)), profile=profile)
    problems = find_problems(pyramid)
    if problems:
        raise _error_of(f"bank {bank_id}", problems, fix="Nothing was written.")
    if path.exists() and not (path / MANIFEST).is_file() and (not path.is_dir() or any(path.iterdir())):
        raise BankError.of(f"bank {bank_id}", f"cannot be written to {path}, which holds something else", fix="Choose an empty or new directory.")
    try:
        files = render_files(pyramid)
    except UnicodeEncodeError as error:
        raise BankError.of(f"bank {bank_id}", f"a text is not valid Unicode ({error})", fix="Clean the source; nothing was written.") from error
    manifest = render_manifest(bank_id, writer, pyramid, files)
    write_directory(path, files | {MANIFEST: (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode()})
    return manifest["version"]


def verify_bank(path: Path) -> list[str]:
    """Everything that is wrong with a bank, in words; empty where it opens and all its links hold."""
    problems: list[str] = []
    stored = load_stored_bank(Path(path), problems)
    return problems + (find_problems(stored.pyramid) if stored is not None else [])


def render_message_passage(message: Message) -> str:
    """What is indexed of a message, e.g. ``"[2024-03-05] Ana: We moved to Oslo. [a red door]"``."""
    return f"[{message.time[:10]}] {message.speaker}: {message.text}" + (f" [{message.caption}]" if message.caption else "")


def render_record_passage(record: Record) -> str:
    """What is indexed of a record, e.g. ``"[2024-03-05] fact: Ana moved to Oslo."``."""
    return f"[{record.time[:10]}] {record.type}: {record.text}"


def _error_of(what: str, problems: Sequence[str], *, fix: str) -> BankError:
    """One error for all problems; the first five are told."""
    more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
    return BankError.of(what, "; ".join(problems[:5]) + more, fix=fix)
