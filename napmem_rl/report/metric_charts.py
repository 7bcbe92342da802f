"""Which curves a page shows, and their values by step.

A value that a run did not log is a gap, never a zero. The one exception is named: a count by cause is zero at a step that logged the total without it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from napmem_rl.evals.metrics import Metric
from napmem_rl.report.charts import STACK, Chart
from napmem_rl.report.episodes import TRAIN, VALIDATION, Entry
from napmem_rl.report.packet_charts import build_packet_charts
from napmem_rl.report.run_data import Metrics
from napmem_rl.schema import Level, Status

MAX_POINTS = 2000  # steps of a curve; more are thinned
DIGITS = 5
FACT, _TIMING = "napmem/", "timing_s/"
_OUTSIDE_STEP = ("timing_s/testing",)  # validation comes after a step, not within


def build_charts(metrics: Metrics) -> list[Chart]:
    """The charts of a run's metrics, in order; those without any value are left out."""
    charts = [
        *_reward_charts(metrics),
        *_tool_charts(metrics),
        *build_packet_charts(metrics.column),
        _phase_chart(metrics),
        *_loss_charts(metrics),
        _mismatch_chart(metrics),
        *_update_charts(metrics),
    ]
    return [chart for chart in charts if chart.series]


def _reward_charts(metrics: Metrics) -> list[Chart]:
    fact = _facts(metrics)
    reward = Chart(name="reward", title="Reward", about="Mean over the episodes that were trained on; validation where it ran.", low=-1, high=1)
    train = fact(Metric.REWARD)
    reward.add("training", train if any(value is not None for value in train) else metrics.column("critic/rewards/mean"))
    for name in metrics.names():
        if found := re.fullmatch(r"val-core/(.+)/reward/(mean@\d+)", name):
            reward.add(f"validation {found[1]} ({found[2]})", metrics.column(name))
    parts = Chart(name="parts", title="Parts of the reward", about="Shares of episodes: well formed, correct, memory used where needed.", low=0, high=1)
    for label, metric in (("correct", Metric.CORRECTNESS), ("format", Metric.FORMAT), ("appropriate use", Metric.APPROPRIATE_USE)):
        parts.add(label, fact(metric))
    return [reward, parts]


def _tool_charts(metrics: Metrics) -> list[Chart]:
    fact = _facts(metrics)
    calls = Chart(
        name="calls", title="Tool calls a question, by level", about="Which level of memory is looked at; the height is all calls.", kind=STACK, low=0
    )
    for level in Level:
        calls.add(str(level), fact(Metric.CALLS_BY_LEVEL.format(level=level)))
    use = Chart(name="use", title="How memory is used", about="Shares of questions, and of calls.", low=0, high=1)
    use.add("calls that succeed", fact(Metric.CALL_SUCCESS_RATE))
    use.add("questions that read several levels", fact(Metric.MULTI_LEVEL_RATE))
    use.add("control questions with a call (needless)", fact(Metric.UNNECESSARY_CALL_RATE))
    hits = fact(Metric.EVIDENCE_HITS_PER_100_USES)
    use.add("calls that hit gold evidence", [None if value is None else value / 100 for value in hits])
    return [calls, use]


def _phase_chart(metrics: Metrics) -> Chart:
    chart = Chart(name="phases", title="Seconds per phase of a step", about="Validation comes on top of the step.", kind=STACK, unit="s", low=0)
    names = [name for name in metrics.names() if name.startswith(_TIMING) and name not in ("timing_s/step", *_OUTSIDE_STEP)]
    columns = {name: metrics.column(name) for name in names}
    whole = metrics.column("timing_s/step")
    names.sort(key=lambda name: -sum(value or 0.0 for value in columns[name]))
    for name in names:
        chart.add(name.removeprefix(_TIMING), columns[name])
    parts = [sum(columns[name][i] or 0.0 for name in names) for i in range(len(whole))]
    chart.add("rest of the step", [None if value is None else max(value - part, 0.0) for value, part in zip(whole, parts, strict=True)])
    for name in _OUTSIDE_STEP:
        chart.add("validation", metrics.column(name))
    return chart


def _loss_charts(metrics: Metrics) -> list[Chart]:
    """What was lost: groups, episodes without a reward, truncated ones."""
    fact = _facts(metrics)
    ends = Chart(name="ends", title="Episodes that did not complete", about="Shares of the trained episodes, by how they ended.", kind=STACK, low=0)
    for status in Status:
        if status is not Status.COMPLETED and not status.is_ours:
            ends.add(str(status), fact(Metric.STATUS_RATE.format(status=status)))
    cuts = Chart(name="cuts", title="Truncation by cause", about="Shares of episodes, and of calls for results that were cut.", low=0)
    cuts.add("turn at its limit", fact(Metric.TRUNCATED_TURN))
    cuts.add("no room in the context", fact(Metric.TRUNCATED_CONTEXT))
    cuts.add("tool result cut", fact(Metric.CUT_RESULT_RATE))
    cuts.add("as long as the longest of its batch may be (verl's clip ratio)", metrics.column("response_length/clip_ratio"))
    groups = Chart(name="groups", title="Groups", about="Kept ones train; those with equal rewards give no gradient; dropped ones had too few rows.", low=0)
    groups.add("kept", metrics.column("napmem/kept_groups"))
    groups.add("equal rewards", metrics.column("napmem/zero_variance_groups"))
    groups.add("dropped", metrics.column("napmem/dropped_groups"))
    groups.add("batches replaced whole", metrics.column("napmem/refilled_batches"))
    drops = Chart(name="drops", title="Episodes without a reward, by cause", about="Left out of training: no honest reward existed.", kind=STACK, low=0)
    total = metrics.column("napmem/abstained")
    for name in metrics.names():
        if name.startswith("napmem/abstained/"):
            counts = zip(metrics.column(name), total, strict=True)
            drops.add(name.rpartition("/")[2], [0.0 if value is None and all_ is not None else value for value, all_ in counts])
    if not drops.series:
        drops.add("all causes", total)
    return [ends, cuts, groups, drops]


