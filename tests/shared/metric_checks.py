"""Whether two runs are the same run, by their metrics."""

from __future__ import annotations

import math

NOT_COMPARED = ("timing", "perf", "actor/perf")  # seconds and memory


def assert_equal_metrics(got: dict[int, dict], expected: dict[int, dict]) -> None:
    """Every metric of every step, but for time and memory."""
    assert sorted(got) == sorted(expected)
    for step, wanted in expected.items():
        names = {name for name in {*wanted, *got[step]} if not name.startswith(NOT_COMPARED)}
        assert "actor/grad_norm" in names and "napmem/reward" in names
        differing = {name: (got[step].get(name), wanted.get(name)) for name in names if not _is_close(got[step].get(name), wanted.get(name))}
        assert differing == {}, f"step {step}"


def _is_close(first: float | None, second: float | None) -> bool:
    return first is not None and second is not None and math.isclose(first, second, rel_tol=1e-5, abs_tol=1e-5)
