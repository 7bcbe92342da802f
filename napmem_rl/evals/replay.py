"""Playing a recorded episode again, and naming the first thing that is not as it was recorded.

The episode, the prompts, the parser and the reward are the real ones; only what came from outside is handed out as recorded: sampled tokens, tool results,
the judge's verdict. So a difference means that the code, the prompts or the tokenizer are not those of the recording, or that the recording was changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from napmem_rl.errors import DataError, JudgeError, ToolError
from napmem_rl.evals.recordings import Earned
from napmem_rl.rewards.navigation import CORRECT
from napmem_rl.rewards.verdict import Verdict
from napmem_rl.schema import AnswerKey, ScoredTrajectory, Status, Task, ToolCall, ToolResult, Trajectory, Turn

JUDGE_FAILED = "judge: "  # how the abstention of a trajectory without a verdict begins
PROMPT_TOKEN, SAMPLED_TOKEN = "prompt token", "sampled token"
AROUND = 8  # tokens shown before and after a difference
Decode = Callable[[Sequence[int]], str]


class PlaybackToolbox:
    """A `Toolbox` that hands out recorded results in order."""

    def __init__(self, trajectory: Trajectory) -> None:
        """Args:
        trajectory: the recorded one; it must say what its prompt was made of.
        """
        assert trajectory.prompt is not None, "PlaybackToolbox: check_replayable refuses a recording without prompt facts"
        self.file_names: Sequence[str] = trajectory.prompt.file_names
        self._results = list(trajectory.tool_results)
        self._detail = trajectory.detail if trajectory.status is Status.ERROR_TOOL else ""

    async def call(self, call: ToolCall) -> ToolResult:
        """The next recorded result, under the call that was made now.

        Raises:
            ToolError: nothing more was recorded: the tool failed then, too, or more is called now.
        """
        if not self._results:
            raise ToolError(self._detail or "no further result was recorded")
        return dataclasses.replace(self._results.pop(0), call=call)


class RecordedJudge:
    """A `Judge` that gives the recorded verdict again."""

    def __init__(self, earned: Earned) -> None:
        self.name = earned.judge
        self._earned = earned

    async def judge(self, task: Task, key: AnswerKey, answer: str) -> Verdict:
        """Raises JudgeError where the recorded judge failed, DataError where no verdict was recorded."""
        if (self._earned.abstained or "").startswith(JUDGE_FAILED):
            raise JudgeError((self._earned.abstained or "").removeprefix(JUDGE_FAILED))
        if CORRECT not in self._earned.terms:
            raise DataError.of(f"recording of task {task.task_id}", "holds no verdict")
        return Verdict(is_correct=bool(self._earned.terms[CORRECT]), reason="as recorded")


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The first thing that is not as recorded. `part` says what: a token of a prompt or a response, the text of a turn, its calls, the end, the reward.

    Turns count from 1; `position` counts tokens from 0 over the turn's whole prompt, or over its response. `before`, `recorded_after` and `again_after` are a
    few tokens around, as text. An id is None where no token stands there.

    Example: Difference(part="prompt token", turn=2, position=87, recorded="Oslo", again="Rome", recorded_id=531, again_id=92, before="lives in", …)
    """

    part: str
    turn: int | None = None
    position: int | None = None
    recorded: str = ""
    again: str = ""
    recorded_id: int | None = None
    again_id: int | None = None
    before: str = ""
    recorded_after: str = ""
    again_after: str = ""


def find_difference(recorded: Trajectory, again: Trajectory, decode: Decode) -> Difference | None:
    """Compare two runs of one episode turn by turn: prompt, response, text, calls; then how they ended. None where all is equal.

    Args:
        decode: token ids to text, special tokens shown.
    """
    for number, (old, new) in enumerate(zip(recorded.turns, again.turns, strict=False), start=1):
        found = (
            _compare_tokens(PROMPT_TOKEN, number, old.prompt_ids, new.prompt_ids, decode)
            or _compare_tokens(SAMPLED_TOKEN, number, old.response_ids, new.response_ids, decode)
            or _compare_texts(number, old, new, decode)
            or _compare_calls(number, old, new)
        )
        if found is not None:
            return found
    return _compare_ends(recorded, again)


