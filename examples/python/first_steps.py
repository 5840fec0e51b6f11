"""The package in five cells. An editor or Jupyter runs them one by one."""
# %% [markdown]
# # First steps with Overdrive
# One line switches the process. Everything after it is the program as it was.

# %%
import torch
from torch import nn

import overdrive

overdrive.install()

# %% A model and a step, as anywhere
model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x = torch.randn(256, 32)
y = x[:, :4].sin().sum(1, keepdim=True)


def step():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


print("loss", step().item())

# %% What did it do?
stats = overdrive.stats()
print(f"{stats['backwards']} backwards with {stats['nodes']} nodes on Overdrive; on stock: {stats['forwarded'] or 'none'}")

# %% Are the bits those of stock, and is it worth it? Everything is put back afterwards.
print(overdrive.compare(step, steps=10, rounds=5))

# %% Less memory between forward and backward: 8 bits for what is saved
with overdrive.saved_tensors(overdrive.quantise(block=64)):
    loss = nn.functional.mse_loss(model(x), y)
loss.backward()
print("loss under quantise", loss.item())
