"""What launch/sft.py and launch/tmpo.py must have done by MemChain's smoke recipes: SFT on packets, then two steps of TMPO; conftest.py has the job."""

import json

import pyarrow.parquet as pq
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

GROUPS, SAMPLES, STEPS = 4, 4, 2


def test_the_job_makes_its_policy_and_trains_it(memchain_job):
    assert memchain_job.exit_code == 0, memchain_job.output[-4000:]
    assert f"run directory: {memchain_job.run_dir}" in memchain_job.output
    assert [entry["step"] for entry in memchain_job.metrics()] == [1, 2]


def test_supervised_training_leaves_the_packets_it_learnt_from_as_rows(memchain_job):
    rows = pq.read_table(memchain_job.data_dir / "memchain_policy" / "packets.parquet").to_pylist()
    assert len(rows) == 64 and {row["agent_name"] for row in rows} == {"memchain"}
    assert all(json.loads(row["reference"])["ids"] and len(json.loads(row["candidates"])) <= 6 for row in rows)


def test_rollout_and_learner_agree_and_the_ratio_is_one_at_the_update(memchain_job):
    for entry in memchain_job.metrics():
        assert 0 < entry["napmem/logprob_gap_max"] <= 1e-4
        assert abs(entry["actor/ppo_kl"]) <= 1e-6 and entry["actor/pg_clipfrac"] == 0
        assert abs(entry["actor/ratio_max"] - 1) <= 1e-5


def test_packets_parse_and_earn_what_equation_16_says(memchain_job):
    lines = memchain_job.trajectories("step")
    assert len(lines) == STEPS * GROUPS * SAMPLES
    parsed = [line for line in lines if line["terms"]["strict_json"] == 1 and line["terms"]["schema_valid"] == 1]
    assert len(parsed) >= len(lines) // 4, "supervised training teaches the form at least"
    for line in (line for line in lines if line["reward"] is not None):
        terms = line["terms"]
        signals = 0.65 * terms["correctness"] + 0.15 * terms["stability"] + 0.15 * terms["citations"] + 0.05 * terms["support"]
        assert abs(line["reward"] - terms["gate"] * signals) < 1e-9
        assert terms["stability"] == terms["correctness"], "the reader of synthetic users always gives one answer"


def test_a_judge_without_a_verdict_costs_the_packet_and_nothing_is_learnt_from_it(memchain_job):
    lines, metrics = memchain_job.trajectories("step"), memchain_job.metrics()
    abstained = [line for line in lines if line["abstained"]]
    assert abstained and all(line["reward"] is None and line["packet"]["evidence"] for line in abstained)
    assert all("hobby" in line["question"] or "job" in line["question"] for line in abstained)
    for entry in metrics:
        of_step = [line for line in lines if line["step"] == entry["step"]]
        lost = sum(bool(line["abstained"]) for line in of_step)
        assert entry["napmem/abstained"] == lost
        assert entry["napmem/num_questions"] == len(of_step) - lost - entry["napmem/dropped_rows"]


def test_the_log_shows_candidates_and_evidence_and_cites_nothing_else(memchain_job):
    for line in memchain_job.trajectories("step"):
        shown = {item["id"] for item in line["packet"]["candidates"]}
        assert 0 < len(shown) <= 6 and {item_id for item in line["packet"]["evidence"] for item_id in item["ids"]} <= shown


def test_signals_of_the_reward_and_diagnostics_are_among_the_metrics(memchain_job):
    for entry in memchain_job.metrics():
        names = ("reward", "correctness", "citations", "support", "gate", "parsed", "has_evidence", "evidence_words", "candidate_words", "actions/KEEP")
        assert {f"napmem/{name}" for name in names} <= set(entry)
        assert {"actor/pg_loss", "actor/kl_loss", "actor/grad_norm", "response_length/clip_ratio"} <= set(entry)
    assert 0 <= memchain_job.metrics()[-1]["val-core/synthetic/reward/mean@1"] <= 1


def test_the_checkpoint_says_what_system_it_belongs_to_and_loads_as_a_changed_policy(memchain_job):
    step = memchain_job.run_dir / "global_step_2"
    assert "system: memchain" in (step / "resolved.yaml").read_text()
    trained, start = step / "actor" / "huggingface", memchain_job.data_dir / "memchain_policy"
    after, before = (AutoModelForCausalLM.from_pretrained(path, attn_implementation="sdpa") for path in (trained, start))
    moved = [name for name, weight in after.state_dict().items() if not torch.equal(weight, before.state_dict()[name])]
    assert moved, "two updates change the weights"
    tokenizer = AutoTokenizer.from_pretrained(trained)
    assert tokenizer.get_vocab() == AutoTokenizer.from_pretrained(start).get_vocab()
