"""MemChain in an evaluation: candidates, a packet over them, Algorithm 1, and an answer of the frozen model from the evidence alone (arXiv 2607.24097).

Who writes the packet varies (`Writer`): a model, fixed rules, or nobody, where every candidate is evidence. Candidates, composition and answer model are the
same for all, so that what differs in a table is what was written.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from napmem_rl.config.sections import AgentConfig, MemChainConfig
from napmem_rl.errors import DataError
from napmem_rl.evals.policies.endpoint import count_tokens_roughly
from napmem_rl.evals.policies.metering import MeteredGenerate
from napmem_rl.evals.policies.model import Episode, PolicyModel
from napmem_rl.evals.policies.prompts import read_answer
from napmem_rl.evals.policy import Attempt
from napmem_rl.llm.base import Generate
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.schema import Status, Task, Trajectory
from napmem_rl.systems.memchain.actions import Composition, Origin, apply_actions
from napmem_rl.systems.memchain.candidate_file import find_candidates, load_candidates
from napmem_rl.systems.memchain.candidates import BankViews, Candidate, CandidateConfig, check_candidates, index_memories, retrieve_candidates
from napmem_rl.systems.memchain.episode import PacketEpisode, answer_episode, run_episode
from napmem_rl.systems.memchain.facts import count_costs, measure_gates
from napmem_rl.systems.memchain.fixed_packets import extract_packet
from napmem_rl.systems.memchain.guide import build_guide
from napmem_rl.systems.memchain.packet import FORMS, Evidence, normalise_id
from napmem_rl.systems.memchain.parse import ParsedPacket
from napmem_rl.systems.memchain.rendering import PACKET, render_episode
from napmem_rl.systems.memchain.reward import AnswerModel

MAX_VIEWS = 32  # banks whose searches are held
_RETRY = "again"  # goes into the seed of a second try, so that sampling does not give the first one again


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What a writer made of candidates; tokens of a model that were not told are None. `gates` are those of a packet that a model wrote."""

    episode: PacketEpisode
    gates: Mapping[str, float] = field(default_factory=dict)
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Writer(Protocol):
    """Turns candidates into evidence."""

    async def write(self, task: Task, candidates: tuple[Candidate, ...], *, seed: int) -> Written:
        """One packet. A failure of the engine is an episode of status error_llm."""
        ...

    def count_tokens(self, text: str) -> int:
        """Tokens of a text, for sizes of candidates and evidence."""
        ...

    async def close(self) -> None:
        """Free the model."""
        ...


class PacketPolicy:
    """Accesses packet and candidates. A `Policy`."""

    def __init__(self, finder: CandidateFinder, writer: Writer, answerer: AnswerModel, *, name: str, facts: Mapping[str, Any]) -> None:
        """Args:
        finder: gives C_q.
        writer: makes evidence of it.
        answerer: F; it sees question and evidence alone.
        name, facts: see `Policy`.
        """
        self._finder, self._writer, self._answerer = finder, writer, answerer
        self.name, self.facts = name, dict(facts)

    async def answer(self, task: Task, bank: MemoryBank, *, seed: int) -> Attempt:
        """See `Policy`. A search that breaks is an attempt of status error_tool, an answer model that stays down one of error_llm."""
        started = time.perf_counter()
        try:
            candidates = await self._finder.find(task, bank)
        except (DataError, asyncio.CancelledError):
            raise
        except Exception as error:  # boundary: whatever a bank or an encoder raises is a failure of the search
            trajectory = Trajectory(task=task, turns=(), final_answer=None, status=Status.ERROR_TOOL, detail=f"{type(error).__name__}: {error}")
            return Attempt(trajectory=trajectory, latency_s=time.perf_counter() - started)
        found = time.perf_counter()
        written = await self._writer.write(task, candidates, seed=seed)
        wrote = time.perf_counter()
        trajectory = await answer_episode(written.episode, self._answerer)
        ended = time.perf_counter()
        seconds = {"retrieval_s": found - started, "packet_s": wrote - found, "answer_s": ended - wrote}
        episode = replace(written.episode, costs=count_costs(written.episode, self._writer.count_tokens, **seconds))
        details = render_episode(episode)
        details[PACKET]["facts"] |= written.gates
        return Attempt(
            trajectory=_read_choice(trajectory),
            context_ids=_find_messages(episode, bank),
            prompt_tokens=written.prompt_tokens,
            completion_tokens=written.completion_tokens,
            latency_s=ended - started,
            retrieval_s=found - started,
            details=details,
        )

    async def close(self) -> None:
        """Close the writer's model and the answer model."""
        await self._writer.close()
        close = getattr(self._answerer, "close", None)
        if close is not None:
            await close()


class CandidateFinder:
    """C_q of a task: out of the recipe's file, else retrieved from its bank. For one event loop; never sees an answer key."""

    def __init__(self, config: MemChainConfig) -> None:
        """Raises DataError where the recipe's file cannot be used."""
        self._config = CandidateConfig(max_candidates=config.max_candidates)
        self._path = Path(config.candidates) if config.candidates is not None else None
        self._of_file = load_candidates(self._path) if self._path is not None else {}
        self._views: OrderedDict[int, asyncio.Task[BankViews]] = OrderedDict()  # by id of the bank, which its views hold

    async def find(self, task: Task, bank: MemoryBank) -> tuple[Candidate, ...]:
        """The candidates, in a thread. Raises DataError where the file does not have the task or holds something later than the question."""
        if self._path is not None:
            return find_candidates(self._of_file, task, path=self._path)[: self._config.max_candidates]
        return await asyncio.to_thread(retrieve_candidates, task, await self._open_views(bank), self._config)

    async def _open_views(self, bank: MemoryBank) -> BankViews:
        """The searches of a bank, opened once for all who ask."""
        opening = self._views.get(id(bank))
        if opening is None:
            opening = self._views[id(bank)] = asyncio.create_task(asyncio.to_thread(lambda: BankViews(bank, encoder=bank.encoder)))
        self._views.move_to_end(id(bank))
        while len(self._views) > MAX_VIEWS:
            self._views.popitem(last=False)
        try:
            return await asyncio.shield(opening)
        except Exception:
            self._views.pop(id(bank), None)  # what failed is tried again by the next task
            raise


