"""The data that flows through napmem_rl: one frozen type per stage.

How the concepts hang together::

    Message ─▶ Record ─▶ Track ─▶ Profile          a user's memory bank, each level linked to the one below by ids (provenance)
    Task + bank ─▶ [Turn, Turn, …] ─▶ Trajectory   one episode: the policy calls tools, reads results, answers
    Trajectory + AnswerKey ─▶ ScoredTrajectory     reward workers; abstains where no honest reward exists
    ScoredTrajectory ─▶ TrainingSample             one token list, 1 in the mask exactly where the policy sampled
    candidates ─▶ RerankDecision                   a learned reranker's choice

Shapes: [P] prompt tokens, [R] response tokens of one turn, [L] tokens of a whole sample, [K] candidates, [M] chosen ones. Times are ISO 8601 strings
without a zone ("2024-03-05T13:56:00"), so that they sort as text. A `Task` holds no answer: references and gold evidence live in `AnswerKey`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """A level of the memory pyramid, from raw to abstract."""

    RAW = "raw"  # messages as they were said
    RECORD = "record"  # typed, compact facts
    TRACK = "track"  # topics across sessions
    PROFILE = "profile"  # the user as a whole


class RecordType(StrEnum):
    """What a memory record is about (NapMem section 3.2)."""

    FACT = "fact"
    EVENT = "event"
    INSTRUCTION = "instruction"
    PREFERENCE = "preference"


class ToolFailure(StrEnum):
    """Why a call gave nothing, in a way that the model can read and go on from."""

    NOTHING_FOUND = "nothing_found"  # a search without a hit
    UNKNOWN_ID = "unknown_id"  # none of the ids exists at the moment of the question
    UNKNOWN_FILE = "unknown_file"
    FILE_TOO_NEW = "file_too_new"  # last updated after the question was asked
    EMPTY_FILE = "empty_file"
    NO_TOKENS_LEFT = "no_tokens_left"  # the episode's tokens for results are used up


class Status(StrEnum):
    """How an episode ended. The policy's own doing unless said otherwise."""

    COMPLETED = "completed"  # one well-formed final answer
    OVER_BUDGET = "over_budget"  # asked for more tool steps than allowed
    TRUNCATED = "truncated"  # a turn hit the length limit, or no room was left
    ERROR_PARSE = "error_parse"  # malformed call, unknown tool, ill-typed arguments, no answer
    ERROR_TOOL = "error_tool"  # a tool broke: ours, never trained on
    ERROR_LLM = "error_llm"  # the engine or endpoint broke: ours, never trained on

    @property
    def is_ours(self) -> bool:
        """True where the failure is the system's and the trajectory must be neither scored nor trained on."""
        return self in (Status.ERROR_TOOL, Status.ERROR_LLM)


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One raw message. `text` is what was said; `caption` describes an image shared with it, if any.

    Example: Message(message_id="msg:12", session_id="s3", role="user", speaker="Ana", text="We moved to Oslo.", time="2024-03-05T13:56:00")
    """

    message_id: str  # "msg:…"
    session_id: str
    role: str  # "user" or "assistant"
    speaker: str
    text: str
    time: str  # ISO 8601
    caption: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One typed memory record, with the messages it was drawn from.

    Example: Record(record_id="rec:7", type=RecordType.FACT, text="Ana moved to Oslo.", time="2024-03-05T13:56:00", source_ids=("msg:12",), session_id="s3")
    """

    record_id: str  # "rec:…"
    type: RecordType
    text: str
    time: str  # of the newest source message
    source_ids: tuple[str, ...]  # message ids, never empty
    session_id: str  # of the newest source message


class RecordOperation(StrEnum):
    """What made a revision of a record (NapMem appendix B, reconciliation; `skip` makes none)."""

    STORE = "store"  # a new record
    UPDATE = "update"  # a record says something newer; its sources are united
    MERGE = "merge"  # a record takes in others, which are gone from then on; the sources of all are united


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordRevision:
    """One line of a bank's record history: the record as it was from then on, and the records that it took in.

    Example: RecordRevision(operation=RecordOperation.MERGE, record=<rec:7 as it is now>, merged_ids=("rec:9",))
    """

    operation: RecordOperation
    record: Record
    merged_ids: tuple[str, ...] = ()  # of records that end here; only for a merge, never empty then


