"""Stable-Baselines3: PPO on CartPole."""
import gymnasium
from recipe import Recipe
from stable_baselines3 import PPO

import overdrive

run = Recipe(__doc__)
agent = PPO("MlpPolicy", gymnasium.make("CartPole-v1"), n_steps=512, seed=0, device="cpu")
if run.captured:
    overdrive.integrations.stable_baselines3.captured(agent)  # overdrive
agent.train = run.timed(agent.train)
agent.learn(512 * 44)
run.done(agent.policy)
