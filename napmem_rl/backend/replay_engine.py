"""Playing a recorded episode again through the trainer's own token context."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napmem_rl.backend.token_generate import SampledTurn, TokenGenerate, TokenServer, compute_request_seed, find_end_ids
from napmem_rl.errors import BackendError, ReplayError
from napmem_rl.evals.recordings import Drawing, Evaluated, Recording, check_replayable
from napmem_rl.evals.replay import JUDGE_FAILED, Difference, PlaybackToolbox, RecordedJudge, find_difference, find_reward_difference
from napmem_rl.evals.replay_scores import compare_scores
from napmem_rl.llm.base import Generate
from napmem_rl.schema import AnswerKey, ScoredTrajectory, Status, Trajectory
from napmem_rl.systems.napmem.episode import run_episode
from napmem_rl.systems.napmem.reward import score_trajectory
from napmem_rl.tools.spec import MEMORY_TOOLS


class PlaybackServer:
    """A `TokenServer` that gives recorded tokens, whatever it is asked."""

    def __init__(self, trajectory: Trajectory, *, end_ids: Collection[int]) -> None:
        self._turns = [turn for turn in trajectory.turns if turn.response_ids]
        self._end_ids = end_ids
        self._failure = trajectory.detail if trajectory.status is Status.ERROR_LLM else ""

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: Mapping[str, Any]) -> SampledTurn:
        """The next recorded turn. Raises BackendError where none was recorded: the engine failed then, too, or one more turn is wanted now."""
        if not self._turns:
            raise BackendError(self._failure or "no further turn was recorded")
        ids = self._turns.pop(0).response_ids
        is_cut = ids[-1] not in self._end_ids
        return SampledTurn(token_ids=ids, logprobs=(), min_version=None, max_version=None, is_length_stop=is_cut)


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """What came of playing a recording again. `logprobs` are those of the recorded and of the new token at a difference in sampled tokens, where known."""

    recording: Recording
    again: Trajectory
    scored: ScoredTrajectory | None
    difference: Difference | None
    notes: tuple[str, ...] = ()
    logprobs: tuple[float | None, float | None] | None = None


class ReplayTokenizer:
    """The recording's tokenizer with the ids that end its turns."""

    def __init__(self, recording: Recording, directory: Path | None) -> None:
        """Args:
            recording: names its tokenizer.
            directory: another place to load it from.

        Raises:
            ReplayError: no tokenizer there.
        """
        if directory is None and recording.tokenizer is None:
            raise ReplayError.of("recording", "does not say which tokenizer it used", fix="Give its directory with --tokenizer.")
        place = find_tokenizer(directory or Path(recording.tokenizer or ""))
        model = place if directory is not None or recording.model in (None, recording.tokenizer) else Path(recording.model or "")
        self.tokenizer = _load_tokenizer(place)
        self.template_kwargs = recording.template_kwargs
        self.end_ids = find_end_ids(self.tokenizer, _load_generation_config(model), template_kwargs=self.template_kwargs)

    def decode(self, ids: Sequence[int]) -> str:
        """Token ids as text, special tokens shown."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def build_generate(self, recording: Recording, server: TokenServer, drawing: Drawing | None = None) -> TokenGenerate:
        """A fresh token context over a server, with the recorded limits; `drawing` where tokens are sampled anew."""
        sampling = {"stop_token_ids": self.end_ids}
        if drawing is not None:
            sampling |= {"temperature": drawing.temperature, "top_p": drawing.top_p}
        return TokenGenerate(
            server=server,
            tokenizer=self.tokenizer,
            config=recording.agent,
            sampling=sampling,
            seed_of_turn=_SeedOfTurn(recording.trajectory.task.task_id, drawing),
            expects_one_version=False,
            template_kwargs=self.template_kwargs,
        )


@dataclass(frozen=True, slots=True)
class _SeedOfTurn:
    """The seeds of an episode's requests, as the trainer computes them; 0 where nothing is drawn."""

    task_id: str
    drawing: Drawing | None

    def __call__(self, turn_index: int) -> int:
        if self.drawing is None:
            return 0
        step = -1 - self.drawing.step if self.drawing.is_validation else self.drawing.step
        place = {"task_id": self.task_id, "sample_index": self.drawing.sample_index, "turn_index": turn_index, "repeat": self.drawing.repeat}
        return compute_request_seed(self.drawing.seed, step=step, **place)


async def replay_recording(recording: Recording, *, tokenizer: ReplayTokenizer) -> Replay:
    """Play the recorded tokens, tool results and verdict through today's episode, scoring included, and compare.

    Raises:
        ReplayError: the recording lacks what it takes.
    """
    check_replayable(recording)
    server = PlaybackServer(recording.trajectory, end_ids=tokenizer.end_ids)
    again = await play(recording, tokenizer.build_generate(recording, server))
    found = Replay(recording=recording, again=again, scored=None, difference=find_difference(recording.trajectory, again, tokenizer.decode))
    if found.difference is not None:
        return found
    if isinstance(recording.origin, Evaluated):
        difference, note = await compare_scores(recording.origin, again)
        return dataclasses.replace(found, difference=difference, notes=(note,))
    return await _reward_again(found)


async def play(recording: Recording, generate: Generate) -> Trajectory:
    """The episode by a policy, with the recorded tool results in place of a bank. Token fields of turns are kept, log-probs too where it gives them."""
    prompt = recording.trajectory.prompt
    assert prompt is not None, "play: check_replayable refuses a recording without prompt facts"
    tools = tuple(tool for name in prompt.tool_names for tool in MEMORY_TOOLS if tool.name == name)
    own = {"tools": tools, "functions": recording.functions}
    return await run_episode(recording.trajectory.task, generate, PlaybackToolbox(recording.trajectory), recording.agent, **own)


async def _reward_again(found: Replay) -> Replay:
    """The reward of a training episode out of the recorded verdict."""
    earned = found.recording.earned
    assert earned is not None, "recordings of training hold what was earned"
    if earned.abstained is not None and not found.again.status.is_ours and not earned.abstained.startswith(JUDGE_FAILED):  # nobody scored it
        return dataclasses.replace(found, notes=(f"no reward was given ({earned.abstained}), so none is compared",))
    key = AnswerKey(task_id=found.again.task.task_id, references=("the verdict is recorded",))
    scored = await score_trajectory(found.again, key, RecordedJudge(earned), found.recording.agent)
    return dataclasses.replace(found, scored=scored, difference=find_reward_difference(earned, scored))


def find_tokenizer(path: Path) -> Path:
    """The directory of the tokenizer of a HuggingFace directory, a checkpoint or a run. Raises ReplayError where there is none."""
    steps = sorted(path.glob("global_step_*"), key=lambda step: (len(step.name), step.name))
    places = [path, *(place / "actor" / "huggingface" for place in (path, *reversed(steps)))]
    found = next((place for place in places if (place / "tokenizer.json").is_file()), None)
    if found is None:
        raise ReplayError.of(f"tokenizer {path}", "was not found", fix="Give its directory with --tokenizer.")
    return found


def _load_tokenizer(directory: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ReplayError.of(f"tokenizer {directory}", f"cannot be loaded ({type(error).__name__}: {error})") from error


def _load_generation_config(model: Path) -> Any:
    """The model's generation config, which may name further tokens that end a turn; None where it has none."""
    from transformers import GenerationConfig

    if not (model / "generation_config.json").is_file():
        return None
    return GenerationConfig.from_pretrained(model, local_files_only=True)
