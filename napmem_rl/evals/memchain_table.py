"""MemChain's proof as a table: what rows (a policy in a decoding mode, or a fixed packet) reach on the same questions, and what one gains on another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from napmem_rl.evals.metrics import BANK_ID, CATEGORY, TASK_ID, Facts, aggregate, aggregate_by_category, bootstrap_interval, group_by_user, paired_gain

METRICS = ("reward", "correctness", "parsed", "evidence_tokens", "citations")
KEPT = (TASK_ID, BANK_ID, CATEGORY, *METRICS)
BEFORE, AFTER = "SFT", "SFT, then TMPO"
MODES = ("sampled", "greedy")


def keep_facts(facts: Sequence[Facts]) -> list[Facts]:
    """What the table needs of each question."""
    return [{name: row[name] for name in KEPT if name in row} for row in facts]


def summarise_row(facts: Sequence[Facts]) -> dict[str, Any]:
    """Means, the reward and the share of right answers with their 95% intervals over users, and right answers by type of question."""
    means = aggregate(facts)
    row: dict[str, Any] = {name: round(means[name], 4) for name in METRICS if name in means}
    for name in ("reward", "correctness"):
        interval = bootstrap_interval(group_by_user(facts, name))
        row |= {f"{name}_low": _rounded(interval.low), f"{name}_high": _rounded(interval.high)}
    return row | {"correctness_by_type": {kind: round(values["correctness"], 4) for kind, values in aggregate_by_category(facts).items()}}


def summarise_gains(before: Sequence[Facts], after: Sequence[Facts]) -> dict[str, Any]:
    """Paired gains with their 95% intervals over users: {metric: {gain, low, high}}."""
    gains = {}
    for name in ("reward", "correctness"):
        interval = paired_gain(before, after, name)
        gains[name] = {"gain": round(interval.mean, 4), "low": _rounded(interval.low), "high": _rounded(interval.high)}
    return gains


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def holds(table: Mapping[str, Any]) -> bool:
    """Whether every seed's interval of what TMPO gains in reward lies above 0, sampled and greedy."""
    gains = [seed["gains"][mode]["reward"] for seed in table["seeds"] for mode in MODES]
    return all(gain["low"] is not None and gain["low"] > 0 for gain in gains)


def render_table(table: Mapping[str, Any]) -> str:
    """The gains of TMPO, then every row, then seconds."""
    first = table["seeds"][0]
    lines = [f"TMPO steps: {table['steps']}; {first['questions']} questions of {first['users']} users held out, a seed. Reader: {table['reader']}.", ""]
    lines += ["| decoding | seed | reward, SFT → TMPO | gain [95%] | right answers, SFT → TMPO | gain [95%] |", "|---|---|---|---|---|---|"]
    for mode in MODES:
        lines += [_render_gain(seed, mode) for seed in table["seeds"]]
        lines.append(_render_mean(table["seeds"], mode))
    lines += [
        "",
        "| packets by | decoding | seed | reward [95%] | right answers [95%] | parsed | evidence tokens | citations (F1) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, mode in dict.fromkeys((row["name"], row["mode"]) for seed in table["seeds"] for row in seed["rows"]):
        lines += [_render_row(seed, row) for seed in table["seeds"] for row in seed["rows"] if (row["name"], row["mode"]) == (name, mode)]
    kinds = sorted(first["rows"][0]["correctness_by_type"])
    lines += ["", f"| right answers by type, greedy | seed | {' | '.join(kinds)} |", f"|---|---|{'---|' * len(kinds)}"]
    for seed in table["seeds"]:
        for row in seed["rows"]:
            if row["name"] in (BEFORE, AFTER) and row["mode"] == "greedy":
                lines.append(f"| {row['name']} | {seed['seed']} | " + " | ".join(f"{row['correctness_by_type'][kind]:.2f}" for kind in kinds) + " |")
    lines += ["", "| seed | seconds | load at start |", "|---|---|---|"]
    for seed in table["seeds"]:
        parts = ", ".join(f"{name} {value:.0f}" for name, value in seed["seconds"].items())
        lines.append(f"| {seed['seed']} | {parts}; together {sum(seed['seconds'].values()):.0f} | {seed['load_at_start']:.1f} |")
    return "\n".join(lines)


def render_rows(table: Mapping[str, Any], header: str) -> str:
    """Every row of every seed, those of one name and decoding mode together."""
    lines = [
        f"| {header} | decoding | seed | reward [95%] | right answers [95%] | parsed | evidence tokens | citations (F1) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, mode in dict.fromkeys((row["name"], row["mode"]) for seed in table["seeds"] for row in seed["rows"]):
        lines += [_render_row(seed, row) for seed in table["seeds"] for row in seed["rows"] if (row["name"], row["mode"]) == (name, mode)]
    return "\n".join(lines)


def _find_row(seed: Mapping[str, Any], name: str, mode: str) -> Mapping[str, Any]:
    return next(row for row in seed["rows"] if (row["name"], row["mode"]) == (name, mode))


def _render_gain(seed: Mapping[str, Any], mode: str) -> str:
    cells = [mode, str(seed["seed"])]
    for metric in ("reward", "correctness"):
        before, after = (_find_row(seed, name, mode)[metric] for name in (BEFORE, AFTER))
        gain = seed["gains"][mode][metric]
        cells += [f"{before:.3f} → {after:.3f}", f"{gain['gain']:+.3f} {_render_interval(gain['low'], gain['high'], '+.3f')}"]
    return f"| {' | '.join(cells)} |"


def _render_mean(seeds: Sequence[Mapping[str, Any]], mode: str) -> str:
    cells = [mode, "**mean**"]
    for metric in ("reward", "correctness"):
        before, after = (sum(_find_row(seed, name, mode)[metric] for seed in seeds) / len(seeds) for name in (BEFORE, AFTER))
        cells += [f"{before:.3f} → {after:.3f}", f"**{after - before:+.3f}**"]
    return f"| {' | '.join(cells)} |"


def _render_row(seed: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    intervals = [f"{row[name]:.3f} {_render_interval(row[f'{name}_low'], row[f'{name}_high'], '.3f')}" for name in ("reward", "correctness")]
    rest = f"{row['parsed']:.2f} | {row['evidence_tokens']:.1f} | {row['citations']:.2f}"
    return f"| {row['name']} | {row['mode']} | {seed['seed']} | {' | '.join(intervals)} | {rest} |"


def _render_interval(low: float | None, high: float | None, form: str) -> str:
    return "[–]" if low is None or high is None else f"[{low:{form}}, {high:{form}}]"
