"""Stable-Baselines3: PPO on CartPole."""
import gymnasium
from recipe import Recipe
from stable_baselines3 import PPO

import overdrive

run = Recipe(__doc__)
agent = PPO("MlpPolicy", gymnasium.make("CartPole-v1"), n_steps=512, seed=0, device="cpu")
if run.captured:
    policy = agent.policy
    policy.evaluate_actions = overdrive.captured(policy.evaluate_actions, guards="promised")  # overdrive
    policy.optimizer = overdrive.captured(policy.optimizer)  # overdrive
agent.train = run.timed(agent.train)
agent.learn(512 * 8)
run.done(agent.policy)
