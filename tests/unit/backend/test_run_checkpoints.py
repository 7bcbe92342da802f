"""Which checkpoints of a run directory are whole, and what a job does about the others."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest

from napmem_rl.backend.run_checkpoints import (
    BEST,
    SEAL,
    TRACKER,
    Best,
    check_resume_path,
    choose_checkpoint,
    find_checkpoints,
    prepare_resume,
    prune_checkpoints,
    read_best,
    refuse_old_checkpoints,
    seal_checkpoint,
    write_best,
)
from napmem_rl.backend.run_files import set_aside_later_steps
from napmem_rl.errors import BankError, CheckpointError, ConfigError

BANKS = {"ana": "v1"}


def make_checkpoint(run_dir: Path, step: int, *, is_sealed: bool = True) -> Path:
    directory = run_dir / f"global_step_{step}"
    (directory / "actor").mkdir(parents=True)
    for rank in range(2):
        (directory / "actor" / f"model_world_size_2_rank_{rank}.pt").write_bytes(b"weights")
    (directory / "data.pt").write_bytes(b"rows")
    if is_sealed:
        seal_checkpoint(directory, step=step, bank_versions=BANKS)
        (run_dir / TRACKER).write_text(str(step))
    return directory


def resume(run_dir: Path, **changes):
    return prepare_resume(run_dir, **{"bank_versions": BANKS, "world_size": 2, **changes})


def test_an_empty_or_missing_run_directory_starts_from_the_beginning_without_a_word(tmp_path):
    point = resume(tmp_path / "none")
    assert (point.checkpoint, point.notices) == (None, ())


def test_the_latest_whole_checkpoint_is_taken_by_number_not_by_name(tmp_path):
    for step in (2, 10, 9):
        make_checkpoint(tmp_path, step)
    point = resume(tmp_path)
    assert point.checkpoint.step == 10 and point.checkpoint.world_size == 2
    assert (tmp_path / TRACKER).read_text() == "10"
    assert any("named '9'" in notice for notice in point.notices)


@pytest.mark.parametrize("tracker", [b"", b"4\x00\xff", b"7"], ids=["empty", "torn", "of a step that is not there"])
def test_a_tracker_is_never_trusted_and_is_set_right(tmp_path, tracker):
    make_checkpoint(tmp_path, 2)
    (tmp_path / TRACKER).write_bytes(tracker)
    point = resume(tmp_path)
    assert point.checkpoint.step == 2 and (tmp_path / TRACKER).read_text() == "2"
    assert any(str(tmp_path / TRACKER) in notice for notice in point.notices)


def damage_missing(directory: Path) -> None:
    (directory / "actor" / "model_world_size_2_rank_1.pt").unlink()


def damage_torn(directory: Path) -> None:
    (directory / "data.pt").write_bytes(b"ro")


def damage_seal(directory: Path) -> None:
    (directory / SEAL).write_text('{"step": 4, "fi')


def damage_unsealed(directory: Path) -> None:
    (directory / SEAL).unlink()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_missing, "lacks actor/model_world_size_2_rank_1.pt"),
        (damage_torn, "has a torn data.pt (2 of 4 bytes)"),
        (damage_seal, f"has an unreadable {SEAL}"),
        (damage_unsealed, "was never finished"),
    ],
)
def test_a_broken_checkpoint_is_named_moved_aside_and_the_one_before_is_used(tmp_path, damage, words):
    make_checkpoint(tmp_path, 2)
    damage(make_checkpoint(tmp_path, 4))
    point = resume(tmp_path)
    assert point.checkpoint.step == 2
    assert any(words in notice and "broken_global_step_4.1" in notice for notice in point.notices)
    assert (tmp_path / "broken_global_step_4.1").is_dir() and not (tmp_path / "global_step_4").exists()
    assert (tmp_path / TRACKER).read_text() == "2"


def test_of_broken_checkpoints_the_latest_two_are_kept(tmp_path):
    make_checkpoint(tmp_path, 2)
    said = []
    for moment in range(1, 5):
        damage_unsealed(make_checkpoint(tmp_path, 4))
        said += resume(tmp_path).notices
        os.utime(max(tmp_path.glob("broken_*"), key=lambda path: path.stat().st_ctime), (moment, moment))
    assert len(list(tmp_path.glob("broken_global_step_4.*"))) == 2
    assert sum(notice.startswith("removed ") and "one of more than 2 broken checkpoints" in notice for notice in said) == 2


def test_without_any_whole_checkpoint_the_job_starts_anew_and_says_so(tmp_path):
    make_checkpoint(tmp_path, 2, is_sealed=False)
    (tmp_path / TRACKER).write_text("2")
    point = resume(tmp_path)
    assert point.checkpoint is None and not (tmp_path / TRACKER).exists()
    assert "starting from the beginning" in point.notices[-1]


@pytest.mark.parametrize("now", [{"ana": "v2"}, {}, {"ana": "v1", "ben": "v1"}], ids=["changed", "gone", "added"])
def test_a_checkpoint_of_other_banks_is_refused_and_nothing_is_moved(tmp_path, now):
    make_checkpoint(tmp_path, 2)
    make_checkpoint(tmp_path, 4, is_sealed=False)
    with pytest.raises(BankError, match="1 banks are not those it was made with"):
        resume(tmp_path, bank_versions=now)
    assert (tmp_path / "global_step_4").is_dir()


def test_a_checkpoint_of_another_number_of_learners_is_refused(tmp_path):
    make_checkpoint(tmp_path, 2)
    with pytest.raises(ConfigError, match="another number of learners; got 4; expected 2"):
        resume(tmp_path, world_size=4)


def test_a_checkpoint_is_not_finished_while_a_file_of_a_learner_is_not_seen(tmp_path):
    directory = make_checkpoint(tmp_path, 2, is_sealed=False)
    late = "actor/model_world_size_3_rank_2.pt"
    with pytest.raises(CheckpointError, match=r"1 of 2 files of its learners are not seen here; got \['actor/model_world_size_3_rank_2.pt'\]"):
        seal_checkpoint(directory, step=2, bank_versions=BANKS, expected=["data.pt", late], see_timeout_s=0.0)
    assert find_checkpoints(tmp_path)[0].problem == f"was never finished (no {SEAL})"
    threading.Timer(0.2, lambda: (directory / late).write_bytes(b"weights")).start()
    seal_checkpoint(directory, step=2, bank_versions=BANKS, expected=["data.pt", late], see_timeout_s=30.0)
    assert late in json.loads((directory / SEAL).read_text())["files"]


def test_a_given_checkpoint_is_checked_as_one_that_was_found(tmp_path):
    path = make_checkpoint(tmp_path, 2)
    same = {"bank_versions": BANKS, "world_size": 2}
    assert check_resume_path(tmp_path, path, **same).step == 2
    assert check_resume_path(tmp_path / "other", path, **same).step == 2
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        check_resume_path(tmp_path, tmp_path / "global_step_3", **same)
    with pytest.raises(BankError):
        check_resume_path(tmp_path, path, bank_versions={}, world_size=2)
    with pytest.raises(ConfigError, match="another number of learners"):
        check_resume_path(tmp_path, path, bank_versions=BANKS, world_size=4)
    damage_torn(path)
    with pytest.raises(CheckpointError, match="torn"):
        check_resume_path(tmp_path, path, **same)


def test_a_given_checkpoint_is_refused_where_later_ones_would_be_written_over(tmp_path):
    path = make_checkpoint(tmp_path, 2)
    make_checkpoint(tmp_path, 1)
    make_checkpoint(tmp_path, 4)
    with pytest.raises(ConfigError, match=r"would write over; got \[4\]"):
        check_resume_path(tmp_path, path, bank_versions=BANKS, world_size=2)
    make_checkpoint(tmp_path / "other", 1)
    with pytest.raises(ConfigError, match=r"would write over; got \[1\]"):
        check_resume_path(tmp_path / "other", path, bank_versions=BANKS, world_size=2)


def test_a_checkpoint_that_cannot_be_deleted_does_not_end_a_job(tmp_path, monkeypatch):
    for step in (1, 2, 3):
        make_checkpoint(tmp_path, step)
    remove = shutil.rmtree

    def refuse_first(path):
        if path.name == "global_step_1":
            raise OSError(39, "Directory not empty")
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", refuse_first)
    assert [path.name for path in prune_checkpoints(tmp_path, keep=1)] == ["global_step_2"]
    assert choose_checkpoint(tmp_path).step == 3


def test_a_run_that_must_not_resume_never_writes_over_checkpoints(tmp_path):
    refuse_old_checkpoints(tmp_path)
    make_checkpoint(tmp_path, 2, is_sealed=False)
    with pytest.raises(ConfigError, match="resume_mode=auto"):
        refuse_old_checkpoints(tmp_path)


def test_pruning_keeps_the_latest_and_the_best_and_touches_nothing_broken(tmp_path):
    for step in (1, 2, 3, 4):
        make_checkpoint(tmp_path, step)
    make_checkpoint(tmp_path, 5, is_sealed=False)
    assert prune_checkpoints(tmp_path, keep=None) == []
    assert [path.name for path in prune_checkpoints(tmp_path, keep=1, spare=[2])] == ["global_step_1", "global_step_3"]
    assert [checkpoint.step for checkpoint in find_checkpoints(tmp_path)] == [2, 4, 5]


def test_the_best_counts_only_while_its_checkpoint_is_whole(tmp_path):
    assert read_best(tmp_path) is None
    write_best(tmp_path, Best(step=2, metric="reward", value=0.5))
    assert read_best(tmp_path) is None
    make_checkpoint(tmp_path, 2)
    assert read_best(tmp_path) == Best(step=2, metric="reward", value=0.5)
    assert json.loads((tmp_path / BEST).read_text())["checkpoint"] == "global_step_2"
    (tmp_path / BEST).write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_best(tmp_path)


def test_a_checkpoint_is_chosen_by_step_as_the_best_or_as_the_latest(tmp_path):
    with pytest.raises(CheckpointError, match="holds no such checkpoint"):
        choose_checkpoint(tmp_path)
    for step in (2, 4, 6):
        make_checkpoint(tmp_path, step, is_sealed=step != 6)
    write_best(tmp_path, Best(step=2, metric="reward", value=0.5))
    assert choose_checkpoint(tmp_path).step == 4
    assert choose_checkpoint(tmp_path, is_best=True).step == 2
    assert choose_checkpoint(tmp_path, step=4).step == 4
    with pytest.raises(CheckpointError, match="was never finished"):
        choose_checkpoint(tmp_path, step=6)


def test_trajectories_of_steps_that_run_again_are_moved_aside(tmp_path):
    for name in ("step_000002.worker_0.jsonl", "step_000003.worker_0.jsonl", "val_000004.worker_1.jsonl", "notes.jsonl"):
        (tmp_path / name).write_text(name)
    set_aside_later_steps(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["aside.1", "notes.jsonl", "step_000002.worker_0.jsonl"]
    assert sorted(path.name for path in (tmp_path / "aside.1").iterdir()) == ["step_000003.worker_0.jsonl", "val_000004.worker_1.jsonl"]
    set_aside_later_steps(tmp_path / "none", 0)
