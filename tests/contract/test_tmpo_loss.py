"""TMPO's loss as a job computes it, through verl, against equation 14 written down sequence by sequence."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

pytest.importorskip("verl")

import torch
from tensordict import TensorDict
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, get_policy_loss_fn
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.tensordict_utils import assign_non_tensor
from verl.workers.utils.losses import ppo_loss

import napmem_rl.backend.losses  # noqa: F401  (registers tmpo)
from napmem_rl.config.recipe import load_recipe

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "memchain" / "tmpo.yaml"
GIVEN = ("data.dir=/d", "actor_rollout_ref.model.path=/m", "memory.encoder=/e", "judge.model=j", "answerer.model=f")
PROMPT = 2  # tokens of each prompt


def build_actor(*overrides: str):
    """verl's actor configuration of the shipped recipe."""
    return omega_conf_to_dataclass(load_recipe(RECIPE, (*GIVEN, *overrides)).verl.actor_rollout_ref.actor)


def draw(lengths: list[int], seed: int = 0) -> list[dict[str, torch.Tensor]]:
    """Sequences with old, current and reference log-probs; a third is inside the clip, others on either side."""
    generator = torch.Generator().manual_seed(seed)

    def noise(length: int, scale: float) -> torch.Tensor:
        return scale * torch.randn(length, generator=generator, dtype=torch.float64)

    rows = []
    for index, length in enumerate(lengths):
        old = -1 + noise(length, 0.3)
        now = old + noise(length, 1e-4) + (0.0, 0.002, -0.002)[index % 3]
        rows.append({"old": old, "now": now, "ref": now + noise(length, 0.1), "advantage": noise(1, 1.0)})
    return rows


def equation_14(rows: list[dict[str, torch.Tensor]], *, low: float, high: float, beta: float) -> torch.Tensor:
    """-J of equation 14, one sequence after the other; the token-wise KL penalty is verl's low-variance estimator."""
    total = torch.zeros((), dtype=torch.float64)
    for row in rows:
        rho = torch.exp((row["now"] - row["old"]).sum() / len(row["now"]))
        clipped = torch.clip(rho, 1 - low, 1 + high)
        kl = (torch.exp(row["ref"] - row["now"]) - (row["ref"] - row["now"]) - 1).mean()
        total = total - torch.min(rho * row["advantage"][0], clipped * row["advantage"][0]) + beta * kl
    return total / len(rows)


def run_verl(rows: list[dict[str, torch.Tensor]], actor, *, global_batch_size: int | None = None) -> torch.Tensor:
    """verl's whole actor loss over a packed microbatch."""
    lengths = [len(row["now"]) for row in rows]
    packed = torch.cat([torch.cat([torch.zeros(PROMPT - 1, dtype=torch.float64), row["now"], torch.zeros(1, dtype=torch.float64)]) for row in rows])

    def nested(parts: list[torch.Tensor]) -> torch.Tensor:
        return torch.nested.as_nested_tensor(parts, layout=torch.jagged)

    data = TensorDict(
        {
            "prompts": nested([torch.ones(PROMPT) for _ in rows]),
            "responses": nested([torch.ones(length) for length in lengths]),
            "response_mask": nested([torch.ones(length) for length in lengths]),
            "old_log_probs": nested([row["old"] for row in rows]),
            "ref_log_prob": nested([row["ref"] for row in rows]),
            "advantages": nested([row["advantage"].expand(length).contiguous() for row, length in zip(rows, lengths, strict=True)]),
        },
        batch_size=[len(rows)],
    )
    assign_non_tensor(data, dp_size=1, batch_num_tokens=None, global_batch_size=global_batch_size or len(rows))
    return ppo_loss(actor, {"log_probs": packed}, data)[0]


def value_and_gradients(loss_of, rows: list[dict[str, torch.Tensor]]) -> tuple[float, torch.Tensor]:
    leaves = [{**row, "now": row["now"].clone().requires_grad_()} for row in rows]
    loss = loss_of(leaves)
    loss.backward()
    return loss.item(), torch.cat([leaf["now"].grad for leaf in leaves])


LENGTHS = [3, 7, 1, 12, 5, 5]


@pytest.mark.parametrize("mode", ["tmpo", "gspo"])
def test_value_and_gradient_are_those_of_equation_14(mode):
    actor = build_actor(*(() if mode == "tmpo" else ("actor_rollout_ref.actor.policy_loss.loss_mode=gspo",)))
    rows = draw(LENGTHS)
    settings = {"low": actor.clip_ratio_low, "high": actor.clip_ratio_high, "beta": actor.kl_loss_coef}
    expected, gradient = value_and_gradients(lambda leaves: equation_14(leaves, **settings), rows)
    found, found_gradient = value_and_gradients(lambda leaves: run_verl(leaves, actor), rows)
    assert found == pytest.approx(expected, abs=1e-6)
    assert torch.allclose(found_gradient, gradient, atol=1e-6, rtol=0)
    assert gradient.abs().max() > 1e-3, "else the comparison shows nothing"


