"""One token list per episode, put together from the engine's own ids."""

from __future__ import annotations

from typing import NamedTuple

from napmem_rl.errors import BackendError
from napmem_rl.schema import Trajectory, Turn


class TokenSample(NamedTuple):
    """An episode as token ids. The last three have one length [R]; `logprobs` is None where the engine returned none."""

    prompt_ids: list[int]  # [P] everything before the first sampled token
    response_ids: list[int]  # [R] sampled tokens and, between them, tool results and template tokens
    response_mask: list[int]  # [R] 1 exactly where the policy sampled
    logprobs: list[float] | None  # [R] natural log; 0.0 where the mask is 0


def build_sample(trajectory: Trajectory) -> TokenSample:
    """Assemble the one token list of an episode, without tokenising anything anew.

    Each turn's prompt must start with the previous turn's prompt and response; what stands between is masked. The sample ends with the last sampled
    token: results of a last turn, and a turn that had no room to sample, leave nothing behind.

    Example: turns (prompt 1 2, response 3) and (prompt 1 2 3 9, response 4 5) give prompt 1 2, response 3 9 4 5, mask 1 0 1 1.

    Raises:
        BackendError: no turn holds sampled tokens, a prompt does not start with what came before, or only some turns have log-probs.
    """
    task_id = trajectory.task.task_id
    turns = [turn for turn in trajectory.turns if turn.response_ids]
    if not turns or not turns[0].prompt_ids:
        raise BackendError.of(f"trajectory {task_id}", "holds no sampled tokens", expected="prompt and response ids of the engine", fix="Drop it and count it.")
    has_logprobs = _has_logprobs(task_id, turns)
    prompt_ids = list(turns[0].prompt_ids)
    seen: list[int] = list(prompt_ids)
    mask: list[int] = []
    logprobs: list[float] = []
    for index, turn in enumerate(turns):
        gap = _tokens_since(seen, turn, task_id, index)
        seen += [*gap, *turn.response_ids]
        mask += [0] * len(gap) + [1] * len(turn.response_ids)
        logprobs += [0.0] * len(gap) + list(turn.rollout_logprobs)
    return TokenSample(prompt_ids, seen[len(prompt_ids) :], mask, logprobs if has_logprobs else None)


def _tokens_since(seen: list[int], turn: Turn, task_id: str, index: int) -> list[int]:
    """The tokens of the turn's prompt after those already seen."""
    prompt = list(turn.prompt_ids)
    if prompt[: len(seen)] != seen:
        same = next((i for i, (a, b) in enumerate(zip(prompt, seen, strict=False)) if a != b), min(len(prompt), len(seen)))
        raise BackendError.of(
            f"trajectory {task_id}, sampled turn {index}",
            "its prompt does not start with the previous prompt and response",
            got=f"{same} equal tokens of {len(seen)}",
            expected="every token unchanged",
            fix="The history was tokenised anew; pass the engine's ids on instead.",
        )
    return prompt[len(seen) :]


def _has_logprobs(task_id: str, turns: list[Turn]) -> bool:
    num_with = sum(1 for turn in turns if turn.rollout_logprobs)
    if num_with not in (0, len(turns)):
        raise BackendError.of(f"trajectory {task_id}", "only some turns have log-probs", got=num_with, expected=f"none or all {len(turns)}")
    return num_with > 0
