"""Demonstrations as tokens: a scripted demonstrator in the place of the rollout server, everything else as in a rollout.

Because the episode, the tools and the token list are those of training, what supervised learning sees has token by token the form of what the policy will
sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from napmem_rl.backend.token_generate import SampledTurn, TokenGenerate
from napmem_rl.config.sections import AgentConfig
from napmem_rl.llm.sample import build_sample
from napmem_rl.schema import Status, Task, ToolCall, ToolResult, Trajectory
from napmem_rl.systems.napmem.episode import Toolbox, run_episode
from napmem_rl.tools.parse import render_call

Act = Callable[[Sequence[ToolResult]], ToolCall | str]


class RecordingToolbox:
    """A toolbox that remembers its results, so that a demonstrator can look at them."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self.results: list[ToolResult] = []

    @property
    def file_names(self) -> Sequence[str]:
        """See `Toolbox.file_names`."""
        return self._toolbox.file_names

    async def call(self, call: ToolCall) -> ToolResult:
        """See `Toolbox.call`."""
        self.results.append(await self._toolbox.call(call))
        return self.results[-1]


class DemonstratingServer:
    """A `TokenServer` whose turns are a demonstrator's decisions, encoded as the policy would write them."""

    def __init__(self, act: Act, toolbox: RecordingToolbox, tokenizer: Any, *, tool_format: str) -> None:
        self._act, self._toolbox, self._tokenizer, self._tool_format = act, toolbox, tokenizer, tool_format

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: Mapping[str, Any]) -> SampledTurn:
        """The next decision as token ids, closed by the end-of-turn token; log-probs are 0, since nothing was sampled."""
        decision = self._act(self._toolbox.results)
        text = render_call(decision, self._tool_format) if isinstance(decision, ToolCall) else f"<answer>{decision}</answer>"
        ids = (*self._tokenizer.encode(text, add_special_tokens=False), self._tokenizer.eos_token_id)
        return SampledTurn(token_ids=ids, logprobs=(0.0,) * len(ids), min_version=None, max_version=None, is_length_stop=False)


async def demonstrate(task: Task, act: Act, toolbox: Toolbox, tokenizer: Any, config: AgentConfig) -> tuple[Trajectory, list[int], list[int]]:
    """Run one demonstration.

    Returns:
        The trajectory, its token ids [L], and the mask [L] that is 1 on the demonstrator's own tokens.

    Raises:
        AssertionError: the demonstration did not complete, so the demonstrator or its limits are wrong.
    """
    recording = RecordingToolbox(toolbox)
    server = DemonstratingServer(act, recording, tokenizer, tool_format=config.tool_format)
    sampling = {"stop_token_ids": [tokenizer.eos_token_id]}
    generate = TokenGenerate(server=server, tokenizer=tokenizer, config=config, sampling=sampling, seed_of_turn=int, expects_one_version=False)
    trajectory = await run_episode(task, generate, recording, config)
    assert trajectory.status is Status.COMPLETED, f"demonstration of {task.task_id} ended with {trajectory.status}: {trajectory.detail}"
    sample = build_sample(trajectory)
    return trajectory, sample.prompt_ids + sample.response_ids, [0] * len(sample.prompt_ids) + sample.response_mask
