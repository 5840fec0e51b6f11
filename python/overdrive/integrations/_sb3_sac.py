"""SAC: the critics' update is a captured step. The actor is captured in parts, because its graph outlives that update."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from overdrive._capture import capture
from overdrive._part import captured
from overdrive.integrations.stable_baselines3 import follow, mean


def train_of(agent: Any) -> Callable[..., None]:
    import torch

    actor, critic, critic_target = agent.actor, agent.critic, agent.critic_target
    tuned = agent.ent_coef_optimizer

    def update_critic(observations: Any, actions: Any, next_observations: Any, rewards: Any, dones: Any, discount: Any, weight: Any) -> Any:
        with torch.no_grad():
            next_actions, next_log_prob = actor.action_log_prob(next_observations)
            following = torch.cat(critic_target(next_observations, next_actions), dim=1)
            following = torch.min(following, dim=1, keepdim=True)[0] - weight * next_log_prob.reshape(-1, 1)
            target = rewards + (1 - dones) * discount * following
        loss = 0.5 * sum(torch.nn.functional.mse_loss(values, target) for values in critic(observations, actions))
        critic.optimizer.zero_grad()
        loss.backward()
        critic.optimizer.step()
        return loss

    def update_weight(log_prob: Any) -> Any:
        loss = -(agent.log_ent_coef * (log_prob + agent.target_entropy)).mean()
        tuned.zero_grad()
        loss.backward()
        tuned.step()
        return loss

    def act(observations: Any) -> Any:
        actions, log_prob = actor.action_log_prob(observations)
        return actions, log_prob.reshape(-1, 1)

    def judge(observations: Any, actions: Any, log_prob: Any, weight: Any) -> Any:
        values = torch.min(torch.cat(critic(observations, actions), dim=1), dim=1, keepdim=True)[0]
        return (weight * log_prob - values).mean()

    def update_targets(tau: float) -> None:
        follow(critic.parameters(), critic_target.parameters(), tau)
        follow(agent.batch_norm_stats, agent.batch_norm_stats_target, 1.0)

    # What the actor leaves in its distribution (the last actions) is read by nobody: without guards it may stay behind.
    critic_step = capture(update_critic, optimizer=critic.optimizer, guards="promised", constant_numbers=True)
    weight_step = None if tuned is None else capture(update_weight, optimizer=tuned)
    acting, judging, targets_step = captured(act, guards="promised"), captured(judge), capture(update_targets, constant_numbers=True)
    captured(actor.optimizer)
    learned = list(actor.parameters())

    def train(gradient_steps: int, batch_size: int = 64) -> None:
        agent.policy.set_training_mode(True)
        agent._update_learning_rate([actor.optimizer, critic.optimizer] + ([] if tuned is None else [tuned]))
        made: dict[str, list[Any]] = {"ent_coef": [], "actor_loss": [], "critic_loss": [], "ent_coef_loss": []}
        for number in range(gradient_steps):
            data = agent.replay_buffer.sample(batch_size, env=agent._vec_normalize_env)
            discount = agent.gamma if data.discounts is None else data.discounts
            actions, log_prob = acting(data.observations)
            weight = agent.ent_coef_tensor if tuned is None else torch.exp(agent.log_ent_coef.detach())
            if weight_step is not None:
                made["ent_coef_loss"].append(weight_step(log_prob.detach()))
            made["ent_coef"].append(weight)
            made["critic_loss"].append(critic_step(data.observations, data.actions, data.next_observations, data.rewards, data.dones,
                                                   discount, weight))
            actor_loss = judging(data.observations, actions, log_prob, weight)
            made["actor_loss"].append(actor_loss.detach())
            actor.optimizer.zero_grad()
            actor_loss.backward(inputs=learned)  # the critic's gradients would be thrown away
            actor.optimizer.step()
            if number % agent.target_update_interval == 0:
                targets_step(agent.tau)
        agent._n_updates += gradient_steps
        agent.logger.record("train/n_updates", agent._n_updates, exclude="tensorboard")
        for name, those in made.items():
            if those:
                agent.logger.record(f"train/{name}", mean(those))

    return train
