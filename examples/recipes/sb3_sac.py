"""Stable-Baselines3: SAC on the pendulum."""
import gymnasium
from recipe import Recipe
from stable_baselines3 import SAC

import overdrive

run = Recipe(__doc__)
agent = SAC("MlpPolicy", gymnasium.make("Pendulum-v1"), learning_starts=300, seed=0, device="cpu",
            policy_kwargs={"net_arch": [64, 64]})
if run.captured:
    for net in (agent.critic, agent.critic_target):  # overdrive
        overdrive.captured(net)  # overdrive
    agent.actor.action_log_prob = overdrive.captured(agent.actor.action_log_prob, guards="promised")  # overdrive
    for optimizer in (agent.actor.optimizer, agent.critic.optimizer, agent.ent_coef_optimizer):  # overdrive
        overdrive.captured(optimizer)  # overdrive
agent.train = run.timed(agent.train)
agent.learn(1800)
run.done(agent.policy)