@dataclass(frozen=True, kw_only=True, slots=True)
class Track:
    """A topic across sessions, stored as a Markdown file; `record_ids` are its evidence links."""

    track_id: str  # "trk:…"
    file_name: str  # "<slug>.md", what read_file takes
    title: str
    summary: str
    narrative: str
    time: str  # of the newest record
    record_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """The user as a whole, stored as profile.md; `source_ids` are record ids or track ids."""

    text: str
    time: str
    source_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A question to one user's bank. Holds nothing of the answer.

    `asked_at` is the moment of the question: tools show nothing later. `options` are the texts of a multiple choice, lettered A, B, … in order.
    `needs_memory` is for reward and reports only; the policy never sees it (see `prompts`).
    """

    task_id: str
    bank_id: str
    question: str
    category: str
    needs_memory: bool
    asked_at: str | None = None
    options: tuple[str, ...] = ()


class AnswerKind(StrEnum):
    """What the references of a key are."""

    ANSWER = "answer"  # accepted answers
    RUBRIC = "rubric"  # what a good answer does, in words (LongMemEval's preference questions)
    UNANSWERABLE = "unanswerable"  # why nothing in memory answers the question; right is to say so


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerKey:
    """What rewards and evaluations may see of a task. For multiple choice `references` holds the one letter.

    `evidence_ids` are gold message ids; empty means unknown, and metrics that need them are then absent.
    """

    task_id: str
    references: tuple[str, ...]
    evidence_ids: tuple[str, ...] = ()
    kind: AnswerKind = AnswerKind.ANSWER


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A call as the policy wrote it, parsed; `arguments` passed the tool's schema."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """What a tool gave back. `text` is what the policy reads; `item_ids` are the memories shown, `message_ids` the messages they rest on (provenance).

    `is_success` is False for a readable failure, which `failure` names: the episode goes on, the call does not count as memory use.
    """

    call: ToolCall
    text: str
    is_success: bool
    level: Level
    item_ids: tuple[str, ...] = ()
    message_ids: tuple[str, ...] = ()
    latency_s: float = 0.0
    is_truncated: bool = False
    failure: ToolFailure | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One assistant turn. Token fields are empty where the engine gives text only.

    `prompt_ids` holds everything before the turn, so that each turn's prompt starts with the previous turn's prompt and response.
    """

    text: str
    tool_results: tuple[ToolResult, ...] = ()
    prompt_ids: tuple[int, ...] = ()  # [P]
    response_ids: tuple[int, ...] = ()  # [R]
    rollout_logprobs: tuple[float, ...] = ()  # [R], natural log, of the sampled tokens at the sampling temperature
    policy_version: int | None = None  # trainer step of the weights that sampled it
    error: str | None = None  # what did not parse, in words

    def __post_init__(self) -> None:
        if len(self.rollout_logprobs) not in (0, len(self.response_ids)):
            raise ValueError(f"Turn: {len(self.rollout_logprobs)} log-probs for {len(self.response_ids)} response tokens; expected none or one each")


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptFacts:
    """What an episode's first prompt was made of beside the task and the agent's limits: with these it can be built again.

    Example: PromptFacts(version="napmem-1", file_names=("home.md", "profile.md"), tool_names=("search_records", "get_records"))
    """

    version: str  # of the wording
    file_names: tuple[str, ...] = ()  # that it named
    tool_names: tuple[str, ...] = ()  # on offer


@dataclass(frozen=True, kw_only=True, slots=True)
class Trajectory:
    """One episode. `final_answer` is None unless `status` is completed."""

    task: Task
    turns: tuple[Turn, ...]
    final_answer: str | None
    status: Status
    detail: str = ""  # why it ended so, for people
    prompt: PromptFacts | None = None  # None where no episode with tools built it

    def __post_init__(self) -> None:
        if (self.final_answer is not None) != (self.status is Status.COMPLETED):
            problem = f"status {self.status} with final_answer {self.final_answer!r}; an answer goes with completed alone"
            raise ValueError(f"Trajectory {self.task.task_id}: {problem}")

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """All results in order, over all turns."""
        return tuple(result for turn in self.turns for result in turn.tool_results)

    @property
    def num_tool_steps(self) -> int:
        """Assistant turns that called at least one tool."""
        return sum(1 for turn in self.turns if turn.tool_results)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredTrajectory:
    """A trajectory with its reward, or with the reason why it has none. `terms` are the unweighted parts of the reward."""

    trajectory: Trajectory
    reward: float | None
    abstained: str | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    judge: str = ""  # which judge decided

    def __post_init__(self) -> None:
        if (self.reward is None) == (self.abstained is None):
            problem = f"needs either a reward or a reason to abstain, got {self.reward!r} and {self.abstained!r}"
            raise ValueError(f"ScoredTrajectory {self.trajectory.task.task_id}: {problem}")
        if self.reward is not None and not math.isfinite(self.reward):
            raise ValueError(f"ScoredTrajectory {self.trajectory.task.task_id}: reward is {self.reward}, expected a finite number")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSample:
    """One context as the learner sees it; all four fields have the same length [L]. The mask is 1 exactly where the policy sampled."""

    token_ids: tuple[int, ...]
    response_mask: tuple[int, ...]
    rollout_logprobs: tuple[float, ...]  # 0.0 where the mask is 0
    advantages: tuple[float, ...]

    def __post_init__(self) -> None:
        lengths = {len(self.token_ids), len(self.response_mask), len(self.rollout_logprobs), len(self.advantages)}
        if len(lengths) != 1:
            raise ValueError(f"TrainingSample: fields of lengths {sorted(lengths)}; expected one length")
        if not any(self.response_mask):
            raise ValueError("TrainingSample: the mask is all zero, so nothing would be trained; drop the sample and count it instead")


@dataclass(frozen=True, kw_only=True, slots=True)
class RerankDecision:
    """A reranker's choice of M out of K candidates, with what the generator then cited."""

    candidate_ids: tuple[str, ...]  # [K]
    scores: tuple[float, ...]  # [K]
    chosen: tuple[int, ...]  # [M] indices into candidate_ids
    cited: tuple[bool, ...]  # [M]

    def __post_init__(self) -> None:
        if len(self.scores) != len(self.candidate_ids) or len(self.cited) != len(self.chosen):
            lengths = f"{len(self.candidate_ids)} candidates, {len(self.scores)} scores, {len(self.chosen)} chosen, {len(self.cited)} citations"
            raise ValueError(f"RerankDecision: {lengths}; lengths must pair up")


def as_json(value: Any) -> dict[str, Any]:
    """A dataclass of this module as plain JSON-ready data (tuples become lists when dumped)."""
    return asdict(value)