def call(mode: str, now: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor, **info) -> torch.Tensor:
    """One loss function of verl's registry, as `ppo_loss` calls it."""
    actor = build_actor(f"actor_rollout_ref.actor.policy_loss.loss_mode={mode}")
    actor.global_batch_info.update(info)
    shape = {"response_mask": mask, "advantages": advantages, "loss_agg_mode": actor.loss_agg_mode}
    return get_policy_loss_fn(mode)(old_log_prob=old, log_prob=now, config=actor, **shape)[0]


@pytest.mark.parametrize("mode", ["tmpo", "gspo"])
@pytest.mark.parametrize(
    ("log_ratio", "advantage", "expected", "has_gradient"),
    [
        (0.0, 1.0, -1.0, True),  # ratio 1, the first update
        (0.01, 1.0, -1.0004, False),  # above 1 + 4e-4 with a good packet: clipped
        (0.01, -1.0, math.exp(0.01), True),  # above it with a bad one: not clipped
        (-0.01, -1.0, 0.9997, False),  # below 1 - 3e-4 with a bad one: clipped
        (-0.01, 1.0, -math.exp(-0.01), True),
        (0.0002, 1.0, -math.exp(0.0002), True),  # within
    ],
)
def test_clips_at_points_worked_by_hand(mode, log_ratio, advantage, expected, has_gradient):
    now = torch.full((1, 4), -1.0 + log_ratio, dtype=torch.float64, requires_grad=True)
    old, ones = torch.full((1, 4), -1.0, dtype=torch.float64), torch.ones(1, 4, dtype=torch.float64)
    loss = call(mode, now, old, advantage * ones, ones)
    loss.backward()
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    assert bool(now.grad.abs().max() > 1e-6) is has_gradient


def test_beyond_a_ratio_of_e10_verls_gspo_is_not_equation_14_which_is_why_the_loss_is_ours():
    old, ones = torch.full((1, 2), -12.0, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64)
    found = {}
    for mode in ("tmpo", "gspo"):
        now = (old + 11).requires_grad_()
        loss = call(mode, now, old, -ones, ones)
        loss.backward()
        found[mode] = (loss.item(), now.grad[0, 0].item())
    assert found["tmpo"] == pytest.approx((math.exp(11), math.exp(11) / 2))
    assert found["gspo"] == pytest.approx((math.exp(10), 0.0)), "capped, and without a gradient"


def test_padding_changes_nothing_and_masked_tokens_have_no_gradient():
    rows = draw([3, 6])
    losses = []
    for width in (6, 20):
        now, old, advantages, mask = (torch.zeros(2, width, dtype=torch.float64) for _ in range(4))
        for index, row in enumerate(rows):
            length = len(row["now"])
            now[index, :length], old[index, :length], advantages[index, :length], mask[index, :length] = row["now"], row["old"], row["advantage"], 1
        now[mask == 0] = 5.0  # whatever stands in padding
        now.requires_grad_()
        loss = call("tmpo", now, old, advantages, mask)
        loss.backward()
        assert now.grad[mask == 0].abs().max() == 0
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], abs=1e-12)


def test_neither_the_split_into_microbatches_nor_the_order_of_groups_changes_the_gradient():
    actor, rows = build_actor(), draw(LENGTHS)
    whole, gradient = value_and_gradients(lambda leaves: run_verl(leaves, actor), rows)

    def split(leaves):
        return sum(run_verl(leaves[start:end], actor, global_batch_size=len(rows)) for start, end in ((0, 1), (1, 4), (4, 6)))

    parts, split_gradient = value_and_gradients(split, rows)
    assert parts == pytest.approx(whole, abs=1e-9) and torch.allclose(split_gradient, gradient, atol=1e-9)
    turned, turned_gradient = value_and_gradients(lambda leaves: run_verl(leaves, actor), rows[::-1])
    back = torch.cat(list(torch.split(turned_gradient, LENGTHS[::-1]))[::-1])
    assert turned == pytest.approx(whole, abs=1e-9) and torch.allclose(back, gradient, atol=1e-9)


def test_the_ratio_is_one_at_the_first_update_whose_gradient_is_the_policy_gradient():
    old = torch.tensor([[-1.0, -2.0]], dtype=torch.float64)
    now, ones = old.clone().requires_grad_(), torch.ones(1, 2, dtype=torch.float64)
    loss = call("tmpo", now, old, 3 * ones, ones)
    loss.backward()
    assert loss.item() == -3.0 and now.grad.tolist() == [[-1.5, -1.5]]


def test_advantages_are_divided_by_the_standard_deviation_of_their_group():
    rewards = torch.zeros(4, 2)
    rewards[:, -1] = torch.tensor([1.0, 0.0, 0.5, 0.5])
    found, _ = compute_grpo_outcome_advantage(rewards, torch.ones(4, 2), ["a", "a", "b", "b"], norm_adv_by_std_in_grpo=True)
    assert found[:, 0].tolist() == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5), 0.0, 0.0], abs=1e-5)  # std 1/sqrt 2, over n - 1
