"""A user's memory bank: a verified, read-only snapshot to look things up in.

Nothing changes a bank that is open: `BankWriter` adds versions after the one that it shows, `save_bank` puts another bank in its place.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

from napmem_rl.errors import BankError
from napmem_rl.memory.bank_place import build_beside, replace_bank
from napmem_rl.memory.bank_store import StoredBank, load_bank
from napmem_rl.memory.bank_view import BankView
from napmem_rl.memory.bank_writer import BankWriter, is_bank_or_empty
from napmem_rl.memory.changes import Changes, error_of
from napmem_rl.memory.erasing import finish_erasing
from napmem_rl.memory.forgotten import refuse_removed, stamp
from napmem_rl.memory.storage import INDEX_DIR
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.retrieval.fusion import RRF_K, Ranking
from napmem_rl.retrieval.index import PassageIndex
from napmem_rl.retrieval.rerank_state import SearchReranker
from napmem_rl.schema import Level, Message, Profile, Record, RecordOperation, RecordRevision, Track


class MemoryBank(BankView):
    """Read-only snapshot of one user's memory on disk. Safe to read and search from several threads. For its attributes see `BankView`, and `path`.

    Messages and records are read from disk where they are asked for.
    """

    def __init__(
        self,
        path: Path,
        stored: StoredBank,
        *,
        forgotten_stamp: tuple[int, int, int] | None = None,
        encoder: Encoder | None = None,
        ranking: str = Ranking.FUSED,
        rrf_k: int = RRF_K,
        reranker: SearchReranker | None = None,
    ) -> None:
        """For `open`, which verifies what is given here."""
        super().__init__(stored.snapshot, stored.files)
        self.path = path
        self._stamp = forgotten_stamp
        self.bank_id = stored.bank_id
        self.version = stored.commit.version
        self.writer = stored.commit.writer
        self.state = stored.commit.state
        self._encoder = encoder
        self._ranking, self._rrf_k, self._reranker = ranking, rrf_k, reranker
        self._indexes: dict[Level, PassageIndex] = {}
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        encoder: Encoder | None = None,
        expected_version: str | None = None,
        version: str | None = None,
        verify: bool = True,
        ranking: str = Ranking.FUSED,
        rrf_k: int = RRF_K,
        reranker: SearchReranker | None = None,
    ) -> MemoryBank:
        """Read a bank, checking every hash and every provenance link.

        Args:
            path: the bank's directory.
            encoder: for dense search; None for BM25 alone.
            expected_version: refuse the bank where its newest version is another.
            version: one of the bank's versions, see `napmem bank log`; None for the newest.
            verify: False leaves the logs unread where the columns in index/ cover them: for who has just written the bank, or opens a large one again.
            ranking: how searches rank, one of `Ranking`.
            rrf_k: the constant of reciprocal rank fusion.
            reranker: ranks again what searches find; needs an encoder.

        Raises:
            BankError: missing, broken, or of another version.
        """
        path = Path(path)
        problems: list[str] = []
        finish_erasing(path)
        found = stamp(path)
        stored = load_bank(path, problems, version=version, verify=verify)
        if version is not None and stored is None:
            refuse_removed(path, version)
        if stored is None or problems:
            raise error_of(f"bank {path}", problems, fix="See `napmem bank verify`, or build the bank again.")
        if expected_version not in (None, stored.commit.version):
            fix = "Build it again, or use the data it belongs to."
            raise BankError.of(f"bank {path}", "is of another version", got=stored.commit.version, expected=expected_version, fix=fix)
        return cls(path, stored, forgotten_stamp=found, encoder=encoder, ranking=ranking, rrf_k=rrf_k, reranker=reranker)

    @property
    def encoder(self) -> Encoder | None:
        """Of its searches, for who searches it in ways of its own."""
        return self._encoder

    def check_current(self) -> None:
        """See `BankView`."""
        if stamp(self.path) != self._stamp:
            raise BankError.of(f"bank {self.path}", f"was made to forget something since version {self.version} was opened", fix="Open it again.")

    def build_index(self) -> None:
        """Build both search indexes now rather than at the first search, and leave them on disk for the next process."""
        self.find_index(Level.RECORD).build()
        self.find_index(Level.RAW).build()

    def find_index(self, level: Level) -> PassageIndex:
        index = self._indexes.get(level)
        if index is None:
            with self._lock:
                index = self._indexes.get(level) or self._build_index(level)
                self._indexes[level] = index
        return index

    def _build_index(self, level: Level) -> PassageIndex:
        source = self.messages if level is Level.RAW else self.snapshot.revisions
        self.check_current()
        search = {"encoder": self._encoder, "ranking": self._ranking, "rrf_k": self._rrf_k, "reranker": self._reranker}
        index = PassageIndex(source, level=str(level), directory=self.path / INDEX_DIR, **search)
        if stamp(self.path) != self._stamp:  # the bank forgot meanwhile: what was left in its directory is of the old content
            for segment in (self.path / INDEX_DIR).glob(f"{level}-{len(source)}-*"):
                shutil.rmtree(segment, ignore_errors=True)
            self.check_current()
        return index


def save_bank(
    path: Path, *, bank_id: str, messages: Sequence[Message], records: Sequence[Record], tracks: Sequence[Track], profile: Profile, writer: str
) -> str:
    """Write a bank as a whole, in place of the one at `path` if there is one: that one's versions go with it. `BankWriter` adds to a bank instead.

    Args:
        path: the bank's directory; its parents are made.
        bank_id: whose memory it is.
        messages, records, tracks, profile: the levels, linked by ids.
        writer: what built the upper levels, e.g. "rules".

    Returns:
        The content version: the same content under the same bank id has the same version.

    Raises:
        BankError: a link does not hold, another process writes the old bank, or `path` holds something that is no bank. The old bank stays as it was, as after
            any other failure.
    """
    path = Path(path)
    if not is_bank_or_empty(path):
        raise BankError.of(f"bank {bank_id}", f"cannot be written to {path}, which holds something else", fix="Choose an empty or new directory.")
    revisions = tuple(RecordRevision(operation=RecordOperation.STORE, record=record) for record in records)
    changes = Changes(messages=tuple(messages), revisions=revisions, tracks=tuple(tracks), profile=profile)
    with build_beside(path) as fresh, BankWriter.open(fresh, bank_id=bank_id, writer=writer, durable=False) as bank_writer:
        version = bank_writer.commit(changes)
        bank_writer.save_columns()  # while it is at this path
        replace_bank(fresh, path, bank_id)
    return version
