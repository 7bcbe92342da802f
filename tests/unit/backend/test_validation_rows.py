import pyarrow.parquet as pq
import pytest

from napmem_rl.backend.episode_runner import RowRequest, build_sampling
from napmem_rl.backend.validation_rows import write_sampled_rows
from napmem_rl.data.rows import load_rows, save_rows
from napmem_rl.errors import DataError
from napmem_rl.schema import AnswerKey, Task

TASK = Task(task_id="t1", bank_id="ana", question="Where?", category="fact", needs_memory=True)


def test_a_copy_asks_the_same_questions_under_its_own_name_and_temperature(tmp_path):
    save_rows(tmp_path / "dev.parquet", [(TASK, AnswerKey(task_id="t1", references=("Oslo",)))], data_source="locomo")
    write_sampled_rows(tmp_path / "dev.parquet", tmp_path / "greedy.parquet", temperature=0.0, suffix="/greedy")
    assert load_rows(tmp_path / "greedy.parquet") == load_rows(tmp_path / "dev.parquet")
    (row,) = pq.read_table(tmp_path / "greedy.parquet").to_pylist()
    assert row["data_source"] == "locomo/greedy"
    request = RowRequest(row=row, sampling={"temperature": 1.0}, step=0, sample_index=0, is_validation=True)
    assert build_sampling(request)["temperature"] == 0.0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_negative_temperature_is_refused(tmp_path):
    with pytest.raises(DataError, match="negative temperature"):
        write_sampled_rows(tmp_path / "a.parquet", tmp_path / "b.parquet", temperature=-1.0, suffix="")
