"""snnTorch: a spiking net of leaky neurons, unrolled over 25 time steps, with surrogate gradients."""
import snntorch
import torch
from recipe import Recipe
from snntorch import functional
from torch import nn

import overdrive

run = Recipe(__doc__)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.spikes = nn.Linear(32, 64), snntorch.Leaky(beta=0.95)
        self.last, self.rates = nn.Linear(64, 4), snntorch.Leaky(beta=0.95)

    def forward(self, x):
        if run.captured:
            state, last = torch.zeros(len(x), 64), torch.zeros(len(x), 4)  # overdrive
        else:
            state, last = self.spikes.reset_mem(), self.rates.reset_mem()
        out = []
        for _ in range(25):
            spikes, state = self.spikes(self.first(x), state)
            rates, last = self.rates(self.last(spikes), last)
            out.append(rates)
        return torch.stack(out)


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
loss_of = functional.ce_rate_loss()
model = torch.compile(net) if run.compiled else net


def step(x, classes):
    optimizer.zero_grad()
    loss = loss_of(model(x), classes)
    loss.backward()
    optimizer.step()
    return loss


if run.captured:
    step = overdrive.capture(step, optimizer=optimizer)  # overdrive
step = run.timed(step)
for _ in range(550):
    x = torch.rand(64, 32)
    step(x, x[:, :4].argmax(1))
run.done(net)
