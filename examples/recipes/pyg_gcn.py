"""PyTorch Geometric: a graph convolutional net on one graph."""
import torch
import torch.nn.functional as F
from recipe import Recipe
from torch_geometric.nn import GCNConv

import overdrive

run = Recipe(__doc__)


class GCN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(16, 32), GCNConv(32, 4)

    def forward(self, x, edges):
        x = F.dropout(self.first(x, edges).relu(), training=self.training)
        return self.second(x, edges)


nodes, edges, labels = torch.randn(200, 16), torch.randint(0, 200, (2, 800)), torch.randint(0, 4, (200,))
model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)


def step():
    optimizer.zero_grad()
    F.cross_entropy(model(nodes, edges)[:140], labels[:140]).backward()
    optimizer.step()


if run.captured:
    step = overdrive.capture(step, optimizer=optimizer)  # overdrive
elif run.compiled:
    model.compile()
step = run.timed(step)
for _ in range(6500):
    step()
run.done(model)
