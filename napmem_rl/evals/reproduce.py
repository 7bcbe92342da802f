"""Several seeds side by side: a JSON table, and the same between two markers of a Markdown page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from napmem_rl.atomic import write_file
from napmem_rl.errors import DataError
from napmem_rl.evals.report import MODES

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
_GROUPS = tuple((group, mode) for group in ("all", "needs_memory") for mode in MODES)


def load_summaries(run_dirs: Sequence[Path]) -> list[dict[str, Any]]:
    """summary.json of each run. Raises DataError where one is missing or broken."""
    summaries = []
    for run_dir in run_dirs:
        path = run_dir / "summary.json"
        try:
            summaries.append(json.loads(path.read_text()))
        except (OSError, ValueError) as error:
            raise DataError.of(f"summary {path}", f"cannot be read ({error})", fix="Run that seed again.") from error
    return summaries


def is_finished(run_dir: Path, steps: int) -> bool:
    """Whether a run is there that can be used as it is.

    Raises:
        DataError: there is one of another number of steps, or its summary cannot be read.
    """
    if not (run_dir / "summary.json").is_file():
        return False
    (summary,) = load_summaries([run_dir])
    if summary.get("steps") != steps:
        fix = f"Remove {run_dir} to run it again, or ask for the steps that it has."
        raise DataError.of(f"finished run {run_dir}", "has another number of steps than asked for", got=summary.get("steps"), expected=str(steps), fix=fix)
    return True


def build_table(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rows by seed, and means over seeds."""
    rows = [
        {
            "seed": s["seed"],
            "steps": s["steps"],
            "judge": s["judge"],
            "load_at_start": s["load_at_start"],
            "seconds": s["seconds"],
            "correctness": s["correctness"],
        }
        | {f"{group}/{mode}": _gain(s, group, mode) for group, mode in _GROUPS}
        | {"references": [{"name": r["name"], "mode": r["mode"], "reward": r["reward"]} for r in s["references"]]}
        for s in summaries
    ]
    means = {
        f"{group}/{mode}": {name: round(sum(row[f"{group}/{mode}"][name] for row in rows) / len(rows), 4) for name in ("before", "after", "gain")}
        for group, mode in _GROUPS
    }
    return {"seeds": rows, "mean": means}


def _gain(summary: dict[str, Any], group: str, mode: str) -> dict[str, float]:
    return summary[mode] if group == "all" else summary[group][mode]


def _all_of(table: dict[str, Any], name: str) -> str:
    return ", ".join(sorted({str(row[name]) for row in table["seeds"]}))


def render_markdown(table: dict[str, Any]) -> str:
    """One line a seed and group: before, after, gain with its 95% interval over users; then references and seconds."""
    lines = [
        f"GRPO steps: {_all_of(table, 'steps')}. Judge: {_all_of(table, 'judge')}.",
        "",
        "| questions | decoding | seed | reward before | after | gain [95%] |",
        "|---|---|---|---|---|---|",
    ]
    for group, mode in _GROUPS:
        for row in table["seeds"]:
            value = row[f"{group}/{mode}"]
            interval = f"{value['gain']:+.2f} [{value['gain_low']:+.2f}, {value['gain_high']:+.2f}]"
            lines.append(f"| {group.replace('_', ' ')} | {mode} | {row['seed']} | {value['before']:+.2f} | {value['after']:+.2f} | {interval} |")
        mean = table["mean"][f"{group}/{mode}"]
        lines.append(f"| {group.replace('_', ' ')} | {mode} | **mean** | {mean['before']:+.2f} | {mean['after']:+.2f} | **{mean['gain']:+.2f}** |")
    lines += ["", "| seed | correct, sampled | correct, greedy | seconds: banks, sft, grpo, eval, job | load at start |", "|---|---|---|---|---|"]
    for row in table["seeds"]:
        correct = [f"{row['correctness'][mode]['before']:.2f} → {row['correctness'][mode]['after']:.2f}" for mode in MODES]
        seconds = ", ".join(f"{row['seconds'][name]:.0f}" for name in ("banks", "sft", "grpo", "eval", "job"))
        lines.append(f"| {row['seed']} | {correct[0]} | {correct[1]} | {seconds} | {row['load_at_start']:.1f} |")
    lines += ["", "| reference on the same questions | decoding | seed | reward [95%] |", "|---|---|---|---|"]
    for row in table["seeds"]:
        for reference in row["references"]:
            reward = reference["reward"]
            interval = f"{reward['mean']:+.2f} [{reward['low']:+.2f}, {reward['high']:+.2f}]"
            lines.append(f"| {reference['name']} | {reference['mode']} | {row['seed']} | {interval} |")
    return "\n".join(lines)


def write_reproduction(summaries: Sequence[dict[str, Any]], *, json_path: Path, docs_path: Path) -> str:
    """Write both forms; returns the Markdown.

    Raises:
        DataError: the page lacks the two markers. Nothing is written then.
    """
    table = build_table(summaries)
    text = render_markdown(table)
    page = replace_between(docs_path, BEGIN, END, text)
    write_file(json_path, (json.dumps(table, indent=2) + "\n").encode())
    write_file(docs_path, page)
    return text


def replace_between(docs_path: Path, begin: str, end: str, text: str) -> str:
    """The page with `text` between two markers; a page that does not exist is the two markers alone.

    Raises:
        DataError: the page lacks the two markers.
    """
    page = docs_path.read_text() if docs_path.is_file() else f"{begin}\n{end}\n"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise DataError.of(f"page {docs_path}", "lacks the place for the table", expected=f"one {begin} and, after it, one {end}")
    head, rest = page.split(begin)
    return f"{head}{begin}\n{text}\n{end}{rest.split(end)[1]}"
