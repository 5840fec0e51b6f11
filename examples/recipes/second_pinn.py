"""Second derivatives: a net that solves Burgers' equation, by grad of grad."""
import torch
from recipe import Recipe
from torch import nn

import overdrive

run = Recipe(__doc__)
model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def derivative(of, by):
    return torch.autograd.grad(of.sum(), by, create_graph=True)[0]


def step(x, t, begin):
    optimizer.zero_grad()
    x, t = x.detach().requires_grad_(), t.detach().requires_grad_()
    u = model(torch.cat([x, t], 1))
    u_x = derivative(u, x)
    residual = derivative(u, t) + u * u_x - 0.003183 * derivative(u_x, x)
    start = model(torch.cat([begin, torch.zeros_like(begin)], 1)) + torch.sin(torch.pi * begin)
    loss = residual.square().mean() + start.square().mean()
    loss.backward()
    optimizer.step()
    return loss


if run.captured:
    step = overdrive.capture(step, optimizer=optimizer)  # overdrive
elif run.compiled:
    model = torch.compile(model)
step = run.timed(step)
for _ in range(4300):
    step(2 * torch.rand(128, 1) - 1, torch.rand(128, 1), 2 * torch.rand(32, 1) - 1)
run.done(model)
