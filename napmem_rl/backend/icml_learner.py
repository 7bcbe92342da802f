"""Both agents of ICML on a device: deciding, and learning from finished sessions by PPO (arXiv 2609.17088, section 3.3.5).

Decisions are made without dropout, and so are updates: else a ratio would not be 1 at the first step. Dropout of the adapter belongs to the warm-up alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from napmem_rl.algos.ppo import compute_actor_terms, compute_entropy, compute_stretches, compute_value_loss
from napmem_rl.systems.icml.config import PPOSettings
from napmem_rl.systems.icml.model import InteractivePolicy, Scores
from napmem_rl.systems.icml.observations import Observation, Observer
from napmem_rl.systems.icml.steps import Agent, Decision, Fragment, PlannerStep, SessionTrajectory, TriggerStep, Utterances


class PolicyAgents:
    """`Agents` out of a policy, as it is at the moment. Greedy, or sampled with the seed of each decision."""

    def __init__(self, policy: InteractivePolicy, observer: Observer, *, version: int, greedy: bool = False) -> None:
        """`version`: of the policy's weights; whoever changes them makes new agents."""
        self._policy, self._observer, self._version, self._greedy = policy, observer, version, greedy

    async def choose_memory(self, history: Sequence[Utterances], query: str, candidates: Sequence[Fragment], *, seed: int) -> Decision:
        """See `Agents`."""
        return self._decide(self._score([self._observer.observe_choice(history, query, candidates)], Agent.TRIGGER), seed)

    async def decide_to_save(self, turn: Utterances, *, seed: int) -> Decision:
        """See `Agents`."""
        return self._decide(self._score([self._observer.observe_turn(turn)], Agent.PLANNER), seed)

    @torch.no_grad()
    def _score(self, observations: Sequence[Observation], agent: Agent) -> Scores:
        self._policy.eval()
        return score(self._policy, observations, agent)

    def _decide(self, scores: Scores, seed: int) -> Decision:
        (log_probs,) = scores.log_probs().cpu()
        if self._greedy:
            action = int(log_probs.argmax())
        else:
            action = int(torch.multinomial(log_probs.exp(), 1, generator=torch.Generator().manual_seed(seed)))
        return Decision(action=action, log_prob=float(log_probs[action]), value=float(scores.values[0]), policy_version=self._version)


def score(policy: InteractivePolicy, observations: Sequence[Observation], agent: Agent) -> Scores:
    """What an agent thinks of observations of its own."""
    return policy.score_turns(observations) if agent is Agent.PLANNER else policy.score_choices(observations)


@dataclass(frozen=True, kw_only=True, slots=True)
class Experience:
    """One decision to learn from. `returns` is None for a late payment: the critic learned its decision in its own session."""

    agent: Agent
    observation: Observation
    action: int
    old_log_prob: float
    advantage: float
    returns: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateReport:
    """What an update did. Numbers that cannot be computed are absent."""

    num_experiences: int
    num_late: int
    num_unrewarded: int  # decisions whose judge gave no score
    metrics: dict[str, float]


def collect_experiences(trajectories: Sequence[SessionTrajectory], observer: Observer, settings: PPOSettings) -> list[Experience]:
    """Advantages of every decision that was rewarded, agent by agent within a session, and what was paid late.

    A late payment is a reward with nothing after it, for a decision whose own reward entered the update of its own session: return and advantage are sums over
    rewards, so that its advantage is the payment itself, with the log-prob of the moment of saving.
    """
    found: list[Experience] = []
    for trajectory in trajectories:
        found += _learn_from(Agent.PLANNER, trajectory.planner, observer, settings)
        found += _learn_from(Agent.TRIGGER, trajectory.trigger, observer, settings)
        for late in trajectory.late:
            found.append(_build(Agent.PLANNER, late.step, observer, late.amount, None))
    return found


def _learn_from(agent: Agent, steps: Sequence[PlannerStep | TriggerStep], observer: Observer, settings: PPOSettings) -> list[Experience]:
    rewards, values = [step.reward for step in steps], [step.decision.value for step in steps]
    found = []
    for first, part in compute_stretches(rewards, values, gamma=settings.gamma, gae_lambda=settings.gae_lambda):
        for place, (advantage, returns) in enumerate(zip(part.advantages.tolist(), part.returns.tolist(), strict=True), start=first):
            found.append(_build(agent, steps[place], observer, advantage, returns))
    return found


