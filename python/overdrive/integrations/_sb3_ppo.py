"""PPO: one minibatch is a captured step; what is logged is read after the epochs."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from overdrive.integrations.stable_baselines3 import mean
from overdrive.step.api import capture


def train_of(agent: Any) -> Callable[[], None] | None:
    import torch

    from stable_baselines3.common.utils import explained_variance

    policy, optimizer = agent.policy, agent.policy.optimizer
    discrete = type(agent.action_space).__name__ == "Discrete"
    if agent.target_kl is not None:
        return None

    def update(observations: Any, actions: Any, old_values: Any, old_log_prob: Any, advantages: Any, returns: Any, clip: float,
               clip_values: float | None) -> Any:
        values, log_prob, entropy = policy.evaluate_actions(observations, actions)
        values = values.flatten()
        if agent.normalize_advantage and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        ratio = torch.exp(log_prob - old_log_prob)
        gain, clipped_gain = advantages * ratio, advantages * torch.clamp(ratio, 1 - clip, 1 + clip)
        policy_loss = -torch.min(gain, clipped_gain).mean()
        clipped = torch.mean((torch.abs(ratio - 1) > clip).float())
        if clip_values is not None:
            values = old_values + torch.clamp(values - old_values, -clip_values, clip_values)
        value_loss = torch.nn.functional.mse_loss(returns, values)
        entropy_loss = -torch.mean(-log_prob if entropy is None else entropy)
        loss = policy_loss + agent.ent_coef * entropy_loss + agent.vf_coef * value_loss
        with torch.no_grad():
            log_ratio = log_prob - old_log_prob
            divergence = torch.mean((torch.exp(log_ratio) - 1) - log_ratio)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), agent.max_grad_norm)
        optimizer.step()
        return policy_loss, clipped, value_loss, entropy_loss, divergence, loss

    step = capture(update, optimizer=optimizer)

    def train() -> None:
        policy.set_training_mode(True)
        agent._update_learning_rate(optimizer)
        left = agent._current_progress_remaining
        clip = agent.clip_range(left)
        clip_values = None if agent.clip_range_vf is None else agent.clip_range_vf(left)
        made: list[Any] = []
        for _ in range(agent.n_epochs):
            last = len(made)
            for data in agent.rollout_buffer.get(agent.batch_size):
                actions = data.actions.long().flatten() if discrete else data.actions
                made.append(step(data.observations, actions, data.old_values, data.old_log_prob, data.advantages, data.returns, clip,
                                 clip_values))
            agent._n_updates += 1
        gains, clips, value_losses, entropies, divergences, losses = zip(*made)
        buffer, record = agent.rollout_buffer, agent.logger.record
        for name, those in (("entropy_loss", entropies), ("policy_gradient_loss", gains), ("value_loss", value_losses),
                            ("approx_kl", divergences[last:]), ("clip_fraction", clips)):
            record(f"train/{name}", mean(those))
        record("train/loss", losses[-1].item())
        record("train/explained_variance", explained_variance(buffer.values.flatten(), buffer.returns.flatten()))
        if hasattr(policy, "log_std"):
            record("train/std", torch.exp(policy.log_std).mean().item())
        record("train/n_updates", agent._n_updates, exclude="tensorboard")
        record("train/clip_range", clip)
        if clip_values is not None:
            record("train/clip_range_vf", clip_values)

    return train
