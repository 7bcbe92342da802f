"""What an evaluation leaves on disk, one type a file.

::

    OUT/
      evaluation.yaml              what was asked for, resolved, with the hashes of policy, data and banks; resuming with anything else is refused
      <benchmark>/answers.jsonl    one `AnswerRow` a line, appended as attempts end; never rewritten
      <benchmark>/scores.jsonl     one `ScoreRow` a line, made anew out of answers and keys; asking another judge needs no policy
      summary.json  summary.md  report.html

An answer is identified by (task_id, sample). A row whose trajectory ended in error_llm or error_tool is asked again on resume; the later line wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ANSWERS, SCORES, SUMMARY, SUMMARY_TEXT, REPORT, SETTINGS = "answers.jsonl", "scores.jsonl", "summary.json", "summary.md", "report.html", "evaluation.yaml"


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerRow:
    """One attempt as it is written down. `trajectory` is `trajectory_rows.render_trajectory` with token ids where the engine gives them."""

    benchmark: str
    task_id: str
    sample: int  # 0, 1, …: repeats of a task, each with a seed of its own
    seed: int
    group_id: str  # what is resampled for intervals: the conversation or user that shares text
    trajectory: Mapping[str, Any]
    context_ids: tuple[str, ...]
    context_ranked: bool
    prompt_tokens: int | None
    completion_tokens: int | None
    latency_s: float
    retrieval_s: float
    details: Mapping[str, Any] = field(default_factory=dict)  # of `Attempt`

    @property
    def identity(self) -> tuple[str, int]:
        """(task_id, sample)."""
        return self.task_id, self.sample


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreRow:
    """What one answer is worth. A metric that could not be computed stands in `absent` with its reason and not in `scores`."""

    task_id: str
    sample: int
    group_id: str
    category: str
    kind: str  # AnswerKind: answer, rubric or unanswerable; unanswerable ones are reported apart
    final_answer: str | None
    references: tuple[str, ...]
    evidence_ids: tuple[str, ...]
    scores: Mapping[str, float] = field(default_factory=dict)  # metric name -> value
    absent: Mapping[str, str] = field(default_factory=dict)  # metric name -> why
    judge: str = ""
    verdict_reason: str = ""
    audited: bool | None = None  # the label of an audit file: False where the reference is known to be wrong; None where nobody looked
