"""PyTorch Ignite: an Engine with a running average of its loss."""
import torch
from ignite.engine import Engine
from ignite.metrics import RunningAverage
from recipe import Recipe
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import overdrive

run = Recipe(__doc__)
net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
inputs = torch.randn(2048, 16)
loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True).sin()), batch_size=32, shuffle=True)
model = torch.compile(net) if run.compiled else net


def update(x, y):
    net.train()
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


if run.captured:
    update = overdrive.capture(update, optimizer=optimizer)  # overdrive
update = run.timed(update)
trainer = Engine(lambda engine, batch: update(*batch).item())
RunningAverage(output_transform=lambda loss: loss).attach(trainer, "loss")
trainer.run(loader, max_epochs=180)
run.done(net, torch.tensor(trainer.state.metrics["loss"]))
