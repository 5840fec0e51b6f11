"""GPyTorch: an exact Gaussian process."""
import gpytorch
import torch
from recipe import Recipe

import overdrive

run = Recipe(__doc__)


class Process(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


x = torch.linspace(0, 1, 60)
y = torch.sin(6 * x) + 0.1 * torch.randn(60)
likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Process(x, y, likelihood)
model.train()
marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)


def step():
    optimizer.zero_grad()
    loss = -marginal(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


if run.captured:
    step = overdrive.capture(step, optimizer=optimizer)  # overdrive
step = run.timed(step)
for _ in range(3800):
    step()
run.done(model)
