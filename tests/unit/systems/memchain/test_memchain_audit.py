"""What the reward pays, in order, in both modes of its gate; and the command that says so."""

from __future__ import annotations

import json

import pytest

from napmem_rl import cli
from napmem_rl.systems.memchain import audit as audit_module
from napmem_rl.systems.memchain.audit import MARGIN, Worth, audit_reward, build_archetypes
from napmem_rl.systems.memchain.config import InvalidActions

MODES = tuple(InvalidActions)


def rewards(mode: InvalidActions) -> dict[str, float]:
    return {row.archetype: row.reward for row in audit_reward().rows if row.gate is mode}


@pytest.mark.parametrize("mode", MODES)
def test_perfect_work_is_first_by_a_margin_and_worth_1(mode) -> None:
    (first, second, *_) = sorted(rewards(mode).values(), reverse=True)
    assert rewards(mode)["perfect"] == first == 1.0 and first - second >= MARGIN


@pytest.mark.parametrize("mode", MODES)
def test_degenerate_packets_earn_less_than_partial_honest_work(mode) -> None:
    own = rewards(mode)
    for name in ("empty_object", "prose", "packet_in_the_thinking", "invented_ids"):
        assert own[name] == 0.0
    for archetype in build_archetypes():
        if archetype.worth_under(mode) is Worth.DEGENERATE:
            assert own[archetype.name] <= own["partial_honest"] - MARGIN, archetype.name


def test_what_equation_16_pays_by_design_is_named_and_is_all_that_stands_out_of_order() -> None:
    own = rewards(InvalidActions.SOFT)
    above = {name for name, reward in own.items() if reward > own["partial_honest"]}
    assert above == {"perfect", "perfect_in_a_code_fence", "keep_everything", "gold_leaked_without_support", "keep_and_drop"}
    assert (own["keep_everything"], own["gold_leaked_without_support"]) == (pytest.approx(0.8731, abs=1e-4), pytest.approx(0.8))
    assert all(archetype.why for archetype in build_archetypes())


def test_the_closed_gate_takes_everything_for_a_contradiction_in_actions() -> None:
    assert (rewards(InvalidActions.SOFT)["keep_and_drop"], rewards(InvalidActions.ZERO)["keep_and_drop"]) == (0.75, 0.0)


def test_partial_work_is_worth_what_its_signals_say() -> None:
    """c 2/4, s 1/6, t F1 of one id against two, e 1."""
    assert rewards(InvalidActions.SOFT)["partial_honest"] == pytest.approx(0.65 * 0.5 + 0.15 / 6 + 0.15 * 2 / 3 + 0.05)


def test_the_command_prints_rows_and_demands(capsys) -> None:
    assert cli.main(["audit-reward", "memchain", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["system"] == "memchain" and told["is_fine"] and all(check["holds"] for check in told["checks"])
    assert {(row["gate"], row["archetype"]) for row in told["rows"]} == {(str(mode), item.name) for mode in MODES for item in build_archetypes()}
    assert cli.main(["audit-reward", "memchain"]) == 0
    assert "holds: soft: perfect work leads" in capsys.readouterr().out


def test_a_demand_that_fails_is_told_and_is_the_exit_status(capsys, monkeypatch) -> None:
    monkeypatch.setattr(audit_module, "MARGIN", 0.2)
    assert cli.main(["audit-reward", "memchain"]) == 1
    assert "FAILS: soft: perfect work leads by at least 0.2 (1.000, next keep_everything 0.873)" in capsys.readouterr().out
