"""torchrl: the loss of DQN and its target net, on a buffer that is there."""
import torch
from recipe import Recipe
from tensordict import TensorDict
from torch import nn
from torchrl.data import OneHot
from torchrl.modules import QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

import overdrive

run = Recipe(__doc__)
net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
actor = QValueActor(net, in_keys=["observation"], spec=OneHot(2))
loss_module = DQNLoss(actor, action_space="one-hot", delay_value=True)
loss_module.make_value_estimator(gamma=0.99)
updater = SoftUpdate(loss_module, eps=0.99)
optimizer = torch.optim.Adam(loss_module.parameters(), lr=1e-3)


def transitions(count):
    action = nn.functional.one_hot(torch.randint(0, 2, (count,)), 2)
    done = torch.rand(count, 1) < 0.1
    after = {"observation": torch.randn(count, 4), "reward": torch.randn(count, 1), "done": done, "terminated": done.clone()}
    return TensorDict({"observation": torch.randn(count, 4), "action": action, "next": after}, [count])


def step(batch):
    optimizer.zero_grad()
    loss = loss_module(batch)["loss"]
    loss.backward()
    optimizer.step()
    return loss


if run.captured:
    step = overdrive.integrations.torchrl.capture(step, optimizer=optimizer)  # overdrive
step = run.timed(step)
for _ in range(3500):
    step(transitions(64))
    updater.step()
run.done(loss_module)
