"""How banks are searched, as a recipe's `memory` says: what `MemoryBank.open` takes."""

from __future__ import annotations

from typing import Any

from napmem_rl.config.sections import MemoryConfig
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.retrieval.rerank_state import load_search_reranker


def build_search(memory: MemoryConfig, encoder: Encoder | None) -> dict[str, Any]:
    """Encoder, ranking and reranker as keyword arguments.

    Raises:
        DataError: `memory.rerank` names a file that is missing, broken, or of another encoder, width or ranking.
    """
    reranker = None if memory.rerank is None else load_search_reranker(memory.rerank, encoder, ranking=memory.ranking)
    return {"encoder": encoder, "ranking": memory.ranking, "rrf_k": memory.rrf_k, "reranker": reranker}
