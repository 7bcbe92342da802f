"""The page: everything of a run in one HTML file that fetches nothing and works from a disk.

Memory text and model output are untrusted. They travel as JSON in a script element of type application/json, with `<`, `>` and `&` escaped, and the page's
script turns them into text nodes alone. A content security policy allows the page's own script and style by their hashes, and no request at all.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from napmem_rl.atomic import write_file
from napmem_rl.config.sections import ReportConfig
from napmem_rl.report import metric_charts
from napmem_rl.report.episodes import EpisodeIndex, index_episodes, load_episodes
from napmem_rl.report.memories import Memories, load_memories, wanted_items
from napmem_rl.report.run_data import STEP_MARK, Problem, RunData, load_run
from napmem_rl.report.selection import Selection, choose_groups
from napmem_rl.report.summary_table import build_summary_table

DEFAULT_NAME = "report.html"
MAX_EPISODES = ReportConfig().max_trajectories
MAX_PROBLEMS = 50
_SCRIPTS = ("dom.js", "charts.js", "memories.js", "viewer.js", "packet.js", "episode.js", "main.js")
_EDGE_STEPS = 5  # steps whose mean a tile shows


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenReport:
    """What was written: where, how many bytes, how many episodes of how many, and how many parts of the run could not be read."""

    path: Path
    num_bytes: int
    num_shown: int
    num_episodes: int
    num_problems: int

    def describe(self) -> str:
        """One line for people."""
        problems = f"; {self.num_problems} part(s) of the run could not be read, see the page" if self.num_problems else ""
        return f"report: {self.path} ({self.num_bytes / 1e6:.1f} MB, {self.num_shown:,} of {self.num_episodes:,} episodes{problems})"


def write_report(directory: Path, *, out: Path | None = None, max_episodes: int = MAX_EPISODES, banks: Path | None = None) -> WrittenReport:
    """Read a run and write its page.

    Args:
        directory: of a run, or of a quickstart.
        out: the file; report.html in `directory` unless given.
        max_episodes: at most so many are embedded; the page says how they were chosen.
        banks: where the run's banks are now, if not where they were.

    Raises:
        DataError: there is no run in `directory`.
    """
    run = load_run(directory)
    index = index_episodes(run.trajectories_dir, run.problems)
    selection = choose_groups(index.entries, max_episodes=max_episodes)
    data = build_page_data(run, index, selection, banks)
    path = out or Path(directory) / DEFAULT_NAME
    content = render_page(run.name, data).encode()
    write_file(path, content)
    shown = len(selection.entries)
    return WrittenReport(path=path, num_bytes=len(content), num_shown=shown, num_episodes=selection.num_all, num_problems=len(run.problems))


def render_page(name: str, data: dict[str, Any]) -> str:
    """The HTML of a page. `name` may be anything; `data` is what the script reads."""
    script = "\n".join(read_asset(file) for file in _SCRIPTS)
    script = f'"use strict";\n{script}'
    style = read_asset("report.css")
    return Template(read_asset("template.html")).substitute(
        title=html.escape(f"{name} · napmem_rl"),
        heading=html.escape(name),
        footer=html.escape(data["footer"]),
        style=style,
        script=script,
        style_hash=f"'{hash_source(style)}'",
        script_hash=f"'{hash_source(script)}'",
        data=embed_json(data),
    )


def embed_json(data: Any) -> str:
    """JSON that may stand inside a script element whatever its texts hold."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "replace").decode()  # a lone surrogate has no bytes


