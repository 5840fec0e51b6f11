"""torchdiffeq: a neural ODE by a fixed-step solver."""
import torch
from recipe import Recipe
from torch import nn
from torchdiffeq import odeint

import overdrive

run = Recipe(__doc__)


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, _, y):
        return self.net(y**3)


field = Field()
times = torch.linspace(0, 1, 10)
optimizer = torch.optim.Adam(field.parameters(), lr=1e-3)


def step(begin, path):
    optimizer.zero_grad()
    loss = (odeint(field, begin, times, method="rk4") - path).abs().mean()
    loss.backward()
    optimizer.step()


if run.captured:
    step = overdrive.capture(step, optimizer=optimizer)  # overdrive
elif run.compiled:
    field.compile()
step = run.timed(step)
for _ in range(1200):
    begin = torch.randn(16, 2)
    step(begin, begin * (-times).exp()[:, None, None])
run.done(field)
