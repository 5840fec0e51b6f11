"""Stable-Baselines3: DQN on CartPole."""
import gymnasium
from recipe import Recipe
from stable_baselines3 import DQN

import overdrive

run = Recipe(__doc__)
agent = DQN("MlpPolicy", gymnasium.make("CartPole-v1"), learning_starts=500, train_freq=1, seed=0, device="cpu")
if run.captured:
    overdrive.integrations.stable_baselines3.captured(agent)  # overdrive
agent.train = run.timed(agent.train)
agent.learn(8000)
run.done(agent.policy)