def _mismatch_chart(metrics: Metrics) -> Chart:
    about = "Difference of a sampled token's log-prob between learner and rollout engine, before the update. It should stay small and flat."
    chart = Chart(name="mismatch", title="Log-prob mismatch", about=about, unit="nats", is_log=True)
    chart.add("largest", metrics.column("napmem/logprob_gap_max"))
    chart.add("mean", metrics.column("napmem/logprob_gap_mean"))
    chart.add("KL (k3)", [None if value is None else abs(value) for value in metrics.column("rollout_corr/k3_kl")])
    chart.lines.append(("fp32 engines stay below 1e-4", 1e-4))
    return chart


def _update_charts(metrics: Metrics) -> list[Chart]:
    """What the optimiser did."""
    specs = (
        ("loss", "Loss", "Of the policy, and the KL to the reference where one is used.", "", ("actor/pg_loss", "actor/kl_loss")),
        ("entropy", "Entropy of the policy", "A fall to zero means that sampling has stopped exploring.", "nats", ("actor/entropy",)),
        ("grad", "Gradient norm", "Before clipping.", "", ("actor/grad_norm",)),
        ("clip", "Policy update", "Share of clipped tokens, and KL between the policy before and after.", "", ("actor/pg_clipfrac", "actor/ppo_kl")),
        ("length", "Tokens of an episode", "All that follows the first prompt.", "tokens", ("response_length/mean", "response_length/max")),
    )
    charts = []
    for name, title, about, unit, keys in specs:
        chart = Chart(name=name, title=title, about=about, unit=unit, low=0 if name in ("entropy", "grad", "length") else None)
        for key in keys:
            chart.add(key.rpartition("/")[2] if name == "length" else key, metrics.column(key))
        charts.append(chart)
    return charts


def build_episode_charts(entries: Sequence[Entry]) -> tuple[list[int], list[Chart]]:
    """Reward, calls and ends counted from trajectories, for runs without metrics. Abstained episodes count in no mean.

    Returns:
        steps, and charts over them.
    """
    by_step: dict[int, dict[str, list[Entry]]] = defaultdict(lambda: {TRAIN: [], VALIDATION: []})
    for entry in entries:
        by_step[entry.step][entry.kind].append(entry)
    steps = sorted(by_step)
    reward = Chart(name="reward", title="Reward", about="Mean over all episodes with a reward.", low=-1, high=1, from_episodes=True)
    for kind in (TRAIN, VALIDATION):
        reward.add({TRAIN: "training"}.get(kind, kind), [_mean([entry.reward for entry in by_step[step][kind]]) for step in steps])
    calls = Chart(name="calls", title="Tool calls a question, by level", about="Training episodes.", kind=STACK, low=0, from_episodes=True)
    ends = Chart(name="ends", title="Episodes that did not complete", about="Shares of training episodes.", kind=STACK, low=0, from_episodes=True)
    train = [by_step[step][TRAIN] for step in steps]
    for level in Level:
        calls.add(str(level), [_mean([float(dict(entry.calls_by_level).get(level, 0)) for entry in rows]) for rows in train])
    for status in Status:
        if status is not Status.COMPLETED:
            ends.add(str(status), [_mean([float(entry.status == status) for entry in rows]) for rows in train])
    return steps, [chart for chart in (reward, calls, ends) if chart.series]


def count_causes(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Why episodes had no reward or did not end well: count, share of all, first and last step, the commonest first."""
    counts = Counter(entry.cause for entry in entries if entry.cause is not None)
    steps: dict[str, list[int]] = defaultdict(list)
    for entry in entries:
        if entry.cause is not None:
            steps[entry.cause].append(entry.step)
    return [
        {"cause": cause, "count": count, "share": _rounded(count / len(entries)), "first": min(steps[cause]), "last": max(steps[cause])}
        for cause, count in counts.most_common()
    ]


def as_page_data(chart: Chart, keep: Sequence[int]) -> dict[str, Any]:
    """A chart as the page's script takes it, with the values at the positions `keep`."""
    series = [{"label": label, "values": [_rounded(values[place]) for place in keep]} for label, values in chart.series]
    lines = [{"label": label, "value": value} for label, value in chart.lines]
    head = {"name": chart.name, "title": chart.title, "about": chart.about, "kind": chart.kind, "unit": chart.unit, "log": chart.is_log}
    return head | {"low": chart.low, "high": chart.high, "series": series, "lines": lines, "fromEpisodes": chart.from_episodes}


def other_metrics(metrics: Metrics, keep: Sequence[int]) -> dict[str, list[float | None]]:
    """Every metric by name, for the page's own choice of curve."""
    columns = ((name, metrics.column(name)) for name in metrics.names())
    return {name: [_rounded(values[place]) for place in keep] for name, values in columns}


def thin(count: int, limit: int = MAX_POINTS) -> list[int]:
    """Positions of at most `limit` of `count` steps, evenly, first and last among them."""
    if count <= limit:
        return list(range(count))
    return sorted({round(i * (count - 1) / (limit - 1)) for i in range(limit)})


def _facts(metrics: Metrics) -> Any:
    return lambda name: metrics.column(f"{FACT}{name}")


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")
