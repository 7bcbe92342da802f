"""The policy that a recording is of, built again: weights, engine, seeds and limits as they were."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from napmem_rl.backend.replay_engine import Replay, ReplayTokenizer, play
from napmem_rl.errors import ReplayError
from napmem_rl.evals.policies.model import Episode, PolicyModel
from napmem_rl.evals.recordings import Evaluated, Recording, Trained
from napmem_rl.evals.replay import SAMPLED_TOKEN, find_difference
from napmem_rl.llm.base import Generate
from napmem_rl.llm.token_context import encode_plain

OWN_ENGINE = "transformers"  # whose sampling repeats exactly from a seed, up to rounding


class TrainedModel:
    """A `PolicyModel`: weights of a training run by the transformers engine, which draws with the seeds of the recorded episode whatever it is asked."""

    def __init__(self, recording: Recording, tokenizer: ReplayTokenizer, directory: Path) -> None:
        """Args:
            recording: of a training run, with how its tokens were drawn.
            tokenizer: the recording's.
            directory: HuggingFace directory of the weights.

        Raises:
            ReplayError: the weights cannot be loaded.
            ConfigError: the engine cannot serve them.
        """
        from napmem_rl.backend.engine_transformers import TransformersEngine
        from napmem_rl.backend.local_policy import EngineServer

        assert isinstance(recording.origin, Trained), "TrainedModel: an evaluation's policy is built from its recipe"
        self._recording, self._tokenizer, self._drawing = recording, tokenizer, recording.origin.drawing
        self._engine = TransformersEngine(load_weights(directory), max_context=recording.agent.max_context_tokens)
        self._server = EngineServer(self._engine)
        self.name = directory.name
        self.facts: dict[str, Any] = {"engine": OWN_ENGINE, "model": str(directory)}

    def count_tokens(self, text: str) -> int:
        """Tokens of a text as data."""
        return len(encode_plain(self._tokenizer.tokenizer, text))

    def build_generate(self, episode: Episode) -> Generate:
        """A fresh token context with the recorded seeds."""
        return self._tokenizer.build_generate(self._recording, self._server, self._drawing)

    async def close(self) -> None:
        """End the engine."""
        self._engine.close()


def load_weights(directory: Path) -> Any:
    """A causal language model in the precision in which it is stored. Raises ReplayError where it cannot be loaded."""
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(directory, attn_implementation="sdpa", local_files_only=True).eval()
    except (OSError, ValueError) as error:
        raise ReplayError.of(f"model {directory}", f"cannot be loaded ({type(error).__name__}: {error})") from error


def find_weights(recording: Recording, given: Path | None) -> Path:
    """Where the weights lie that sampled a training episode.

    Args:
        recording: of a training run.
        given: a directory to take instead.

    Raises:
        ReplayError: nowhere: the weights of that step were not kept.
    """
    assert isinstance(recording.origin, Trained)
    if given is not None:
        if not (given / "config.json").is_file():
            raise ReplayError.of(f"model {given}", "is no HuggingFace directory: it holds no config.json", fix="launch/export.py makes one of a checkpoint.")
        return given
    version = recording.origin.policy_versions[1]
    if not version:  # of the policy that the run began with
        place = Path(recording.model or "")
    else:
        place = recording.origin.run_dir / f"global_step_{version}" / "actor" / "huggingface"
    if not any(place.glob("*.safetensors")):
        fix = "Give weights with --model DIR; launch/export.py makes a directory of a checkpoint that holds shards alone."
        raise ReplayError.of(f"episode {recording.place}", f"the weights that sampled it (of step {version or 0}) were not kept", got=str(place), fix=fix)
    return place


def list_doubts(recording: Recording) -> tuple[str, ...]:
    """Why tokens that are sampled again may differ although nothing is wrong, one sentence each."""
    doubts = []
    origin = recording.origin
    if isinstance(origin, Evaluated):
        policy = origin.recipe.policy
        if policy.engine != OWN_ENGINE and policy.temperature > 0:
            doubts.append(f"engine {policy.engine}: seeded sampling repeats only as far as that engine's batches do")
        return tuple(doubts)
    if origin.engine != OWN_ENGINE:
        how = "draws other tokens from the same seed" if origin.drawing is not None and origin.drawing.temperature > 0 else "may round otherwise"
        doubts.append(f"the run sampled by {origin.engine}; the transformers engine, used here, {how}")
    if origin.policy_versions[0] != origin.policy_versions[1]:
        doubts.append(f"several weights sampled it (of steps {origin.policy_versions[0]} to {origin.policy_versions[1]}); one is used here")
    return tuple(doubts)


@contextlib.asynccontextmanager
async def open_model(recording: Recording, *, given: Path | None, tokenizer: ReplayTokenizer) -> AsyncIterator[tuple[PolicyModel, Path]]:
    """The model of the recorded policy, or other weights in its place, with the directory of its weights.

    Raises:
        ReplayError: the recording does not say how its tokens were drawn, or its weights are not there.
        ConfigError, BackendError: the engine cannot serve them.
    """
    assert isinstance(recording.origin, Trained)
    if recording.origin.drawing is None:
        raise ReplayError.of(f"episode {recording.place}", "does not say how its tokens were drawn", fix="Train again with this version.")
    directory = find_weights(recording, given)
    model = TrainedModel(recording, tokenizer, directory)
    try:
        yield model, directory
    finally:
        await model.close()


async def sample_again(recording: Recording, *, given: Path | None, tokenizer: ReplayTokenizer) -> Replay:
    """Sample every turn anew with the recorded seed and limits over the recorded tool results, and name the first token that differs, with its log-prob.

    Raises:
        as `open_model`.
    """
    task_id = recording.trajectory.task.task_id
    async with open_model(recording, given=given, tokenizer=tokenizer) as (model, directory):
        again = await play(recording, model.build_generate(Episode(task_id=task_id, seed=find_seed(recording), limits=recording.agent)))
    difference = find_difference(recording.trajectory, again, tokenizer.decode)
    found = Replay(recording=recording, again=again, scored=None, difference=difference, notes=list_doubts(recording))
    if difference is None or difference.part != SAMPLED_TOKEN:
        return found
    assert difference.turn is not None and difference.position is not None
    turn = again.turns[difference.turn - 1]
    prefix = [*turn.prompt_ids, *turn.response_ids[: difference.position]]
    pair = (difference.recorded_id, difference.again_id)
    logprobs = await asyncio.to_thread(compute_logprobs, directory, prefix, pair, temperature=find_temperature(recording))
    return dataclasses.replace(found, logprobs=logprobs)


def find_seed(recording: Recording) -> int:
    """The seed of an attempt, or of the run that an episode is of."""
    origin = recording.origin
    return origin.row.seed if isinstance(origin, Evaluated) else origin.drawing.seed if origin.drawing is not None else 0


def find_temperature(recording: Recording) -> float:
    """At which its tokens were drawn."""
    origin = recording.origin
    return origin.recipe.policy.temperature if isinstance(origin, Evaluated) else origin.drawing.temperature if origin.drawing is not None else 1.0


def compute_logprobs(directory: Path, prefix: Sequence[int], tokens: Sequence[int | None], *, temperature: float) -> tuple[float | None, ...]:
    """Natural log-probs of single tokens after a prefix [L], under softmax(logits / temperature) over the whole vocabulary (greedy: temperature 1)."""
    import torch

    model = load_weights(directory)
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([list(prefix)]), use_cache=False, logits_to_keep=1).logits[0, -1].float()
    logprobs = torch.log_softmax(logits / (temperature or 1.0), dim=-1)
    return tuple(None if token is None else float(logprobs[token]) for token in tokens)
