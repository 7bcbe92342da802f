"""A reranker on disk: whole or not at all, refused where it belongs to something else, one writer at a time."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from napmem_rl.errors import DataError
from napmem_rl.retrieval.rerank_learner import RerankLearner, RerankSettings
from napmem_rl.retrieval.rerank_state import RerankStamp, load_reranker, lock_state, name_scope, save_reranker

DIM = 6
STAMP = RerankStamp(scope="user:ana", encoder="hashing-6", banks={"ana": "v2"})
SAVE_FOREVER = """
import sys
from pathlib import Path
from napmem_rl.retrieval.rerank_learner import RerankLearner, RerankSettings
from napmem_rl.retrieval.rerank_state import RerankStamp, save_reranker
learner = RerankLearner(256, RerankSettings())
print("ready", flush=True)
while True:
    learner.counts.num_answers += 1
    save_reranker(Path(sys.argv[1]), learner, RerankStamp(scope="global", encoder="e"))
"""


def make_learner(num_answers: int) -> RerankLearner:
    rng = np.random.default_rng(0)
    learner = RerankLearner(DIM, RerankSettings(num_chosen=2, learning_rate=0.1))
    for _ in range(num_answers):
        learner.learn(learner.draw("abcd", rng.standard_normal(DIM), rng.standard_normal((4, DIM))), [True, False])
    return learner


def test_what_is_saved_comes_back_in_every_part(tmp_path: Path) -> None:
    learner = make_learner(7)
    save_reranker(tmp_path / "state.npz", learner, STAMP)
    asked = {"scope": "user:ana", "settings": learner.settings, "versions": {"ana": ["v1", "v2"]}}
    found, stamp = load_reranker(tmp_path / "state.npz", encoder="hashing-6", dim=DIM, **asked)
    assert stamp == STAMP and found.counts == learner.counts and found.settings == learner.settings
    assert found.usefulness_over_steps == learner.usefulness_over_steps == [(7, 0.5)]
    for name, array in learner.export_state().arrays.items():
        np.testing.assert_array_equal(array, found.export_state().arrays[name])


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"encoder": "minilm"}, "another encoder"),
        ({"dim": 7}, "another width"),
        ({"scope": "user:ben"}, "another scope"),
        ({"settings": RerankSettings()}, "other settings"),
        ({"versions": {"ana": ["v1"]}}, "does not hold"),
    ],
)
def test_a_state_of_something_else_is_refused(tmp_path: Path, asked: dict[str, object], word: str) -> None:
    save_reranker(tmp_path / "state.npz", make_learner(3), STAMP)
    with pytest.raises(DataError, match=word):
        load_reranker(tmp_path / "state.npz", **{"encoder": "hashing-6", "dim": DIM} | asked)


def test_a_bank_that_was_not_learned_from_is_no_reason_to_refuse(tmp_path: Path) -> None:
    save_reranker(tmp_path / "state.npz", make_learner(3), STAMP)
    assert load_reranker(tmp_path / "state.npz", encoder="hashing-6", dim=DIM, versions={"ben": ["v9"]})[1] == STAMP


@pytest.mark.parametrize("damage", ["missing", "cut", "empty", "text"])
def test_a_missing_or_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "state.npz"
    if damage != "missing":
        save_reranker(path, make_learner(3), STAMP)
        content = path.read_bytes()
        path.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "text": b"no archive"}[damage])
    with pytest.raises(DataError, match=r"state\.npz: (is not there|cannot be read)"):
        load_reranker(path, encoder="hashing-6", dim=DIM)


def test_a_process_that_is_killed_while_it_saves_leaves_a_whole_state(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    for round_number in range(3):
        process = subprocess.Popen([sys.executable, "-c", SAVE_FOREVER, str(path)], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(0.05 + 0.021 * round_number)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if path.exists():
            assert load_reranker(path, encoder="e", dim=256)[0].counts.num_answers > 0
    assert path.exists()


def test_a_save_that_fails_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.npz"
    save_reranker(path, make_learner(3), STAMP)
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        save_reranker(path, make_learner(9), STAMP)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_a_second_writer_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state.npz"
    first = lock_state(path, "user:ana")
    with pytest.raises(DataError, match="is being written by process"):
        lock_state(path, "user:ana")
    first.release()
    lock_state(path, "user:ana").release()


def test_scopes_have_the_names_that_they_need() -> None:
    assert [name_scope("user", "ana"), name_scope("domain", "chat"), name_scope("global")] == ["user:ana", "domain:chat", "global"]
    for kind, name in (("user", ""), ("global", "x"), ("planet", "x")):
        with pytest.raises(DataError, match="scope"):
            name_scope(kind, name)
