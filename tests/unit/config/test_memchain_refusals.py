"""What a training recipe of MemChain may not say: guiding the policy, a part that is none, keys for evaluation alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from napmem_rl.config.recipe import load_recipe
from napmem_rl.config.sft_recipe import load_sft_recipe
from napmem_rl.errors import ConfigError

RECIPES = Path(__file__).resolve().parents[3] / "recipes" / "memchain"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["memchain.guided=true"], "memchain.guided.*another distribution than the one that is trained.*launch/evaluate.py takes it"),
        (["memchain.retry_turn_tokens=500"], "memchain.retry_turn_tokens.*nothing is asked again"),
        (["memchain.ablation=no_evidence"], "memchain.ablation.*none or no_plan or no_trace or no_actions"),
        (["memchain.ablation=no_actions", "memchain.invalid_actions=zero"], "memchain.invalid_actions.*packets have no actions"),
        (["memchain.plan=false"], "memchain.plan: is not a known key"),
    ],
)
def test_tmpo_refuses(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_recipe(RECIPES / "smoke.yaml", ["data.dir=/data", *overrides])


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("memchain.guided=true", "memchain.guided: does not fit training"),
        ("memchain.retry_turn_tokens=9", "memchain.retry_turn_tokens: does not fit training"),
        ("memchain.ablation=no_evidence", "memchain.ablation: is none of the ablations"),
    ],
)
def test_sft_refuses(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_sft_recipe(RECIPES / "sft_smoke.yaml", ["data.dir=/data", override])


@pytest.mark.parametrize("ablation", ["no_plan", "no_trace", "no_actions"])
def test_both_stages_take_an_ablation(ablation: str) -> None:
    given = ["data.dir=/data", f"memchain.ablation={ablation}"]
    assert load_recipe(RECIPES / "smoke.yaml", given).memchain.ablation == load_sft_recipe(RECIPES / "sft_smoke.yaml", given).memchain.ablation == ablation
