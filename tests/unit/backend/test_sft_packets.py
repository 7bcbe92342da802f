"""Packets by a model behind an endpoint, as `launch/sft.py --packets-only` has them written: validated, counted, kept, and gone on with after a failure."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from judge_endpoint import serve_judge
from packet_job import write_packet_data

from napmem_rl.backend.sft_packets import write_packets
from napmem_rl.config.sft_recipe import SftRecipe, load_sft_recipe
from napmem_rl.errors import ConfigError, LLMError
from napmem_rl.systems.memchain.packet import render_packet

RECIPE = """
platform: cpu
system: memchain
output: /nowhere
memory: {encoder: none}
memchain: {max_candidates: 2}
teacher: {kind: openai, model: m, api_key_env: "", max_retries: 0, max_tries: 2}
demonstrations: {count: 16}
model: {path: /nowhere}
data: {dir: "???", train_batch_size: 4}
"""


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A prepared directory, and a good packet by the person that a question is about."""
    rows = write_packet_data(tmp_path, num_train=4)
    (tmp_path / "sft.yaml").write_text(RECIPE)
    return tmp_path, {row.task.bank_id: render_packet(row.packet) for row in rows}


def load(directory: Path, url: str, *overrides: str) -> SftRecipe:
    return load_sft_recipe(directory / "sft.yaml", [f"data.dir={directory}", f"teacher.base_url={url}", f"teacher.cache_dir={directory}/cache", *overrides])


def teach_by(packets: dict[str, str], asked: list[str], *, broken: Callable[[str], str | None]) -> Callable[[list], str]:
    """A teacher that says what `broken` says of a person, else a good packet."""

    def reply(messages: list) -> str:
        person = next(name for name in packets if f"does {name} live" in messages[1]["content"])
        asked.append(person)
        return broken(person) or packets[person]

    return reply


def test_packets_are_written_with_boundary_and_reference_and_refusals_are_counted_by_why(data: tuple[Path, dict[str, str]]) -> None:
    directory, packets = data
    asked, said = [], []
    url, stop = serve_judge(
        teach_by(packets, asked, broken=lambda person: {"ben": "Here you are: {}", "dan": packets["dan"].replace("msg:1", "msg:77")}.get(person))
    )
    path = write_packets(load(directory, url), said.append)
    stop()
    rows = pq.read_table(path).to_pylist()
    assert [json.loads(row["task"])["bank_id"] for row in rows] == ["ana", "cleo"]
    reference = json.loads(rows[0]["reference"])
    assert reference["ids"] == ["msg:1"] and reference["packet"] == packets["ana"] and reference["evidence"][0]["ids"] == ["msg:1"]
    assert {item["id"] for item in json.loads(rows[0]["candidates"])} == {"msg:1", "msg:2"}
    assert asked.count("ben") == asked.count("dan") == 2, "a packet that is refused is asked for again, with its fault"
    assert "packets: 2 of 4 train questions" in said[0]
    assert "1 left out (the teacher's packet was refused: foreign_id)" in said[0] and said[0].count("the teacher's packet was refused") == 2


def test_after_an_endpoint_failed_the_same_command_asks_for_what_is_missing_alone(data: tuple[Path, dict[str, str]]) -> None:
    directory, packets = data
    is_down = {"dan": True}

    def fail(person: str) -> None:
        if is_down.get(person):
            raise ConnectionAbortedError  # the connection is closed without a reply

    asked: list[str] = []
    url, stop = serve_judge(teach_by(packets, asked, broken=fail))
    with pytest.raises(LLMError, match="request failed"):
        write_packets(load(directory, url), print)
    assert sorted(asked) == ["ana", "ben", "cleo", "dan"] and not (directory / "packets.parquet").exists()
    is_down["dan"] = False
    path = write_packets(load(directory, url), print)
    stop()
    assert asked[4:] == ["dan"] and pq.read_metadata(path).num_rows == 4


def test_a_recipe_of_another_system_has_no_packets(data: tuple[Path, dict[str, str]]) -> None:
    with pytest.raises(ConfigError, match="key system: has no packets; got 'napmem'"):
        write_packets(load(data[0], "http://x/v1", "system=napmem"), print)


def test_the_flag_may_stand_between_recipe_and_overrides(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    settings = [f"data.dir={tmp_path / 'nothing'}", "memory.encoder=none", "teacher.base_url=http://127.0.0.1:9/v1", "teacher.model=m"]
    command = [sys.executable, "launch/sft.py", "recipes/memchain/sft.yaml", "--packets-only", *settings]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and "nothing" in ended.stderr and "unrecognized arguments" not in ended.stderr
