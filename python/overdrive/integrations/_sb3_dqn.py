"""DQN: one gradient step is a captured step."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from overdrive.integrations.stable_baselines3 import mean
from overdrive.step.api import capture


def train_of(agent: Any) -> Callable[..., None]:
    import torch

    policy, net, target_net, optimizer = agent.policy, agent.q_net, agent.q_net_target, agent.policy.optimizer

    def update(observations: Any, actions: Any, next_observations: Any, rewards: Any, dones: Any, discount: Any) -> Any:
        with torch.no_grad():
            following = target_net(next_observations).max(dim=1)[0].reshape(-1, 1)
            target = rewards + (1 - dones) * discount * following
        values = torch.gather(net(observations), dim=1, index=actions.long())
        loss = torch.nn.functional.smooth_l1_loss(values, target)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), agent.max_grad_norm)
        optimizer.step()
        return loss

    step = capture(update, optimizer=optimizer)

    def train(gradient_steps: int, batch_size: int = 100) -> None:
        policy.set_training_mode(True)
        agent._update_learning_rate(optimizer)
        losses = []
        for _ in range(gradient_steps):
            data = agent.replay_buffer.sample(batch_size, env=agent._vec_normalize_env)
            discount = agent.gamma if data.discounts is None else data.discounts
            losses.append(step(data.observations, data.actions, data.next_observations, data.rewards, data.dones, discount))
        agent._n_updates += gradient_steps
        agent.logger.record("train/n_updates", agent._n_updates, exclude="tensorboard")
        agent.logger.record("train/loss", mean(losses))

    return train
