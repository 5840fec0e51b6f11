"""TD3 and DDPG: the update of the critics is a captured step, and so is that of the actor with the target nets."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from overdrive.integrations.stable_baselines3 import mean
from overdrive.step.api import capture


def train_of(agent: Any) -> Callable[..., None]:
    import torch

    from stable_baselines3.common.utils import polyak_update

    actor, critic = agent.actor, agent.critic
    actor_target, critic_target = agent.actor_target, agent.critic_target

    def update_critic(observations: Any, actions: Any, next_observations: Any, rewards: Any, dones: Any, discount: Any) -> Any:
        with torch.no_grad():
            noise = actions.clone().normal_(0, agent.target_policy_noise).clamp(-agent.target_noise_clip, agent.target_noise_clip)
            next_actions = (actor_target(next_observations) + noise).clamp(-1, 1)
            following = torch.cat(critic_target(next_observations, next_actions), dim=1)
            following = torch.min(following, dim=1, keepdim=True)[0]
            target = rewards + (1 - dones) * discount * following
        loss = sum(torch.nn.functional.mse_loss(values, target) for values in critic(observations, actions))
        critic.optimizer.zero_grad()
        loss.backward()
        critic.optimizer.step()
        return loss

    def update_actor(observations: Any) -> Any:
        loss = -critic.q1_forward(observations, actor(observations)).mean()
        actor.optimizer.zero_grad()
        loss.backward(inputs=list(actor.parameters()))  # the critic's gradients would be thrown away
        actor.optimizer.step()
        polyak_update(critic.parameters(), critic_target.parameters(), agent.tau)
        polyak_update(actor.parameters(), actor_target.parameters(), agent.tau)
        polyak_update(agent.critic_batch_norm_stats, agent.critic_batch_norm_stats_target, 1.0)
        polyak_update(agent.actor_batch_norm_stats, agent.actor_batch_norm_stats_target, 1.0)
        return loss

    critic_step = capture(update_critic, optimizer=critic.optimizer)
    actor_step = capture(update_actor, optimizer=actor.optimizer)

    def train(gradient_steps: int, batch_size: int = 100) -> None:
        agent.policy.set_training_mode(True)
        agent._update_learning_rate([actor.optimizer, critic.optimizer])
        actor_losses, critic_losses = [], []
        for _ in range(gradient_steps):
            agent._n_updates += 1
            data = agent.replay_buffer.sample(batch_size, env=agent._vec_normalize_env)
            discount = agent.gamma if data.discounts is None else data.discounts
            critic_losses.append(critic_step(data.observations, data.actions, data.next_observations, data.rewards, data.dones, discount))
            if agent._n_updates % agent.policy_delay == 0:
                actor_losses.append(actor_step(data.observations))
        agent.logger.record("train/n_updates", agent._n_updates, exclude="tensorboard")
        if actor_losses:
            agent.logger.record("train/actor_loss", mean(actor_losses))
        agent.logger.record("train/critic_loss", mean(critic_losses))

    return train
