"""Prompts in flight: hand-outs of one task in one step, and what a restored queue holds."""

import json
from pathlib import Path

from napmem_rl.backend.in_flight import NOTE_PREFIX, RepeatCounter, find_leftovers, set_aside_episodes
from napmem_rl.backend.token_generate import compute_request_seed


def test_a_task_that_a_step_has_again_is_numbered_also_across_batches_and_anew_in_the_next_step():
    counter = RepeatCounter()
    assert counter.count(1, ["a", "b", "a"]) == [0, 0, 1]
    assert counter.count(1, ["a", "c"]) == [2, 0]
    assert counter.count(2, ["a", "b"]) == [0, 0]


def test_a_second_group_of_a_task_has_seeds_of_its_own_and_the_first_keeps_those_it_had():
    place = {"step": 3, "task_id": "t", "sample_index": 0, "turn_index": 0}
    assert compute_request_seed(7, **place) == compute_request_seed(7, **place, repeat=0)
    assert len({compute_request_seed(7, **place, repeat=repeat) for repeat in range(5)}) == 5


def test_leftovers_are_trained_rows_and_prompts_in_flight_with_their_notes():
    note = f"{NOTE_PREFIX}2"
    tags = {
        "run": {"is_prompt": True, "status": "running", "global_steps": 4, note: {"cause": "judge", "detail": ""}},
        "run_0_0": {"status": "success"},
        "new": {"is_prompt": True, "status": "pending", "global_steps": 5},
        "end": {"is_prompt": True, "status": "finished", "global_steps": 4, note: {"cause": "judge", "detail": ""}},
        "end_0_0": {"status": "success"},
        "old_0_0": {"status": "success"},
        "old_1_0": {"status": "success"},
    }
    left = find_leftovers(tags)
    assert left.orphans == ("old_0_0", "old_1_0")
    assert left.in_flight == {"run": 4, "new": 5}
    assert left.old_notes == {"run": {note: None}}, "a finished group keeps its notes: it is trained as it is"


def write_episodes(path: Path, *episodes: tuple[str, int]) -> None:
    path.write_text("".join(json.dumps({"task_id": task, "sample": sample}) + "\n" for task, sample in episodes))


def read_episodes(path: Path) -> list[tuple[str, int]]:
    return [(line["task_id"], line["sample"]) for line in map(json.loads, path.read_text().splitlines())]


def test_episodes_of_tasks_that_run_again_are_moved_aside_and_all_others_stay(tmp_path):
    (tmp_path / "aside.1").mkdir()
    write_episodes(tmp_path / "step_000004.worker_0.jsonl", ("a", 0), ("b", 0), ("a", 1))
    write_episodes(tmp_path / "step_000004.worker_1.jsonl", ("c", 0))
    write_episodes(tmp_path / "step_000003.worker_0.jsonl", ("a", 0))
    (tmp_path / "step_000004.worker_0.jsonl").open("a").write('{"task_id": "a", "sam')
    assert set_aside_episodes(tmp_path, [(4, "a"), (5, "c")]) == 2
    kept = (tmp_path / "step_000004.worker_0.jsonl").read_text().splitlines()
    assert json.loads(kept[0])["task_id"] == "b" and kept[1] == '{"task_id": "a", "sam', "what cannot be read is left where it is"
    assert read_episodes(tmp_path / "aside.2" / "step_000004.worker_0.jsonl") == [("a", 0), ("a", 1)]
    assert read_episodes(tmp_path / "step_000004.worker_1.jsonl") == [("c", 0)]
    assert read_episodes(tmp_path / "step_000003.worker_0.jsonl") == [("a", 0)]


def test_nothing_to_move_makes_no_directory(tmp_path):
    write_episodes(tmp_path / "step_000004.worker_0.jsonl", ("a", 0))
    assert set_aside_episodes(tmp_path, [(4, "b")]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["step_000004.worker_0.jsonl"]
