"""How long a reranker takes for one query, and for learning from one answer: on vectors drawn at random, one thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from napmem_rl.retrieval.rerank_learner import RerankLearner, RerankSettings

GOALS_MS = {"rerank": 0.6, "learn": 1.0}  # of the median, at K = 20 and d = 1024


def measure_reranker(*, dim: int = 1024, num_candidates: int = 20, repeats: int = 512, seed: int = 0) -> dict[str, Any]:
    """Milliseconds of `rank` (a query and its K candidates), of `draw`, and of `learn` (one answer; every fourth moves the maps).

    Returns:
        dim, num_candidates, repeats, and for rank, draw and learn: p50, p99 and mean; `reached` compares the medians with `GOALS_MS`.
    """
    rng = np.random.default_rng(seed)
    settings = RerankSettings(num_candidates=num_candidates, num_chosen=min(5, num_candidates))
    learner = RerankLearner(dim, settings)
    names = [f"rec:{number}" for number in range(num_candidates)]
    query, memories = _draw_unit(rng, dim), _draw_unit(rng, num_candidates, dim)
    cited = [number == 0 for number in range(settings.num_chosen)]
    times: dict[str, list[float]] = {"rank": [], "draw": [], "learn": []}
    for _ in range(repeats):
        _clock(times["rank"], lambda: learner.rank(names, query, memories))
        reranking = _clock(times["draw"], lambda: learner.draw(names, query, memories))
        _clock(times["learn"], lambda drawn=reranking: learner.learn(drawn, cited))
    figures = {name: _summarise(values) for name, values in times.items()}
    reached = {"rerank": figures["rank"]["p50_ms"] <= GOALS_MS["rerank"], "learn": figures["learn"]["p50_ms"] <= GOALS_MS["learn"]}
    return {"dim": dim, "num_candidates": num_candidates, "repeats": repeats, **figures, "goals_ms": GOALS_MS, "reached": reached}


def render_benchmark(figures: dict[str, Any]) -> str:
    """The figures as lines for people."""
    lines = [f"reranker, d = {figures['dim']}, K = {figures['num_candidates']}, {figures['repeats']} times"]
    for name in ("rank", "draw", "learn"):
        one = figures[name]
        lines.append(f"  {name:<6} p50 {one['p50_ms']:.3f} ms   mean {one['mean_ms']:.3f} ms   p99 {one['p99_ms']:.3f} ms")
    return "\n".join(lines)


def _draw_unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    rows = rng.standard_normal(shape).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def _clock(times: list[float], run: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    result = run()
    times.append(time.perf_counter() - start)
    return result


def _summarise(times: list[float]) -> dict[str, float]:
    values = 1000 * np.array(times)
    return {"p50_ms": round(float(np.median(values)), 4), "p99_ms": round(float(np.quantile(values, 0.99)), 4), "mean_ms": round(float(values.mean()), 4)}
