"""One token list per episode."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from napmem_rl.errors import BackendError
from napmem_rl.llm.sample import build_sample
from napmem_rl.schema import Status, Task, Trajectory, Turn

TASK = Task(task_id="t1", bank_id="b1", question="Where?", category="fact", needs_memory=True)
IDS = st.lists(st.integers(0, 50), min_size=1, max_size=6)


def as_trajectory(*turns: Turn) -> Trajectory:
    return Trajectory(task=TASK, turns=turns, final_answer=None, status=Status.TRUNCATED)


def as_turn(prompt: list[int], response: list[int], logprobs: list[float] | None = None) -> Turn:
    return Turn(
        text="x", prompt_ids=tuple(prompt), response_ids=tuple(response), rollout_logprobs=tuple(logprobs if logprobs is not None else [-0.5] * len(response))
    )


def test_two_turns_become_one_list_with_the_tool_tokens_masked() -> None:
    sample = build_sample(as_trajectory(as_turn([1, 2], [3], [-0.1]), as_turn([1, 2, 3, 9, 8], [4, 5], [-0.2, -0.3])))
    assert sample == ([1, 2], [3, 9, 8, 4, 5], [1, 0, 0, 1, 1], [-0.1, 0.0, 0.0, -0.2, -0.3])


@given(first=IDS, steps=st.lists(st.tuples(st.lists(st.integers(0, 50), max_size=4), IDS), min_size=1, max_size=5))
@settings(deadline=None, max_examples=60)
def test_the_mask_is_one_exactly_where_the_policy_sampled(first: list[int], steps: list[tuple[list[int], list[int]]]) -> None:
    context, turns, expected = list(first), [], []
    for index, (gap, response) in enumerate(steps):
        context += gap
        expected += [] if index == 0 else [(token, 0, 0.0) for token in gap]
        logprobs = [-float(len(expected) + i + 1) for i in range(len(response))]
        turns.append(as_turn(context, response, logprobs))
        expected += [(token, 1, logprob) for token, logprob in zip(response, logprobs, strict=True)]
        context += response
    sample = build_sample(as_trajectory(*turns))
    assert list(zip(sample.response_ids, sample.response_mask, sample.logprobs or [], strict=True)) == expected
    assert sample.prompt_ids + sample.response_ids == context


@given(first=IDS, gap=IDS, response=IDS, position=st.integers(0, 100))
@settings(deadline=None, max_examples=40)
def test_a_history_that_changed_by_one_token_is_refused(first: list[int], gap: list[int], response: list[int], position: int) -> None:
    history = first + response + gap
    changed = list(history)
    changed[position % (len(first) + len(response))] += 1
    with pytest.raises(BackendError, match="does not start with the previous prompt and response"):
        build_sample(as_trajectory(as_turn(first, response), as_turn(changed, [7])))


def test_a_shortened_history_is_refused() -> None:
    with pytest.raises(BackendError, match="2 equal tokens of 3"):
        build_sample(as_trajectory(as_turn([1, 2], [3]), as_turn([1, 2], [4])))


def test_the_sample_ends_with_the_last_sampled_token_where_a_last_turn_had_no_room() -> None:
    sample = build_sample(as_trajectory(as_turn([1], [2]), as_turn([1, 2, 9, 9], [])))
    assert (sample.response_ids, sample.response_mask) == ([2], [1])


def test_an_engine_without_logprobs_gives_none_and_one_with_some_is_refused() -> None:
    assert build_sample(as_trajectory(as_turn([1], [2], []))).logprobs is None
    with pytest.raises(BackendError, match="only some turns have log-probs"):
        build_sample(as_trajectory(as_turn([1], [2], []), as_turn([1, 2], [3], [-1.0])))


@pytest.mark.parametrize("turns", [(), (Turn(text="said in text only"),), (as_turn([1, 2], []),)])
def test_an_episode_without_sampled_tokens_is_refused(turns: tuple[Turn, ...]) -> None:
    with pytest.raises(BackendError, match="holds no sampled tokens"):
        build_sample(as_trajectory(*turns))
