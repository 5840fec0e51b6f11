"""Stable-Baselines3: the gradient steps of PPO, DQN, TD3 and SAC as captured steps."""
from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

_MODULES = {"PPO": "_sb3_ppo", "DQN": "_sb3_dqn", "TD3": "_sb3_td3", "DDPG": "_sb3_td3", "SAC": "_sb3_sac"}


def captured(agent: Any) -> Any:
    """The agent, whose ``train()`` replays its gradient steps, with the same parameters and logs. Call it once, before ``learn()``.

    What is not covered keeps Stable-Baselines3's own ``train()``: other algorithms and subclasses, observations in a dict, PPO that stops early
    by ``target_kl``, and exploration by gSDE.
    """
    name = type(agent).__name__
    observed = agent.observation_space
    if not type(agent).__module__.startswith("stable_baselines3.") or name not in _MODULES or agent.use_sde or hasattr(observed, "spaces"):
        return agent
    train = importlib.import_module(f"overdrive.integrations.{_MODULES[name]}").train_of(agent)
    if train is not None:
        # In a class and not in the agent, because save() writes down all that an agent has.
        own = type(agent)
        agent.__class__ = type(own.__name__, (own,), {"train": lambda _, *sizes, **named: train(*sizes, **named),
                                                      "__module__": own.__module__, "__qualname__": own.__qualname__})
    return agent


def mean(tensors: Iterable[Any]) -> float:
    """The mean of losses as a log has it: each as a number, then the mean of NumPy."""
    import numpy

    return float(numpy.mean([tensor.item() for tensor in tensors]))

