"""PyTorch Metric Learning: embeddings by a contrastive loss of pairs, in a loop of one's own."""
import torch
from pytorch_metric_learning.losses import NTXentLoss
from recipe import Recipe
from torch import nn

import overdrive

run = Recipe(__doc__)
net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
contrast = NTXentLoss(temperature=0.1)
embed = torch.compile(net) if run.compiled else net
# The same pairs in each batch: an image and its augmentation.
labels = torch.arange(32).repeat(2)


def step(images):
    optimizer.zero_grad()
    loss = contrast(embed(images), labels)
    loss.backward()
    optimizer.step()
    return loss


if run.captured:
    step = overdrive.capture(step, optimizer=optimizer)  # overdrive
step = run.timed(step)
for _ in range(1100):
    images = torch.randn(32, 32)
    step(torch.cat([images, images + 0.1 * torch.randn(32, 32)]))
run.done(net)
