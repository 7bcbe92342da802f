"""The candidates C_q = R(q, M), |C_q| <= 24 (arXiv 2607.24097, equation 1 and appendix A.3): intent-guided multi-view retrieval out of a memory bank.

The paper names "intent-guided multi-view retrieval over dialogue windows" and no more. Ours has five views, each a ranking of its own:

    lexical         BM25 over the words of the question
    dense           similarity of the question's vector; only with an encoder
    entity          BM25 over each name or quoted title of the question by itself, speakers aside
    neighbourhood   the bank's fused ranking, in which a turn gains from the turns around it in its session and from lying near a date that the question names
    bridge          memories that hold a name which the best finds hold and the question does not, by BM25 over that name and the question

They become one list by reciprocal rank fusion (k = 60) with weights that the question's intent sets; a view that the intent leans on has seats of its own.

Retrieval is blind to the answer: everything here takes a `Task`, of which it reads the question and the moment it is asked, and a bank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from napmem_rl.errors import ConfigError, DataError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.pyramid import is_time
from napmem_rl.memory.storage import INDEX_DIR
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.retrieval.fusion import RRF_K, Ranking
from napmem_rl.retrieval.index import PassageIndex
from napmem_rl.retrieval.passages import SearchFilter
from napmem_rl.retrieval.query import find_speakers
from napmem_rl.schema import Level, Message, Record, Task
from napmem_rl.systems.memchain.intent import find_inner_names, find_names, guess_intent
from napmem_rl.systems.memchain.packet import MAX_CANDIDATES, Intent, normalise_id
from napmem_rl.tools.result_text import flatten


class View(StrEnum):
    """How a candidate was found."""

    LEXICAL = "lexical"
    DENSE = "dense"
    ENTITY = "entity"
    NEIGHBOURHOOD = "neighbourhood"
    BRIDGE = "bridge"


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One retrieved memory m of C_q.

    Example: Candidate(id="msg:12", text="We moved to Oslo.", time="2024-03-05T13:56:00", speaker="Ana", session_id="s3", level=Level.RAW,
        views=(View.LEXICAL, View.NEIGHBOURHOOD), score=0.07, source_ids=("msg:12",))
    """

    id: str
    text: str
    time: str = ""  # ISO 8601; "" where a file does not say
    speaker: str = ""
    session_id: str = ""
    level: Level = Level.RAW
    views: tuple[str, ...] = ()  # where it was found; a file may name views of its own
    score: float = 0.0
    source_ids: tuple[str, ...] = ()  # messages that it rests on, by provenance; empty where a file does not say


@dataclass(frozen=True, kw_only=True, slots=True)
class CandidateConfig:
    """How candidates are retrieved."""

    max_candidates: int = MAX_CANDIDATES
    depth: int = 24  # how deep each ranking is read
    levels: tuple[Level, ...] = (Level.RAW,)  # raw messages, records, or both
    num_seeds: int = 5  # best finds whose names lead to a second search
    num_bridges: int = 3  # names that are searched for then

    def __post_init__(self) -> None:
        for name, highest in (("max_candidates", MAX_CANDIDATES), ("depth", 1000), ("num_seeds", 100), ("num_bridges", 100)):
            if not 1 <= getattr(self, name) <= highest:
                raise ConfigError.of(f"candidates.{name}", "is out of range", got=getattr(self, name), expected=f"1 to {highest}")
        if not self.levels or not set(self.levels) <= {Level.RAW, Level.RECORD}:
            raise ConfigError.of("candidates.levels", "holds what cannot be searched", got=self.levels, expected="raw, record or both")


_WEIGHTS = {View.LEXICAL: 1.0, View.DENSE: 1.0, View.ENTITY: 0.5, View.NEIGHBOURHOOD: 4.0, View.BRIDGE: 0.5}
_LEANINGS: Mapping[Intent, Mapping[View, float]] = {  # what differs from `_WEIGHTS`
    Intent.MULTI_HOP: {View.ENTITY: 1.0, View.BRIDGE: 1.5},
    Intent.COMPARISON: {View.ENTITY: 1.0},
    Intent.COUNT: {View.ENTITY: 1.0, View.LEXICAL: 1.5},
    Intent.PREFERENCE: {View.DENSE: 1.5},
}
_SEATS: Mapping[Intent, Mapping[View, int]] = {  # places that go to the best of a view whatever the others say
    Intent.MULTI_HOP: {View.ENTITY: 2, View.BRIDGE: 4},
    Intent.COMPARISON: {View.ENTITY: 4},
    Intent.COUNT: {View.ENTITY: 4},
}
_DEFAULT_SEATS: Mapping[View, int] = {View.ENTITY: 1, View.BRIDGE: 2}


