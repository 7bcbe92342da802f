"""One MemChain episode: the policy reads question and candidates and writes one packet (arXiv 2607.24097, Algorithm 1).

`run_episode` is lines 3 to 10, `answer_episode` line 11, `score_episode` the reward in training. The policy comes in as `generate`, so that training,
evaluation and tests run this same code; it gets no tools, and its text is read by `parse_packet` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from napmem_rl.errors import BackendError, LLMError, StaleWeightsError
from napmem_rl.llm.base import AssistantTurn, Generate
from napmem_rl.rewards.evidence import render_source
from napmem_rl.rewards.judge import Judge
from napmem_rl.schema import AnswerKey, PromptFacts, ScoredTrajectory, Status, Task, Trajectory, Turn
from napmem_rl.systems.memchain.actions import EMPTY, Composition, apply_actions
from napmem_rl.systems.memchain.candidates import Candidate, index_memories
from napmem_rl.systems.memchain.config import RewardSettings
from napmem_rl.systems.memchain.packet import FULL, PacketForm, normalise_id
from napmem_rl.systems.memchain.parse import ParsedPacket, parse_packet
from napmem_rl.systems.memchain.prompts import PROMPT_VERSION, build_messages, render_question
from napmem_rl.systems.memchain.reward import AnswerModel, find_reference_ids, score_packet

_UNREAD = ParsedPacket(packet=None)
_PROMPT = PromptFacts(version=PROMPT_VERSION)


@dataclass(frozen=True, kw_only=True, slots=True)
class PacketCosts:
    """What an episode took: seconds, and tokens of what the policy and the answer model read. What nobody measured is None."""

    retrieval_s: float | None = None  # of the candidates
    packet_s: float | None = None  # the policy, a second try included
    answer_s: float | None = None  # the frozen answer model; beside training with its judge
    candidate_tokens: int | None = None
    evidence_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PacketEpisode:
    """What came of one task. `trajectory` is the common form: one turn, and as its final answer the evidence, a statement a line.

    `first_turn` is the turn that did not parse, where the policy was asked once more; it is not in the trajectory.
    """

    trajectory: Trajectory
    candidates: tuple[Candidate, ...]
    parsed: ParsedPacket
    composition: Composition
    first_turn: Turn | None = None
    costs: PacketCosts = PacketCosts()

    @property
    def sources(self) -> dict[str, str]:
        """Text of each candidate with its speaker and day, by normalised id: what evidence is checked against."""
        return {normalise_id(item.id): render_source(item.text, time=item.time, speaker=item.speaker) for item in self.candidates}

    @property
    def source_ids(self) -> dict[str, tuple[str, ...]]:
        """Messages that each candidate rests on, by normalised id; a candidate that does not say stands for itself."""
        return {normalise_id(item.id): item.source_ids or (item.id,) for item in self.candidates}


async def run_episode(
    task: Task, generate: Generate, candidates: Sequence[Candidate], form: PacketForm = FULL, *, generate_longer: Generate | None = None
) -> PacketEpisode:
    """Let the policy turn candidates into evidence.

    How it can end:

    - completed: there is evidence;
    - truncated: no packet could be read, and the engine had cut the turn at a length limit;
    - error_parse: no packet could be read, or it holds no evidence: there is nothing to answer from;
    - error_llm: LLMError or BackendError. Ours, never trained on.

    Args:
        task: the question.
        generate: the policy.
        candidates: C_q.
        form: the parts of a packet.
        generate_longer: the policy with an extended generation budget, asked once more after a parse failure (line 5), and then whatever does not parse gives
            no evidence (line 6). None in training: the reward judges the one packet that was sampled, as far as it can be read.

    Raises:
        DataError: candidates that cannot be a boundary of citations.
        StaleWeightsError: a broken promise of the trainer, which touches every episode and must not pass as one lost trajectory.
    """
    messages, memories = build_messages(task, candidates, form), index_memories(candidates)
    first_turn = None
    try:
        reply = await generate(messages, ())
        parsed = parse_packet(reply.text, memories, form)
        if parsed.is_failure and generate_longer is not None:
            first_turn = _build_turn(reply, parsed)
            reply = await generate_longer(messages, ())
            parsed = parse_packet(reply.text, memories, form)
    except StaleWeightsError:
        raise
    except (LLMError, BackendError) as error:
        detail = f"{type(error).__name__}: {error}"
        trajectory = Trajectory(task=task, turns=(), final_answer=None, status=Status.ERROR_LLM, detail=detail, prompt=_PROMPT)
        return PacketEpisode(trajectory=trajectory, candidates=tuple(candidates), parsed=_UNREAD, composition=EMPTY, first_turn=first_turn)
    is_given_up = parsed.is_failure and generate_longer is not None
    composition = EMPTY if is_given_up else apply_actions(parsed.packet, memories)
    trajectory = _end(task, reply, parsed, composition)
    return PacketEpisode(trajectory=trajectory, candidates=tuple(candidates), parsed=parsed, composition=composition, first_turn=first_turn)


async def answer_episode(episode: PacketEpisode, answerer: AnswerModel) -> Trajectory:
    """Line 11: the frozen model answers from the evidence alone. The trajectory keeps its turn and ends with that answer.

    An episode without evidence comes back as it is, without an answer. A failure of the model is of status error_llm.
    """
    trajectory = episode.trajectory
    if not episode.composition.evidence:
        return trajectory
    statements = [item.statement for item in episode.composition.evidence]
    try:
        answers = await answerer.answer(render_question(trajectory.task), statements, num_answers=1)
    except (LLMError, BackendError) as error:
        return replace(trajectory, final_answer=None, status=Status.ERROR_LLM, detail=f"answer model {answerer.name}: {error}")
    return replace(trajectory, final_answer=answers[0])


async def score_episode(
    episode: PacketEpisode, key: AnswerKey, *, answerer: AnswerModel, judge: Judge, settings: RewardSettings, form: PacketForm = FULL
) -> tuple[ScoredTrajectory, tuple[str, ...]]:
    """The episode with its reward (equations 15 and 16), and the answers it rests on, for logs. A failure of ours has no reward.

    Reference ids are the candidates that rest on the key's gold messages.

    Raises:
        DataError: the key belongs to another task, or cannot be used.
    """
    trajectory = episode.trajectory
    if trajectory.status.is_ours:
        return ScoredTrajectory(trajectory=trajectory, reward=None, abstained=f"{trajectory.status}: {trajectory.detail}", judge=judge.name), ()
    score = await score_packet(
        trajectory.task,
        key,
        episode.parsed,
        episode.composition,
        reference_ids=find_reference_ids(key.evidence_ids, episode.source_ids),
        sources=episode.sources,
        answerer=answerer,
        judge=judge,
        settings=settings,
        form=form,
    )
    scored = ScoredTrajectory(trajectory=trajectory, reward=score.reward, abstained=score.abstained, terms=score.terms, judge=score.judge)
    return scored, score.answers


def _end(task: Task, reply: AssistantTurn, parsed: ParsedPacket, composition: Composition) -> Trajectory:
    """The trajectory of a turn, by what could be made of it."""
    answer, status = None, Status.ERROR_PARSE
    detail = "; ".join(violation.describe() for violation in parsed.violations[:5])
    if composition.evidence:
        answer, status = "\n".join(item.statement for item in composition.evidence), Status.COMPLETED
    elif reply.is_truncated and parsed.packet is None:
        status, detail = Status.TRUNCATED, "the packet was cut at the length limit" if reply.text else "no room was left for a packet"
    elif not detail:
        detail = "the packet holds no evidence"
    return Trajectory(task=task, turns=(_build_turn(reply, parsed),), final_answer=answer, status=status, detail=detail, prompt=_PROMPT)


def _build_turn(reply: AssistantTurn, parsed: ParsedPacket) -> Turn:
    return Turn(
        text=reply.text,
        prompt_ids=tuple(reply.prompt_ids),
        response_ids=tuple(reply.response_ids),
        rollout_logprobs=tuple(reply.logprobs),
        policy_version=reply.policy_version,
        error=parsed.violations[0].describe() if parsed.is_failure else None,
    )
