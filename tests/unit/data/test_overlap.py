"""The guard: what counts as the same message, which groups belong together, and what training and evaluation refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from napmem_rl.data.overlap import (
    FINGERPRINTS,
    Fingerprints,
    check_no_overlap,
    check_training_data,
    find_training_fingerprints,
    fingerprint,
    keep_training_fingerprints,
    load_fingerprints,
)
from napmem_rl.data.prepare import prepare
from napmem_rl.data.rows import load_rows
from napmem_rl.data.source import SourceBank, SourceSet
from napmem_rl.errors import DataError
from napmem_rl.schema import AnswerKey, Message, Task

LONG = "Last summer we sailed a small boat around the island of {place}."


def build_bank(name: str, *texts: str) -> SourceBank:
    messages = tuple(
        Message(message_id=f"msg:{day}", session_id="s1", role="user", speaker="Ana", text=text, time=f"2024-01-0{day}T10:00:00")
        for day, text in enumerate(texts, start=1)
    )
    return SourceBank(bank_id=name, group_id=name, messages=messages)


def build_source(*banks: SourceBank, name: str = "made", is_benchmark: bool = False, is_generated: bool = False) -> SourceSet:
    tasks = [Task(task_id=f"{name}:{bank.bank_id}", bank_id=bank.bank_id, question="Where?", category="fact", needs_memory=True) for bank in banks]
    items = tuple((task, AnswerKey(task_id=task.task_id, references=("there",))) for task in tasks)
    return SourceSet(name=name, banks=banks, items=items, is_benchmark=is_benchmark, is_generated=is_generated)


def write(tmp_path: Path, source: SourceSet, split: dict[str, list[str]] | None = None) -> Path:
    out = tmp_path / source.name
    split_path = tmp_path / f"{source.name}.split.json" if split else None
    if split_path:
        split_path.write_text(json.dumps(split))
    prepare(source, out, inputs=[], split_path=split_path, report=lambda line: None)
    return out


def test_case_punctuation_and_unicode_forms_make_no_difference_and_short_texts_do_not_count() -> None:
    text = "We sailed round the Café on the ﬁrst of May, twice!"
    assert fingerprint(text) == fingerprint("we SAILED round the cafe\u0301 on the first of may -- twice") is not None
    assert fingerprint(text) != fingerprint(text.replace("twice", "once"))
    assert fingerprint("That sounds great, I am so happy!") is None, "seven words"
    assert fingerprint("That sounds great, I am so very happy!") is not None, "eight words"


def test_groups_that_share_messages_are_one_and_a_phrase_of_many_is_no_copy() -> None:
    found = Fingerprints()
    phrase = "Of course, please share the text that you would like me to look at."
    for name, places in {"a": "Elba", "b": "Elba Rhodes", "c": "Rhodes", "d": "Corfu", "e": "Malta"}.items():
        found.add(name, name, build_bank(name, phrase, *(LONG.format(place=place) for place in places.split())).messages)
    assert set(found.join_groups().values()) == {"a"}
    assert found.drop_phrases() == 1
    assert found.join_groups() == {"a": "a", "b": "a", "c": "a", "d": "d", "e": "e"}


def test_a_split_by_hash_keeps_groups_that_share_a_message_together_and_says_so(tmp_path: Path) -> None:
    banks = [build_bank(name, LONG.format(place=name)) for name in "abcdefgh"] + [build_bank("copy", LONG.format(place="a")), build_bank("x", "Short one.")]
    meta = json.loads((write(tmp_path, build_source(*banks)) / "data.json").read_text())
    assert meta["banks"]["a"]["split"] == meta["banks"]["copy"]["split"]
    assert [repair["where"] for repair in meta["repairs"]] == ["split"] and meta["repairs"][0]["kind"] == "groups_joined"


def test_a_split_file_that_parts_copies_is_refused(tmp_path: Path) -> None:
    banks = build_bank("a", LONG.format(place="Elba")), build_bank("b", LONG.format(place="Elba").upper())
    with pytest.raises(DataError, match="a is in train and b is in test, but they share messages"):
        write(tmp_path, build_source(*banks), {"train": ["a"], "test": ["b"]})
    assert not (tmp_path / "made").exists()
    write(tmp_path, build_source(*banks, is_generated=True), {"train": ["a"], "test": ["b"]})


def test_training_is_refused_where_an_evaluated_user_said_the_same_and_names_the_words(tmp_path: Path) -> None:
    train = write(tmp_path, build_source(build_bank("a", LONG.format(place="Elba")), build_bank("b", "Hello there.")), {"train": ["a", "b"]})
    other = write(tmp_path, build_source(build_bank("z", LONG.format(place="Malta")), name="other", is_benchmark=True))
    bench = write(tmp_path, build_source(build_bank("z", "Hm.", LONG.format(place="Elba")), name="bench", is_benchmark=True))
    files, rows = [train / "train.parquet"], load_rows(train / "train.parquet")
    training = check_training_data(files, rows, held_out=[other])
    assert training is not None and list(training.values()) == ["a"]
    expected = r"shares 1 messages with what .*bench evaluates: 'Last summer we sailed .* \(trained on in bank a, evaluated in bank z\)"
    with pytest.raises(DataError, match=expected):
        check_training_data(files, rows, held_out=[other, bench])
    (bench / FINGERPRINTS).unlink()
    with pytest.raises(DataError, match=expected):  # by the banks themselves, where a directory was written by hand
        check_no_overlap(training, [bench], what="training data")


def test_rows_of_a_benchmark_are_not_trained_on_wherever_they_are_named(tmp_path: Path) -> None:
    bench = write(tmp_path, build_source(build_bank("z", LONG.format(place="Elba")), name="bench", is_benchmark=True))
    assert json.loads((bench / "data.json").read_text())["rows"] == {"test": 1}
    with pytest.raises(DataError, match="is bench, which is for evaluation alone"):
        check_training_data([bench / "test.parquet"], load_rows(bench / "test.parquet"), held_out=[])
    with pytest.raises(DataError, match="bench is for evaluation alone, and 1 groups are in train"):
        write(tmp_path, build_source(build_bank("z", LONG.format(place="Elba")), name="bench", is_benchmark=True), {"train": ["z"]})


def test_a_run_says_what_its_policy_was_trained_on_also_what_its_base_was(tmp_path: Path) -> None:
    bench = write(tmp_path, build_source(build_bank("z", LONG.format(place="Elba")), name="bench", is_benchmark=True))
    first, second = tmp_path / "sft", tmp_path / "run"
    (second / "global_step_3" / "actor").mkdir(parents=True)
    first.mkdir()
    checkpoint = second / "global_step_3" / "actor"
    assert find_training_fingerprints(checkpoint) is None, "nothing says"
    keep_training_fingerprints(first, load_fingerprints(bench), base=tmp_path / "nothing")
    keep_training_fingerprints(second, {1: "a"}, base=first)
    known = find_training_fingerprints(checkpoint)
    assert known == {1: "a"} | load_fingerprints(bench)
    with pytest.raises(DataError, match="the policy's training data: shares 1 messages"):
        check_no_overlap(known, [bench], what="the policy's training data")
    keep_training_fingerprints(second, {1: "a"}, base=tmp_path / "nothing")
    assert find_training_fingerprints(checkpoint) == {1: "a"}