class BankViews:
    """The searches of one bank that views are made of. Safe to use from several threads."""

    def __init__(self, bank: MemoryBank, *, encoder: Encoder | None = None, levels: Sequence[Level] = (Level.RAW,)) -> None:
        """Args:
        bank: the memory; its own ranking does not matter here.
        encoder: for the dense view and the fused ranking; None for keywords alone, without a dense view.
        levels: which levels will be searched.
        """
        self.bank, self.is_dense = bank, encoder is not None
        rankings = (Ranking.BM25, Ranking.FUSED, *((Ranking.DENSE,) if encoder is not None else ()))
        self._indexes = {
            (level, ranking): PassageIndex(
                bank.messages if level is Level.RAW else bank.snapshot.revisions,
                level=str(level),
                encoder=encoder,
                directory=bank.path / INDEX_DIR,
                ranking=ranking,
            )
            for level in levels
            for ranking in rankings
        }

    def search(self, level: Level, ranking: Ranking, query: str, *, k: int, before: str | None) -> list[str]:
        """Ids of the k best items of a level that are not later than `before`, best first."""
        positions = self._indexes[level, ranking].search(query, k=k, where=SearchFilter(before=before))
        if level is Level.RAW:
            return [self.bank.messages[position].message_id for position in positions]
        return [self.bank.snapshot.revisions.revision(position).record.record_id for position in positions]


def retrieve_candidates(task: Task, views: BankViews, config: CandidateConfig | None = None) -> tuple[Candidate, ...]:
    """C_q of a task: at most `config.max_candidates` memories, best first, nothing later than the task's `asked_at`.

    The same task and bank give the same candidates. Fewer come back where the bank holds no more that fits in any view.
    """
    config = config or CandidateConfig()
    intent = guess_intent(task.question)
    rankings = [ranking for level in config.levels for ranking in _rank_views(task, views, level, config)]
    weights = _WEIGHTS | _LEANINGS.get(intent, {})
    scores: dict[str, float] = {}
    found_by: dict[str, list[View]] = {}
    for view, ids in rankings:
        for rank, item_id in enumerate(ids, start=1):
            scores[item_id] = scores.get(item_id, 0.0) + weights[view] / (RRF_K + rank)
            found_by.setdefault(item_id, []).append(view)
    order = sorted(scores, key=lambda item_id: -scores[item_id])
    chosen = _choose(order, rankings, _DEFAULT_SEATS | _SEATS.get(intent, {}), config.max_candidates)
    items = (_build_candidate(views.bank, item_id) for item_id in chosen)
    items = tuple(replace(item, views=tuple(dict.fromkeys(found_by[item.id])), score=scores[item.id]) for item in items)
    return check_candidates(items, what=f"candidates of task {task.task_id}", asked_at=task.asked_at)


def check_candidates(candidates: Sequence[Candidate], *, what: str, asked_at: str | None = None) -> tuple[Candidate, ...]:
    """The candidates, where they can be a closed boundary of citations.

    Raises:
        DataError: more than 24, an id twice (also in another Unicode form), an id that no model can cite (empty, or with blanks), a candidate without text, a
            time that is none, or one after `asked_at`.
    """
    if len(candidates) > MAX_CANDIDATES:
        raise DataError.of(what, "are too many", got=len(candidates), expected=f"at most {MAX_CANDIDATES}")
    seen: set[str] = set()
    for candidate in candidates:
        known = normalise_id(candidate.id)
        if not known or len(known.split()) != 1 or not known.isprintable():
            raise DataError.of(what, "hold an id that cannot be cited", got=candidate.id, expected="a text without blanks")
        if known in seen:
            raise DataError.of(what, "hold an id twice", got=candidate.id, fix="Give every candidate an id of its own.")
        seen.add(known)
        if not candidate.text.strip():
            raise DataError.of(f"{what}, {candidate.id}", "has no text")
        if candidate.time and not is_time(candidate.time):
            raise DataError.of(f"{what}, {candidate.id}", "has no time that can be read", got=candidate.time, expected="ISO 8601, such as 2024-03-05T13:56:00")
        if asked_at is not None and candidate.time > asked_at:
            raise DataError.of(f"{what}, {candidate.id}", "is later than the question", got=candidate.time, expected=f"at most {asked_at}")
    return tuple(candidates)


