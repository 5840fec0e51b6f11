"""Stable-Baselines3: TD3 on the pendulum."""
import gymnasium
from recipe import Recipe
from stable_baselines3 import TD3

import overdrive

run = Recipe(__doc__)
agent = TD3("MlpPolicy", gymnasium.make("Pendulum-v1"), learning_starts=300, seed=0, device="cpu",
            policy_kwargs={"net_arch": [64, 64]})
if run.captured:
    overdrive.integrations.stable_baselines3.captured(agent)  # overdrive
agent.train = run.timed(agent.train)
agent.learn(4000)
run.done(agent.policy)
