"""Second derivatives: MAML on sine waves, its inner steps differentiated."""
import torch
import torch.nn.functional as F
from recipe import Recipe
from torch import nn

import overdrive

run = Recipe(__doc__)
TASKS, INNER, RATE = 4, 2, 0.01
model = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def apply(weights, x):
    for i in range(0, len(weights), 2):
        x = F.linear(x, weights[i], weights[i + 1])
        x = x if i == len(weights) - 2 else x.relu()
    return x


def step(x, y, x_test, y_test):
    optimizer.zero_grad()
    loss = 0.0
    for task in range(TASKS):
        weights = list(model.parameters())
        for _ in range(INNER):
            slopes = torch.autograd.grad(F.mse_loss(apply(weights, x[task]), y[task]), weights, create_graph=True)
            weights = [weight - RATE * slope for weight, slope in zip(weights, slopes)]
        loss = loss + F.mse_loss(apply(weights, x_test[task]), y_test[task])
    loss.backward()
    optimizer.step()
    return loss


if run.captured:
    step = overdrive.capture(step, optimizer=optimizer)  # overdrive
elif run.compiled:
    step = torch.compile(step)
step = run.timed(step)
for _ in range(1600):
    height, phase = 0.1 + 5 * torch.rand(TASKS, 1, 1), 3 * torch.rand(TASKS, 1, 1)
    points, tests = 10 * torch.rand(TASKS, 10, 1) - 5, 10 * torch.rand(TASKS, 10, 1) - 5
    step(points, height * (points + phase).sin(), tests, height * (tests + phase).sin())
run.done(model)