def _build(agent: Agent, step: PlannerStep | TriggerStep, observer: Observer, advantage: float, returns: float | None) -> Experience:
    if isinstance(step, PlannerStep):
        observation = observer.observe_turn(step.turn)
    else:
        observation = observer.observe_choice(step.history, step.query, step.candidates)
    decision = step.decision
    given = {"agent": agent, "observation": observation, "action": decision.action, "old_log_prob": decision.log_prob}
    return Experience(**given, advantage=advantage, returns=returns)


class PPOLearner:
    """Owns the optimizer of a policy; updates it in place."""

    def __init__(self, policy: InteractivePolicy, observer: Observer, settings: PPOSettings, *, version: int = 0) -> None:
        self.policy, self.version = policy, version
        self._observer, self._settings = observer, settings
        groups = [{"params": policy.actor_parameters(), "lr": settings.actor_lr}, {"params": policy.critic_parameters(), "lr": settings.critic_lr}]
        self.optimizer = torch.optim.AdamW(groups, weight_decay=0.0)

    def update(self, trajectories: Sequence[SessionTrajectory]) -> UpdateReport:
        """Learn from finished sessions; the policy's version grows by one, also where there was nothing to learn from."""
        experiences = collect_experiences(trajectories, self._observer, self._settings)
        metrics: dict[str, float] = {}
        self.policy.eval()
        for _ in range(self._settings.epochs if experiences else 0):
            loss, metrics = self.compute_loss(experiences)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self._settings.max_grad_norm, error_if_nonfinite=True)
            self.optimizer.step()
            metrics["grad_norm"] = float(norm)
        self.version += 1
        steps = [step for trajectory in trajectories for step in (*trajectory.planner, *trajectory.trigger)]
        return UpdateReport(
            num_experiences=len(experiences),
            num_late=sum(experience.returns is None for experience in experiences),
            num_unrewarded=sum(step.reward is None for step in steps),
            metrics=metrics,
        )

    def compute_loss(self, experiences: Sequence[Experience]) -> tuple[torch.Tensor, dict[str, float]]:
        """The sum over both agents of actor, critic and entropy terms, and what it is made of."""
        losses, metrics = [], {}
        for agent in Agent:
            own = [experience for experience in experiences if experience.agent is agent]
            if own:
                loss, parts = self._compute_loss_of(agent, own)
                losses.append(loss)
                metrics |= {f"{agent}/{name}": value for name, value in parts.items()}
        return torch.stack(losses).sum(), metrics

    def _compute_loss_of(self, agent: Agent, own: Sequence[Experience]) -> tuple[torch.Tensor, dict[str, float]]:
        scores = score(self.policy, [experience.observation for experience in own], agent)
        device = scores.values.device
        actions = torch.tensor([experience.action for experience in own], device=device)
        log_prob = scores.log_probs().gather(1, actions[:, None]).squeeze(1)
        old, advantages = (torch.tensor([getattr(experience, name) for experience in own], device=device) for name in ("old_log_prob", "advantage"))
        terms = compute_actor_terms(log_prob, old, advantages, clip=self._settings.clip)
        entropy = compute_entropy(scores.logits, scores.mask).mean()
        told = [place for place, experience in enumerate(own) if experience.returns is not None]
        returns = torch.tensor([own[place].returns for place in told], device=device, dtype=scores.values.dtype)
        critic = compute_value_loss(scores.values[told], returns)
        loss = terms.losses.mean() + self._settings.value_weight * critic - self._settings.entropy_weight * entropy
        parts = {"actor_loss": terms.losses.mean(), "entropy": entropy, "clip_share": terms.is_clipped.float().mean(), "ratio_max": terms.ratios.max()}
        parts |= {"approx_kl": (terms.ratios - 1 - (log_prob - old)).mean()} | ({"critic_loss": critic} if told else {})
        found = {name: float(value.detach()) for name, value in parts.items()}
        assert all(map(math.isfinite, found.values())), f"PPO of the {agent}: a term is not finite: {found}"
        return loss, found