class ModelWriter:
    """A language model writes the packet, and is asked once more where the first does not parse (Algorithm 1, line 5)."""

    def __init__(self, model: PolicyModel, *, agent: AgentConfig, memchain: MemChainConfig) -> None:
        """Args:
        model: the policy.
        agent: limits of its one turn, and of its context.
        memchain: the parts of a packet, whether the policy is bound to its schema, and the budget of the second try.
        """
        self._model, self._agent, self._form, self._is_guided = model, agent, FORMS[memchain.ablation], memchain.guided
        self._longer = replace(agent, max_turn_tokens=memchain.retry_turn_tokens or 2 * agent.max_turn_tokens)
        self.count_tokens = model.count_tokens

    async def write(self, task: Task, candidates: tuple[Candidate, ...], *, seed: int) -> Written:
        """See `Writer`."""
        first = self._build(task, candidates, self._agent, seed, task.task_id)
        again = self._build(task, candidates, self._longer, seed, f"{task.task_id}/{_RETRY}")
        episode = await run_episode(task, first, candidates, self._form, generate_longer=again)
        tries = (first, again) if episode.first_turn is not None else (first,)
        return Written(
            episode=episode,
            gates={} if episode.trajectory.status.is_ours else measure_gates(episode, self._form),
            prompt_tokens=_add([one.prompt_tokens for one in tries]),
            completion_tokens=_add([one.completion_tokens for one in tries]),
        )

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()

    def _build(self, task: Task, candidates: Sequence[Candidate], limits: AgentConfig, seed: int, name: str) -> MeteredGenerate:
        schema = build_guide(self._form, [normalise_id(item.id) for item in candidates]) if self._is_guided else None
        generate: Generate = self._model.build_generate(Episode(task_id=name, seed=seed, limits=limits, schema=schema))
        return MeteredGenerate(generate)


class RuleWriter:
    """The extractive packet of fixed rules, executed as a policy's would be."""

    count_tokens: Callable[[str], int] = staticmethod(count_tokens_roughly)

    def __init__(self, *, number: int) -> None:
        """`number`: of candidates that it keeps."""
        self._number = number

    async def write(self, task: Task, candidates: tuple[Candidate, ...], *, seed: int) -> Written:
        """See `Writer`; `seed` changes nothing."""
        check_candidates(candidates, what=f"candidates of task {task.task_id}", asked_at=task.asked_at)
        packet = extract_packet(task, candidates, number=self._number)
        composition = apply_actions(packet, index_memories(candidates))
        return Written(episode=_build_episode(task, candidates, ParsedPacket(packet=packet), composition), prompt_tokens=0, completion_tokens=0)

    async def close(self) -> None:
        """Nothing to free."""


class EverythingWriter:
    """No packet: every candidate is evidence, as it was retrieved (equation 2)."""

    count_tokens: Callable[[str], int] = staticmethod(count_tokens_roughly)

    async def write(self, task: Task, candidates: tuple[Candidate, ...], *, seed: int) -> Written:
        """See `Writer`; `seed` changes nothing."""
        check_candidates(candidates, what=f"candidates of task {task.task_id}", asked_at=task.asked_at)
        evidence = tuple(Evidence(statement=memory, ids=(item_id,)) for item_id, memory in index_memories(candidates).items())
        composition = Composition(evidence=evidence, origin=Origin.CANDIDATES)
        return Written(episode=_build_episode(task, candidates, ParsedPacket(packet=None), composition), prompt_tokens=0, completion_tokens=0)

    async def close(self) -> None:
        """Nothing to free."""


def _build_episode(task: Task, candidates: tuple[Candidate, ...], parsed: ParsedPacket, composition: Composition) -> PacketEpisode:
    """An episode without a turn; one without evidence ends as a policy's would (line 10)."""
    answer = "\n".join(item.statement for item in composition.evidence) or None
    status = Status.ERROR_PARSE if answer is None else Status.COMPLETED
    detail = "" if answer is not None else "there is no candidate"
    trajectory = Trajectory(task=task, turns=(), final_answer=answer, status=status, detail=detail)
    return PacketEpisode(trajectory=trajectory, candidates=candidates, parsed=parsed, composition=composition)


def _read_choice(trajectory: Trajectory) -> Trajectory:
    """The letter of a multiple choice out of what the answer model said."""
    answer = trajectory.final_answer
    return trajectory if answer is None else replace(trajectory, final_answer=read_answer(answer, trajectory.task))


def _find_messages(episode: PacketEpisode, bank: MemoryBank) -> tuple[str, ...]:
    """The messages that the evidence rests on, each once, in the order of the evidence; candidates of a file may rest on what is not in the bank."""
    sources = episode.source_ids
    named = dict.fromkeys(message_id for item in episode.composition.evidence for item_id in item.ids for message_id in sources[item_id])
    return tuple(message_id for message_id in named if bank.message(message_id) is not None)


def _add(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