def build_page_data(run: RunData, index: EpisodeIndex, selection: Selection, banks: Path | None) -> dict[str, Any]:
    """All that the page's script reads."""
    episodes = _embed_episodes(selection)
    banks_dir = run.find_banks(banks)
    versions = run.provenance.get("banks")
    memories = load_memories(wanted_items(episodes), banks_dir, versions if isinstance(versions, dict) else {})
    steps, charts = run.metrics.steps, metric_charts.build_charts(run.metrics)
    if not charts:
        steps, charts = metric_charts.build_episode_charts(index.entries)
    keep = metric_charts.thin(len(steps))
    embedded = Counter(entry.cause for entry in selection.entries)
    causes = [row | {"shown": embedded[row["cause"]]} for row in metric_charts.count_causes(index.entries)]
    return {
        "facts": _facts(run),
        "tiles": _tiles(run, index),
        "notices": _notices(run, index, memories, banks_dir, len(keep) < len(steps)),
        "problems": {"count": len(run.problems), "shown": [_problem(problem) for problem in run.problems[:MAX_PROBLEMS]]},
        "table": build_summary_table(run.summary) if run.summary else None,
        "steps": [steps[place] for place in keep],
        "starts": run.metrics.starts,
        "charts": [metric_charts.as_page_data(chart, keep) for chart in charts],
        "metrics": metric_charts.other_metrics(run.metrics, keep) if run.metrics.by_step else {},
        "causes": causes,
        "episodes": episodes,
        "shown": {"num": len(episodes), "all": selection.num_all, "how": selection.how, "directory": str(run.trajectories_dir)},
        "memories": {"items": memories.items, "notes": memories.notes},
        "advantage": _explain_advantage(run),
        "footer": "Made by `napmem report` of napmem_rl. One file, nothing fetched.",
    }


def _embed_episodes(selection: Selection) -> list[dict[str, Any]]:
    """Shaped episodes in order of kind, step, task and sample, each with its group's number and a key for links."""
    group_of = {entry: number for number, group in enumerate(selection.groups) for entry in group}
    loaded = load_episodes(selection.entries)
    episodes = []
    seen: Counter[str] = Counter()
    for entry in selection.entries:
        episode = loaded[entry]
        key = f"{entry.kind}/{entry.step}/{entry.task_id}/{entry.sample}"
        seen[key] += 1
        episode |= {"group": group_of[entry], "key": key if seen[key] == 1 else f"{key}/{seen[key]}"}
        episodes.append(episode)
    return episodes


def _facts(run: RunData) -> list[tuple[str, str]]:
    versions = run.provenance.get("versions")
    verl = versions.get("verl") if isinstance(versions, dict) else None
    facts = (
        ("directory", str(run.run_dir)),
        ("policy", run.setting("verl.actor_rollout_ref.model.path")),
        ("platform", run.setting("napmem.platform")),
        ("judge", run.setting("napmem.judge.kind")),
        ("samples a question", run.setting("verl.actor_rollout_ref.rollout.n")),
        ("questions a step", run.setting("verl.data.train_batch_size")),
        ("learning rate", run.setting("verl.actor_rollout_ref.actor.optim.lr")),
        ("revision", str(run.provenance.get("revision", ""))[:12]),
        ("verl", verl),
    )
    return [(name, str(value)) for name, value in facts if value not in (None, "")]


def _tiles(run: RunData, index: EpisodeIndex) -> list[dict[str, str]]:
    """The few numbers to see first. A tile without a value is left out."""
    metrics = run.metrics
    steps = [step for step in metrics.steps if STEP_MARK in metrics.by_step[step]]
    planned = run.setting("verl.trainer.total_training_steps")
    tiles = []
    if steps:
        note = f"of {planned} planned" if planned else f"last: {steps[-1]}"
        tiles.append({"name": "Steps", "value": str(len(steps)), "note": note + (f", {len(metrics.starts) + 1} starts" if metrics.starts else "")})
    for name, label, digits in (("napmem/reward", "Reward", 2), ("napmem/correctness", "Correct", 2), ("napmem/calls_per_question", "Calls a question", 2)):
        tiles += _change_tile(metrics.column(name), label, digits)
    seconds = sorted(value for value in metrics.column("timing_s/step") if value is not None)
    if seconds:
        tiles.append({"name": "Seconds a step", "value": f"{seconds[len(seconds) // 2]:.1f}", "note": f"median; {sum(seconds) / 60:.0f} min in all"})
    gaps = [value for value in metrics.column("napmem/logprob_gap_max") if value is not None]
    if gaps:
        tiles.append({"name": "Largest log-prob gap", "value": f"{max(gaps):.1e}".replace("e-0", "e−").replace("e-", "e−"), "note": "nats, over all steps"})
    if index.entries:
        lost = sum(entry.reward is None for entry in index.entries)
        failed = sum(entry.cause is not None for entry in index.entries) - lost
        note = f"{failed:,} did not end well, {lost:,} without reward"
        tiles.append({"name": "Episodes", "value": f"{len(index.entries):,}", "note": note})
    return tiles


