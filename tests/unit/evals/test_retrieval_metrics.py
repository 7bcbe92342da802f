"""Evidence in what a policy read, worked by hand."""

from __future__ import annotations

import pytest

from napmem_rl.errors import DataError
from napmem_rl.evals.result_rows import AnswerRow
from napmem_rl.evals.retrieval_metrics import NO_RANKING, UNANSWERABLE, UNKNOWN_EVIDENCE, score_retrieval
from napmem_rl.schema import AnswerKey, AnswerKind

SESSIONS = {f"msg:{number}": f"s{(number + 1) // 2}" for number in range(1, 31)}  # two messages a session


def answer(*numbers: int, ranked: bool = True) -> AnswerRow:
    return AnswerRow(
        benchmark="b", task_id="t", sample=0, seed=0, group_id="g", trajectory={}, context_ids=tuple(f"msg:{number}" for number in numbers),
        context_ranked=ranked, prompt_tokens=None, completion_tokens=None, latency_s=0.0, retrieval_s=0.0,
    )  # fmt: skip


def key(*numbers: int, kind: AnswerKind = AnswerKind.ANSWER) -> AnswerKey:
    return AnswerKey(task_id="t", references=("x",), evidence_ids=tuple(f"msg:{number}" for number in numbers), kind=kind)


def test_recall_at_k_counts_the_first_k_of_a_ranking() -> None:
    scores, absent = score_retrieval(answer(3, 9, 1, 8, 7, 5), key(9, 5))
    assert scores == {"evidence_recall": 1.0, "evidence_hit": 1.0, "recall@1": 0.0, "recall@5": 0.5, "recall@10": 1.0, "recall@20": 1.0}
    assert absent == {}


def test_what_is_no_ranking_has_recall_as_a_whole_alone() -> None:
    scores, absent = score_retrieval(answer(3, 9, ranked=False), key(9, 5))
    assert scores == {"evidence_recall": 0.5, "evidence_hit": 1.0}
    assert absent == dict.fromkeys(("recall@1", "recall@5", "recall@10", "recall@20"), NO_RANKING)


def test_sessions_stand_where_their_first_message_stands() -> None:
    scores, absent = score_retrieval(answer(1, 2, 3, 9), key(4, 10, 11), SESSIONS)  # sessions 1, 2, 5 of 2, 5, 6
    assert (scores["evidence_recall"], scores["session_recall"]) == (0.0, pytest.approx(2 / 3))
    assert (scores["session_recall@1"], scores["session_recall@5"]) == (0.0, pytest.approx(2 / 3)) and not absent


def test_nothing_read_is_recall_zero() -> None:
    scores, _ = score_retrieval(answer(), key(1))
    assert set(scores.values()) == {0.0} and len(scores) == 6


@pytest.mark.parametrize(("gold", "reason"), [(key(), UNKNOWN_EVIDENCE), (key(1, kind=AnswerKind.UNANSWERABLE), UNANSWERABLE)])
def test_without_evidence_to_find_everything_is_absent(gold: AnswerKey, reason: str) -> None:
    scores, absent = score_retrieval(answer(1), gold, SESSIONS)
    assert scores == {} and len(absent) == 11 and set(absent.values()) == {reason}


def test_a_message_of_another_bank_is_an_error() -> None:
    with pytest.raises(DataError, match="answer t, sample 0: names messages that are not in its bank"):
        score_retrieval(answer(99), key(1), SESSIONS)
