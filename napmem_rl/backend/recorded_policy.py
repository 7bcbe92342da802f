"""The policy that a recording is of, built again: weights, engine, seeds and limits as they were."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napmem_rl.backend.replay_engine import Replay, ReplayTokenizer, play
from napmem_rl.backend.served_policy import ServedModel, find_context, find_model, serve_engine
from napmem_rl.config.evaluation_sections import SERVED, PolicyConfig
from napmem_rl.errors import CheckpointError, ConfigError, ReplayError
from napmem_rl.evals.policies.model import Episode, PolicyModel
from napmem_rl.evals.recordings import Evaluated, Recording, Trained, check_replayable
from napmem_rl.evals.replay import SAMPLED_TOKEN, find_difference
from napmem_rl.llm.base import Generate
from napmem_rl.llm.token_context import encode_plain
from napmem_rl.model_files import fingerprint_weights

OWN_ENGINE = "transformers"  # whose sampling repeats exactly from a seed, up to rounding


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherPolicy:
    """What is to be taken in place of the recorded policy; None where nothing is."""

    model: Path | None = None
    engine: str | None = None  # of an evaluation's policy

    def apply(self, policy: PolicyConfig) -> PolicyConfig:
        """A recipe's policy with these in their places."""
        changes = {"model": None if self.model is None else str(self.model), "engine": self.engine}
        return dataclasses.replace(policy, **{name: value for name, value in changes.items() if value is not None})


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenModel:
    """A model, the directory of its weights and the engine that serves them."""

    model: PolicyModel
    directory: Path
    engine: str


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


def find_weights(recording: Recording, given: Path | None, scratch: Path) -> Path:
    """Where the weights lie that sampled a training episode.

    Args:
        recording: of a training run.
        given: a HuggingFace directory, a checkpoint or a run to take instead.
        scratch: where a checkpoint of shards alone is merged to.

    Raises:
        ReplayError: the weights of that step were not kept.
        ConfigError, CheckpointError: `given` is no checkpoint, or a broken one.
    """
    assert isinstance(recording.origin, Trained), "find_weights: an evaluation's weights are those of its recipe"
    if given is not None:
        return find_model(given, scratch)
    version = recording.origin.policy_versions[1]
    place = recording.origin.run_dir / f"global_step_{version}" if version else Path(recording.model or "")  # version 0: what the run began with
    try:
        return find_model(place, scratch)
    except (ConfigError, CheckpointError) as error:
        what, problem = f"episode {recording.place}", f"the weights that sampled it (of step {version or 0}) were not kept"
        raise ReplayError.of(what, problem, got=error.message, fix="Give weights with --model DIR.") from error


def list_doubts(recording: Recording, engine: str) -> tuple[str, ...]:
    """Why tokens that are sampled again by an engine may differ although nothing is wrong, one sentence each."""
    doubts, origin = [], recording.origin
    then = origin.engine if isinstance(origin, Trained) else origin.recipe.policy.engine
    if then != engine:
        how = "draws other tokens from the same seed" if find_temperature(recording) > 0 else "may round otherwise"
        doubts.append(f"it was sampled by the engine {then}; {engine}, used here, {how}")
    elif engine == "vllm":
        doubts.append("engine vllm: tokens repeat only as far as its batches round alike")
    elif engine == "endpoint" and find_temperature(recording) > 0:
        doubts.append("an endpoint is free to pass over the seed")
    if isinstance(origin, Evaluated) and then in SERVED and fingerprint_weights(origin.recipe.policy.model) != origin.model_hash:
        doubts.append(f"the files of {origin.recipe.policy.model} are not those that were evaluated")
    if isinstance(origin, Trained) and origin.policy_versions[0] != origin.policy_versions[1]:
        doubts.append(f"several weights sampled it (of steps {origin.policy_versions[0]} to {origin.policy_versions[1]}); one is used here")
    return tuple(doubts)


@contextlib.asynccontextmanager
async def open_model(recording: Recording, other: OtherPolicy, *, tokenizer: Path | None) -> AsyncIterator[OpenModel]:
    """The recorded policy's model, or other weights or another engine in its place.

    Raises:
        ReplayError: the recording does not say how its tokens were drawn, or its weights are not there.
        ConfigError, BackendError: the engine cannot serve them.
    """
    with tempfile.TemporaryDirectory(prefix="napmem-replay-") as scratch:
        if isinstance(recording.origin, Evaluated):
            policy = other.apply(recording.origin.recipe.policy)
            if policy.engine not in SERVED:
                raise ReplayError.of(f"engine {policy.engine}", "samples no tokens here", expected=" or ".join(SERVED))
            with serve_engine(policy, agent=recording.agent, directory=Path(scratch)) as address:
                assert address is not None, "serve_engine: an address for every engine of SERVED"
                model = ServedModel(policy, address, max_context=find_context(policy, recording.agent))
                opened = OpenModel(model=model, directory=Path(address.model), engine=policy.engine)
                async with _closing(opened):
                    yield opened
            return
        if recording.origin.drawing is None:
            raise ReplayError.of(f"episode {recording.place}", "does not say how its tokens were drawn", fix="Train again with this version.")
        directory = find_weights(recording, other.model, Path(scratch))
        opened = OpenModel(model=TrainedModel(recording, ReplayTokenizer(recording, tokenizer), directory), directory=directory, engine=OWN_ENGINE)
        async with _closing(opened):
            yield opened


@contextlib.asynccontextmanager
async def _closing(opened: OpenModel) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await opened.model.close()


async def sample_again(recording: Recording, other: OtherPolicy, *, tokenizer: ReplayTokenizer, tokenizer_dir: Path | None = None) -> Replay:
    """Sample every turn anew with the recorded seed and limits over the recorded tool results, and name the first token that differs, with its log-prob.

    Raises:
        as `open_model`.
    """
    check_replayable(recording)
    episode = Episode(task_id=recording.trajectory.task.task_id, seed=find_seed(recording), limits=recording.agent)
    async with open_model(recording, other, tokenizer=tokenizer_dir) as opened:
        again = await play(recording, opened.model.build_generate(episode))
        difference = find_difference(recording.trajectory, again, tokenizer.decode)
        found = Replay(recording=recording, again=again, scored=None, difference=difference, notes=list_doubts(recording, opened.engine))
        if difference is None or difference.part != SAMPLED_TOKEN:
            return found
        assert difference.turn is not None and difference.position is not None, "a sampled token has its place"
        turn = again.turns[difference.turn - 1]
        prefix = [*turn.prompt_ids, *turn.response_ids[: difference.position]]
        pair = (difference.recorded_id, difference.again_id)
        logprobs = await asyncio.to_thread(compute_logprobs, opened.directory, prefix, pair, temperature=find_temperature(recording))
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
