"""A learner of a reranker on disk: one file that is there whole or not at all, and belongs to one scope and one encoder.

The file is a numpy archive: the learner's arrays, and `header`, JSON in UTF-8, with format, scope, encoder, the banks that were learned from (each with the
version it had), settings, counts, recent citations and their course. Nothing is unpickled. Beside it lies `<name>.lock`, which one writer at a time holds.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from napmem_rl.atomic import write_file
from napmem_rl.errors import DataError
from napmem_rl.file_lock import FileLock
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.retrieval.fusion import Ranking
from napmem_rl.retrieval.rerank import ResidualReranker
from napmem_rl.retrieval.rerank_learner import LearnerState, RerankLearner, RerankSettings

FORMAT = 2
HEADER = "header"


class ScopeKind(StrEnum):
    """Whose citations a reranker learns from."""

    USER = "user"
    DOMAIN = "domain"  # the users of one data set or application
    GLOBAL = "global"


@dataclass(frozen=True, kw_only=True, slots=True)
class RerankStamp:
    """What a state belongs to.

    Example: RerankStamp(scope="user:ana", encoder="all-MiniLM-L6-v2", banks={"ana": "1f0c…"})
    """

    scope: str  # "user:<bank id>", "domain:<name>" or "global"
    encoder: str
    ranking: str = "dense"  # of the retriever whose candidates it learned on, see `Ranking`
    banks: Mapping[str, str] = field(default_factory=dict)  # bank id -> version when it was last learned from
    answered: Mapping[str, int] = field(default_factory=dict)  # bank id -> questions of it that are done


def name_scope(kind: str, name: str = "") -> str:
    """The name of a scope. Raises DataError for an unknown kind, or a name that is missing or does nothing."""
    if kind not in tuple(ScopeKind):
        raise DataError.of("scope of a reranker", "is of an unknown kind", got=kind, expected=", ".join(ScopeKind))
    if (kind == ScopeKind.GLOBAL) == bool(name):
        raise DataError.of(f"scope {kind} of a reranker", "has a name that does nothing" if name else "needs a name", got=name)
    return f"{kind}:{name}" if name else kind


def save_reranker(path: Path, learner: RerankLearner, stamp: RerankStamp, *, durable: bool = True) -> None:
    """Write a learner in place of the one at `path`. Whoever is stopped amid this leaves the old one."""
    state = learner.export_state()
    header = {"format": FORMAT, **asdict(stamp), "banks": dict(stamp.banks), "answered": dict(stamp.answered), "settings": asdict(learner.settings)}
    header |= {"counts": dict(state.counts), "recent": [list(pair) for pair in state.recent], "course": [list(pair) for pair in state.course]}
    content = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **{HEADER: content}, **state.arrays)
    write_file(path, buffer.getvalue(), durable=durable)


def load_reranker(
    path: Path,
    *,
    encoder: str,
    dim: int,
    ranking: str | None = None,
    scope: str | None = None,
    settings: RerankSettings | None = None,
    versions: Mapping[str, Collection[str]] | None = None,
) -> tuple[RerankLearner, RerankStamp]:
    """Read a learner, and refuse one that belongs to something else.

    Args:
        path: its file.
        encoder, dim: name and width of the vectors that it will be given.
        ranking: of the retriever, see `Ranking`; None for any.
        scope: which it must be of; None for any.
        settings: which it must have learned with; None for any.
        versions: bank id -> the versions that this bank's log holds; a bank that was learned from and is named here must hold the version it had.

    Raises:
        DataError: there is none, it is broken, or it belongs to another encoder, ranking, scope or bank, or has other settings.
    """
    header, arrays = _read(path)
    what, fix = f"reranker {path}", "Give the one that it belongs to, or start a new state in another place."
    stamp = RerankStamp(scope=header["scope"], encoder=header["encoder"], ranking=header["ranking"], banks=header["banks"], answered=header["answered"])
    checks = [("encoder", stamp.encoder, encoder), ("ranking", stamp.ranking, ranking or stamp.ranking), ("scope", stamp.scope, scope or stamp.scope)]
    for name, got, expected in checks:
        if got != expected:
            raise DataError.of(what, f"belongs to another {name}", got=got, expected=repr(expected), fix=fix)
    for bank_id, version in stamp.banks.items():
        if versions is not None and bank_id in versions and version not in versions[bank_id]:
            problem = f"learned from bank {bank_id} at a version that the bank does not hold"
            raise DataError.of(what, problem, got=version, expected=f"one of its {len(versions[bank_id])}", fix="The bank was built again: start a new state.")
    found = RerankSettings(**header["settings"])
    if settings is not None and found != settings:
        raise DataError.of(what, "has learned with other settings", got=_differences(found, settings), expected=str(_differences(settings, found)), fix=fix)
    learner = RerankLearner.from_state(found, LearnerState(arrays=arrays, counts=header["counts"], recent=header["recent"], course=header["course"]))
    if learner.reranker.dim != dim:
        raise DataError.of(what, "is of another width", got=learner.reranker.dim, expected=str(dim), fix=fix)
    return learner, stamp


@dataclass(frozen=True, slots=True)
class SearchReranker:
    """What a search needs of a learned reranker: it only ranks, and always alike. Safe to use from several threads."""

    reranker: ResidualReranker
    num_candidates: int  # K that are fetched


def load_search_reranker(path: Path | str, encoder: Encoder | None, *, ranking: str) -> SearchReranker:
    """The reranker that a recipe's `memory.rerank` names.

    Raises:
        DataError: there is no encoder, or see `load_reranker`.
    """
    if encoder is None or ranking == Ranking.BM25:
        raise DataError.of(f"reranker {path}", "needs vectors, and searches here have none", fix="Choose an encoder and another ranking, or no memory.rerank.")
    learner, _ = load_reranker(Path(path), encoder=encoder.name, dim=encoder.dim, ranking=ranking)
    return SearchReranker(learner.reranker, learner.settings.num_candidates)


def lock_state(path: Path, scope: str) -> FileLock:
    """Take the writer's lock of a state. Raises DataError while another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock.acquire_file(path.with_name(path.name + ".lock"), f"reranker {scope} in {path}", DataError)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    what = f"reranker {path}"
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop(HEADER).tobytes())
    except FileNotFoundError as error:
        raise DataError.of(what, "is not there", fix="Give the file that `launch/rmm.py` wrote, or none.") from error
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError.of(what, f"cannot be read ({error})", fix="Take an older copy, or start a new state.") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        got = header.get("format") if isinstance(header, dict) else header
        raise DataError.of(what, "is of another format", got=got, expected=str(FORMAT), fix="Learn it again.")
    return header, arrays


def _differences(one: RerankSettings, other: RerankSettings) -> dict[str, Any]:
    return {name: value for name, value in asdict(one).items() if value != getattr(other, name)}
