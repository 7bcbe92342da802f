"""One recorded episode of a training run or of an evaluation, with everything that playing it again takes."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from napmem_rl.config.evaluation_recipe import BENCHMARKS, SECTIONS, EvaluationRecipe
from napmem_rl.config.sections import AgentConfig, JudgeConfig, MemoryConfig
from napmem_rl.data.splits import META
from napmem_rl.errors import DataError, ReplayError
from napmem_rl.evals.answer_log import load_answers
from napmem_rl.evals.evaluation_settings import DECIDES_ANSWERS, load_settings
from napmem_rl.evals.prepared import load_split
from napmem_rl.evals.result_rows import ANSWERS, SETTINGS, AnswerRow
from napmem_rl.evals.trajectory_rows import read_trajectory
from napmem_rl.report.episodes import VALIDATION, Entry, index_episodes
from napmem_rl.report.run_data import Problem, RunData, load_run
from napmem_rl.schema import Trajectory
from napmem_rl.systems.napmem.prompts import PROMPT_VERSION
from napmem_rl.tools.spec import MEMORY_TOOLS, ToolSpec, find_tool

MAX_LISTED = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """Which of several episodes of one task is meant; None where it does not matter."""

    step: int | None = None
    sample: int | None = None
    repeat: int | None = None
    is_validation: bool | None = None
    benchmark: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Earned:
    """What a recorded episode earned; see `ScoredTrajectory`."""

    reward: float | None
    abstained: str | None
    terms: Mapping[str, float]
    judge: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """How the tokens of a training episode were drawn; with the turn's number these give the seed of its request."""

    seed: int  # of the run
    step: int
    sample_index: int
    repeat: int
    is_validation: bool
    temperature: float
    top_p: float
    top_k: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """The training run that an episode is of. `policy_versions` are the oldest and the newest weights that sampled it, None where unknown."""

    run_dir: Path
    run: RunData = field(repr=False)
    engine: str
    drawing: Drawing | None
    policy_versions: tuple[int | None, int | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluated:
    """The evaluation that an episode is of."""

    run_dir: Path
    recipe: EvaluationRecipe
    row: AnswerRow
    data_dir: Path  # of its benchmark: keys and banks
    split: str
    model_hash: str | None  # `fingerprint_weights` of its checkpoint
    data_hash: str  # `Benchmark.sha256` of its questions


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """One episode as it was written down. `model` is the directory, or the name, of the model that the run began with, `tokenizer` that of its tokenizer."""

    place: str  # file and line, for people
    trajectory: Trajectory
    agent: AgentConfig
    memory: MemoryConfig
    judge: JudgeConfig
    model: str | None
    tokenizer: str | None
    template_kwargs: Mapping[str, Any]
    earned: Earned | None
    origin: Trained | Evaluated
    functions: tuple[ToolSpec, ...] = ()  # of the task itself, for a control task


def load_recording(directory: Path, task_id: str, choice: Choice) -> Recording:
    """Find one episode.

    Args:
        directory: an evaluation's directory, a training run's, or a quickstart's.
        task_id: of its task.
        choice: which one, where the task was played several times.

    Raises:
        DataError: no run, no such task (near ids are named), or several episodes where one must be chosen.
    """
    if (directory / SETTINGS).is_file():
        return _load_evaluated(directory, task_id, choice)
    return _load_trained(directory, task_id, choice)


def check_replayable(recording: Recording) -> None:
    """Raise ReplayError with what is missing."""
    trajectory, what = recording.trajectory, f"episode {recording.place}"
    prompt = trajectory.prompt
    if prompt is None:
        fix = "Answers of a policy without tools are one prompt; `napmem counterfactual` asks it again."
        raise ReplayError.of(what, "is no episode with tools", fix=fix)
    if prompt.version.partition("-")[0] != PROMPT_VERSION.partition("-")[0]:
        raise ReplayError.of(what, "is of another system", got=prompt.version, expected="an episode of NapMem", fix="Only those are replayed.")
    if prompt.version != PROMPT_VERSION:
        raise ReplayError.of(what, "was recorded with other prompts", got=prompt.version, expected=PROMPT_VERSION, fix="Check out the code of the recording.")
    unknown = [name for name in prompt.tool_names if find_tool(name, (*MEMORY_TOOLS, *recording.functions)) is None]
    if unknown:
        raise ReplayError.of(what, "offered functions of its own task, which are not found", got=unknown, fix="They lie beside the benchmark's questions.")
    if not trajectory.turns:
        raise ReplayError.of(what, "holds no turn", got=f"{trajectory.status} ({trajectory.detail})")
    if not any(turn.prompt_ids for turn in trajectory.turns):
        fix = "Token ids are kept by report.token_ids in training and evaluation.token_ids in evaluations; endpoints give none."
        raise ReplayError.of(what, "token ids were not kept", fix=fix)


def _load_trained(directory: Path, task_id: str, choice: Choice) -> Recording:
    run = load_run(directory)
    problems: list[Problem] = []
    entries = index_episodes(run.trajectories_dir, problems).entries
    entry = _choose(run, task_id, entries, choice)
    with entry.path.open("rb") as stream:
        stream.seek(entry.offset)
        line = json.loads(stream.read(entry.size))
    place = f"{entry.path.name}, line {entry.line}"
    model = run.setting("verl.actor_rollout_ref.model.path")
    return Recording(
        place=place,
        trajectory=read_trajectory(line, what=place),
        agent=_read_section(AgentConfig, run, "agent"),
        memory=_read_section(MemoryConfig, run, "memory"),
        judge=_read_section(JudgeConfig, run, "judge"),
        model=model,
        tokenizer=run.setting("verl.actor_rollout_ref.model.tokenizer_path") or model,
        template_kwargs=run.setting("verl.data.apply_chat_template_kwargs", {}),
        earned=Earned(reward=line["reward"], abstained=line["abstained"], terms=dict(line["terms"]), judge=line["judge"]),
        origin=Trained(
            run_dir=run.run_dir,
            run=run,
            engine=str(run.setting("verl.actor_rollout_ref.rollout.name", "unknown")),
            drawing=_read_drawing(line, entry),
            policy_versions=(line.get("min_policy_version"), line.get("policy_version")),
        ),
    )


def _read_drawing(line: Mapping[str, Any], entry: Entry) -> Drawing | None:
    sampling = line.get("sampling")
    if sampling is None:
        return None
    return Drawing(
        seed=sampling["seed"],
        step=entry.step,
        sample_index=entry.sample,
        repeat=entry.repeat,
        is_validation=entry.kind == VALIDATION,
        temperature=1.0 if sampling["temperature"] is None else sampling["temperature"],
        top_p=1.0 if sampling["top_p"] is None else sampling["top_p"],
        top_k=-1 if sampling["top_k"] is None else sampling["top_k"],
    )


def _read_section(cls: type, run: RunData, name: str) -> Any:
    values = run.settings.get(name)
    if not isinstance(values, Mapping):
        problems = "; ".join(f"{problem.file} {problem.text}" for problem in run.problems)
        raise ReplayError.of(f"run directory {run.run_dir}", f"does not say which settings of `{name}` it had ({problems or 'resolved.yaml lacks them'})")
    try:
        return cls(**values)
    except TypeError as error:
        raise ReplayError.of(f"run directory {run.run_dir}, resolved.yaml", f"is of another version ({error})") from error


def _choose(run: RunData, task_id: str, entries: Sequence[Entry], choice: Choice) -> Entry:
    """The one entry that is meant."""
    of_task = [entry for entry in entries if entry.task_id == task_id]
    if not of_task:
        raise unknown_task(f"run {run.name}", task_id, {entry.task_id for entry in entries})
    wanted = {"step": choice.step, "sample": choice.sample, "repeat": choice.repeat}
    meant = [entry for entry in of_task if all(value is None or getattr(entry, name) == value for name, value in wanted.items())]
    if choice.is_validation is not None:
        meant = [entry for entry in meant if (entry.kind == VALIDATION) == choice.is_validation]
    if len(meant) == 1:
        return meant[0]
    listed = meant or of_task
    shown = [f"{entry.kind} step {entry.step} sample {entry.sample}{f' repeat {entry.repeat}' if entry.repeat else ''}" for entry in listed[:MAX_LISTED]]
    more = f" and {len(listed) - MAX_LISTED} more" if len(listed) > MAX_LISTED else ""
    problem = f"has {len(meant)} such episodes" if meant else "has no such episode"
    fix = "Choose one with --step, --sample, --repeat, --validation or --train."
    raise DataError.of(f"task {task_id} of run {run.name}", f"{problem}; there are: {'; '.join(shown)}{more}", fix=fix)


def unknown_task(what: str, task_id: str, known: set[str]) -> DataError:
    """An error that names the nearest ids."""
    near = difflib.get_close_matches(task_id, sorted(known), n=3, cutoff=0.5)
    fix = f"Did you mean {', '.join(near)}?" if near else f"It holds {len(known)} tasks, such as {', '.join(sorted(known)[:3])}." if known else "It holds none."
    return DataError.of(what, f"holds no episode of task {task_id!r}", fix=fix)


def _load_evaluated(directory: Path, task_id: str, choice: Choice) -> Recording:
    settings = load_settings(directory)
    recipe = read_recipe(settings, directory)
    row = _choose_answer(directory, settings["directories"], task_id, choice)
    place = f"{row.benchmark}/{ANSWERS}, task {row.task_id}, sample {row.sample}"
    trajectory = read_trajectory(row.trajectory, what=place)
    data_dir, decided = Path(settings["directories"][row.benchmark]), settings[DECIDES_ANSWERS]
    data = decided[BENCHMARKS][row.benchmark]
    hashes = {"model_hash": decided["model_fingerprint"], "data_hash": data["data_sha256"]}
    return Recording(
        place=place,
        trajectory=trajectory,
        agent=recipe.agent,
        memory=recipe.memory,
        judge=recipe.judge,
        model=recipe.policy.model,
        tokenizer=recipe.policy.model,
        template_kwargs={},
        earned=None,
        origin=Evaluated(run_dir=directory, recipe=recipe, row=row, data_dir=data_dir, split=data["split"], **hashes),
        functions=_find_functions(trajectory, data_dir, data["split"]),
    )


def _find_functions(trajectory: Trajectory, data_dir: Path, split: str) -> tuple[ToolSpec, ...]:
    """What a control task offered beside the memory tools."""
    names = () if trajectory.prompt is None else trajectory.prompt.tool_names
    if all(find_tool(name, MEMORY_TOOLS) is not None for name in names) or not (data_dir / META).is_file():
        return ()
    return load_split(data_dir, split, name=split).functions.get(trajectory.task.task_id, ())


def read_recipe(settings: Mapping[str, Any], directory: Path) -> EvaluationRecipe:
    """The recipe that an evaluation.yaml holds. Raises ReplayError where it is of another version."""
    given = settings["recipe"]
    try:
        values = {name: {key: tuple(value) if isinstance(value, list) else value for key, value in given[name].items()} for name in SECTIONS}
        sections = {name: cls(**values[name]) for name, cls in SECTIONS.items()}
        return EvaluationRecipe(source=str(directory), benchmarks=given[BENCHMARKS], **sections)
    except (KeyError, TypeError) as error:
        raise ReplayError.of(f"evaluation {directory}, {SETTINGS}", f"is of another version ({error})") from error


def _choose_answer(directory: Path, benchmarks: Mapping[str, str], task_id: str, choice: Choice) -> AnswerRow:
    """The one row that is meant."""
    if choice.benchmark is not None and choice.benchmark not in benchmarks:
        raise DataError.of(f"evaluation {directory}", "has no such benchmark", got=choice.benchmark, expected=" or ".join(benchmarks))
    rows = [row for name in benchmarks if choice.benchmark in (None, name) for row in load_answers(directory / name / ANSWERS).values()]
    of_task = [row for row in rows if row.task_id == task_id]
    if not of_task:
        raise unknown_task(f"evaluation {directory}", task_id, {row.task_id for row in rows})
    meant = [row for row in of_task if choice.sample in (None, row.sample)]
    if len(meant) == 1:
        return meant[0]
    shown = "; ".join(f"{row.benchmark} sample {row.sample}" for row in of_task[:MAX_LISTED])
    problem = f"has {len(meant)} such answers" if meant else "has no such answer"
    raise DataError.of(f"task {task_id} of evaluation {directory}", f"{problem}; there are: {shown}", fix="Choose one with --sample and --benchmark.")
