"""Second derivatives: force matching, a SchNet-like net of small molecules."""
import torch
from recipe import Recipe
from torch import nn

import overdrive

run = Recipe(__doc__)
MOLECULES, ATOMS, WIDTH = 8, 6, 32


class Energy(nn.Module):
    """Atoms exchange messages that filters of their distances weigh."""

    def __init__(self, blocks=2, waves=16):
        super().__init__()
        self.kinds = nn.Embedding(4, WIDTH)
        self.register_buffer("centres", torch.linspace(0.5, 5, waves))
        self.filters = nn.ModuleList(nn.Sequential(nn.Linear(waves, WIDTH), nn.Softplus(), nn.Linear(WIDTH, WIDTH))
                                     for _ in range(blocks))
        self.updates = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Softplus(), nn.Linear(WIDTH, WIDTH))
                                     for _ in range(blocks))
        self.read = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Softplus(), nn.Linear(WIDTH, 1))
        self.register_buffer("others", 1 - torch.eye(ATOMS)[None, :, :, None])

    def forward(self, kinds, places):
        apart = places[:, :, None] - places[:, None]
        distances = (apart.square().sum(-1, keepdim=True) + 1e-6).sqrt()
        waves = torch.exp(-4 * (distances - self.centres).square())
        atoms = self.kinds(kinds)
        for weigh, update in zip(self.filters, self.updates):
            messages = (weigh(waves) * self.others * atoms[:, None]).sum(2)
            atoms = atoms + update(messages)
        return self.read(atoms).sum((1, 2))


model = Energy()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def step(kinds, places, energies, forces):
    optimizer.zero_grad()
    places = places.detach().requires_grad_()
    energy = model(kinds, places)
    force = -torch.autograd.grad(energy.sum(), places, create_graph=True)[0]
    loss = (energy - energies).square().mean() + 10 * (force - forces).square().mean()
    loss.backward()
    optimizer.step()
    return loss


if run.captured:
    step = overdrive.capture(step, optimizer=optimizer)  # overdrive
elif run.compiled:
    model.compile()
step = run.timed(step)
for _ in range(2100):
    places = 2 * torch.randn(MOLECULES, ATOMS, 3)
    step(torch.randint(0, 4, (MOLECULES, ATOMS)), places, places.square().sum((1, 2)), -2 * places)
run.done(model)
