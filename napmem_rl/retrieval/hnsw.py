"""Nearest vectors among very many, by faiss' HNSW graph over half-precision rows.

Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical Navigable Small World graphs", TPAMI 2020.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

LINKS = 32  # of a node
EF_CONSTRUCTION = 40
EF_SEARCH = 128  # nodes kept in sight by a search that everything takes part in, and at least twice its depth: recall@10 of .99 on clustered vectors
EXACT_SHARE = 10  # where at most one passage in so many takes part, all similarities are computed: a graph loses its way among the others
_BATCH = 16_384  # rows decoded and added at once


class HnswGraph:
    """Approximate search over the rows [0, n) of stored vectors. Safe to search from several threads."""

    def __init__(self, graph: Any, storage: Any, vectors: np.ndarray) -> None:
        """For `build` and `load`."""
        self._graph, self._storage, self._vectors = graph, storage, vectors

    @classmethod
    def build(cls, vectors: np.ndarray) -> HnswGraph:
        """The graph over vectors, [n, dim] float16."""
        import faiss

        graph = faiss.IndexHNSWSQ(vectors.shape[1], faiss.ScalarQuantizer.QT_fp16, LINKS, faiss.METRIC_INNER_PRODUCT)
        graph.train(np.zeros((1, vectors.shape[1]), dtype=np.float32))  # half precision has nothing to learn
        graph.hnsw.efConstruction = EF_CONSTRUCTION
        built = cls(graph, faiss.downcast_index(graph.storage), vectors)
        built.add(vectors)
        return built

    def add(self, vectors: np.ndarray) -> None:
        """Make this the graph over vectors, [n, dim] float16, that begin with those it has. Not while others search in it."""
        self._vectors = vectors
        for start in range(self._graph.ntotal, len(vectors), _BATCH):
            self._graph.add(np.ascontiguousarray(vectors[start : start + _BATCH], dtype=np.float32))

    @classmethod
    def load(cls, path: Path, vectors: np.ndarray) -> HnswGraph:
        """Read a graph; its rows are given.

        Raises:
            ValueError: it is no graph, or one of other vectors.
        """
        import faiss

        try:
            graph = faiss.read_index(str(path), faiss.IO_FLAG_SKIP_STORAGE)
        except RuntimeError as error:
            raise ValueError(f"no graph of faiss ({error})") from error
        if not hasattr(graph, "hnsw") or (graph.ntotal, graph.d) != vectors.shape:
            raise ValueError(f"not a graph over {vectors.shape[0]} rows of {vectors.shape[1]}")
        storage = _build_storage(vectors)
        graph.storage, graph.own_fields = storage, False
        return cls(graph, storage, vectors)

    def save(self, path: Path) -> None:
        """Write the graph without its rows."""
        import faiss

        faiss.write_index(self._graph, str(path), faiss.IO_FLAG_SKIP_STORAGE)

    def __len__(self) -> int:
        """Number of rows."""
        return self._graph.ntotal

    def find(self, vector: np.ndarray, mask: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions and similarities of the rows of a mask, [n] bool, that are nearest to a vector, best first; at most `depth`, those above 0."""
        import faiss

        eligible = int(mask.sum())
        if eligible * EXACT_SHARE <= len(mask) or eligible <= depth:
            positions = np.flatnonzero(mask)
            scores = self.score(vector, positions)
            order = np.argsort(-scores, kind="stable")[:depth]
            return positions[order][scores[order] > 0], scores[order][scores[order] > 0]
        selector = None if eligible == len(mask) else faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))
        in_sight = int(max(EF_SEARCH, 2 * depth) * max(1.0, (len(mask) / eligible) ** 1.5 / 4))  # most of what is seen may not take part
        params = faiss.SearchParametersHNSW(efSearch=in_sight, **({"sel": selector} if selector else {}))
        scores, positions = self._graph.search(np.ascontiguousarray(vector[None], dtype=np.float32), depth, params=params)
        hits = (positions[0] >= 0) & (scores[0] > 0)
        return positions[0][hits], scores[0][hits]

    def score(self, vector: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Exact similarities of some rows, [m] float32."""
        scores = np.empty(len(positions), dtype=np.float32)
        for start in range(0, len(positions), _BATCH):
            codes = np.ascontiguousarray(self._vectors[positions[start : start + _BATCH]]).view(np.uint8)
            scores[start : start + _BATCH] = self._storage.sa_decode(codes) @ vector
        return scores


def _build_storage(vectors: np.ndarray) -> Any:
    """faiss' store of half-precision rows, holding a copy of these."""
    import faiss

    storage = faiss.IndexScalarQuantizer(vectors.shape[1], faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    storage.train(np.zeros((1, vectors.shape[1]), dtype=np.float32))
    for start in range(0, len(vectors), _BATCH):
        storage.add_sa_codes(np.ascontiguousarray(vectors[start : start + _BATCH]).view(np.uint8))
    return storage