def render_memory(candidate: Candidate) -> str:
    """The memory as policy and answer model read it, on one line: day, speaker and text, e.g. ``2024-03-05 Ana: We moved to Oslo.``."""
    speaker = f"{candidate.speaker}:" if candidate.speaker else ""
    return flatten(" ".join(part for part in (candidate.time[:10], speaker, candidate.text) if part))


def index_memories(candidates: Sequence[Candidate]) -> dict[str, str]:
    """Each candidate as it is read, by its normalised id, for `parse_packet` and `apply_actions`."""
    return {normalise_id(candidate.id): render_memory(candidate) for candidate in candidates}


def _rank_views(task: Task, views: BankViews, level: Level, config: CandidateConfig) -> list[tuple[View, list[str]]]:
    """One ranking a view at one level; one of several searches takes their finds in turn."""

    def search(ranking: Ranking, query: str) -> list[str]:
        return views.search(level, ranking, query, k=config.depth, before=task.asked_at)

    question, speakers = task.question, list(views.bank.messages.speaker_names)
    fused = search(Ranking.FUSED, question)
    rankings = [(View.NEIGHBOURHOOD, fused), (View.LEXICAL, search(Ranking.BM25, question))]
    rankings += [(View.DENSE, search(Ranking.DENSE, question))] if views.is_dense else []
    names = [name for name in find_names(question) if not _is_speaker(name, speakers)]
    rankings += [(View.ENTITY, _take_in_turn([search(Ranking.BM25, name) for name in names]))]
    seeds = fused[: config.num_seeds]
    bridges = _find_bridges([_read_text(views.bank, item_id) for item_id in seeds], question, speakers)[: config.num_bridges]
    topic = " ".join(word for word in question.split() if not _is_speaker(word, speakers))
    crossings = [
        [item_id for item_id in search(Ranking.BM25, f"{name} {topic}") if item_id not in seeds and name in _read_text(views.bank, item_id)] for name in bridges
    ]
    return [*rankings, (View.BRIDGE, _take_in_turn(crossings))]


def _take_in_turn(rankings: Sequence[Sequence[str]]) -> list[str]:
    """The first of each ranking, then the second of each, and so on; each item once."""
    longest = max(map(len, rankings), default=0)
    return list(dict.fromkeys(ids[rank] for rank in range(longest) for ids in rankings if rank < len(ids)))


def _is_speaker(name: str, speakers: Sequence[str]) -> bool:
    """Whether a name is that of somebody who speaks in the bank; they are in too many memories to lead anywhere."""
    return bool(find_speakers(name, [*speakers, ""]).any())


def _find_bridges(texts: Sequence[str], question: str, speakers: Sequence[str]) -> list[str]:
    """Names in memories that the question does not hold, those in most of the memories first; who speaks is no bridge."""
    known = {word.lower() for word in question.split()}
    counts = Counter(name for text in texts for name in find_inner_names(text) if not {word.lower() for word in name.split()} & known)
    return [name for name, _ in counts.most_common() if not _is_speaker(name, speakers)]


def _choose(order: Sequence[str], rankings: Sequence[tuple[View, list[str]]], seats: Mapping[View, int], number: int) -> list[str]:
    """The best of an order, with the seats of each view filled from the top of its rankings, in turn; in the order's order."""
    reserved: list[str] = []
    for view, num_seats in seats.items():
        reserved += _take_in_turn([ids for name, ids in rankings if name is view])[:num_seats]
    seated = set(reserved[:number])
    for item_id in order:
        if len(seated) >= number:
            break
        seated.add(item_id)
    return [item_id for item_id in order if item_id in seated]


def _read_text(bank: MemoryBank, item_id: str) -> str:
    item = bank.item(item_id)
    return item.text if isinstance(item, Message | Record) else ""


def _build_candidate(bank: MemoryBank, item_id: str) -> Candidate:
    item = bank.item(item_id)
    if isinstance(item, Message):
        text = f"{item.text} [image: {item.caption}]".strip() if item.caption else item.text
        return Candidate(id=item_id, text=text, time=item.time, speaker=item.speaker, session_id=item.session_id, source_ids=(item_id,))
    assert isinstance(item, Record), f"retrieve_candidates: {item_id} is neither a message nor a record"
    return Candidate(id=item_id, text=item.text, time=item.time, session_id=item.session_id, level=Level.RECORD, source_ids=item.source_ids)