def find_reward_difference(earned: Earned, again: ScoredTrajectory) -> Difference | None:
    """Compare what was earned then and now; None where it is equal. How a failure of ours was worded does not count."""
    if earned.reward != again.reward:
        return Difference(part="reward", recorded=str(earned.reward), again=str(again.reward))
    if earned.abstained != again.abstained and not again.trajectory.status.is_ours:
        return Difference(part="abstention", recorded=str(earned.abstained), again=str(again.abstained))
    if earned.terms != again.terms:
        return Difference(part="terms of the reward", recorded=str(dict(earned.terms)), again=str(dict(again.terms)))
    return None


def find_text_position(ids: Sequence[int], text: str, decode: Decode) -> int:
    """The first token after which the decoded ids no longer begin the text; the number of ids where all of them do."""
    low, high = 0, len(ids)  # the first `low` ids begin the text; whether `high` do is not known
    while low < high:
        middle = (low + high + 1) // 2
        shown = decode(ids[:middle]).rstrip("\ufffd")  # bytes of a character that goes on
        low, high = (middle, high) if text.startswith(shown) else (low, middle - 1)
    return low


def describe_difference(found: Difference) -> list[str]:
    """A difference in words, a few lines."""
    place = ", ".join([*([f"turn {found.turn}"] if found.turn is not None else []), found.part + (f" {found.position}" if found.position is not None else "")])
    lines = [f"first difference: {place}"]
    if found.before:
        lines.append(f"  after     … {found.before!r}")
    for name, text, token, after in (
        ("recorded", found.recorded, found.recorded_id, found.recorded_after),
        ("again", found.again, found.again_id, found.again_after),
    ):
        shown = f"  {name:<9} {'' if token is None else f'{token} '}{text!r}"
        lines.append(f"{shown}, then {after!r} …" if after else shown)
    return lines


def _compare_tokens(part: str, turn: int, old: Sequence[int], new: Sequence[int], decode: Decode) -> Difference | None:
    if tuple(old) == tuple(new):
        return None
    shorter = min(len(old), len(new))
    at = next((index for index in range(shorter) if old[index] != new[index]), shorter)
    return Difference(
        part=part,
        turn=turn,
        position=at,
        recorded=decode(old[at : at + 1]) if at < len(old) else "(nothing more)",
        again=decode(new[at : at + 1]) if at < len(new) else "(nothing more)",
        recorded_id=old[at] if at < len(old) else None,
        again_id=new[at] if at < len(new) else None,
        before=decode(old[max(0, at - AROUND) : at]),
        recorded_after=decode(old[at + 1 : at + 1 + AROUND]),
        again_after=decode(new[at + 1 : at + 1 + AROUND]),
    )


def _compare_texts(turn: int, old: Turn, new: Turn, decode: Decode) -> Difference | None:
    """Equal tokens that are other words: the recorded text or one of its tokens was changed, or the tokenizer was."""
    if old.text == new.text:
        return None
    ids = new.response_ids
    at = find_text_position(ids, old.text, decode)
    read = len(decode(ids[:at]))
    return Difference(
        part="text of the sampled tokens, from token",
        turn=turn,
        position=at,
        recorded=old.text[read : read + 40],
        again=decode(ids[at : at + 1]),
        recorded_id=None,
        again_id=ids[at] if at < len(ids) else None,
        before=decode(ids[max(0, at - AROUND) : at]),
        again_after=decode(ids[at + 1 : at + 1 + AROUND]),
    )


def _compare_calls(turn: int, old: Turn, new: Turn) -> Difference | None:
    then, now = ([(result.call.name, dict(result.call.arguments)) for result in one.tool_results] for one in (old, new))
    if then == now:
        return None
    shorter = min(len(then), len(now))
    at = next((index for index in range(shorter) if then[index] != now[index]), shorter)
    shown = [_render_call(calls[at]) if at < len(calls) else "(no further call)" for calls in (then, now)]
    return Difference(part="parsed call", turn=turn, position=at, recorded=shown[0], again=shown[1])


def _render_call(call: tuple[str, dict[str, object]]) -> str:
    return f"{call[0]}({', '.join(f'{name}={value!r}' for name, value in call[1].items())})"


def _compare_ends(recorded: Trajectory, again: Trajectory) -> Difference | None:
    if recorded.status is not again.status:
        ends = [f"{one.status}{f' ({one.detail})' if one.detail else ''}" for one in (recorded, again)]
        return Difference(part="status", recorded=ends[0], again=ends[1])
    if len(recorded.turns) != len(again.turns):
        return Difference(part="number of turns", recorded=str(len(recorded.turns)), again=str(len(again.turns)))
    if recorded.final_answer != again.final_answer:
        return Difference(part="final answer", recorded=str(recorded.final_answer), again=str(again.final_answer))
    return None
