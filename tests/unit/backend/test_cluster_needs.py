"""What a job takes from a cluster, counted as verl and TransferQueue take it."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from safetensors.torch import save_file

from napmem_rl.backend.cluster_check import wait_for_room
from napmem_rl.backend.cluster_needs import Needs, NodeRoom, count_parameters, find_shortages

NEEDS = Needs(num_nodes=2, gpus_per_node=8, storage_units=8, encoder_nodes=0, object_store_bytes=0, checkpoint_bytes=0, kept_checkpoints=0)


def room(name: str, *, cpus: float = 96, gpus: float = 8, busy: float = 0, store: float = 1 << 30) -> NodeRoom:
    return NodeRoom(name=name, cpus=cpus, gpus=gpus - busy, total_cpus=cpus, total_gpus=gpus, object_store_bytes=store)


def test_two_full_nodes_hold_a_job_of_two_nodes():
    assert find_shortages(NEEDS, [room("a"), room("b")]) == []


def test_sixteen_gpus_in_pieces_are_not_two_groups_of_eight_and_each_node_is_shown():
    (problem,) = find_shortages(NEEDS, [room("a"), room("b", gpus=4), room("c", gpus=4)])
    assert "room for 1. a: 8 of 8 GPUs free, 96 of 96 CPUs free; b: 4 of 4 GPUs free" in problem
    assert "c: 4 of 4 GPUs free" in problem


def test_gpus_that_another_job_holds_do_not_count():
    (problem,) = find_shortages(NEEDS, [room("a"), room("b", busy=2)])
    assert "b: 6 of 8 GPUs free" in problem


def test_one_large_node_holds_two_groups():
    assert find_shortages(NEEDS, [room("a", gpus=16, cpus=128)]) == []


def test_a_node_with_gpus_but_too_few_cpus_holds_no_group():
    problems = find_shortages(NEEDS, [room("a"), room("b", cpus=28)])  # 3 x 8, 4 storage units and one to place a server are 29
    assert len(problems) == 1 and "room for 1" in problems[0]
    assert find_shortages(NEEDS, [room("a"), room("b", cpus=29)]) == []


def test_a_head_without_cpus_would_leave_a_storage_unit_pending_for_good():
    problems = find_shortages(NEEDS, [room("head", cpus=0, gpus=0), room("a"), room("b")])
    assert len(problems) == 1 and problems[0].startswith("head: has 0 CPUs, but TransferQueue pins 3 storage unit(s)")


def test_an_encoder_on_a_gpu_takes_one_more_on_each_node_with_a_worker():
    needs = dataclasses.replace(NEEDS, encoder_nodes=8)
    assert "room for 0" in find_shortages(needs, [room("a"), room("b")])[0]
    assert find_shortages(needs, [room("a", gpus=9), room("b", gpus=9)]) == []


def test_all_cpus_together_must_hold_what_stands_beside_the_groups():
    needs = dataclasses.replace(NEEDS, num_nodes=1, gpus_per_node=2, storage_units=1)
    assert find_shortages(needs, [room("a", gpus=2, cpus=10)]) == []
    assert find_shortages(needs, [room("a", gpus=2, cpus=9)])[0].startswith("CPUs: asked for 10 in all")


def test_an_object_store_smaller_than_two_buckets_of_weights_is_named():
    needs = dataclasses.replace(NEEDS, object_store_bytes=1 << 31)
    problems = find_shortages(needs, [room("a", store=1 << 32), room("b")])
    assert problems == ["b: object store of 1.00 GiB, weights travel in buckets that take 2.00 GiB; start Ray with a larger --object-store-memory"]


def test_nothing_alive_is_said_so():
    assert "no node is alive" in find_shortages(NEEDS, [])[0]


def test_waiting_ends_as_soon_as_the_last_node_has_joined(capsys):
    answers = iter([[room("a")], [room("a"), room("b")]])
    assert wait_for_room(NEEDS, wait_s=60, list_rooms=lambda: next(answers)) == []
    assert "waiting for the cluster, 0 of 60 s: placement" in capsys.readouterr().err


def test_waiting_is_bounded_and_says_what_was_missing():
    (problem,) = wait_for_room(NEEDS, wait_s=0.1, list_rooms=lambda: [room("a")])
    assert "room for 1" in problem and problem.endswith("(after 0 s)")


@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_parameters_are_counted_from_headers_or_from_the_size_of_older_files(tmp_path, suffix):
    if suffix == ".safetensors":
        for part in ("1", "2"):
            save_file({"a": torch.zeros(3, 5), "b": torch.zeros(2, dtype=torch.bfloat16)}, tmp_path / f"model-{part}{suffix}", metadata={"format": "pt"})
    else:
        (tmp_path / "pytorch_model.bin").write_bytes(b"0" * 68)
    assert count_parameters(tmp_path) == 34


def test_a_name_of_a_hub_has_no_known_size(tmp_path):
    assert count_parameters(tmp_path / "Qwen" / "Qwen3") == 0