def _change_tile(values: Sequence[float | None], label: str, digits: int) -> list[dict[str, str]]:
    known = [value for value in values if value is not None]
    if not known:
        return []
    if len(known) < 2 * _EDGE_STEPS:
        note, before, after = "first → last step", known[0], known[-1]
    else:
        note = f"mean of first → last {_EDGE_STEPS} steps"
        before, after = sum(known[:_EDGE_STEPS]) / _EDGE_STEPS, sum(known[-_EDGE_STEPS:]) / _EDGE_STEPS
    return [{"name": label, "value": f"{before:.{digits}f} → {after:.{digits}f}".replace("-", "−"), "note": note}]


def _notices(run: RunData, index: EpisodeIndex, memories: Memories, banks_dir: Path | None, is_thinned: bool) -> list[str]:
    """What a reader must know before believing the page."""
    notices = []
    if not run.metrics.by_step and index.entries:
        notices.append("No metrics.jsonl (trainer.logger without file?): the curves are counted from the trajectories, and losses of the update are not known.")
    if run.metrics.starts:
        starts = ", ".join(map(str, run.metrics.starts))
        notices.append(f"The job was started {len(run.metrics.starts) + 1} times; where a step ran twice, the later run counts. Resumed at step {starts}.")
    if index.num_repeated:
        notices.append(f"{index.num_repeated:,} episodes of steps that a later start ran again are left out.")
    if run.metrics.num_not_finite:
        worst = sorted(run.metrics.num_not_finite.items(), key=lambda item: -item[1])
        named = ", ".join(f"{name} ({count})" for name, count in worst[:8])
        notices.append(f"Values that were not finite, shown as gaps: {named}{' …' if len(worst) > 8 else ''}.")
    if is_thinned:
        notices.append(f"Curves show {metric_charts.MAX_POINTS} of {len(run.metrics.steps)} steps, evenly chosen; metrics.jsonl has all.")
    if banks_dir is None and index.entries:
        where = run.setting("napmem.memory.banks", "not known")
        notices.append(f"The memory banks are not at hand ({where}): results show ids instead of records and messages. Give --banks DIR.")
    elif memories.notes:
        notices.append(f"{len(memories.notes)} memory bank(s) are missing or changed; each result says so. For example {next(iter(memories.notes.items()))}.")
    if memories.num_left_out:
        notices.append(f"{memories.num_left_out:,} memories were left out for want of room; `napmem bank show` has them.")
    return notices


def _explain_advantage(run: RunData) -> str:
    estimator = run.setting("verl.algorithm.adv_estimator")
    if estimator not in (None, "grpo"):
        return f"Reward − group mean, for reading; this run's advantages come from {estimator}."
    divides = run.setting("verl.algorithm.norm_adv_by_std_in_grpo")
    return f"GRPO's advantage is reward − group mean{', divided by the standard deviation of the group' if divides else ''}."


def _problem(problem: Problem) -> dict[str, Any]:
    return {"file": problem.file, "line": problem.line, "text": problem.text}


def read_asset(name: str) -> str:
    """The text of a file in assets/."""
    return resources.files("napmem_rl.report").joinpath("assets", name).read_text(encoding="utf-8")


def hash_source(text: str) -> str:
    """How a content security policy names a script or a style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
