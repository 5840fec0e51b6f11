"""DeepXDE: a net that solves Burgers' equation."""
import os

os.environ["DDE_BACKEND"] = "pytorch"
import deepxde as dde  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from recipe import Recipe  # noqa: E402

import overdrive  # noqa: E402

run = Recipe(__doc__)
dde.config.set_random_seed(0)
torch.set_num_threads(1)


def residual(x, u):
    du_x, du_t = dde.grad.jacobian(u, x, j=0), dde.grad.jacobian(u, x, j=1)
    return du_t + u * du_x - 0.01 / np.pi * dde.grad.hessian(u, x, i=0, j=0)


domain = dde.geometry.GeometryXTime(dde.geometry.Interval(-1, 1), dde.geometry.TimeDomain(0, 1))
edges = dde.icbc.DirichletBC(domain, lambda x: 0, lambda _, on: on)
begin = dde.icbc.IC(domain, lambda x: -np.sin(np.pi * x[:, 0:1]), lambda _, on: on)
data = dde.data.TimePDE(domain, residual, [edges, begin], num_domain=200, num_boundary=40, num_initial=40)
model = dde.Model(data, dde.nn.FNN([2, 32, 32, 32, 1], "tanh", "Glorot normal"))
model.compile("adam", lr=1e-3)
if run.captured:
    overdrive.integrations.deepxde.captured(model)  # overdrive
model.train_step = run.timed(model.train_step)
model.train(iterations=3000, display_every=10000, verbose=0)
run.done(model.net)
