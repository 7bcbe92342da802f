"""What one node sees, compared with where the job was checked."""

from __future__ import annotations

import dataclasses
import shutil
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from bank_maker import find_file

from napmem_rl.backend.bank_cache import find_banks_dir
from napmem_rl.backend.node_facts import Question, check_endpoint, check_run_dir, find_differences, find_disk_problem, look, open_listener, reach
from napmem_rl.memory.bank import MemoryBank, save_bank
from napmem_rl.schema import Message, Profile, Record, RecordType


@pytest.fixture
def question(tmp_path: Path) -> Question:
    """Three banks, a model directory, rows, a run directory."""
    for name in ("ana", "ben", "cleo"):
        message = Message(message_id="msg:1", session_id="s1", role="user", speaker=name, text="I live in Oslo.", time="2024-03-01T10:00:00")
        record = Record(record_id="rec:1", type=RecordType.FACT, text=f"{name} lives in Oslo.", time=message.time, source_ids=("msg:1",), session_id="s1")
        profile = Profile(text=record.text, time=message.time, source_ids=("rec:1",))
        save_bank(tmp_path / "banks" / name, bank_id=name, messages=[message], records=[record], tracks=[], profile=profile, writer="test")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / "chat_template.jinja").write_text("{{ messages }}")
    (tmp_path / "train.parquet").write_bytes(b"rows")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "bank_versions.json").write_text("{}")
    return Question(
        banks_dir=str(tmp_path / "banks"),
        bank_ids=("ana", "ben", "cleo"),
        paths={"actor_rollout_ref.model.path": str(tmp_path / "model"), "data.train_files": str(tmp_path / "train.parquet")},
        run_dir=str(tmp_path / "run"),
        shared_file="bank_versions.json",
        judge_url=None,
        judge_key=None,
    )


def versions_of(question: Question) -> dict[str, str]:
    return {bank_id: MemoryBank.open(Path(question.banks_dir) / bank_id).version for bank_id in question.bank_ids}


def test_hashes_alone_give_the_version_that_opening_a_bank_gives(question):
    assert look(question).banks == versions_of(question)


def test_a_node_that_sees_the_same_has_no_differences(question):
    facts = look(question)
    assert find_differences(facts, facts, versions_of(question)) == []
    assert facts.free_disk_bytes > 0 and facts.free_shm_bytes > 0


def test_a_node_with_its_own_copy_of_the_banks_is_held_to_the_same_content(question, tmp_path, monkeypatch):
    wanted, reference = versions_of(question), look(question)
    monkeypatch.setenv("NAPMEM_BANKS_DIR", str(tmp_path / "scratch"))
    shutil.copytree(question.banks_dir, tmp_path / "scratch")
    assert find_differences(reference, look(question), wanted) == []
    shutil.rmtree(tmp_path / "scratch" / "ana")
    records = tmp_path / "scratch" / "ben" / "records.jsonl"
    records.write_text(records.read_text().replace("Oslo", "Rome"))
    find_file(tmp_path / "scratch" / "cleo", "profile.md").unlink()
    missing, unreadable, other = find_differences(reference, look(question), wanted)
    assert missing == f"banks in {tmp_path}/scratch: 1 of 3 missing: ana"
    assert unreadable.startswith(f"banks in {tmp_path}/scratch: 1 of 3 unreadable: cleo (unreadable: ")
    assert unreadable.endswith(".md: No such file or directory)")
    assert other.startswith(f"banks in {tmp_path}/scratch: 1 of 3 of another content: ben (") and f"expected {wanted['ben']}" in other


def test_without_the_variable_the_recipes_banks_are_read(monkeypatch):
    monkeypatch.delenv("NAPMEM_BANKS_DIR", raising=False)
    assert find_banks_dir("/shared/banks") == Path("/shared/banks")


def test_missing_and_differing_files_of_model_and_data_are_named(question):
    reference = look(question)
    model = Path(question.paths["actor_rollout_ref.model.path"])
    (model / "chat_template.jinja").unlink()
    (model / "config.json").write_text('{"a": 1}')
    Path(question.paths["data.train_files"]).unlink()
    assert find_differences(reference, look(question), versions_of(question)) == [
        f"actor_rollout_ref.model.path: missing: {model}/chat_template.jinja",
        f"actor_rollout_ref.model.path: differs: {model}/config.json",
        f"data.train_files: missing: {question.paths['data.train_files']}",
    ]


def test_versions_of_packages_and_of_this_code_must_agree(question):
    facts = look(question)
    assert {"python", "torch", "verl", "ray"} <= set(facts.versions)
    older = dataclasses.replace(facts, versions={name: version for name, version in facts.versions.items() if name != "verl"} | {"torch": "2.0.0"})
    assert find_differences(facts, older, versions_of(question)) == [
        f"torch: 2.0.0 here, {facts.versions['torch']} where the job was started",
        f"verl: absent here, {facts.versions['verl']} where the job was started",
    ]


def test_another_version_of_this_code_on_a_node_is_named_with_where_it_lies(question):
    facts = look(question)
    other = dataclasses.replace(facts, code="0" * 12, code_path="/old/napmem_rl")
    (problem,) = find_differences(facts, other, versions_of(question))
    assert problem == f"code of napmem_rl: /old/napmem_rl here is not what {facts.code_path} was where the job was started"


def test_a_run_directory_that_is_not_shared_is_told_from_one_that_is(question, tmp_path):
    assert check_run_dir(Path(question.run_dir), question.shared_file) is None
    assert sorted(path.name for path in Path(question.run_dir).iterdir()) == ["bank_versions.json"], "nothing is left behind"
    assert "put trainer.default_local_dir on a path that all nodes share" in str(check_run_dir(tmp_path / "elsewhere", question.shared_file))


def test_no_room_for_one_checkpoint_is_a_problem_and_none_for_all_is_a_notice(question):
    facts = dataclasses.replace(look(question), free_disk_bytes=10 << 30)
    assert find_disk_problem(facts, checkpoint_bytes=0, kept=0) == (None, None)
    assert find_disk_problem(facts, checkpoint_bytes=2 << 30, kept=5) == (None, None)
    assert find_disk_problem(facts, checkpoint_bytes=11 << 30, kept=1)[0] == "run directory: 10.0 GiB free, one checkpoint takes about 11.0 GiB"
    assert "and 6 are kept" in str(find_disk_problem(facts, checkpoint_bytes=2 << 30, kept=6)[1])


class _Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(401)

    def log_message(self, *args: object) -> None:
        """Silent."""


def test_an_endpoint_that_answers_with_any_status_is_reachable_and_one_without_server_is_not(monkeypatch):
    server = HTTPServer(("127.0.0.1", 0), _Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    assert check_endpoint(url, None) is None
    server.shutdown()
    server.server_close()
    assert f"judge: {url} is not reachable from here" in str(check_endpoint(url, None))
    monkeypatch.delenv("ABSENT_KEY", raising=False)
    assert "ABSENT_KEY" in str(check_endpoint(url, "ABSENT_KEY"))


def test_a_port_that_listens_is_reached_and_a_closed_one_is_not():
    listener = open_listener("127.0.0.1")
    port = listener.getsockname()[1]
    assert reach("127.0.0.1", port) is None
    listener.close()
    assert "refused" in str(reach("127.0.0.1", port, timeout_s=2)).lower()
    assert isinstance(listener, socket.socket)
