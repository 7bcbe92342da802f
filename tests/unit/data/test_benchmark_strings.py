"""No words of a benchmark stand in what a policy may read: the scan itself, and, where the data are, the scan of this project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from napmem_rl.data.benchmark_strings import check_no_benchmark_strings, find_scanned_files, index_runs, scan
from napmem_rl.data.locomo import load_locomo
from napmem_rl.data.longmemeval import load_longmemeval
from napmem_rl.data.source import SourceBank, SourceSet
from napmem_rl.errors import DataError
from napmem_rl.schema import AnswerKey, Task

ROOT = Path(__file__).resolve().parents[3]


def build_source(question: str, answer: str) -> SourceSet:
    task = Task(task_id="q1", bank_id="b", question=question, category="fact", needs_memory=True)
    key = AnswerKey(task_id="q1", references=(answer,))
    return SourceSet(name="made", banks=(SourceBank(bank_id="b", group_id="b", messages=()),), items=((task, key),))


def test_a_run_of_eight_words_is_found_over_line_breaks_and_whatever_the_punctuation(tmp_path: Path) -> None:
    source = build_source("Which instrument did Edda carry up to the old lighthouse?", "a cello")
    prompt = tmp_path / "prompts.py"
    prompt.write_text('TEXT = """For example: which INSTRUMENT did Edda\n carry, up to the old barn"""')
    with pytest.raises(DataError, match="'which instrument did edda carry up to the' of q1"):
        check_no_benchmark_strings([prompt], [source])
    prompt.write_text('TEXT = "which instrument did Edda carry up to a barn"')
    check_no_benchmark_strings([prompt], [source])


def test_a_shorter_question_is_found_as_a_whole_and_a_short_answer_is_passed_over(tmp_path: Path) -> None:
    source = build_source("Where does Edda keep her cello?", "in the boat house")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("note: where does Edda keep her cello, in the boat house")
    assert [finding.words for finding in scan([recipe], index_runs([source]))] == ["where does edda keep her cello"]
    recipe.write_text("note: Edda, in the boat house")
    assert scan([recipe], index_runs([source])) == []


def test_this_project_holds_no_words_of_the_benchmarks() -> None:
    data = os.environ.get("NAPMEM_DATA")
    if not data:
        pytest.skip("NAPMEM_DATA is not set")
    files = find_scanned_files(ROOT)
    assert {"prompts.py", "llm_prompts.py", "demonstrations.py", "quickstart.yaml"} <= {path.name for path in files}
    sources = [load_locomo(Path(data) / "locomo" / "locomo8.json", adversarial=True), load_longmemeval(Path(data) / "longmemeval" / "oracle.json.gz")]
    check_no_benchmark_strings(files, sources)
