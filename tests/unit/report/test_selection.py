"""Which episodes are embedded."""

import json
from pathlib import Path

import pytest
from run_maker import make_line, write_trajectories

from napmem_rl.report.episodes import index_episodes, load_episodes
from napmem_rl.report.selection import build_groups, choose_groups, spread


def index_of(tmp_path: Path, lines: list) -> tuple:
    write_trajectories(tmp_path, lines)
    return index_episodes(tmp_path / "trajectories", []).entries


def many_steps(num_steps: int = 30, num_tasks: int = 4, group: int = 4) -> list:
    lines = [make_line(step=s, task=f"t{t}", sample=n) for s in range(1, num_steps + 1) for t in range(num_tasks) for n in range(group)]
    for line in (lines[10], lines[len(lines) // 2]):
        line |= {"status": "truncated", "final_answer": None, "detail": f"cut at {line['step']}"}
    lines[-20] |= {"reward": None, "abstained": "judge: down"}
    return lines


def test_a_small_run_is_shown_whole(tmp_path):
    selection = choose_groups(index_of(tmp_path, many_steps(3)[:40]), max_episodes=40)
    assert len(selection.entries) == selection.num_all == 40 and selection.how == "all episodes of the run"


def test_a_large_run_shows_whole_groups_every_failure_and_both_ends(tmp_path):
    entries = index_of(tmp_path, many_steps())
    selection = choose_groups(entries, max_episodes=100)
    assert 90 <= len(selection.entries) <= 100 and selection.num_all == 480
    whole = {group[0].group: len(group) for group in build_groups(entries)}
    assert all(len(group) == whole[group[0].group] for group in selection.groups)
    assert {entry.cause for entry in selection.entries} == {None, "truncated: cut at …", "no reward: judge: down"}
    steps = [group[0].step for group in selection.groups]
    assert steps.count(1) >= 4 and steps.count(30) >= 4
    assert max(b - a for a, b in zip(sorted(set(steps)), sorted(set(steps))[1:], strict=False)) <= 4


def test_the_same_run_gives_the_same_choice(tmp_path):
    entries = index_of(tmp_path, many_steps())
    assert choose_groups(entries, max_episodes=60).groups == choose_groups(entries, max_episodes=60).groups


def test_long_episodes_are_limited_by_their_size(tmp_path):
    entries = index_of(tmp_path, many_steps(5))
    limit = sum(entry.size for entry in entries) // 4
    selection = choose_groups(entries, max_episodes=1000, max_bytes=limit)
    assert 0 < sum(entry.size for entry in selection.entries) <= limit


def test_token_ids_of_a_line_take_no_room_in_the_page_and_are_not_in_it(tmp_path):
    plain, with_ids = make_line(step=1), make_line(step=2)
    for turn in with_ids["turns"]:
        turn |= {"new_prompt_ids": list(range(1000)), "response_ids": [7, 8]}
    first, second = index_of(tmp_path, [plain, with_ids])
    names = sum(len('"new_prompt_ids": , "response_ids": , ') for _ in with_ids["turns"])
    assert second.size > first.size + 4000 and second.shown_size == first.shown_size + names
    (episode,) = load_episodes([second]).values()
    assert "999" not in json.dumps(episode) and "_ids" not in json.dumps(episode)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 90])
def test_spreading_names_every_number_once(count):
    assert sorted(spread(count)) == list(range(count))


def test_every_beginning_of_a_spread_is_spread():
    assert spread(5) == [0, 4, 2, 1, 3]
    assert sorted(spread(101)[:5]) == [0, 25, 50, 75, 100]
