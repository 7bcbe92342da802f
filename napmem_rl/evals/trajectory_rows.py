"""Trajectories as plain JSON data, and back.

Token ids are written as what each turn adds: `new_prompt_ids` are the prompt tokens after the previous turn's prompt and response (of the first turn, all of
them), `response_ids` what was sampled. So an episode of many turns holds each token once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from napmem_rl.errors import DataError
from napmem_rl.schema import Level, PromptFacts, Status, Task, ToolCall, ToolFailure, ToolResult, Trajectory, Turn


def render_trajectory(trajectory: Trajectory, *, with_token_ids: bool = False) -> dict[str, Any]:
    """An episode as plain data: the task, how it ended, what was said, called and found."""
    task = trajectory.task
    versions = [turn.policy_version for turn in trajectory.turns if turn.policy_version is not None]
    return {
        "task_id": task.task_id,
        "bank_id": task.bank_id,
        "category": task.category,
        "needs_memory": task.needs_memory,
        "question": task.question,
        "options": list(task.options),
        "asked_at": task.asked_at,
        "status": str(trajectory.status),
        "detail": trajectory.detail,
        "final_answer": trajectory.final_answer,
        "prompt": None if trajectory.prompt is None else asdict(trajectory.prompt),
        "policy_version": max(versions, default=None),
        "turns": _render_turns(trajectory.turns, with_token_ids),
    }


def read_trajectory(row: Mapping[str, Any], *, what: str = "trajectory") -> Trajectory:
    """The trajectory of a row that `render_trajectory` made; token fields are empty where it holds none.

    Raises:
        DataError: a field is missing or of another form.
    """
    try:
        task = Task(
            task_id=row["task_id"],
            bank_id=row["bank_id"],
            question=row["question"],
            category=row["category"],
            needs_memory=row["needs_memory"],
            asked_at=row["asked_at"],
            options=tuple(row["options"]),
        )
        turns = _read_turns(row["turns"])
        prompt = None if row["prompt"] is None else PromptFacts(**{name: _as_tuple(value) for name, value in row["prompt"].items()})
        end = {"final_answer": row["final_answer"], "status": Status(row["status"]), "detail": row["detail"]}
        return Trajectory(task=task, turns=turns, prompt=prompt, **end)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError.of(what, f"is not a recorded trajectory ({type(error).__name__}: {error})") from error


def _as_tuple(value: Any) -> Any:
    """JSON's lists are our tuples."""
    return tuple(value) if isinstance(value, list) else value


def _render_turns(turns: Sequence[Turn], with_token_ids: bool) -> list[dict[str, Any]]:
    rows, known = [], 0
    for turn in turns:
        row = {
            "text": turn.text,
            "error": turn.error,
            "num_prompt_tokens": len(turn.prompt_ids),
            "num_response_tokens": len(turn.response_ids),
            "calls": [_render_result(result) for result in turn.tool_results],
        }
        if with_token_ids and turn.prompt_ids:
            row |= {"new_prompt_ids": list(turn.prompt_ids[known:]), "response_ids": list(turn.response_ids)}
            known = len(turn.prompt_ids) + len(turn.response_ids)
        rows.append(row)
    return rows


def _render_result(result: ToolResult) -> dict[str, Any]:
    return {
        "name": result.call.name,
        "arguments": dict(result.call.arguments),
        "text": result.text,
        "is_success": result.is_success,
        "failure": result.failure,
        "level": str(result.level),
        "item_ids": list(result.item_ids),
        "message_ids": list(result.message_ids),
        "latency_s": round(result.latency_s, 6),
        "is_truncated": result.is_truncated,
    }


def _read_turns(rows: Sequence[Mapping[str, Any]]) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    prefix: tuple[int, ...] = ()
    for row in rows:
        prompt_ids = (*prefix, *row["new_prompt_ids"]) if "new_prompt_ids" in row else ()
        response_ids = tuple(row.get("response_ids", ()))
        results = tuple(_read_result(call) for call in row["calls"])
        turns.append(Turn(text=row["text"], tool_results=results, prompt_ids=prompt_ids, response_ids=response_ids, error=row["error"]))
        prefix = (*prompt_ids, *response_ids)
    return tuple(turns)


def _read_result(row: Mapping[str, Any]) -> ToolResult:
    return ToolResult(
        call=ToolCall(name=row["name"], arguments=row["arguments"]),
        text=row["text"],
        is_success=row["is_success"],
        level=Level(row["level"]),
        item_ids=tuple(row["item_ids"]),
        message_ids=tuple(row["message_ids"]),
        latency_s=row["latency_s"],
        is_truncated=row["is_truncated"],
        failure=ToolFailure(row["failure"]) if row["failure"] else None,
    )
