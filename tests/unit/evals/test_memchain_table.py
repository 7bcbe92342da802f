"""The table of MemChain's proof: rows, paired gains with their intervals over users, and what it demands of every seed."""

import pytest

from napmem_rl.evals.memchain_table import AFTER, BEFORE, MODES, holds, keep_facts, render_table, summarise_gains, summarise_row


def facts(values):
    """One question a value, two a user."""
    return [
        {"task_id": f"t{i}", "bank_id": f"u{i // 2}", "category": "fact" if i % 2 else "two_hop", "reward": value, "correctness": float(value > 0.5)}
        | {"parsed": 1.0, "evidence_tokens": 9.0, "citations": value, "status": "completed"}
        for i, value in enumerate(values)
    ]


def build(before, after):
    rows = [{"name": name, "mode": mode, **summarise_row(values)} for name, values in ((BEFORE, before), (AFTER, after)) for mode in MODES]
    gains = {mode: summarise_gains(before, after) for mode in MODES}
    seed = {"seed": 0, "questions": len(before), "users": 3, "gains": gains, "rows": rows, "seconds": {"full sft": 60.0, "full tmpo": 240.0}}
    return {"steps": 5, "reader": "worlds", "seeds": [seed | {"load_at_start": 0.5}]}


def test_a_row_holds_means_intervals_and_right_answers_by_type():
    row = summarise_row(facts([1.0, 0.0, 1.0, 0.0, 1.0, 0.0]))
    assert row["reward"] == row["correctness"] == 0.5 and row["evidence_tokens"] == 9.0
    assert (row["reward_low"], row["reward_high"]) == (0.5, 0.5), "every user has the same mean"
    assert row["correctness_by_type"] == {"fact": 0.0, "two_hop": 1.0}


def test_gains_are_paired_by_question():
    gains = summarise_gains(facts([0.0, 0.2, 0.4, 0.0]), facts([0.5, 0.7, 0.9, 0.5]))
    assert gains["reward"] == {"gain": 0.5, "low": 0.5, "high": 0.5}
    assert gains["correctness"]["gain"] == 0.5


@pytest.mark.parametrize(("after", "is_held"), [([0.5, 0.6, 0.9, 0.8], True), ([0.5, 0.6, 0.0, 0.0], False)])
def test_the_demand_is_that_every_interval_lies_above_zero(after, is_held):
    assert holds(build(facts([0.1, 0.2, 0.3, 0.4]), facts(after))) is is_held


def test_the_page_shows_gain_rows_types_and_seconds():
    text = render_table(build(facts([0.1, 0.2, 0.3, 0.4]), facts([0.5, 0.6, 0.9, 0.8])))
    assert "| greedy | 0 | 0.250 → 0.700 | +0.450 [" in text and "**+0.450**" in text
    assert f"| {AFTER} | greedy | 0 | 0.700 [" in text and "| full sft 60, full tmpo 240; together 300 | 0.5 |" in text
    assert "| fact | two_hop |" in text


def test_only_what_the_table_needs_is_kept_and_what_is_absent_stays_absent():
    (kept,) = keep_facts([{"task_id": "t", "bank_id": "u", "category": "fact", "parsed": 1.0, "status": "completed"}])
    assert kept == {"task_id": "t", "bank_id": "u", "category": "fact", "parsed": 1.0}
