"""Open banks of one process: each bank read and verified once, the least recently used ones closed."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from napmem_rl.errors import BankError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.storage import BANKS_VARIABLE, find_bank_dir
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.retrieval.fusion import RRF_K, Ranking
from napmem_rl.retrieval.rerank_state import SearchReranker

MAX_OPEN_BANKS = 256


def find_banks_dir(banks_dir: str | Path) -> Path:
    """Where this node reads banks: its own copy where NAPMEM_BANKS_DIR names one, else `memory.banks`. Both must hold the same content."""
    return Path(os.environ.get(BANKS_VARIABLE) or banks_dir).expanduser()


class BankCache:
    """Read-only snapshots by bank id. For one event loop; banks are opened in threads, and concurrent requests for one bank share the opening."""

    def __init__(
        self,
        banks_dir: Path,
        *,
        encoder: Encoder | None,
        versions: Mapping[str, str],
        ranking: str = Ranking.FUSED,
        rrf_k: int = RRF_K,
        reranker: SearchReranker | None = None,
        max_open: int = MAX_OPEN_BANKS,
    ) -> None:
        """Args:
            banks_dir: holds one folder per bank id.
            encoder: for dense search; None for BM25 alone.
            versions: content version that each bank must have, as found when the job started; a bank not listed is refused.
            ranking, rrf_k, reranker: see `MemoryBank.open`.
            max_open: banks kept open.
        """
        self._banks_dir = banks_dir
        self._versions = versions
        self._search = {"encoder": encoder, "ranking": ranking, "rrf_k": rrf_k, "reranker": reranker}
        self._max_open = max_open
        self.encoder = encoder
        self._opening: OrderedDict[str, asyncio.Task[MemoryBank]] = OrderedDict()

    async def get(self, bank_id: str) -> MemoryBank:
        """The bank of this id.

        Raises:
            BankError: missing, broken, without the version that the job started with, or not a bank of this job.
        """
        if bank_id not in self._versions:
            raise BankError.of(f"bank {bank_id}", "is not a bank of this job", expected="one that a row of data.train_files or data.val_files names")
        task = self._opening.get(bank_id)
        if task is None:
            task = asyncio.create_task(asyncio.to_thread(self._open, bank_id))
            self._opening[bank_id] = task
        self._opening.move_to_end(bank_id)
        while len(self._opening) > self._max_open:
            self._opening.popitem(last=False)
        try:
            return await asyncio.shield(task)
        except BaseException:
            if task.done() and self._opening.get(bank_id) is task:  # not where this caller alone was cancelled, or a later opening has taken its place
                del self._opening[bank_id]
            raise

    def _open(self, bank_id: str) -> MemoryBank:
        path = find_bank_dir(self._banks_dir, bank_id)  # the version of the job's start, also where the bank has grown since
        return MemoryBank.open(path, version=self._versions[bank_id], **self._search)
