"""What a finished run teaches a reranker: its searches with what was opened or cited later, and MemChain's packets with what they cite.

`run` is a training run's directory (its training episodes, in order of step) or an evaluation's. Every scope is learned by itself and saved once, at its end,
with the number of episodes that it has taken in: the same command again takes in only what has been added since, and one that is killed leaves the states of
before.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napmem_rl.backend.rmm_online import find_scope, load_recipe_encoder
from napmem_rl.config.rmm_recipe import RmmRecipe
from napmem_rl.errors import BankError, DataError
from napmem_rl.evals.answer_log import load_answers
from napmem_rl.evals.evaluation_settings import load_settings
from napmem_rl.evals.result_rows import ANSWERS, SETTINGS
from napmem_rl.evals.trajectory_rows import read_trajectory
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.storage import find_bank_dir
from napmem_rl.report.episodes import TRAIN, index_episodes
from napmem_rl.report.run_data import Problem, load_run
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.rewards.evidence_use import SearchUse, find_packet_uses, find_search_uses
from napmem_rl.schema import Trajectory
from napmem_rl.systems.memchain.rendering import PACKET
from napmem_rl.systems.rmm.evidence import learn_from_uses
from napmem_rl.systems.rmm.scope import ScopedLearner


@dataclass(frozen=True, kw_only=True, slots=True)
class _Episode:
    """One episode as it was written down."""

    trajectory: Trajectory
    packet: Mapping[str, Any] | None  # MemChain's, see `systems/memchain/rendering.py`

    @property
    def uses(self) -> list[SearchUse]:
        """What was shown and what of it was used."""
        return find_search_uses(self.trajectory) + (find_packet_uses(self.trajectory, self.packet) if self.packet is not None else [])


def learn_from_run(recipe: RmmRecipe, run: Path, *, report: Callable[[str], None]) -> dict[str, Any]:
    """Learn from all episodes of a run.

    Args:
        recipe: `data.dir` holds the banks that the run searched; memory, rerank and online.scope say what is learned, online.out where its states lie.
        run: the run's or the evaluation's directory.
        report: told what could not be used.

    Returns:
        For each scope: episodes and searches learned from now, and counts, usefulness and alarm of its learner.

    Raises:
        DataError: no run, no episode, a bank that is missing, or a state that belongs to something else.
    """
    by_scope: dict[str, list[_Episode]] = {}
    for episode in _read_episodes(run, report):
        by_scope.setdefault(find_scope(recipe, episode.trajectory.task.bank_id), []).append(episode)
    if not by_scope:
        raise DataError.of(f"run {run}", "holds no episode", fix="Give a run directory with trajectories/, or an evaluation's.")
    encoder = load_recipe_encoder(recipe)
    learned = {scope: _learn_scope(recipe, scope, episodes, f"run:{run.resolve().name}", encoder) for scope, episodes in by_scope.items()}
    for scope, facts in learned.items():
        if facts["episodes"] and not facts["searches"]:
            report(
                f"{scope}: none of {facts['episodes']} episodes holds a search, or a packet, over memories that are among the candidates: nothing was learned"
            )
    return learned


def _learn_scope(recipe: RmmRecipe, scope: str, episodes: list[_Episode], name: str, encoder: Encoder) -> dict[str, Any]:
    path = Path(recipe.online.out) / "states" / f"{scope.replace(':', '-')}.npz"
    identity = {"scope": scope, "encoder": encoder.name, "dim": encoder.dim, "settings": recipe.rerank, "ranking": recipe.memory.ranking}
    scoped = ScopedLearner.open(path, **identity)
    banks: dict[str, MemoryBank] = {}
    counts: Counter[str] = Counter(episodes=0, searches=0)
    try:
        for episode in episodes[scoped.count_done(name) :]:
            task = episode.trajectory.task
            if task.bank_id not in banks:
                banks[task.bank_id] = _open_bank(recipe, task.bank_id, encoder)
                scoped.note_bank(task.bank_id, str(banks[task.bank_id].version))
            decisions = learn_from_uses(scoped.learner, episode.uses, banks[task.bank_id], before=task.asked_at)
            counts.update(episodes=1, searches=len(decisions))
        scoped.note_done(name, counts["episodes"])
        learner = scoped.learner
        return {**counts, "num_updates": learner.counts.num_updates, "usefulness": learner.usefulness, "alarm": learner.alarm, "state": str(path)}
    finally:
        scoped.release()


def _open_bank(recipe: RmmRecipe, bank_id: str, encoder: Encoder) -> MemoryBank:
    path = find_bank_dir(Path(recipe.data.dir) / "banks", bank_id)
    try:
        return MemoryBank.open(path, encoder=encoder, ranking=recipe.memory.ranking, verify=False)
    except BankError as error:
        raise DataError.of(f"bank {bank_id}", f"of an episode cannot be opened ({error.message})", fix="Give the run's own data: data.dir=DIR.") from error


def _read_episodes(run: Path, report: Callable[[str], None]) -> Iterator[_Episode]:
    """Training episodes by step, task and sample; or answers in the order in which they came."""
    if (run / SETTINGS).is_file():
        for name in load_settings(run)["directories"]:
            for row in load_answers(run / name / ANSWERS).values():
                yield _Episode(trajectory=read_trajectory(row.trajectory, what=f"answer {row.task_id}"), packet=row.details.get(PACKET))
        return
    problems: list[Problem] = []
    for entry in index_episodes(load_run(run).trajectories_dir, problems).entries:
        if entry.kind != TRAIN:
            continue
        with entry.path.open("rb") as stream:
            stream.seek(entry.offset)
            line = json.loads(stream.read(entry.size))
        yield _Episode(trajectory=read_trajectory(line, what=f"{entry.path.name}, line {entry.line}"), packet=line.get(PACKET))
    for problem in problems:
        report(f"left out: {problem.file}{f', line {problem.line}' if problem.line else ''}: {problem.text}")
