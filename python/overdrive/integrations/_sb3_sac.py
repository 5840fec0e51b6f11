"""SAC: one gradient step, with all its optimizers and the target nets, is a captured step."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from overdrive.integrations.stable_baselines3 import mean
from overdrive.step.api import capture


def train_of(agent: Any) -> Callable[..., None]:
    import torch

    from stable_baselines3.common.utils import polyak_update

    actor, critic, critic_target, tuned = agent.actor, agent.critic, agent.critic_target, agent.ent_coef_optimizer
    optimizers = [actor.optimizer, critic.optimizer] + ([] if tuned is None else [tuned])
    learned = list(actor.parameters())

    def lower(optimizer: Any, loss: Any, **options: Any) -> Any:
        optimizer.zero_grad()
        loss.backward(**options)
        optimizer.step()
        return loss

    def update(observations: Any, actions: Any, next_observations: Any, rewards: Any, dones: Any, discount: Any, with_targets: bool) -> Any:
        chosen, log_prob = actor.action_log_prob(observations)
        log_prob = log_prob.reshape(-1, 1)
        losses = {}
        if tuned is None:
            weight = agent.ent_coef_tensor
        else:
            weight = torch.exp(agent.log_ent_coef.detach())
            loss = -(agent.log_ent_coef * (log_prob + agent.target_entropy).detach()).mean()
            losses["ent_coef_loss"] = lower(tuned, loss)
        losses["ent_coef"] = weight
        with torch.no_grad():
            next_actions, next_log_prob = actor.action_log_prob(next_observations)
            following = torch.min(torch.cat(critic_target(next_observations, next_actions), dim=1), dim=1, keepdim=True)[0]
            target = rewards + (1 - dones) * discount * (following - weight * next_log_prob.reshape(-1, 1))
        loss = 0.5 * sum(torch.nn.functional.mse_loss(values, target) for values in critic(observations, actions))
        losses["critic_loss"] = lower(critic.optimizer, loss)
        values = torch.min(torch.cat(critic(observations, chosen), dim=1), dim=1, keepdim=True)[0]
        # The critic's gradients of this loss would be thrown away.
        losses["actor_loss"] = lower(actor.optimizer, (weight * log_prob - values).mean(), inputs=learned)
        if with_targets:
            polyak_update(critic.parameters(), critic_target.parameters(), agent.tau)
            polyak_update(agent.batch_norm_stats, agent.batch_norm_stats_target, 1.0)
        return losses

    step = capture(update, optimizer=optimizers)

    def train(gradient_steps: int, batch_size: int = 64) -> None:
        agent.policy.set_training_mode(True)
        agent._update_learning_rate(optimizers)
        made = []
        for number in range(gradient_steps):
            data = agent.replay_buffer.sample(batch_size, env=agent._vec_normalize_env)
            discount = agent.gamma if data.discounts is None else data.discounts
            made.append(step(data.observations, data.actions, data.next_observations, data.rewards, data.dones, discount,
                             number % agent.target_update_interval == 0))
        agent._n_updates += gradient_steps
        agent.logger.record("train/n_updates", agent._n_updates, exclude="tensorboard")
        for name in made[0] if made else ():
            agent.logger.record(f"train/{name}", mean(losses[name] for losses in made))

    return train
