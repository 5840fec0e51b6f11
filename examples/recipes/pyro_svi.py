"""Pyro: a Bayesian regression by stochastic variational inference."""
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal
from recipe import Recipe

import overdrive

run = Recipe(__doc__)
pyro.set_rng_seed(0)
x = torch.randn(100, 3)
y = x @ torch.tensor([1.0, -2.0, 0.5]) + 0.1 * torch.randn(100)


def model(x, y):
    weights = pyro.sample("weights", dist.Normal(torch.zeros(3), torch.ones(3)).to_event(1))
    noise = pyro.sample("noise", dist.LogNormal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(x @ weights, noise), obs=y)


guide = AutoNormal(model)
svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.01}), Trace_ELBO())
if run.captured:
    overdrive.integrations.pyro.captured(svi)  # overdrive
svi.step = run.timed(svi.step)
for _ in range(2500):
    svi.step(x, y)
run.done(guide)
